/* SPDX-License-Identifier: MIT */
/*
 * Decide which requests use cuFile, and over which route.
 *
 * libcufile silently falls back to copies through host memory, slower than staging here.  So a
 * route, from a device to a file system, is used only after another process has found it direct
 * (cufile_probe()).  That process tells libcufile to refuse its own copies.
 *
 * The probe takes seconds.  The first request that could use the route starts it, and requests are
 * staged until it has answered.  After that, this process compares the first transfers with plain
 * reads, and checks libcufile's counters.  A route that was wrong once is never used again in this
 * process.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/err.h"
#include "base/log.h"
#include "gds/facts/facts.h"
#include "gds/path/check.h"
#include "gds/path/gds.h"
#include "core/queue/cursor.h"
#include "core/queue/object.h"
#include "core/queue/req.h"
#include "core/ways/path.h"
#include "core/ways/plan.h"
#include "core/ways/proof.h"
#include "core/ways/way.h"

#define PROBE_NS (30 * NSEC_PER_SEC) /* time limit of the probing process */
#define TURN_NS (20 * NSEC_PER_SEC) /* time limit of another thread that loads or opens libcufile */
#define HOLES_VERSION 1190          /* first cuFile version whose P2PDMA reads holes */
#define LOOK_PIECES 64u             /* pieces of a request searched for a long one */
/* Bytes at the start of a piece that are checked for residency in the page cache. */
#define LOOK_LEN MIB(1)

static struct {
	pthread_mutex_t lock;
	struct gds_route *list;
} routes = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* -------------------------------------------------------------------- gate */

static int gate_err; /* 0, or the positive errno for which cuFile is never used */

static void find_gate(void)
{
	const char *env = secure_getenv("PST_GDS"), *lib = secure_getenv("PST_LIBCUFILE");

	if (env && strcmp(env, "off") == 0) {
		gate_err = ECANCELED;
	} else if (env && *env && strcmp(env, "auto") != 0 && strcmp(env, "exclusive") != 0) {
		log_warn("PST_GDS=%s is none of off, auto and exclusive, taken for off", env);
		gate_err = ECANCELED;
	} else if (!(lib && *lib) && !gds_kernel_may("")) {
		/* Skip this check if the user names a library: the user wants that library
		 * tried. */
		gate_err = ENODEV;
	}
}

static int gate(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, find_gate);
	return gate_err;
}

bool gds_may(void)
{
	return gate() == 0;
}

/* ------------------------------------------------------------------ routes */

static struct gds_route *route_new(const struct local_file *file, const struct mem_alloc *a)
{
	struct pst_device info = { .sz = sizeof(info) };
	struct gds_route *route = calloc(1, sizeof(*route));

	if (!route)
		return NULL;
	a->ops->device_info(a->device, &info);
	route->device = a->device;
	memcpy(route->uuid, info.uuid, sizeof(route->uuid));
	route->dev = file->dev;
	route->fs_id = file->fs_id;
	route->next = routes.list;
	routes.list = route;
	return route;
}

static struct gds_route *route_of(const struct pst_file *f, const struct pst_mem *m)
{
	const struct local_file *file = local_of(f->file);
	const struct mem_alloc *a = m->region->alloc;
	struct gds_route *route;

	pthread_mutex_lock(&routes.lock);
	for (route = routes.list; route; route = route->next)
		if (route->device == a->device && route->dev == file->dev &&
		    route->fs_id == file->fs_id)
			break;
	if (!route)
		route = route_new(file, a);
	pthread_mutex_unlock(&routes.lock);
	return route;
}

/* ------------------------------------------------------------------ asking */

struct question {
	struct work work;
	struct gds_route *route;
	int fd; /* descriptor of the file */
};

/* Set the route's answer and log it; err is positive, and its sentence has just been set. */
static void gds_answer(struct gds_route *route, enum gds_state state, int err)
{
	if (!gds_route_answer(route, state, err, now_ns()))
		return;
	if (state == GDS_GOOD)
		log_info("files of %u:%u and device %u have a direct way by cuFile: %s",
			 major(route->dev), minor(route->dev), route->device,
			 cufile_mode_name((enum cufile_mode)route->mode));
	else
		log_info("cuFile is not used between files of %u:%u and device %u%s: %s",
			 major(route->dev), minor(route->dev), route->device,
			 state == GDS_BAD ? "" : " now", err_text());
}

/* Return true if the route is not to blame for the error: cuFile failed to start, or the cause is
 * this one file or other code in the process. */
static bool may_pass(int err)
{
	return err == -EAGAIN || err == -ENOMEM || err == -EMFILE || err == -ENFILE ||
	       err == -EBUSY || err == -EINVAL || err == -EUSERS || err == -EPERM;
}

/* Call fn, and retry while it returns -EBUSY: another route's thread is in the same call, which
 * ends soon or is abandoned. */
static int in_turn(int (*fn)(void))
{
	const struct timespec pause = { .tv_nsec = (long)(10 * NSEC_PER_MSEC) };
	uint64_t until = now_ns() + TURN_NS;
	int r;

	while ((r = fn()) == -EBUSY && now_ns() < until)
		(void)nanosleep(&pause, NULL);
	return r;
}

static void gds_file_freep(struct file **f)
{
	file_free(*f);
}

static int gds_probe(const struct question *q)
{
	_cleanup_(gds_file_freep) struct file *file = NULL;
	struct gds_route *route = q->route;
	struct cufile_verdict v;
	int r = in_turn(cufile_check);

	if (r < 0 || route->mode)
		return r;
	r = local_file_wrap(q->fd, 0, &file);
	if (r == 0)
		r = cufile_probe(local_of(file), 0, route->uuid, now_ns() + PROBE_NS, &v);
	if (r < 0)
		return r;
	if (v.err)
		return err_set(v.err, "%s", v.text);
	if (v.mode <= CUFILE_MODE_COMPAT)
		return err_set(EOPNOTSUPP, "%s", v.text);
	route->mode = (int)v.mode;
	route->no_holes = v.mode == CUFILE_MODE_P2PDMA && v.version < HOLES_VERSION;
	return 0;
}

static void ask_run(struct work *work)
{
	struct question *q = container_of(work, struct question, work);
	int r = gds_probe(q);

	/* Open the driver here, so that no request has to wait for it. */
	if (r == 0)
		r = in_turn(cufile_open);
	gds_answer(q->route, r == 0 ? GDS_GOOD : may_pass(r) ? GDS_UNKNOWN : GDS_BAD, -r);
	closep(&q->fd);
	free(q);
}

/* Reopen the file on a thread, because a hanging file system must not block the caller. */
static int ask_begin(struct gds_route *route, const struct file *file)
{
	_cleanup_(freep) struct question *q = calloc(1, sizeof(*q));
	int r;

	if (!q)
		return err_set(ENOMEM, "out of memory");
	q->route = route;
	q->fd = fcntl(local_of(file)->fd, F_DUPFD_CLOEXEC, 3);
	if (q->fd < 0)
		return err_set(errno, "a file cannot be kept open for cuFile's trial: %s",
			       err_name(errno));
	work_init(&q->work, ask_run);
	r = work_spawn(&q->work, GDS_THREAD, false);
	if (r < 0)
		closep(&q->fd);
	else
		(void)TAKE_PTR(q);
	return r;
}

static void ask_start(struct gds_route *route, const struct file *file)
{
	int r = ask_begin(route, file);

	if (r < 0)
		gds_answer(route, GDS_UNKNOWN, -r);
}

/* Return the positive errno why this file cannot be used for the probe, or 0 if it can. */
static int lacks(const struct pst_file *f)
{
	const struct file *file = plan_reader(f);
	struct file_stamp now;

	if (!file)
		return EBADF;
	return file_stamp(file, &now) == 0 && !now.size ? ENODATA : 0;
}

/* Return the positive errno why the route is not used.  Start a probing thread if one is due. */
static int gds_ask(struct gds_route *route, const struct pst_file *f, int err)
{
	uint64_t now = now_ns();
	int lack = gds_route_may_ask(route, now) ? lacks(f) : 0;

	if (lack || !gds_route_ask(route, now))
		return lack ? lack : err;
	ask_start(route, plan_reader(f));
	err = gds_route_err(route);
	return err ? err : EAGAIN;
}

/* --------------------------------------------------------------------- why */

static enum pst_why gds_is_missing(int err, int *ret_detail)
{
	*ret_detail = err;
	return err ? PST_WHY_NO_GDS : PST_WHY_NONE;
}

/* Return the positive errno why a good route does not serve this file and memory, or 0. */
static int misfit(const struct gds_route *route, const struct pst_file *f, const struct pst_mem *m,
		  enum proof_dir dir)
{
	const struct gds_mem *gm;

	if (!plan_reader(f) && !route->good[dir])
		return EBADF;
	if (gds_file_err(f))
		return gds_file_err(f);
	if (route->no_holes && dir == PROOF_READ && local_file_has_holes(local_of(f->file)))
		return EMEDIUMTYPE;
	gm = gds_mem_of(m->region);
	return gm ? gm->err : ENOMEM;
}

/*
 * Return the reason why cuFile is not used.  Set *ret_route if there might be a route.  The first
 * caller for a route starts the thread that probes it.
 */
static enum pst_why find_route(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			       struct gds_route **ret_route, int *ret_detail)
{
	enum proof_dir dir = op == PST_OP_WRITE ? PROOF_WRITE : PROOF_READ;
	struct gds_route *route;
	int err;

	if (mem_ops_of(m)->kind != PST_KIND_CUDA)
		return PST_WHY_NO_DEVICE;
	if (gate())
		return gds_is_missing(gate(), ret_detail);
	if (!file_local(f->file))
		return PST_WHY_NO_PROVIDER;
	if (!(f->file->caps & FILE_DIRECT)) {
		*ret_detail = f->file->detail;
		return PST_WHY_NO_DIRECT;
	}
	route = route_of(f, m);
	if (!route)
		return gds_is_missing(ENOMEM, ret_detail);
	*ret_route = route;
	err = gds_route_err(route);
	if (err)
		return gds_is_missing(gds_ask(route, f, err), ret_detail);
	return gds_is_missing(misfit(route, f, m, dir), ret_detail);
}

static enum pst_why gds_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			    int *ret_detail)
{
	struct gds_route *route;

	return find_route(f, m, op, &route, ret_detail);
}

static bool gds_proven(const struct pst_file *f, const struct pst_mem *m, uint32_t op)
{
	struct gds_route *route = NULL;
	int detail;

	return find_route(f, m, op, &route, &detail) == PST_WHY_NONE &&
	       route->good[op == PST_OP_WRITE ? PROOF_WRITE : PROOF_READ];
}

/* ------------------------------------------------------------------ choice */

/* Return the next long piece among *left pieces; false if there is none. */
static bool next_long(struct cursor *c, unsigned *left, struct piece *ret)
{
	while (*left && cursor_peek(c, ret)) {
		--*left;
		cursor_skip(c, ret->len);
		if (ret->len >= GDS_MIN)
			return true;
	}
	return false;
}

/* Return true if cuFile would be the better path, assuming a direct route. */
static bool worth_it(const struct req *r)
{
	struct cursor c = r->cur;
	unsigned left = LOOK_PIECES;
	struct piece pc;

	return !req_plan(r)->from && !(req_file(r)->flags & PST_FILE_PLAIN) &&
	       next_long(&c, &left, &pc);
}

/* Return true if the start of the piece is not resident.  Resident bytes come faster from the page
 * cache. */
static bool is_cold(const struct req *r, const struct piece *pc)
{
	return r->io.op == PST_OP_WRITE ||
	       file_resident(req_file(r), pc->file_off, MIN(pc->len, LOOK_LEN)) <= 0;
}

static void gds_take(struct req *r, struct gds_route *route)
{
	req_plan(r)->pieces_by = route;
	req_plan(r)->pieces = &gds_pieces;
}

/* Decide by the first long piece that cuFile could move; the route is usable. */
static void take_if_better(struct req *r, struct gds_route *route)
{
	struct piece pc, odd = { .len = 0 };
	struct cursor c = r->cur;
	unsigned left = LOOK_PIECES;
	uint64_t skip;

	while (next_long(&c, &left, &pc)) {
		if (gds_fit(r, &pc, &skip)) {
			if (is_cold(r, &pc))
				gds_take(r, route);
			return;
		}
		if (!odd.len && gds_only_odd(r, &pc))
			odd = pc;
	}
	if (odd.len && is_cold(r, &odd))
		req_reason(r, PST_WHY_UNALIGNED, (int)gds_unit(r));
}

/*
 * Return the request's flags that cuFile cannot serve.  A waiting stream may block driver calls,
 * and cuFile makes such calls.
 */
static uint32_t not_served(const struct req *r)
{
	return r->io.flags & PST_IO_STREAM_WAIT;
}

/* Return true if every piece begins and ends at a boundary that cuFile accepts. */
static bool fits_wholly(const struct req *r)
{
	struct cursor c = r->cur;
	struct piece pc;
	uint64_t skip, n;

	while (cursor_peek(&c, &pc)) {
		n = gds_fit(r, &pc, &skip);
		if (!n || skip)
			return false;
		cursor_skip(&c, n);
	}
	return true;
}

static int gds_refuse(struct req *r, uint32_t why, int detail)
{
	char text[256];

	req_reason(r, why, detail);
	return err_set(EOPNOTSUPP, "the path gds was listed: %s",
		       pst_why_text(why, detail, text, sizeof(text)));
}

static int gds_choose_listed(struct req *r)
{
	bool only = !req_plan(r)->staged || (r->io.flags & PST_IO_STRICT);
	struct gds_route *route = NULL;
	enum pst_why why;
	int detail = (int)not_served(r);

	why = detail ? PST_WHY_NO_PROVIDER
		     : find_route(r->io.file, req_mem(r), r->io.op, &route, &detail);
	if (why == PST_WHY_NONE && !fits_wholly(r)) {
		if (only)
			return gds_refuse(r, PST_WHY_UNALIGNED, (int)gds_unit(r));
		req_reason(r, PST_WHY_UNALIGNED, (int)gds_unit(r));
	}
	if (req_plan(r)->unaligned) {
		req_plan(r)->dev = PST_PATH_STAGED;
		return 0;
	}
	if (why == PST_WHY_NONE) {
		gds_take(r, route);
		return 0;
	}
	if (only)
		return gds_refuse(r, why, detail);
	req_reason(r, why, detail);
	req_plan(r)->dev = PST_PATH_STAGED;
	return 0;
}

static int gds_choose(struct req *r)
{
	struct gds_route *route = NULL;
	enum pst_why why;
	int detail = 0;

	if (!req_plan(r)->dev)
		return 0;
	if (req_plan(r)->dev == PST_PATH_GDS)
		return gds_choose_listed(r);
	if (r->io.policy || mem_ops_of(req_mem(r))->kind != PST_KIND_CUDA || gate() ||
	    not_served(r) || req_plan(r)->unaligned || !path_direct.wanted(r) || !worth_it(r))
		return 0;
	why = find_route(r->io.file, req_mem(r), r->io.op, &route, &detail);
	if (why == PST_WHY_NONE)
		take_if_better(r, route);
	else if (route && gds_route_err(route) == 0)
		req_reason(r, why,
			   detail); /* the route is good, but does not serve this file and memory */
	return 0;
}

/* Probe and prove routes by reading. */
static int gds_file_begin(struct pst_file *f, bool *ret_reader)
{
	if (!(f->file->flags & PST_FILE_READ) && (f->file->caps & FILE_DIRECT) && gds_may())
		*ret_reader = true;
	return 0;
}

static bool gds_varies(const struct req *r)
{
	(void)r;
	return true; /* the verdict may arrive at any time */
}

const struct path_ops path_gds = {
	.path = PST_PATH_GDS,
	.by = &req_by_engine,
	.why = gds_why,
	.varies = gds_varies,
	.choose = gds_choose,
	.proven = gds_proven,
	.topic = &gds_topic,
	.file_begin = gds_file_begin,
	.file_end = gds_file_end,
	.region_end = gds_region_end,
};
