/* SPDX-License-Identifier: MIT */
/*
 * cudaDeviceReset() ends everything in the device's context, including what the library made there.
 * The next context has the same handle.  The stub ends a process that uses a stream or an event
 * from before the reset; a real driver may crash.
 */
#include "rig.h"

#include "stub/cuda_stub.h"
#include "symbol.h"

#define LEN (RIG_MIB(5) + 77)
#define SMALL 4096u

/* Driver functions that the program itself calls. */
static struct {
	cu_result (*retain)(cu_ctx *, cu_device);
	cu_result (*release)(cu_device);
	cu_result (*reset)(cu_device);
	cu_result (*push)(cu_ctx);
	cu_result (*pop)(cu_ctx *);
	cu_result (*alloc)(cu_ptr *, size_t);
	cu_result (*stream)(cu_stream *, unsigned);
	cu_result (*stream_wait)(cu_stream);
	void (*state)(struct stub_cuda_state *);
	void (*poison)(int, cu_result);
	bool (*peek)(cu_ptr, void *, size_t);
} app;

static bool find_app(void)
{
	const char *file = getenv("PST_LIBCUDA");
	void *lib = file ? dlopen(file, RTLD_NOW) : NULL;

	if (!lib)
		return false;
	symbol(lib, &app.retain, "cuDevicePrimaryCtxRetain");
	symbol(lib, &app.release, "cuDevicePrimaryCtxRelease_v2");
	symbol(lib, &app.reset, "cuDevicePrimaryCtxReset_v2");
	symbol(lib, &app.push, "cuCtxPushCurrent_v2");
	symbol(lib, &app.pop, "cuCtxPopCurrent_v2");
	symbol(lib, &app.alloc, "cuMemAlloc_v2");
	symbol(lib, &app.stream, "cuStreamCreate");
	symbol(lib, &app.stream_wait, "cuStreamSynchronize");
	symbol(lib, &app.state, "stub_cuda_state");
	symbol(lib, &app.poison, "stub_cuda_poison");
	symbol(lib, &app.peek, "stub_cuda_peek");
	return app.reset && app.peek;
}

/* Allocate as cudaMalloc() does, also as the first call after a reset. */
static cu_ptr app_alloc(uint64_t len)
{
	cu_ctx ctx;
	cu_ptr p;

	T_EQ(app.retain(&ctx, 0), CU_OK);
	T_EQ(app.push(ctx), CU_OK);
	T_EQ(app.alloc(&p, len), CU_OK);
	T_EQ(app.pop(&ctx), CU_OK);
	return p;
}

static struct pst_mem *wrap(cu_ptr p, uint64_t len)
{
	struct pst_mem *m = NULL;

	T_OK(pst_mem_wrap(p, len, NULL, &m));
	return m;
}

static bool has_bytes(cu_ptr p, uint64_t len, uint64_t at)
{
	static uint8_t buf[LEN];

	return app.peek(p, buf, len) && t_differs(buf, 5, at, len) == len;
}

static void reads_all(struct pst_file *f, struct pst_mem *m, cu_ptr p)
{
	static uint32_t small_paths; /* paths of the first small read; the same after a reset */
	struct pst_done d = rig_read(f, m, 0, 0, LEN);

	rig_show(&d);
	T_EQ(d.res, LEN);
	T_CHECK(has_bytes(p, LEN, 0));
	/* The first small reads are staged; later ones use a window. */
	for (unsigned i = 0; i < 8; i++)
		d = rig_read(f, m, 12345, 99, SMALL);
	rig_show(&d);
	T_EQ(d.res, SMALL);
	if (!small_paths)
		small_paths = d.paths;
	T_EQ(d.paths, small_paths);
	T_CHECK(has_bytes(p + 99, SMALL, 12345));
	T_EQ(pst_read(f, 777, m, 3, SMALL, NULL), SMALL);
	T_CHECK(has_bytes(p + 3, SMALL, 777));
}

static void many_pieces(struct pst_file *f, struct pst_mem *m, cu_ptr p)
{
	static struct pst_seg segs[64];
	struct pst_io io = { .op = PST_OP_READ, .file = f, .mem = m, .segs = segs, .nr_segs = 64 };

	for (unsigned i = 0; i < 64; i++)
		segs[i] =
			(struct pst_seg){ .file_off = i * 5000, .mem_off = i * 6000, .len = 3000 };
	T_EQ(rig_do(rig_q, &io).res, 64 * 3000);
	for (unsigned i = 0; i < 64; i++)
		T_CHECK(has_bytes(p + i * 6000, 3000, i * 5000));
}

/* Let a read wait for the program's stream, then the stream for a read: the library keeps the
 * events of both for reuse. */
static void in_order(struct pst_file *f, struct pst_mem *m, cu_ptr p)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, 4096, 0, RIG_MIB(1));
	struct pst_done d;
	cu_stream st;
	cu_ctx ctx;

	T_EQ(app.retain(&ctx, 0), CU_OK);
	T_EQ(app.push(ctx), CU_OK);
	T_EQ(app.stream(&st, 0), CU_OK);
	for (unsigned wait = 0; wait < 2; wait++) {
		io.stream = st;
		io.flags = wait ? PST_IO_STREAM_WAIT : 0;
		T_OK(pst_queue_prep(rig_q, &io));
		T_EQ(pst_queue_submit(rig_q), 1);
		if (wait)
			T_EQ(app.stream_wait(st), CU_OK);
		d = rig_reap1(rig_q);
		T_EQ(d.res, (int64_t)RIG_MIB(1));
		T_CHECK(has_bytes(p, RIG_MIB(1), 4096));
	}
	/* Let the reset destroy the stream.  The program keeps its reference to the primary
	 * context. */
	T_EQ(app.pop(&ctx), CU_OK);
}

/* The library is the first to use the device after the reset: the read fails. */
static void sees_it_first(struct pst_file *f, struct pst_mem *own)
{
	struct pst_io io = rig_io(PST_OP_READ, f, own, 0, 0, LEN);
	int r = pst_queue_prep(rig_q, &io);

	if (r == 0) {
		T_EQ(pst_queue_submit(rig_q), 1);
		r = (int)rig_reap1(rig_q).res;
	}
	T_EQ(r, -ENODEV); /* the error may already come from prep(), if the pool was growing */
}

/* After a reset, reads into older memory fail with cause and cure, and freeing it frees nothing in
 * the new context.  The same queue and file serve memory allocated after the reset. */
static void served_again(void)
{
	struct pst_file *f = rig_open(rig_path("data"), RIG_R);
	struct pst_file *stable = rig_open(rig_path("data"), RIG_R | PST_FILE_STABLE);
	struct pst_mem *own = rig_alloc("cuda:0", LEN), *other = rig_alloc("cuda:1", LEN), *m[2];
	struct stub_cuda_state before, now;
	struct pst_io io;
	cu_ptr p[2];

	p[0] = app_alloc(LEN);
	m[0] = wrap(p[0], LEN);
	for (unsigned life = 0; life < 3; life++) {
		reads_all(f, m[0], p[0]);
		many_pieces(f, m[0], p[0]);
		in_order(f, m[0], p[0]);
		/* Read until pages of the stable file are pinned and used. */
		for (unsigned i = 0; i < 3; i++)
			T_EQ(rig_read(stable, m[0], 0, 0, LEN).res, LEN);
		T_EQ(rig_read(f, own, 0, 0, LEN).res, LEN);
		T_EQ(rig_read(f, other, 0, 0, LEN).res, LEN);

		T_EQ(app.reset(0), CU_OK);
		if (life == 1)
			sees_it_first(f, own);
		p[1] = app_alloc(LEN);
		m[1] = wrap(p[1], LEN);
		T_EQ(rig_mem_differs(other, 0, LEN, 5, 0), LEN);
		for (unsigned i = 0; i < 2; i++) {
			io = rig_io(PST_OP_READ, f, i ? own : m[0], 0, 0, LEN);
			T_EQ(pst_queue_prep(rig_q, &io), -ENODEV);
			T_CHECK(strstr(pst_error_text(), "cudaDeviceReset()"));
			T_CHECK(strstr(pst_error_text(), "allocate anew"));
		}
		reads_all(f, m[1], p[1]);
		in_order(f, m[1], p[1]);
		many_pieces(f, m[1], p[1]);
		app.state(&before);
		pst_mem_free(own);
		pst_mem_free(m[0]);
		app.state(&now);
		T_EQ(now.ranges, before.ranges);
		T_EQ(rig_read(stable, m[1], 0, 0, LEN).res, LEN);
		T_CHECK(has_bytes(p[1], LEN, 0));
		own = rig_alloc("cuda:0", LEN);
		p[0] = p[1];
		m[0] = m[1];
	}
	pst_mem_free(own);
	pst_mem_free(other);
	pst_mem_free(m[0]);
	pst_file_close(stable);
	pst_file_close(f);
}

/* A kernel of the program corrupts the context. A reset cures that, and reads work again. */
static void served_after_an_error(void)
{
	struct pst_file *f = rig_open(rig_path("data"), RIG_R);
	struct pst_mem *m, *own = rig_alloc("cuda:0", LEN), *none = NULL;
	cu_ptr p;

	T_EQ(rig_read(f, own, 0, 0, LEN).res, LEN);
	app.poison(0, CU_ILLEGAL_ADDRESS);
	T_EQ(rig_read(f, own, 0, 0, LEN).res, -EIO);
	T_EQ(pst_mem_alloc("cuda:0", LEN, NULL, &none), -EIO);
	T_CHECK(strstr(pst_error_text(), "CUDA_ERROR_ILLEGAL_ADDRESS"));
	app.poison(0, CU_OK);
	T_EQ(app.reset(0), CU_OK);
	p = app_alloc(LEN);
	m = wrap(p, LEN);
	reads_all(f, m, p);
	pst_mem_free(own);
	pst_mem_free(m);
	pst_file_close(f);
}

/*
 * The program resets the device and uses CUDA no more: freeing the library's objects must not
 * make a new context.
 */
static void nothing_is_made_by_an_end(void)
{
	struct pst_mem *own = rig_alloc("cuda:0", LEN);
	struct pst_file *f = rig_open(rig_path("data"), RIG_R);
	struct stub_cuda_state before, now;

	T_EQ(rig_read(f, own, 0, 0, LEN).res, LEN);
	T_EQ(app.reset(0), CU_OK);
	app.state(&before);
	pst_mem_free(own);
	pst_file_close(f);
	rig_q = pst_queue_free(rig_q);
	app.state(&now);
	T_EQ(now.contexts_made, before.contexts_made);
}

int main(void)
{
	struct pst_device dev = { .sz = sizeof(dev) };

	rig_init();
	if (!find_app() || pst_device_find("cuda:1", &dev) < 0) {
		printf("1..0 # SKIP needs the library of tests/stub\n");
		return 0;
	}
	rig_make(rig_path("data"), 5, LEN);
	RIG_RUN_BACKENDS(served_again);
	RIG_RUN_BACKENDS(served_after_an_error);
	RIG_RUN_BACKENDS(nothing_is_made_by_an_end);
	return rig_done();
}
