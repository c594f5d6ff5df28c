/* SPDX-License-Identifier: MIT */
/*
 * Device paths defined by this test.  They leave deadlines, cancels, BUSY, drains, staging of
 * pieces that they did not move, and the choice of the next hop to the core.
 */
#include <pthread.h>

#include "rig.h"

#include "base/err.h"
#include "base/fault.h"
#include "core/carry/transfer.h"
#include "core/queue/object.h"
#include "core/queue/req.h"
#include "core/ways/part.h"
#include "core/ways/path.h"
#include "core/ways/region.h"
#include "core/ways/way.h"
#include "file/local.h"

#define PICKY 14u   /* number of a path between a file and host memory */
#define COURIER 13u /* number of a device path */
#define PORTER 15u  /* a device path for the caller's thread */
#define LEN RIG_MIB(1)
#define STEP 16384u
#define SEED 3

/* ------------------------------------------------------------------ a hop */

static uint64_t picky_from; /* the hop does not take bytes before this offset */
/* a failed operation counts as a refusal, so the next hop repeats it; false: the request fails */
static bool picky_refuses;
static atomic_uint picky_ops; /* operations that the hop took */

static enum pst_why picky_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			      int *ret_detail)
{
	(void)f;
	(void)m;
	(void)ret_detail;
	return op == PST_OP_READ ? PST_WHY_NONE : PST_WHY_DIRECTION;
}

/* Take at most STEP bytes at a time, and none before picky_from. */
static enum pst_why picky_fit(struct part *p, int *ret_detail)
{
	if (p->op.off < picky_from) {
		*ret_detail = 77;
		return PST_WHY_NOT_STABLE;
	}
	p->op.len = p->op.len > STEP ? STEP : p->op.len;
	atomic_fetch_add(&picky_ops, 1);
	return PST_WHY_NONE;
}

static void picky_hit(const struct part *p)
{
	T_CHECK(p->op.moved <= STEP);
}

static enum pst_why picky_miss(const struct part *p, int err, int *ret_detail)
{
	(void)p;
	*ret_detail = err;
	return picky_refuses && err ? PST_WHY_DIRECT_ERROR : PST_WHY_NONE;
}

static const struct path_ops picky = {
	.path = PICKY,
	.why = picky_why,
	.fit = picky_fit,
	.hit = picky_hit,
	.miss = picky_miss,
};

/* --------------------------------------------------------- a device path */

enum mood {
	WELL,
	FAILS, /* each transfer fails */
	HANGS, /* each transfer hangs until courier_let_go is set */
	BUSY,  /* the first transfer is busy, later ones work */
	STOPS, /* the second transfer cannot be started */
};

static enum mood mood;
static atomic_uint courier_started, courier_stopped;
static atomic_bool courier_let_go;

struct courier_job {
	struct transfer t; /* must be the first member */
	pthread_t thread;
};

static enum pst_why courier_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
				int *ret_detail)
{
	(void)f;
	(void)ret_detail;
	if (op != PST_OP_READ)
		return PST_WHY_DIRECTION;
	return mem_on_host(m) ? PST_WHY_NO_PROVIDER : PST_WHY_NONE;
}

/* Take only the whole pages of a piece. */
static uint64_t courier_fit(const struct req *r, const struct piece *pc, uint64_t *ret_skip)
{
	uint64_t start = (pc->file_off + 4095) & ~UINT64_C(4095);
	uint64_t end = (pc->file_off + pc->len) & ~UINT64_C(4095);

	(void)r;
	*ret_skip = start - pc->file_off;
	return start < end ? end - start : 0;
}

static void *courier_move(void *arg)
{
	struct courier_job *j = arg;
	const struct pst_mem *m = req_mem(j->t.req);
	char *buf = malloc(j->t.pc.len);
	ssize_t n;

	while (mood == HANGS && !atomic_load(&courier_let_go))
		(void)usleep(1000);
	n = pread(local_of(req_file(j->t.req))->fd, buf, j->t.pc.len, (off_t)j->t.pc.file_off);
	if (mood == FAILS || n < 0 ||
	    mem_copy_sync(m->region->alloc, MEM_TO_DEVICE, m->off + j->t.pc.mem_off, buf,
			  (uint64_t)n) < 0) {
		j->t.why = PST_WHY_NOT_PROVEN;
		j->t.detail = 5;
	}
	j->t.got = (uint64_t)n;
	free(buf);
	(void)pthread_detach(pthread_self());
	transfer_done(&j->t);
	return NULL;
}

static int courier_start(struct req *r, const struct piece *pc, uint64_t len, struct transfer **ret)
{
	struct courier_job *j;

	if (mood == BUSY) {
		mood = WELL;
		return 0;
	}
	if (mood == STOPS && courier_started)
		return -ENETDOWN;
	j = calloc(1, sizeof(*j));
	if (!j)
		return -ENOMEM;
	j->t.req = r;
	j->t.pc = *pc;
	j->t.pc.len = len > STEP ? STEP : len;
	courier_started++;
	if (pthread_create(&j->thread, NULL, courier_move, j) != 0) {
		free(j);
		return -EAGAIN;
	}
	*ret = &j->t;
	return 1;
}

static void courier_stop(const struct req *r)
{
	(void)r;
	courier_stopped++;
}

static void courier_free(struct transfer *t)
{
	free(t); /* frees the whole job, because t is its first member */
}

static const struct path_pieces courier_pieces = {
	.path = COURIER,
	.why = PST_WHY_NO_WINDOW,
	.fit = courier_fit,
	.start = courier_start,
	.stopped = courier_stop,
	.free = courier_free,
};

/* Keep a byte for each file and each allocation.  The path tries this twice, and the second byte is
 * not kept. */
static int courier_choose(struct req *r)
{
	if (req_plan(r)->dev != COURIER)
		return 0;
	req_plan(r)->pieces = &courier_pieces;
	for (unsigned i = 0; i < 2; i++) {
		T_CHECK(path_keep(&r->io.file->by_path[COURIER], malloc(1)));
		T_CHECK(path_keep(&req_mem(r)->region->by_path[COURIER], malloc(1)));
	}
	return 0;
}

static unsigned files_begun, files_ended, regions_ended;
static bool file_is_refused, region_is_kept;
static struct region *kept;

static int courier_file_begin(struct pst_file *f, bool *ret_reader)
{
	T_CHECK(!f->by_path[COURIER]);
	(void)ret_reader;
	files_begun++;
	return file_is_refused ? err_set(ENOMEM, "the courier is full") : 0;
}

static void courier_file_end(struct pst_file *f)
{
	free(f->by_path[COURIER]);
	files_ended++;
}

static void courier_region_end(struct region *r)
{
	if (region_is_kept)
		kept = region_again(r);
	free(r->by_path[COURIER]);
	regions_ended++;
}

static void courier_stats(struct pst_stats *ret)
{
	ret->pages_ns = 1 + regions_ended;
}

static int courier_checks(const struct pst_check_opts *o, struct pst_check *ret)
{
	ret[0] = (struct pst_check){ .sz = sizeof(ret[0]), .err = (int)o->flags };
	return 1;
}

static const struct topic courier_topic = { "courier", courier_checks, PST_CHECK_TRIAL };

static const struct path_ops courier = {
	.path = COURIER,
	.by = &req_by_engine,
	.why = courier_why,
	.choose = courier_choose,
	.file_begin = courier_file_begin,
	.file_end = courier_file_end,
	.region_end = courier_region_end,
	.stats = courier_stats,
	.topic = &courier_topic,
};

/* -------------------------------------- a device path of the caller's thread */

#define PORTER_ROOM 5000u /* contiguous bytes that the path reaches */

static char porter_buf[4 * PORTER_ROOM]; /* what the CPU sees of the device memory */
static uint64_t porter_none;             /* first byte that the path cannot reach; 0: none */
static unsigned porter_held, porter_put;

static enum pst_why porter_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			       int *ret_detail)
{
	(void)f;
	(void)op;
	(void)ret_detail;
	return mem_on_host(m) ? PST_WHY_NO_PROVIDER : PST_WHY_NONE;
}

static void porter_plan(const struct req *r, struct plan *p, uint32_t listed)
{
	(void)r;
	(void)listed;
	p->restage = p->dev == PORTER && p->staged;
}

static void porter_let_go(const struct holder *by, struct hold *h)
{
	(void)by;
	free(h);
	porter_put++;
}

static char *porter_reach(struct req *r, struct piece *pc, struct hold **ret_hold)
{
	if (porter_none && pc->mem_off + PORTER_ROOM > porter_none) {
		req_reason(r, PST_WHY_NO_WINDOW, 7);
		return NULL;
	}
	*ret_hold = malloc(sizeof(**ret_hold));
	T_CHECK(*ret_hold);
	(*ret_hold)->put = porter_let_go;
	porter_held++;
	pc->len = pc->len < PORTER_ROOM ? pc->len : PORTER_ROOM;
	return porter_buf + pc->mem_off;
}

static const struct path_ops porter = {
	.path = PORTER,
	.by = &req_by_caller,
	.why = porter_why,
	.plan = porter_plan,
	.reach = porter_reach,
};

/* ---------------------------------------------------------------- the hop */

static struct pst_file *file;

static void prepare(void)
{
	rig_make(rig_path("data"), SEED, LEN);
	file = rig_open(rig_path("data"), RIG_R);
	picky_from = 0;
	picky_refuses = false;
	picky_ops = 0;
	mood = WELL;
	courier_started = courier_stopped = 0;
	atomic_store(&courier_let_go, false);
}

static struct pst_done read_by(struct pst_mem *m, uint64_t off, uint64_t len, uint64_t policy)
{
	struct pst_io io = rig_io(PST_OP_READ, file, m, off, off, len);

	io.policy = policy;
	return rig_do(rig_q, &io);
}

static void hop_in_steps(void)
{
	struct pst_mem *m = rig_alloc("host", LEN);
	struct pst_done d;

	prepare();
	d = read_by(m, 100, LEN - 100, PICKY);
	T_EQ(d.res, LEN - 100);
	T_EQ(d.paths, PST_PATH_BIT(PICKY));
	T_EQ(d.why, PST_WHY_NONE);
	T_EQ(picky_ops, (LEN - 100 + STEP - 1) / STEP);
	T_EQ(rig_mem_differs(m, 100, LEN - 100, SEED, 100), LEN - 100);
	/* A read at the end of the file ends without another operation. */
	picky_ops = 0;
	d = read_by(m, LEN - 100, 100, PICKY);
	T_EQ(d.res, 100);
	T_EQ(picky_ops, 1);
	pst_file_close(file);
	pst_mem_free(m);
}

/* The next listed hop takes what PICKY refuses. */
static void hop_passes_on(void)
{
	const uint64_t both = PICKY | PST_PATH_BUFFERED << 4;
	struct pst_mem *m = rig_alloc("host", LEN);
	struct pst_done d;

	prepare();
	picky_from = LEN;
	d = read_by(m, 0, 8192, both);
	T_EQ(d.res, 8192);
	T_EQ(d.paths, PST_PATH_BIT(PST_PATH_BUFFERED));
	T_EQ(d.why, PST_WHY_NOT_STABLE);
	T_EQ(d.detail, 77);
	T_EQ(picky_ops, 0);
	/* No other hop is listed. */
	d = read_by(m, 0, 8192, PICKY);
	T_EQ(d.res, -EOPNOTSUPP);
	/* A later operation is refused: bytes that have arrived stay. */
	picky_from = 0;
	picky_refuses = true;
	T_OK(fault_set("file.read:2:EINVAL"));
	d = read_by(m, 0, 3 * STEP, both);
	T_OK(fault_set(NULL));
	T_EQ(d.res, 3 * STEP);
	T_EQ(d.paths, PST_PATH_BIT(PICKY) | PST_PATH_BIT(PST_PATH_BUFFERED));
	T_EQ(d.why, PST_WHY_DIRECT_ERROR);
	T_EQ(d.detail, EINVAL);
	T_EQ(picky_ops, 2);
	T_EQ(rig_mem_differs(m, 0, 3 * STEP, SEED, 0), 3 * STEP);
	/* The same failure is an error if the hop does not call it a refusal. */
	picky_refuses = false;
	T_OK(fault_set("file.read:2:EIO"));
	d = read_by(m, 0, 3 * STEP, both);
	T_OK(fault_set(NULL));
	T_EQ(d.res, -EIO);
	T_EQ(d.prefix, STEP);
	/* The hop can fill a staging slot. */
	pst_mem_free(m);
	m = rig_alloc("soft:0", LEN);
	d = read_by(m, 0, LEN, PICKY | PST_PATH_STAGED << 4);
	T_EQ(d.res, LEN);
	T_EQ(d.paths, PST_PATH_BIT(PICKY) | PST_PATH_BIT(PST_PATH_STAGED));
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	pst_file_close(file);
	pst_mem_free(m);
}

/* -------------------------------------------------------- the device path */

#define BOTH (COURIER | PST_PATH_STAGED << 4)

static void courier_moves(void)
{
	struct pst_mem *m = rig_alloc("soft:0", LEN);
	struct pst_done d;

	prepare();
	mood = BUSY;
	d = read_by(m, 100, LEN - 100, BOTH);
	T_EQ(d.res, LEN - 100);
	T_CHECK(d.paths & PST_PATH_BIT(COURIER));
	T_CHECK(d.paths & PST_PATH_BIT(PST_PATH_STAGED)); /* STAGED is for the unaligned start */
	T_EQ(d.why, PST_WHY_NONE);
	T_EQ(courier_started, (LEN - 4096) / STEP + 1);
	T_EQ(rig_mem_differs(m, 100, LEN - 100, SEED, 100), LEN - 100);
	pst_file_close(file);
	pst_mem_free(m);
}

static void courier_fails(void)
{
	struct pst_mem *m = rig_alloc("soft:0", LEN);
	struct pst_done d;

	prepare();
	mood = FAILS;
	d = read_by(m, 0, LEN, BOTH);
	T_EQ(d.res, LEN);
	T_CHECK(!(d.paths & PST_PATH_BIT(COURIER)));
	T_EQ(d.why, PST_WHY_NOT_PROVEN);
	T_EQ(d.detail, 5);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	d = read_by(m, 0, LEN, COURIER);
	T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(d.prefix, 0);

	/* The second transfer cannot be started. */
	mood = STOPS;
	courier_started = 0;
	d = read_by(m, 0, LEN, BOTH);
	T_EQ(d.res, LEN);
	T_EQ(courier_started, 1);
	T_EQ(d.why, PST_WHY_NO_WINDOW);
	T_EQ(d.detail, ENETDOWN);
	T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
	courier_started = 0;
	d = read_by(m, 0, LEN, COURIER);
	T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(d.prefix, STEP);
	pst_file_close(file);
	pst_mem_free(m);
}

/* The path ignores deadlines, but the request ends at its own. */
static void courier_hangs(void)
{
	struct pst_mem *m = rig_alloc("soft:0", LEN);
	struct pst_done d;
	struct pst_io io;

	prepare();
	mood = HANGS;
	for (unsigned by_cancel = 0; by_cancel < 2; by_cancel++) {
		atomic_store(&courier_let_go, false);
		courier_stopped = 0;
		io = rig_io(PST_OP_READ, file, m, 0, 0, STEP);
		io.policy = BOTH;
		io.user_data = 9;
		if (!by_cancel)
			io.deadline_ns = now_ns() + NSEC_PER_SEC;
		courier_started = 0;
		T_OK(pst_queue_prep(rig_q, &io));
		T_EQ(pst_queue_submit(rig_q), 1);
		while (!courier_started)
			(void)usleep(1000);
		if (by_cancel)
			T_EQ(pst_queue_cancel(rig_q, 9), 1);
		d = rig_reap1(rig_q);
		T_EQ(d.res, by_cancel ? -ECANCELED : -ETIMEDOUT);
		T_CHECK(d.flags & PST_DONE_BUSY);
		T_CHECK(courier_stopped > 0);
		T_EQ(pst_mem_drain(m, now_ns() + NSEC_PER_MSEC), -EBUSY);
		atomic_store(&courier_let_go, true);
		T_OK(pst_mem_drain(m, now_ns() + 10 * NSEC_PER_SEC));
	}
	pst_file_close(file);
	pst_mem_free(m);
}

/* Memory, file and queue are freed while a transfer hangs. */
static void courier_outlives(void)
{
	struct pst_mem *m = rig_alloc("soft:0", LEN);
	struct pst_queue *q = rig_queue(rig_best_backend(), 4);
	struct pst_io io;

	prepare();
	mood = HANGS;
	io = rig_io(PST_OP_READ, file, m, 0, 0, LEN);
	io.policy = COURIER;
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
	pst_mem_free(m);
	pst_file_close(file);
	pst_queue_free(q);
	atomic_store(&courier_let_go, true);
}

/* ------------------------------------------------------ what paths keep */

static void what_is_kept_ends(void)
{
	struct pst_mem *m = rig_alloc("soft:0", LEN);
	char buf[100];

	prepare();
	region_is_kept = true;
	files_ended = regions_ended = 0;
	(void)read_by(m, 0, LEN, BOTH);
	pst_file_close(file);
	T_EQ(files_ended, 1);
	/* Freed memory stays while the path keeps it. */
	T_EQ(regions_ended, 0);
	pst_mem_free(m);
	T_EQ(regions_ended, 1);
	T_OK(mem_copy_sync(kept->alloc, MEM_FROM_DEVICE, 500, buf, sizeof(buf)));
	T_EQ(t_differs(buf, SEED, 500, sizeof(buf)), sizeof(buf));
	region_put(kept);
	T_EQ(regions_ended, 1);
	region_is_kept = false;

	/* Nothing ends if nothing was kept. */
	prepare();
	m = rig_alloc("soft:0", LEN);
	(void)read_by(m, 0, LEN, PST_PATH_STAGED);
	pst_file_close(file);
	pst_mem_free(m);
	T_EQ(files_ended, 1);
	T_EQ(regions_ended, 1);
}

static void files_begin(void)
{
	struct pst_file *f;

	rig_make(rig_path("data"), SEED, LEN);
	files_begun = 0;
	pst_file_close(rig_open(rig_path("data"), RIG_R));
	T_EQ(files_begun, 1);
	file_is_refused = true;
	T_EQ(pst_file_open(rig_path("data"), PST_FILE_READ, NULL, &f), -ENOMEM);
	T_CHECK(strstr(pst_error_text(), "the courier is full"));
	file_is_refused = false;
	T_EQ(files_begun, 2);
}

static void tells_of_itself(void)
{
	struct pst_check_opts o = { .sz = sizeof(o), .flags = PST_CHECK_TRIAL };
	struct pst_check c[2] = { { .sz = sizeof(c[0]) }, { .sz = sizeof(c[0]) } };

	T_EQ(rig_stats(NULL).pages_ns, 1 + regions_ended);
	T_EQ(pst_check("courier", &o, c, 2), 1);
	T_EQ(c[0].err, PST_CHECK_TRIAL);
	T_EQ(pst_check("picky", &o, c, 2), -EOPNOTSUPP);
	T_CHECK(strstr(pst_error_text(), "it has io and rdma and gds and accel and courier"));
}

/* ---------------------------------------------- the path of the caller's thread */

static void porter_moves(void)
{
	const uint64_t policy = PORTER | PST_PATH_BUFFERED << 4;
	struct pst_mem *m = rig_alloc("soft:0", LEN);
	struct pst_done d;

	prepare();
	porter_held = porter_put = 0;
	porter_none = 0;
	d = read_by(m, 100, 3 * PORTER_ROOM, policy);
	T_EQ(d.res, 3 * PORTER_ROOM);
	T_EQ(d.paths, PST_PATH_BIT(PORTER) | PST_PATH_BIT(PST_PATH_BUFFERED));
	T_EQ(d.why, PST_WHY_NONE);
	T_EQ(t_differs(porter_buf + 100, SEED, 100, 3 * PORTER_ROOM), 3 * PORTER_ROOM);
	T_EQ(porter_held, 3);
	T_EQ(porter_put, 3);
	/* A part is not reached, and no other path is listed. */
	porter_none = 2 * PORTER_ROOM;
	d = read_by(m, 0, 3 * PORTER_ROOM, policy);
	T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(d.prefix, 2 * PORTER_ROOM);
	T_EQ(d.why, PST_WHY_NO_WINDOW);
	T_EQ(d.detail, 7);
	T_EQ(porter_put, porter_held);
	/* If STAGED is listed, the engine moves everything. */
	d = read_by(m, 0, 3 * PORTER_ROOM, policy | PST_PATH_STAGED << 8);
	T_EQ(d.res, 3 * PORTER_ROOM);
	T_EQ(d.paths, PST_PATH_BIT(PST_PATH_STAGED) | PST_PATH_BIT(PST_PATH_BUFFERED));
	T_EQ(d.why, PST_WHY_NO_WINDOW);
	T_EQ(rig_mem_differs(m, 0, 3 * PORTER_ROOM, SEED, 0), 3 * PORTER_ROOM);
	T_EQ(porter_put, porter_held);
	pst_file_close(file);
	pst_mem_free(m);
}

static void numbers_are_taken_once(void)
{
	T_EQ(path_add(&picky), -EEXIST);
	T_EQ(path_add(&path_direct), -EEXIST);
	T_EQ(path_hops() & PST_PATH_BIT(PICKY), PST_PATH_BIT(PICKY));
	T_EQ(path_hops() & PST_PATH_BIT(COURIER), 0);
}

int main(void)
{
	rig_init();
	T_OK(path_add(&picky));
	T_OK(path_add(&courier));
	T_OK(path_add(&porter));
	RIG_RUN1(numbers_are_taken_once);
	RIG_RUN_BACKENDS(hop_in_steps);
	RIG_RUN_BACKENDS(hop_passes_on);
	RIG_RUN_SOFT(courier_moves);
	RIG_RUN_SOFT(courier_fails);
	RIG_RUN_SOFT(courier_hangs);
	RIG_RUN_SOFT(courier_outlives);
	RIG_RUN_SOFT(what_is_kept_ends);
	RIG_RUN1(files_begin);
	RIG_RUN1(tells_of_itself);
	RIG_RUN_SOFT(porter_moves);
	return rig_done();
}
