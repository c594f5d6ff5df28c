/* SPDX-License-Identifier: MIT */
/*
 * Transfers by cuFile.
 *
 * gds_fit() cuts a piece to what one registration covers, and a spawned thread moves it.  Until the
 * route is proven, the thread compares all bytes of each transfer with a plain read, so transfers
 * are short until then.
 *
 * Before a read, the kernel writes back dirty pages of the range: not every direct route looks into
 * the page cache.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "gds/path/gds.h"
#include "core/carry/transfer.h"
#include "core/queue/cursor.h"
#include "core/queue/object.h"
#include "core/queue/req.h"
#include "core/ways/plan.h"
#include "core/ways/proof.h"
#include "core/ways/trial.h"
#include "core/ways/way.h"

#define COUNTS_VERSION 1160

/* One transfer. */
struct gds_job {
	struct transfer t; /* must be the first member */
	struct work work;
	struct list link; /* on the list of the job's device, oldest first */
	struct gds_route *route;
	struct gds_mem *gm;
	uint64_t slice_end; /* end of the slice in the allocation; identifies the registration */
	uint64_t start;
	uint64_t hung_at; /* now_ns() after which the job counts as hung; under gds's lock */
};

/* Taken inside an engine's lock by gds_start() and gds_stopped(). */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct device {
	struct list running; /* transfers in flight; all zero: there was none yet */
	uint64_t last_done;
} devices[CUFILE_DEVICES];

/* ------------------------------------------------------------------ pieces */

uint64_t gds_unit(const struct req *r)
{
	return MAX((uint64_t)CUFILE_ALIGN, (uint64_t)req_file(r)->off_align);
}

bool gds_only_odd(const struct req *r, const struct piece *pc)
{
	const struct pst_mem *m = req_mem(r);
	uint64_t va = m->region->alloc->base.va + m->off + pc->mem_off;
	uint64_t skip = align_up(pc->file_off, gds_unit(r)) - pc->file_off;

	return ((va ^ pc->file_off) & (gds_unit(r) - 1)) && pc->len >= skip + GDS_MIN;
}

/* Accept short pieces too if the caller's policy lists this path. */
static uint64_t shortest(const struct req *r)
{
	return req_plan(r)->dev == PST_PATH_GDS ? gds_unit(r) : GDS_MIN;
}

uint64_t gds_fit(const struct req *r, const struct piece *pc, uint64_t *ret_skip)
{
	const struct pst_mem *m = req_mem(r);
	const struct gds_mem *gm = gds_mem_get(m->region);
	uint64_t base = m->off + pc->mem_off, va = m->region->alloc->base.va + base;
	uint64_t skip = align_up(pc->file_off, gds_unit(r)) - pc->file_off;

	/* Only the tail of one registration and the head of the next can be too short. */
	for (unsigned i = 0; i < 3 && skip < pc->len; i++) {
		uint64_t n = MIN(cufile_mem_room(gm->cm, base + skip), pc->len - skip);

		n = align_down(n, gds_unit(r));
		if (n >= shortest(r)) {
			*ret_skip = skip;
			return n;
		}
		skip = align_up(va + skip + 1, CUFILE_GRAIN) - va;
		if ((pc->file_off + skip) & (gds_unit(r) - 1))
			return 0;
	}
	return 0;
}

/* ----------------------------------------------------------------- compare */

static int move_again(struct gds_job *j, struct cufile_file *cf);

/*
 * Compare the transfer's bytes in memory with those in the file, at most PROOF_MAX.  If they
 * differ, repeat the transfer and compare again, up to TRIALS times (core/ways/trial.h).  Return 1
 * if the bytes are equal at once; 0 if they differ each time although the file did not change;
 * -EAGAIN if a repeat made them equal, the file changed, or no verdict is possible; another -errno
 * if the bytes cannot be read.  buf holds 3 * PROOF_MAX bytes.
 */
static int same_bytes(struct gds_job *j, struct cufile_file *cf, char *buf)
{
	char *mem = buf, *plain = buf + PROOF_MAX, *seen = buf + 2 * PROOF_MAX;
	const struct pst_mem *m = req_mem(j->t.req);
	const struct file *file = plan_reader(j->t.req->io.file);
	uint64_t len = MIN(j->t.got, PROOF_MAX);
	struct file_stamp stamp;
	int r = 0;

	for (unsigned i = 0;; i++) {
		if (i)
			r = move_again(j, cf);
		if (r == 0 && (i == 0 || j->t.req->io.op == PST_OP_WRITE))
			r = file_stamp(file, &stamp);
		if (r == 0)
			r = mem_copy_sync(m->region->alloc, MEM_FROM_DEVICE,
					  m->off + j->t.pc.mem_off, mem, len);
		if (r < 0 || file_peek(file, plain, j->t.pc.file_off, len) != (int64_t)len)
			return r < 0 ? r : -EIO;
		if (memcmp(mem, plain, len) == 0)
			return i ? -EAGAIN : 1;
		if (i && (memcmp(plain, seen, len) != 0 || !file_still(file, &stamp)))
			return -EAGAIN;
		if (i == TRIALS)
			return 0;
		if (!j->t.req->can_judge || file->caps & FILE_STALE)
			return -EAGAIN;
		memcpy(seen, plain, len);
	}
}

static void job_failed(struct gds_job *j, uint32_t why, int detail)
{
	j->t.got = 0;
	j->t.why = why;
	j->t.detail = detail;
}

static enum proof_dir move_direction(const struct gds_job *j)
{
	return j->t.req->io.op == PST_OP_WRITE ? PROOF_WRITE : PROOF_READ;
}

/* The bytes that an unproven transfer replaces: in memory for a read, in the file for a write. */
struct old_bytes {
	char *buf;   /* NULL: not known */
	int64_t len; /* bytes in buf; fewer than the transfer's at the end of the file */
};

static void old_bytes_free(struct old_bytes *o)
{
	free(o->buf);
}

static struct old_bytes old_bytes_of(const struct gds_job *j)
{
	const struct pst_mem *m = req_mem(j->t.req);
	uint64_t len = MIN(j->t.pc.len, PROOF_MAX);
	struct old_bytes o = { .buf = malloc(len), .len = (int64_t)len };

	if (!o.buf)
		return o;
	if (j->t.req->io.op == PST_OP_WRITE)
		o.len = file_peek(plan_reader(j->t.req->io.file), o.buf, j->t.pc.file_off, len);
	else if (mem_copy_sync(m->region->alloc, MEM_FROM_DEVICE, m->off + j->t.pc.mem_off, o.buf,
			       len) < 0)
		o.len = -1;
	if (o.len < 0)
		free(TAKE_PTR(o.buf));
	return o;
}

/*
 * Return true if the transfer certainly moved bytes.  If the destination held the right bytes
 * before, a library that moves nothing passes the comparison too.
 */
static bool has_changed(const struct gds_job *j, const struct old_bytes *old, const char *new)
{
	uint64_t len = MIN(j->t.got, PROOF_MAX);

	return old->buf && ((uint64_t)old->len < len || memcmp(old->buf, new, len) != 0);
}

/*
 * Compare the bytes that were moved.  If they differ, or cannot be compared, fail the transfer.  If
 * they are equal but equal to the old bytes, too, accept the transfer without counting it as a
 * proof.
 */
static void job_prove(struct gds_job *j, struct cufile_file *cf, const struct old_bytes *old)
{
	_cleanup_(freep) char *buf = malloc(3 * PROOF_MAX);
	enum proof_dir dir = move_direction(j);
	int r = buf ? same_bytes(j, cf, buf) : -ENOMEM;

	if (r > 0) {
		if (!has_changed(j, old, buf))
			return;
		j->t.flags |= PST_DONE_PROOF;
		if (!atomic_exchange(&j->route->good[dir], true))
			log_debug("proven: cuFile %s", dir == PROOF_READ ? "reads" : "writes");
		return;
	}
	job_failed(j, r == 0 ? PST_WHY_NO_GDS : PST_WHY_NOT_PROVEN, r == 0 ? EILSEQ : 0);
	if (r == 0)
		gds_disable(j->route, EILSEQ);
}

/* ---------------------------------------------------------------- transfer */

struct call {
	struct cufile_io io;
	int64_t res;
};

static int move_call_run(void *arg)
{
	struct call *c = arg;

	c->res = cufile_io(&c->io);
	return 0;
}

/*
 * Write dirty pages of the range to the disk.  The kernel reports a failed write back once per open
 * file description.  So open another description: the file's own, which the program may share,
 * still reports the error to its next fsync().
 */
static int move_flush(const struct file *file, uint64_t off, uint64_t len)
{
	const unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
			     SYNC_FILE_RANGE_WAIT_AFTER;
	_cleanup_(closep) int own = -1;
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", local_of(file)->fd);
	own = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (own < 0 || sync_file_range(own, (off_t)off, (off_t)len, all) < 0)
		return err_set(errno,
			       "what the page cache has of the file cannot be written back "
			       "before cuFile reads it: %s",
			       err_name(errno));
	return 0;
}

static int64_t move_transfer(struct gds_job *j, struct cufile_file *cf)
{
	const struct pst_mem *m = req_mem(j->t.req);
	bool write = j->t.req->io.op == PST_OP_WRITE;
	struct call c = {
		.io = { .file = cf,
			.mem = j->gm->cm,
			.mem_off = m->off + j->t.pc.mem_off,
			.file_off = j->t.pc.file_off,
			.len = j->t.pc.len },
	};
	int r = mem_alive(m->region->alloc);

	if (write)
		c.io.flags |= CUFILE_IO_WRITE;
	if (j->route->mode != CUFILE_MODE_NVFS)
		c.io.flags |= CUFILE_IO_SHARE;
	if (r == 0)
		r = mem_within(m->region->alloc, move_call_run, &c);
	return r < 0 ? r : c.res;
}

/* Move the same bytes again.  Return 0 or -errno. */
static int move_again(struct gds_job *j, struct cufile_file *cf)
{
	const struct file *file = req_file(j->t.req);
	bool write = j->t.req->io.op == PST_OP_WRITE;
	int64_t n = 0;

	if (write && !writers_direct(file->writers))
		return -EAGAIN;
	if (!write)
		n = move_flush(file, j->t.pc.file_off, j->t.pc.len);
	if (n == 0)
		n = move_transfer(j, cf);
	if (write)
		writers_direct_done(file->writers);
	if (n < 0)
		return (int)n;
	return (uint64_t)n == j->t.got ? 0 : -EAGAIN;
}

/*
 * Read libcufile's counters.  Return false if libcufile does not count and must not be told to:
 * before 1.16, a process that counts cannot exit safely, so strict mode has to suffice.
 */
static bool read_counts(const struct gds_job *j, struct cufile_counts *ret)
{
	struct cufile_info info;

	cufile_info(&info);
	return (!info.strict || info.version >= COUNTS_VERSION) &&
	       cufile_counts(j->route->uuid, j->t.req->io.op == PST_OP_WRITE, ret) == 0;
}

/* Return true if the library copied through host memory despite the probe. */
static bool was_compat(const struct gds_job *j, const struct cufile_counts *before)
{
	struct cufile_counts after;

	return read_counts(j, &after) && cufile_mode(before, &after) == CUFILE_MODE_COMPAT;
}

/* Apply a piece's error to its memory and its route. */
static void blame(struct gds_job *j, int err)
{
	switch (err) {
	case EAGAIN:
	case ENOBUFS:
	case ENOMEM:
	case EBUSY:
		return; /* temporary */
	default:
		if (err == EOPNOTSUPP && cufile_mem_refused(j->gm->cm))
			atomic_store(&j->gm->err, err); /* cuFile refuses this memory */
		else if (atomic_fetch_add(&j->route->failures, 1) + 1 >= GDS_FAILURES_MAX)
			gds_disable(j->route, err);
	}
}

/* Return true if a transfer ended at the end of the file, either its current or its earlier size,
 * because files grow.  Only the end of the file may make a transfer short. */
static bool move_is_end(const struct gds_job *j, uint64_t got, uint64_t before)
{
	uint64_t end = j->t.pc.file_off + got, size;

	return j->t.req->io.op == PST_OP_READ && file_size(req_file(j->t.req), &size) == 0 &&
	       (end >= size || end >= before);
}

/* Return true if the caller should retry: another thread is registering the same file or memory,
 * which ends soon unless it hangs. */
static bool soon(const struct gds_job *j, int64_t err)
{
	struct timespec pause = { .tv_nsec = 100000 };

	if (err != -EAGAIN || now_ns() > j->start + GDS_SOON_NS)
		return false;
	(void)nanosleep(&pause, NULL);
	return true;
}

static void job_move(struct gds_job *j)
{
	bool write = j->t.req->io.op == PST_OP_WRITE;
	bool fresh = false, unproven, counted;
	struct cufile_counts before;
	_cleanup_(old_bytes_free) struct old_bytes old = { .buf = NULL };
	uint64_t before_size = UINT64_MAX;
	struct cufile_file *cf;
	int64_t n;

	do
		n = gds_file_of(j->t.req->io.file, &cf, &fresh);
	while (soon(j, n));
	if (n == 0 && j->t.req->io.op == PST_OP_READ) {
		(void)file_size(req_file(j->t.req), &before_size);
		n = move_flush(req_file(j->t.req), j->t.pc.file_off, j->t.pc.len);
		if (n < 0)
			gds_file_failed(j->t.req->io.file, (int)n);
	}
	if (n < 0) {
		job_failed(j, PST_WHY_NO_GDS, (int)-n);
		return;
	}
	while (write && !writers_direct(req_file(j->t.req)->writers)) {
		if (!req_plan(j->t.req)->staged && soon(j, -EAGAIN))
			continue;
		job_failed(j, PST_WHY_MIXED, 0);
		return;
	}
	unproven = !j->route->good[move_direction(j)];
	if (unproven)
		old = old_bytes_of(j);
	counted = (unproven || fresh) && read_counts(j, &before);
	do
		n = move_transfer(j, cf);
	while (soon(j, n));
	if (write)
		writers_direct_done(req_file(j->t.req)->writers);
	if (n >= 0 && (uint64_t)n < j->t.pc.len && !move_is_end(j, (uint64_t)n, before_size))
		n = err_set(EIO, "cuFile moved %" PRIi64 " bytes of %" PRIu64, n, j->t.pc.len);
	if (n < 0) {
		log_debug("a piece is staged: %s", err_text());
		job_failed(j, PST_WHY_NO_GDS, (int)-n);
		blame(j, (int)-n);
		return;
	}
	j->t.got = (uint64_t)n;
	atomic_store(&j->route->failures, 0);
	if (counted && was_compat(j, &before)) {
		job_failed(j, PST_WHY_NO_GDS, EOPNOTSUPP);
		gds_disable(j->route, EOPNOTSUPP);
	} else if (unproven && n) {
		job_prove(j, cf, &old);
	}
}

/* -------------------------------------------------------------------- jobs */

static void job_ended(struct gds_job *j)
{
	pthread_mutex_lock(&lock);
	list_del(&j->link);
	devices[j->route->device].last_done = now_ns();
	pthread_mutex_unlock(&lock);
	transfer_done(&j->t);
}

static void job_run(struct work *w)
{
	struct gds_job *j = container_of(w, struct gds_job, work);

	job_move(j);
	job_ended(j);
}

/* ------------------------------------------------------------------- turns */

/*
 * Decide whether a transfer on this registration may start: 1 if so, 0 to wait, -ETIMEDOUT if it
 * has waited too long.  The lock is held.
 */
static int room(struct device *d, const struct gds_job *new, bool *ret_bad)
{
	unsigned nr = 0, hung = 0;
	uint64_t since = 0;
	bool taken = false;
	struct list *el;

	list_for_each (el, &d->running) {
		const struct gds_job *j = list_entry(el, struct gds_job, link);

		hung += j->hung_at <= new->start;
		nr++;
		if (new->route->mode == CUFILE_MODE_NVFS && j->gm == new->gm &&
		    j->slice_end == new->slice_end) {
			taken = true;
			since = j->start;
		}
	}
	*ret_bad = hung >= GDS_HUNG_MAX;
	if (!taken && !*ret_bad && nr - hung < GDS_THREADS)
		return 1;
	if (!taken)
		since = MAX(d->last_done, list_first(&d->running, struct gds_job, link)->start);
	return new->start > since + GDS_PATIENCE_NS || *ret_bad ? -ETIMEDOUT : 0;
}

/* Start the job.  Return 1 if it runs, room()'s answer if it must not start, -EAGAIN if no thread
 * can be started. */
static int job_begin(struct gds_job *j)
{
	struct device *d = &devices[j->route->device];
	bool bad = false;
	int r;

	pthread_mutex_lock(&lock);
	if (!d->running.next)
		list_init(&d->running);
	r = room(d, j, &bad);
	if (r > 0) {
		list_add_tail(&d->running, &j->link);
		work_init(&j->work, job_run);
		if (work_spawn(&j->work, GDS_THREAD, false) < 0) {
			list_del(&j->link);
			r = -EAGAIN;
		}
	}
	pthread_mutex_unlock(&lock);
	if (bad)
		gds_disable(j->route, ETIMEDOUT);
	return r;
}

static struct gds_job *move_job_new(struct req *r, const struct piece *pc, uint64_t len)
{
	const struct pst_mem *m = req_mem(r);
	struct gds_job *j = calloc(1, sizeof(*j));
	uint64_t off = m->off + pc->mem_off;

	if (!j)
		return NULL;
	list_init(&j->link);
	j->t.req = r;
	j->route = req_plan(r)->pieces_by;
	j->gm = gds_mem_get(m->region);
	j->t.pc = *pc;
	j->t.pc.len = len;
	j->slice_end = off + cufile_mem_room(j->gm->cm, off);
	j->start = now_ns();
	j->hung_at = j->start + GDS_HUNG_NS;
	return j;
}

/* Return the most bytes of one transfer. */
static uint64_t longest(const struct req *r)
{
	const struct gds_route *route = req_plan(r)->pieces_by;

	if (!route->good[r->io.op == PST_OP_WRITE ? PROOF_WRITE : PROOF_READ])
		return PROOF_MAX;
	return route->mode == CUFILE_MODE_NVFS ? CUFILE_SLICE : GDS_CHUNK;
}

static int gds_start(struct req *r, const struct piece *pc, uint64_t len, struct transfer **ret)
{
	int err = -gds_route_err(req_plan(r)->pieces_by);
	struct gds_job *j;

	if (err)
		return err;
	j = move_job_new(r, pc, MIN(len, longest(r)));
	if (!j)
		return -ENOMEM;
	err = job_begin(j);
	if (err <= 0)
		free(j);
	else
		*ret = &j->t;
	return err;
}

static void gds_free(struct transfer *t)
{
	free(container_of(t, struct gds_job, t));
}

static void gds_stopped(const struct req *r)
{
	const struct mem_alloc *a = req_mem(r)->region->alloc;
	uint64_t at = now_ns() + GDS_LOST_NS;
	struct list *el;

	if (a->ops->kind != PST_KIND_CUDA || a->device >= CUFILE_DEVICES)
		return;
	pthread_mutex_lock(&lock);
	if (devices[a->device].running.next)
		list_for_each (el, &devices[a->device].running) {
			struct gds_job *j = list_entry(el, struct gds_job, link);

			if (j->t.req == r)
				j->hung_at = MIN(j->hung_at, at);
		}
	pthread_mutex_unlock(&lock);
}

const struct path_pieces gds_pieces = {
	.path = PST_PATH_GDS,
	.why = PST_WHY_NO_GDS,
	.fit = gds_fit,
	.start = gds_start,
	.stopped = gds_stopped,
	.free = gds_free,
};
