/* SPDX-License-Identifier: MIT */
/* The ways to read, each written for the best performance. */
#include <fcntl.h>

#include "cufile.h"

#define DEEP_BYTES MIB(64) /* bytes in flight per thread, with large blocks */
#define DEEP_MIN 4u

unsigned way_slots(enum way w, uint64_t block)
{
	unsigned most = MAX((unsigned)(DEEP_BYTES / block), DEEP_MIN);

	if (way_is_batch(w))
		return set.batch;
	return w == OURS_DEEP ? MIN(set.depth, most) : 1;
}

static void *at(const struct lane *l)
{
	return (void *)(uintptr_t)l->dev;
}

/* ------------------------------------------------------------------ cuFile */

static int cufile_way_open(void)
{
	bool direct = work.way == CUFILE_DIRECT || work.way == BATCH_DIRECT;
	int r = cufile_load();

	if (r < 0)
		return r;
	if (direct && work.fd_direct < 0)
		return fail(EOPNOTSUPP, "the file takes no O_DIRECT");
	if (way_is_batch(work.way) && (!cuf.cuFileBatchIOSetUp || !cuf.cuFileBatchIOSubmit ||
				       !cuf.cuFileBatchIOGetStatus || !cuf.cuFileBatchIODestroy))
		return fail(EOPNOTSUPP, "this cuFile has no batches");
	return bench_cufile_open(direct ? work.fd_direct : work.fd, &work.handle);
}

static int cufile_init(struct lane *l)
{
	int r = bench_cufile_check(
		cuf.cuFileBufRegister(at(l), align_up(work.slots * work.cell.block, MIB(2)), 0),
		"cuFileBufRegister");

	if (r == 0 && way_is_batch(work.way))
		r = bench_cufile_check(cuf.cuFileBatchIOSetUp(&l->batch, work.slots),
				       "cuFileBatchIOSetUp");
	return r;
}

static int cufile_pass(struct lane *l)
{
	uint64_t now = l->begun, then, off;

	while (lane_take(l, now, &off)) {
		ssize_t n = cuf.cuFileRead(work.handle, at(l), work.cell.block, (off_t)off, 0);

		if (n != (ssize_t)work.cell.block)
			return cufile_read_failed(n, errno, off);
		then = now_ns();
		lane_count(l, 0, off, then - now);
		now = then;
	}
	return 0;
}

static unsigned batch_fill(struct lane *l, uint64_t now, struct cuf_io_params *v)
{
	unsigned nr = 0;

	while (nr < work.slots && lane_take(l, now, &l->moved[nr])) {
		v[nr] = (struct cuf_io_params){
			.mode = CUF_BATCH,
			.batch = { .base = at(l),
				   .file_off = (off_t)l->moved[nr],
				   .base_off = (off_t)(nr * work.cell.block),
				   .len = work.cell.block },
			.file = work.handle,
			.opcode = CUF_READ,
			.cookie = (void *)(uintptr_t)nr,
		};
		nr++;
	}
	return nr;
}

/* Wait for the whole batch. If that takes too long, the parent kills this process. */
static int batch_reap(struct lane *l, uint64_t begun, unsigned left)
{
	struct cuf_io_event ev[SLOTS_MAX];
	int r = 0;

	while (r == 0 && left) {
		struct timespec ts = { .tv_sec = 1 };
		unsigned nr = left;
		uint64_t now;

		r = bench_cufile_check(cuf.cuFileBatchIOGetStatus(l->batch, 1, &nr, ev, &ts),
				       "cuFileBatchIOGetStatus");
		now = now_ns();
		for (unsigned i = 0; r == 0 && i < nr && i < SLOTS_MAX; i++) {
			unsigned slot = (unsigned)(uintptr_t)ev[i].cookie;

			if (ev[i].status == CUF_WAITING || ev[i].status == CUF_PENDING)
				continue;
			if (!left || slot >= work.slots || ev[i].status != CUF_COMPLETE ||
			    ev[i].ret != work.cell.block)
				return fail(EIO,
					    "an entry of a batch ended with status 0x%x and %lld",
					    (unsigned)ev[i].status, (long long)ev[i].ret);
			lane_count(l, slot, l->moved[slot], now - begun);
			left--;
		}
	}
	return r;
}

static int batch_pass(struct lane *l)
{
	struct cuf_io_params v[SLOTS_MAX];
	uint64_t now = l->begun;
	unsigned nr;
	int r = 0;

	while (r == 0 && (nr = batch_fill(l, now, v)) > 0) {
		r = bench_cufile_check(cuf.cuFileBatchIOSubmit(l->batch, nr, v, 0),
				       "cuFileBatchIOSubmit");
		if (r == 0)
			r = batch_reap(l, now, nr);
		now = now_ns();
	}
	return r;
}

/* -------------------------------------------------------------------- ours */

static int ours_open(void)
{
	int r = pst_file_open(set.path, PST_FILE_READ, NULL, &work.file);

	return r < 0 ? fail_pst(r, set.path) : 0;
}

static int ours_init(struct lane *l)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .depth = work.slots };
	int r = pst_mem_wrap(l->dev, work.slots * work.cell.block, NULL, &l->mem);

	if (r < 0)
		return fail_pst(r, "wrapping device memory");
	r = pst_queue_new(&o, &l->queue);
	return r < 0 ? fail_pst(r, "making a queue") : 0;
}

static struct pst_io ours_io(const struct lane *l, unsigned slot, uint64_t off)
{
	return (struct pst_io){ .op = PST_OP_READ,
				.file = work.file,
				.mem = l->mem,
				.file_off = off,
				.mem_off = slot * work.cell.block,
				.len = work.cell.block,
				.user_data = slot };
}

static int ours_start(struct lane *l, unsigned slot, uint64_t off, uint64_t now)
{
	struct pst_io io = ours_io(l, slot, off);
	int r = pst_queue_prep(l->queue, &io);

	l->moved[slot] = off;
	l->since[slot] = now;
	return r < 0 ? fail_pst(r, "preparing a request") : 0;
}

static int ours_end(struct lane *l, const struct pst_done *d, uint64_t now)
{
	unsigned slot = (unsigned)d->user_data;
	struct text t;

	if (d->res != (int64_t)work.cell.block)
		return fail(EIO, "at %llu: %s", (unsigned long long)l->moved[slot],
			    pst_done_text(d, t.s, sizeof(t.s)));
	lane_count(l, slot, l->moved[slot], now - l->since[slot]);
	l->paths |= d->paths;
	whys_add(&l->whys, d->why, d->detail);
	return 0;
}

/* Read one block as pst_read() does: resident bytes are copied without a request. */
static int ours_one(struct lane *l, uint64_t off, uint64_t now, struct pst_done *ret)
{
	struct pst_io io = ours_io(l, 0, off);
	int r = 0;

	l->moved[0] = off;
	l->since[0] = now;
	if (pst_queue_try(l->queue, &io, 1, ret) == 1)
		return 0;
	r = pst_queue_prep(l->queue, &io);
	if (r == 0)
		r = pst_queue_submit(l->queue);
	if (r >= 0)
		r = pst_queue_reap(l->queue, ret, 1, 1, PST_NO_DEADLINE);
	return r < 0 ? fail_pst(r, "reading") : 0;
}

static int ours_one_pass(struct lane *l)
{
	uint64_t now = l->begun, off;
	struct pst_done d;
	int r = 0;

	while (r == 0 && lane_take(l, now, &off)) {
		r = ours_one(l, off, now, &d);
		now = now_ns();
		if (r == 0)
			r = ours_end(l, &d, now);
	}
	return r;
}

/* Keep all slots in flight. */
static int ours_pass(struct lane *l)
{
	struct pst_done d[SLOTS_MAX];
	unsigned idle[SLOTS_MAX], nr = work.slots;
	uint64_t now = l->begun, off;

	if (nr == 1)
		return ours_one_pass(l);
	for (unsigned i = 0; i < nr; i++)
		idle[i] = nr - 1 - i;
	for (;;) {
		int n, r = 0;
		bool more = false;

		while (r == 0 && nr && lane_take(l, now, &off)) {
			r = ours_start(l, idle[--nr], off, now);
			more = true;
		}
		if (r < 0)
			return r;
		if (more && (r = pst_queue_submit(l->queue)) < 0)
			return fail_pst(r, "submitting");
		if (nr == work.slots)
			return 0;
		n = pst_queue_reap(l->queue, d, 1, work.slots, PST_NO_DEADLINE);
		now = now_ns();
		for (int i = 0; i < n; i++) {
			r = ours_end(l, &d[i], now);
			if (r < 0)
				return r;
			idle[nr++] = (unsigned)d[i].user_data;
		}
	}
}

/* ------------------------------------------------------------------- plain */

static int plain_pass(struct lane *l)
{
	int fd = work.cell.cold && work.fd_direct >= 0 ? work.fd_direct : work.fd, r;
	uint64_t now = l->begun, then, off;

	while (lane_take(l, now, &off)) {
		r = pread_all(fd, l->host, work.cell.block, off, set.path);
		if (r == 0)
			r = CU(cuMemcpyHtoDAsync_v2(l->dev, l->host, work.cell.block, l->stream));
		if (r == 0)
			r = CU(cuStreamSynchronize(l->stream));
		if (r < 0)
			return r;
		then = now_ns();
		lane_count(l, 0, off, then - now);
		now = then;
	}
	return 0;
}

/* --------------------------------------------------------------------- all */

int way_open(void)
{
	if (way_is_ours(work.way))
		return ours_open();
	return way_is_cufile(work.way) ? cufile_way_open() : 0;
}

int way_init(struct lane *l)
{
	if (way_is_ours(work.way))
		return ours_init(l);
	return way_is_cufile(work.way) ? cufile_init(l) : 0;
}

int way_pass(struct lane *l)
{
	if (way_is_ours(work.way))
		return ours_pass(l);
	if (way_is_batch(work.way))
		return batch_pass(l);
	return way_is_cufile(work.way) ? cufile_pass(l) : plain_pass(l);
}

void way_done(struct lane *l)
{
	l->queue = pst_queue_free(l->queue);
	l->mem = pst_mem_free(l->mem);
	/* Destroying a batch with entries in flight is not allowed, so keep a failed one. */
	if (l->batch && l->status == DONE)
		cuf.cuFileBatchIODestroy(l->batch);
	if (l->dev && way_is_cufile(work.way))
		(void)cuf.cuFileBufDeregister(at(l));
}
