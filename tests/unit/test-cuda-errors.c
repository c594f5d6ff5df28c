/* SPDX-License-Identifier: MIT */
/* Calls that the driver refuses or the program's capture forbids, and a lost device. */
#include "base/log.h"
#include "cuda_rig.h"

struct failing {
	uint8_t *host;
	struct mapped m;
	cu_ptr app;
};

static int op_alloc(struct failing *f)
{
	struct mem_alloc *a = NULL;
	int r;

	(void)f;
	r = mem_alloc(ops(), 0, 100000, PST_MEM_SHARED, &a);
	mem_free(a);
	return r;
}

static int op_wrap(struct failing *f)
{
	struct mem_alloc *a = NULL;
	int r;

	r = mem_wrap(f->app, 100, PST_KIND_CUDA, 0, &a);
	mem_free(a);
	return r;
}

static int op_wrap_chunks(struct failing *f)
{
	struct mem_alloc *a = NULL;
	int r;

	r = mem_wrap(f->m.va + 10, 2 * CHUNK - 10, PST_KIND_CUDA, 0, &a);
	mem_free(a);
	return r;
}

static int op_share(struct failing *f)
{
	struct mem_alloc *a = NULL, *b = NULL;
	struct pst_grant g = { .fd = -1 };
	struct mem_dmabuf d = { .fd = -1 };
	int r;

	r = mem_wrap(f->m.va, CHUNK, PST_KIND_CUDA, 0, &a);
	if (r == 0)
		r = mem_export(a, 3, &g);
	if (r == 0)
		r = mem_import(&g, &b);
	if (r == 0)
		r = mem_export_dmabuf(a, 0, 4096, &d);
	closep(&d.fd);
	closep(&g.fd);
	mem_free(b);
	mem_free(a);
	return r;
}

static int op_pin(struct failing *f)
{
	int r = pin_host(0, f->host, MIB(130));

	if (r == 0)
		ops()->unpin(0, f->host, MIB(130));
	return r;
}

static int op_copy(struct failing *f)
{
	struct mem_alloc *a = NULL;
	struct mem_stream *st = NULL;
	struct mem_copy v[6];
	uint64_t t = 0;
	int r, w;

	r = mem_wrap(f->app, 100000, PST_KIND_CUDA, 0, &a);
	if (r == 0)
		r = mem_stream_new(ops(), 0, &st);
	if (r == 0)
		r = pin_host(0, f->host, 65536);
	for (unsigned i = 0; r == 0 && i < 6; i++)
		v[i] = (struct mem_copy){
			.alloc = a, .off = i * 2000, .host = f->host + i * 1000, .len = 1000
		};
	if (r == 0) {
		r = mem_copy(st, MEM_TO_DEVICE, v, 6, &t);
		if (r == 0)
			while ((r = mem_poll(st, t)) == 0)
				/* poll rarely: each poll is a call that could fail */
				(void)usleep(200);
		if (r >= 0) {
			r = mem_copy(st, MEM_FROM_DEVICE, v, 2, &t);
			if (r == 0)
				while ((r = mem_poll(st, t)) == 0)
					(void)usleep(200);
		}
		r = MIN(r, 0);
		w = 1;
	} else {
		w = 0;
	}
	mem_stream_free(st);
	if (w)
		ops()->unpin(0, f->host, 65536);
	mem_free(a);
	return r;
}

/* Fail the first, second, ... call of the driver, until a run makes fewer calls. */
static void every_call_may_fail(void)
{
	static int (*const op[])(struct failing *) = { op_alloc, op_wrap, op_wrap_chunks,
						       op_share, op_pin,  op_copy };
	static const cu_result codes[] = { CU_OUT_OF_MEMORY, CU_INVALID_VALUE, CU_NOT_SUPPORTED };
	struct stub_cuda_state before;
	struct failing f;
	uint8_t buf[6000];

	NEED_STUB();
	f.host = map(MIB(130));
	(void)app_enter(0);
	CU(cu.cuMemAlloc_v2(&f.app, 100000));
	f.m = mapped_new(2, 2, CU_HANDLE_POSIX_FD, CU_PROT_READ_WRITE);
	before = state();
	for (unsigned i = 0; i < ARRAY_SIZE(op); i++) {
		for (unsigned k = 0; k < ARRAY_SIZE(codes); k++) {
			unsigned n = 1, failed = 0;

			for (;; n++) {
				char spec[32];
				int r;

				(void)snprintf(spec, sizeof(spec), "*:%u:%u", n, codes[k]);
				(void)x.fail(spec);
				r = op[i](&f);
				if (!x.fail(NULL)) {
					T_OK(r);
					break;
				}
				failed += r < 0;
				SAME_THREAD(before);
				SAME_OBJECTS(before);
				T_CHECK(!cuda_device(0)->lost);
				T_CHECK(n < 500);
			}
			T_CHECK(failed > 1);
		}
		(void)x.fail("cuCtxPushCurrent_v2:1:1");
		T_EQ(op[i](&f), -EINVAL);
		T_CHECK(x.fail(NULL));
		SAME_THREAD(before);
		SAME_OBJECTS(before);
	}
	/* Everything works afterwards. */
	t_fill(f.host, 8, 0, 6000);
	T_OK(op_copy(&f));
	for (unsigned i = 0; i < 6; i++)
		T_CHECK(x.peek(f.app + i * 2000, buf + i * 1000, 1000));
	T_EQ(t_differs(buf, 8, 0, 6000), 6000);
	mapped_free(&f.m);
	CU(cu.cuMemFree_v2(f.app));
	app_leave(0);
	(void)munmap(f.host, MIB(130));
}

/* All operations work while the program captures a graph, and do not end the capture. */
static void captures_are_not_disturbed(void)
{
	struct failing f = { 0 };
	struct mem_alloc *a;
	void *graph = NULL;
	uint8_t buf[100];
	cu_stream st;
	cu_ptr p = 0;

	f.host = map(MIB(130));
	(void)app_enter(0);
	CU(cu.cuMemAlloc_v2(&f.app, 100000));
	if (x.create)
		f.m = mapped_new(2, 2, CU_HANDLE_POSIX_FD, CU_PROT_READ_WRITE);
	CU(cu.cuStreamCreate(&st, CU_NON_BLOCKING));
	CU(x.begin_capture(st, CU_CAPTURE_GLOBAL));
	T_OK(op_alloc(&f));
	T_OK(op_wrap(&f));
	T_OK(op_wrap_chunks(&f));
	T_OK(op_share(&f));
	T_OK(op_pin(&f));
	T_OK(op_copy(&f));
	a = alloc(100);
	T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 0, buf, 100));
	mem_free(a);
	CU(x.end_capture(st, &graph));
	if (x.state) {
		/* Prove that the check above can fail: the same call by the program itself ends the
		 * capture. */
		CU(x.begin_capture(st, CU_CAPTURE_GLOBAL));
		T_EQ(cu.cuMemAlloc_v2(&p, 100), CU_CAPTURE_UNSUPPORTED);
		T_EQ(x.end_capture(st, &graph), CU_CAPTURE_INVALIDATED);
	}
	CU(cu.cuStreamDestroy_v2(st));
	mapped_free(&f.m);
	CU(cu.cuMemFree_v2(f.app));
	app_leave(0);
	(void)munmap(f.host, MIB(130));
}

static unsigned errors_logged;

static void on_log(void *arg, int level, const char *line)
{
	(void)arg;
	if (level == PST_LOG_ERROR && strstr(line, "CUDA_ERROR_ILLEGAL_ADDRESS"))
		errors_logged++;
}

static void a_lost_device_leaves_the_others_alone(void)
{
	struct stub_cuda_state before = state();
	struct mem_alloc *a, *b = NULL;
	struct mem_stream *st;
	uint8_t *host = map(65536);
	struct mem_copy c, many_of[6];
	struct pst_grant g;
	uint64_t t, u;

	NEED_STUB();
	NEED_DEVICES(2);
	T_OK(mem_alloc(ops(), 1, 65536, 0, &a));
	st = stream(1);
	T_OK(pin_host(1, host, 65536));
	c = (struct mem_copy){ .alloc = a, .host = host, .len = 4096 };
	for (unsigned i = 0; i < 6; i++)
		many_of[i] = c;
	x.delay_us(20000);
	T_OK(mem_copy(st, MEM_TO_DEVICE, &c, 1, &t));
	T_OK(mem_copy(st, MEM_TO_DEVICE, &c, 1, &u));
	log_set(on_log, NULL, PST_LOG_ERROR);
	x.poison(1, CU_ILLEGAL_ADDRESS);
	T_EQ(wait_done(st, t), -EIO);
	T_EQ(mem_poll(st, u), -EIO);
	T_CHECK(strstr(err_text(), "cuda:1 was lost to CUDA_ERROR_ILLEGAL_ADDRESS"));
	x.delay_us(0);

	/* Operations on the lost device fail at once, without a call of the driver. */
	x.state(&before);
	T_EQ(mem_copy(st, MEM_TO_DEVICE, &c, 1, &t), -EIO);
	T_EQ(mem_copy(st, MEM_TO_DEVICE, many_of, 6, &t), -EIO);
	T_EQ(mem_export(a, 3, &g), -EIO);
	T_EQ(state().calls, before.calls);
	/* A new allocation checks whether the program has reset the device. */
	T_EQ(mem_alloc(ops(), 1, 1, 0, &b), -EIO);
	T_EQ(pin_host(1, host, 4096), -EIO);
	T_EQ(mem_stream_new(ops(), 1, &(struct mem_stream *){ NULL }), -EIO);
	SAME_THREAD(before);

	/* The other device must still work. */
	T_OK(mem_alloc(ops(), 0, 100, 0, &b));
	T_OK(mem_copy_sync(b, MEM_TO_DEVICE, 0, host, 100));
	mem_free(b);

	/* Objects made before can be freed. */
	ops()->unpin(1, host, 65536);
	mem_stream_free(st);
	mem_free(a);
	T_EQ(state().ctx_refs[1], 0);
	T_EQ(errors_logged, 1);
	log_set(NULL, NULL, 0);
	(void)munmap(host, 65536);
}

/*
 * A driver without context numbers, after a reset that the library has not noticed: the address
 * of the library's memory now belongs to the program, so freeing must not touch it.
 */
static void frees_nothing_of_the_program(void)
{
	struct mem_alloc *a;
	char byte;
	cu_ptr p;

	NEED_STUB();
	(void)app_enter(0);
	(void)x.fail("cuCtxGetId:0:801");
	a = alloc(4096);
	CU(x.ctx_reset(0));
	app_leave(0);
	(void)app_enter(0);
	CU(cu.cuMemAlloc_v2(&p, 4096));
	T_EQ(p, a->base.va);
	mem_free(a);
	(void)x.fail(NULL);
	T_CHECK(x.peek(p, &byte, 1));
	CU(cu.cuMemFree_v2(p));
	app_leave(0);
}

int main(void)
{
	if (!cuda_begin())
		return t_done();
	T_RUN(every_call_may_fail);
	T_RUN(captures_are_not_disturbed);
	T_RUN(a_lost_device_leaves_the_others_alone);
	T_RUN(frees_nothing_of_the_program);
	T_RUN(nothing_is_left);
	return t_done();
}
