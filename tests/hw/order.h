/* SPDX-License-Identifier: MIT */
/*
 * Requests that name a stream of the program.  The cases prove by their data that a request
 * comes after the stream's earlier work and before its later work.
 */
#ifndef PST_HW_ORDER_H
#define PST_HW_ORDER_H

#include <stdatomic.h>
#include <sys/mman.h>

#include "hw.h"

#define ORDER_STEPS 24u
#define ORDER_PIECE ((uint64_t)300001)
#define ORDER_BYTES (ORDER_STEPS * ORDER_PIECE)
#define ORDER_SEED 51u /* pattern of the file "order" */
#define ORDER_OLD 52u  /* pattern of memory before a read, or of bytes written */

/* Name the stream in the request; for a read the stream waits for it.  NULL: no stream. */
static inline void order_name(struct pst_io *io, cu_stream st)
{
	io->stream = st;
	if (st && io->op == PST_OP_READ)
		io->flags |= PST_IO_STREAM_WAIT;
}

/* Allocate host memory that the device can access. */
static inline uint8_t *order_host(uint64_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	T_CHECK(p != MAP_FAILED);
	HW_CU(cuMemHostRegister_v2(p, len, CU_REGISTER_PORTABLE | CU_REGISTER_DEVICEMAP));
	return p;
}

static inline void order_host_free(uint8_t *p, uint64_t len)
{
	HW_CU(cuMemHostUnregister(p));
	(void)munmap(p, len);
}

/* Device memory allocated by the program and wrapped by the library. */
struct order_mem {
	cu_ptr ptr;
	struct pst_mem *mem;
};

static inline struct order_mem order_mem_new(uint64_t len)
{
	struct order_mem m = { 0 };

	HW_CU(cuMemAlloc_v2(&m.ptr, len));
	m.mem = hw_wrap(m.ptr, len);
	return m;
}

static inline void order_mem_free(struct order_mem *m)
{
	pst_mem_free(m->mem);
	HW_CU(cuMemFree_v2(m->ptr));
}

/*
 * Work that blocks a stream until order_unblock(), at most t_hang().  Static, because a failed
 * case leaves it running; one at a time.
 */
static struct {
	_Atomic int there, go;
} order_work;

static inline void order_work_fn(void *arg)
{
	uint64_t end = t_hang();

	(void)arg;
	order_work.there = 1;
	while (!order_work.go && t_now() < end)
		(void)usleep(200);
	order_work.there = 0;
}

static inline void order_wait_for(int there)
{
	uint64_t end = t_hang();

	while (order_work.there != there && t_now() < end)
		(void)usleep(100);
	T_EQ(order_work.there, there);
}

static inline void order_unblock(void)
{
	order_work.go = 1;
	order_wait_for(0);
}

static inline void order_block(cu_stream st)
{
	order_unblock();
	order_work.go = 0;
	HW_CU(cuLaunchHostFunc(st, order_work_fn, NULL));
	order_wait_for(1);
}

/* Make the first request for a device.  It starts the library's threads and registers memory,
 * for which a driver may wait until all streams are idle. */
static inline void order_ready(struct pst_queue *q)
{
	struct pst_mem *m = rig_alloc(rig_dev, 4096);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, 4096);

	T_EQ(rig_do(q, &io).res, 4096);
	pst_file_close(f);
	pst_mem_free(m);
}

/* Start one request that names the stream. */
static inline void order_start(struct pst_queue *q, uint32_t op, struct pst_file *f,
			       struct pst_mem *m, uint64_t file_off, uint64_t mem_off, uint64_t len,
			       cu_stream st)
{
	struct pst_io io = rig_io(op, f, m, file_off, mem_off, len);

	order_name(&io, st);
	io.deadline_ns = t_in_ms(RIG_WAIT_MS);
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
}

/*
 * Like order_start(), but the stream does not wait for a read: the request begins when the
 * stream reaches it.
 */
static inline void order_start_behind(struct pst_queue *q, uint32_t op, struct pst_file *f,
				      struct pst_mem *m, uint64_t len, cu_stream st)
{
	struct pst_io io = rig_io(op, f, m, 0, 0, len);

	io.stream = st;
	io.deadline_ns = t_in_ms(RIG_WAIT_MS);
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
}

static inline void order_reap(struct pst_queue *q, unsigned nr, int64_t res)
{
	for (unsigned i = 0; i < nr; i++) {
		struct pst_done d = rig_reap1(q);

		if (d.res != res)
			rig_show(&d);
		T_EQ(d.res, res);
	}
}

/*
 * All pieces of the file are read through one piece of memory, and the stream copies each out.
 * An early read spoils the previous piece, an early copy misses its piece.  No completion is
 * reaped before the stream is idle.
 */
static inline void order_reads(struct pst_queue *q, cu_stream st)
{
	struct order_mem m = order_mem_new(ORDER_PIECE);
	uint8_t *out = order_host(ORDER_BYTES);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);

	order_ready(q);
	rig_mem_fill(m.mem, 0, ORDER_PIECE, ORDER_OLD, 0);
	memset(out, 0, ORDER_BYTES);
	order_block(st);
	for (unsigned i = 0; i < ORDER_STEPS; i++) {
		order_start(q, PST_OP_READ, f, m.mem, i * ORDER_PIECE, 0, ORDER_PIECE, st);
		HW_CU(cuMemcpyDtoHAsync_v2(out + i * ORDER_PIECE, m.ptr, ORDER_PIECE, st));
	}
	order_unblock();
	HW_CU(cuStreamSynchronize(st));
	T_EQ(t_differs(out, ORDER_SEED, 0, ORDER_BYTES), ORDER_BYTES);
	order_reap(q, ORDER_STEPS, ORDER_PIECE);
	pst_file_close(f);
	order_host_free(out, ORDER_BYTES);
	order_mem_free(&m);
}

/* A read must come after the stream's earlier work, which copies the old bytes out. */
static inline void order_read_is_late(struct pst_queue *q, cu_stream st)
{
	struct order_mem m = order_mem_new(ORDER_PIECE);
	uint8_t *old = order_host(ORDER_PIECE);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct pst_done d;

	order_ready(q);
	rig_mem_fill(m.mem, 0, ORDER_PIECE, ORDER_OLD, 0);
	order_block(st);
	HW_CU(cuMemcpyDtoHAsync_v2(old, m.ptr, ORDER_PIECE, st));
	order_start(q, PST_OP_READ, f, m.mem, 0, 0, ORDER_PIECE, st);
	T_EQ(pst_queue_reap(q, &d, 1, 1, t_in_ms(60)), 0);
	order_unblock();
	order_reap(q, 1, ORDER_PIECE);
	HW_CU(cuStreamSynchronize(st));
	T_EQ(t_differs(old, ORDER_OLD, 0, ORDER_PIECE), ORDER_PIECE);
	T_EQ(rig_mem_differs(m.mem, 0, ORDER_PIECE, ORDER_SEED, 0), ORDER_PIECE);
	pst_file_close(f);
	order_host_free(old, ORDER_PIECE);
	order_mem_free(&m);
}

#define ORDER_POOL RIG_MIB(32)

/* Make the pool grow above ORDER_POOL. */
static inline void order_grow(struct pst_queue *q, struct pst_file *f, struct pst_mem *m)
{
	for (unsigned i = 0; i < 16; i++) {
		struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, ORDER_BYTES);

		T_OK(pst_queue_prep(q, &io));
	}
	T_EQ(pst_queue_submit(q), 16);
	order_reap(q, 16, (int64_t)ORDER_BYTES);
}

static inline void order_pool(uint64_t bytes)
{
	struct pst_limits l = { .sz = sizeof(l), .pool_bytes = bytes };

	T_OK(pst_limits_set(&l));
}

/* While a stream waits for a read, the library must neither free nor unpin memory: a driver
 * would wait for all streams and block other calls.  Both must follow after the read. */
static inline void order_frees(struct pst_queue *q, cu_stream st)
{
	struct pst_queue *other = rig_queue(rig_backend, 0);
	struct pst_mem *own = rig_alloc(rig_dev, ORDER_BYTES), *kept = rig_alloc(rig_dev, 4096);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct pst_file *stable = rig_open(rig_path("order"), RIG_R | PST_FILE_STABLE);
	struct order_mem m = order_mem_new(ORDER_PIECE);
	struct pst_io io = rig_io(PST_OP_READ, f, kept, 0, 0, 4096);
	uint64_t pages = rig_stats(NULL).pages_bytes, end;

	order_ready(q);
	order_grow(other, f, own);
	(void)hw_pin(other, stable, own, ORDER_BYTES, ORDER_BYTES);
	order_block(st);
	order_start(q, PST_OP_READ, f, m.mem, 0, 0, ORDER_PIECE, st);
	pst_mem_free(own);
	pst_file_close(stable);
	order_pool(ORDER_POOL);
	(void)usleep(20000); /* time for the library's background work */
	T_EQ(rig_do(other, &io).res, 4096);
	order_unblock();
	HW_CU(cuStreamSynchronize(st));
	order_reap(q, 1, ORDER_PIECE);
	T_EQ(rig_mem_differs(m.mem, 0, ORDER_PIECE, ORDER_SEED, 0), ORDER_PIECE);
	/* Now the memory must be freed. */
	for (end = t_hang();
	     rig_stats(NULL).pool_bytes > ORDER_POOL || rig_stats(NULL).pages_bytes > pages;) {
		T_CHECK(t_now() < end);
		(void)usleep(1000);
	}
	order_pool(0);
	pst_queue_free(other);
	pst_mem_free(kept);
	pst_file_close(f);
	order_mem_free(&m);
}

/* The stream fills the memory late; a write must wait for it. */
static inline void order_writes(struct pst_queue *q, cu_stream st)
{
	struct order_mem m = order_mem_new(ORDER_BYTES);
	uint8_t *in = order_host(ORDER_BYTES);
	struct pst_file *f = rig_open(rig_path("order-written"), RIG_NEW);

	order_ready(q);
	rig_mem_fill(m.mem, 0, ORDER_BYTES, ORDER_SEED, 0);
	t_fill(in, ORDER_OLD, 0, ORDER_BYTES);
	order_block(st);
	for (unsigned i = 0; i < ORDER_STEPS; i++) {
		uint64_t off = i * ORDER_PIECE;

		HW_CU(cuMemcpyHtoDAsync_v2(m.ptr + off, in + off, ORDER_PIECE, st));
		order_start(q, PST_OP_WRITE, f, m.mem, off, off, ORDER_PIECE, st);
	}
	(void)usleep(20000); /* time for a write that wrongly does not wait */
	order_unblock();
	order_reap(q, ORDER_STEPS, ORDER_PIECE);
	T_EQ(rig_slurp(rig_path("order-written"), 0, in, ORDER_BYTES), ORDER_BYTES);
	T_EQ(t_differs(in, ORDER_OLD, 0, ORDER_BYTES), ORDER_BYTES);
	HW_CU(cuStreamSynchronize(st));
	pst_file_close(f);
	order_host_free(in, ORDER_BYTES);
	order_mem_free(&m);
}

/* Reads and writes of one submit share one mark on the stream; none may begin before the stream
 * reaches it. */
static inline void order_together(struct pst_queue *q, cu_stream st)
{
	enum { NR = 8 };
	struct order_mem m = order_mem_new(2 * NR * ORDER_PIECE);
	uint8_t *in = order_host(ORDER_PIECE), *out = order_host(NR * ORDER_PIECE);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);
	struct pst_file *w = rig_open(rig_path("order-written"), RIG_NEW);
	struct pst_io io;

	order_ready(q);
	rig_mem_fill(m.mem, 0, 2 * NR * ORDER_PIECE, 99, 0);
	t_fill(in, ORDER_OLD, 0, ORDER_PIECE);
	order_block(st);
	for (unsigned i = 0; i < NR; i++) {
		HW_CU(cuMemcpyHtoDAsync_v2(m.ptr + (NR + i) * ORDER_PIECE, in, ORDER_PIECE, st));
		io = rig_io(PST_OP_READ, f, m.mem, i * ORDER_PIECE, i * ORDER_PIECE, ORDER_PIECE);
		order_name(&io, st);
		T_OK(pst_queue_prep(q, &io));
		io = rig_io(PST_OP_WRITE, w, m.mem, i * ORDER_PIECE, (NR + i) * ORDER_PIECE,
			    ORDER_PIECE);
		order_name(&io, st);
		T_OK(pst_queue_prep(q, &io));
	}
	T_EQ(pst_queue_submit(q), 2 * NR);
	HW_CU(cuMemcpyDtoHAsync_v2(out, m.ptr, NR * ORDER_PIECE, st));
	order_unblock();
	HW_CU(cuStreamSynchronize(st));
	T_EQ(t_differs(out, ORDER_SEED, 0, NR * ORDER_PIECE), NR * ORDER_PIECE);
	order_reap(q, 2 * NR, ORDER_PIECE);
	for (unsigned i = 0; i < NR; i++) {
		T_EQ(rig_slurp(rig_path("order-written"), i * ORDER_PIECE, out, ORDER_PIECE),
		     ORDER_PIECE);
		T_EQ(t_differs(out, ORDER_OLD, 0, ORDER_PIECE), ORDER_PIECE);
	}
	pst_file_close(f);
	pst_file_close(w);
	order_host_free(in, ORDER_PIECE);
	order_host_free(out, NR * ORDER_PIECE);
	order_mem_free(&m);
}

/* Many reads on an idle stream: the first may complete before the last begins, and the stream's
 * wait must not end then. */
static inline void order_many(cu_stream st)
{
	enum { NR = 1000, EACH = 300 };
	struct pst_queue *q = rig_queue(rig_backend, NR);
	struct order_mem m = order_mem_new(NR * EACH);
	uint8_t *out = order_host(NR * EACH);
	struct pst_file *f = rig_open(rig_path("order"), RIG_R);

	order_ready(q);
	for (unsigned turn = 0; turn < 10; turn++) {
		rig_mem_fill(m.mem, 0, NR * EACH, ORDER_OLD, 0);
		for (unsigned i = 0; i < NR; i++) {
			struct pst_io io = rig_io(PST_OP_READ, f, m.mem, i * EACH, i * EACH, EACH);

			order_name(&io, st);
			T_OK(pst_queue_prep(q, &io));
		}
		T_EQ(pst_queue_submit(q), NR);
		HW_CU(cuMemcpyDtoHAsync_v2(out, m.ptr, NR * EACH, st));
		HW_CU(cuStreamSynchronize(st));
		T_EQ(t_differs(out, ORDER_SEED, 0, NR * EACH), NR * EACH);
		order_reap(q, NR, EACH);
	}
	pst_queue_free(q);
	pst_file_close(f);
	order_host_free(out, NR * EACH);
	order_mem_free(&m);
}

/* A read and a write on a stream of another context than the memory's, each after earlier work
 * of that stream. */
static inline void order_by_foreign_stream(struct pst_queue *q, const struct order_mem *m,
					   struct pst_file *f, struct pst_file *w, cu_stream st)
{
	uint8_t *old = order_host(ORDER_PIECE), *new = order_host(ORDER_PIECE);
	struct pst_done d;

	rig_mem_fill(m->mem, 0, ORDER_PIECE, ORDER_OLD, 0);
	order_block(st);
	HW_CU(cuMemcpyDtoHAsync_v2(old, m->ptr, ORDER_PIECE, st));
	order_start(q, PST_OP_READ, f, m->mem, 0, 0, ORDER_PIECE, st);
	HW_CU(cuMemcpyDtoHAsync_v2(new, m->ptr, ORDER_PIECE, st));
	order_start(q, PST_OP_WRITE, w, m->mem, 0, 0, ORDER_PIECE, st);
	T_EQ(pst_queue_reap(q, &d, 1, 1, t_in_ms(50)), 0);
	order_unblock();
	HW_CU(cuStreamSynchronize(st));
	T_EQ(t_differs(old, ORDER_OLD, 0, ORDER_PIECE), ORDER_PIECE);
	T_EQ(t_differs(new, ORDER_SEED, 0, ORDER_PIECE), ORDER_PIECE);
	order_reap(q, 2, ORDER_PIECE);
	T_EQ(rig_slurp(rig_path("order-written"), 0, new, ORDER_PIECE), ORDER_PIECE);
	T_EQ(t_differs(new, ORDER_SEED, 0, ORDER_PIECE), ORDER_PIECE);
	order_host_free(old, ORDER_PIECE);
	order_host_free(new, ORDER_PIECE);
}

#endif
