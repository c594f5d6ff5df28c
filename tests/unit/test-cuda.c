/* SPDX-License-Identifier: MIT */
/*
 * The CUDA provider on the library of tests/stub/, which PST_LIBCUDA names.  Without that
 * variable it runs on the machine's driver; cases that need the stub are then skipped.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "mem/cuda.h"
#include "stub/cuda_stub.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

#define CHUNK STUB_CHUNK

static const char *self;

/* What the provider does not call; NULL where the library has it not. */
static struct {
	cu_result (*ctx_create)(cu_ctx *, unsigned, cu_device);
	cu_result (*ctx_destroy)(cu_ctx);
	cu_result (*ctx_current)(cu_ctx *);
	cu_result (*create)(cu_handle *, size_t, const struct cu_prop *, unsigned long long);
	cu_result (*alloc_managed)(cu_ptr *, size_t, unsigned);
	cu_result (*alloc_async)(cu_ptr *, size_t, cu_stream);
	cu_result (*begin_capture)(cu_stream, uint32_t);
	cu_result (*end_capture)(cu_stream, void **);

	void (*state)(struct stub_cuda_state *);
	bool (*fail)(const char *);
	void (*delay_us)(unsigned);
	void (*poison)(int, cu_result);
	bool (*peek)(cu_ptr, void *, size_t);
} x;

static void find(void *lib, void *slot, const char *name)
{
	void *fn = dlsym(lib, name);

	memcpy(slot, &fn, sizeof(fn));
}

static bool find_all(void)
{
	const char *file = getenv("PST_LIBCUDA");
	void *lib = dlopen(file && *file ? file : "libcuda.so.1", RTLD_NOW);

	if (!lib)
		return false;
	find(lib, &x.ctx_create, "cuCtxCreate_v2");
	find(lib, &x.ctx_destroy, "cuCtxDestroy_v2");
	find(lib, &x.ctx_current, "cuCtxGetCurrent");
	find(lib, &x.create, "cuMemCreate");
	find(lib, &x.alloc_managed, "cuMemAllocManaged");
	find(lib, &x.alloc_async, "cuMemAllocAsync");
	find(lib, &x.begin_capture, "cuStreamBeginCapture_v2");
	find(lib, &x.end_capture, "cuStreamEndCapture");
	find(lib, &x.state, "stub_cuda_state");
	find(lib, &x.fail, "stub_cuda_fail");
	find(lib, &x.delay_us, "stub_cuda_delay_us");
	find(lib, &x.poison, "stub_cuda_poison");
	find(lib, &x.peek, "stub_cuda_peek");
	return true;
}

#define NEED_STUB()                                                \
	do {                                                       \
		if (!x.state)                                      \
			T_SKIP("needs the library of tests/stub"); \
	} while (0)
#define NEED_DEVICES(n)                                     \
	do {                                                \
		if (cuda_nr_devices() < (n))                \
			T_SKIP("needs %d CUDA devices", n); \
	} while (0)
#define CU(call)                                                        \
	do {                                                            \
		cu_result _e = (call);                                  \
		if (_e)                                                 \
			T_FAIL("%s gave %s", #call, cuda_err_name(_e)); \
	} while (0)

static struct stub_cuda_state state(void)
{
	struct stub_cuda_state s = { 0 };

	if (x.state) {
		x.state(&s);
	} else {
		uint32_t mode = CU_CAPTURE_GLOBAL;

		(void)x.ctx_current(&s.current);
		(void)cu.cuThreadExchangeStreamCaptureMode(&mode);
		s.mode = mode;
		(void)cu.cuThreadExchangeStreamCaptureMode(&mode);
	}
	return s;
}

/* The calling thread's context, depth and mode are as they were. */
#define SAME_THREAD(before)                                \
	do {                                               \
		struct stub_cuda_state _now = state();     \
		T_CHECK(_now.current == (before).current); \
		T_EQ(_now.depth, (before).depth);          \
		T_EQ(_now.mode, (before).mode);            \
	} while (0)
/* And nothing more lives than did. */
#define SAME_OBJECTS(before)                                            \
	do {                                                            \
		struct stub_cuda_state _now = state();                  \
		for (int _i = 0; _i < STUB_DEVICES_MAX; _i++)           \
			T_EQ(_now.ctx_refs[_i], (before).ctx_refs[_i]); \
		T_EQ(_now.contexts, (before).contexts);                 \
		T_EQ(_now.streams, (before).streams);                   \
		T_EQ(_now.events, (before).events);                     \
		T_EQ(_now.ranges, (before).ranges);                     \
		T_EQ(_now.handles, (before).handles);                   \
		T_EQ(_now.reservations, (before).reservations);         \
		T_EQ(_now.registrations, (before).registrations);       \
	} while (0)

/* ----------------------------------------------------------------- helpers */

static const struct mem_ops *ops(void)
{
	return mem_provider(PST_KIND_CUDA);
}

static struct mem_alloc *alloc(uint64_t len)
{
	struct mem_alloc *a = NULL;

	T_OK(mem_alloc(ops(), 0, len, 0, &a));
	return a;
}

static struct mem_stream *stream(unsigned device)
{
	struct mem_stream *st = NULL;

	T_OK(mem_stream_new(ops(), device, &st));
	return st;
}

static int wait_done(struct mem_stream *st, uint64_t ticket)
{
	uint64_t until = t_in_ms(20000);
	int r;

	while (!(r = mem_poll(st, ticket)))
		T_CHECK(t_now() < until);
	return r;
}

/* The program's own context: as the runtime API has it current, or another one. */
static cu_ctx app_enter(unsigned device)
{
	cu_ctx ctx;

	CU(cu.cuDevicePrimaryCtxRetain(&ctx, cuda_device(device)->dev));
	CU(cu.cuCtxPushCurrent_v2(ctx));
	return ctx;
}

static void app_leave(unsigned device)
{
	cu_ctx ctx;

	CU(cu.cuCtxPopCurrent_v2(&ctx));
	CU(cu.cuDevicePrimaryCtxRelease_v2(cuda_device(device)->dev));
}

static void *map(uint64_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	T_CHECK(p != MAP_FAILED);
	return p;
}

/* Mapped memory as a growing allocator makes it: nr chunks side by side. */
struct mapped {
	cu_ptr va;
	unsigned nr, room;
};

static void mapped_chunk(struct mapped *m, unsigned i, uint32_t types, uint32_t prot)
{
	struct cu_prop prop = { .type = CU_ALLOC_PINNED,
				.handle_types = types,
				.location = { .type = CU_LOC_DEVICE, .id = 0 } };
	struct cu_access access = { .location = prop.location, .flags = prot };
	cu_handle h;

	CU(x.create(&h, CHUNK, &prop, 0));
	CU(cu.cuMemMap(m->va + i * CHUNK, CHUNK, 0, h, 0));
	CU(cu.cuMemRelease(h));
	if (prot)
		CU(cu.cuMemSetAccess(m->va + i * CHUNK, CHUNK, &access, 1));
}

static struct mapped mapped_new(unsigned room, unsigned nr, uint32_t types, uint32_t prot)
{
	struct mapped m = { .nr = nr, .room = room };

	CU(cu.cuMemAddressReserve(&m.va, room * CHUNK, 0, 0, 0));
	for (unsigned i = 0; i < nr; i++)
		mapped_chunk(&m, i, types, prot);
	return m;
}

static void mapped_free(struct mapped *m)
{
	for (unsigned i = 0; i < m->nr; i++)
		CU(cu.cuMemUnmap(m->va + i * CHUNK, CHUNK));
	CU(cu.cuMemAddressFree(m->va, m->room * CHUNK));
}

/* ----------------------------------------------------------------- devices */

static void devices_are_named(void)
{
	struct pst_device d = { .sz = sizeof(d) };
	const struct mem_ops *o = NULL;
	char name[40] = "", text[1024];
	unsigned idx = 77;

	for (unsigned i = 0; i < cuda_nr_devices(); i++) {
		ops()->device_info(i, &d);
		T_EQ(d.kind, PST_KIND_CUDA);
		T_EQ(d.index, i);
		T_CHECK(d.total > 0 && d.model[0]);
		T_OK(mem_find(d.name, &o, &idx));
		T_CHECK(o == ops() && idx == i);
		T_OK(mem_find(d.pci, &o, &idx));
		T_EQ(idx, i);
		name[0] = '\0';
		for (int k = 0; k < 16; k++)
			(void)snprintf(name + 2 * k, 3, "%02x", d.uuid[k]);
		T_OK(mem_find(name, &o, &idx));
		T_EQ(idx, i);
		T_OK(mem_device_text(ops(), i, text, sizeof(text)));
		T_CHECK(strstr(text, "cuda: ") && strstr(text, "dma-buf: "));
	}
	T_EQ(mem_device_text(ops(), 0, text, 10), -ENOSPC);
	T_EQ(mem_device_text(ops(), 99, text, 10), -ENODEV);
	T_EQ(mem_find("cuda:63", &o, &idx), -ENODEV);
}

static void owning_makes_no_context(void)
{
	struct stub_cuda_state before = state(), now;
	static char here[100];
	uint64_t start;

	start = t_now();
	for (int i = 0; i < 10000; i++) {
		T_CHECK(!ops()->owns((uintptr_t)here, 100));
		T_CHECK(!ops()->owns(0x10000, 1));
	}
	/* The contract is one microsecond; a machine under test may be ten times slower. */
	T_CHECK(t_now() - start < 20000 * UINT64_C(10000));
	now = state();
	T_EQ(now.contexts_made, before.contexts_made);
	SAME_THREAD(before);
}

/* ------------------------------------------------------------- allocations */

static void bytes_come_back(void)
{
	struct stub_cuda_state before = state();
	struct mem_alloc *a = alloc(300007);
	static uint8_t out[300007], in[300007];

	T_EQ(a->size, 300007);
	T_CHECK(!a->host && a->owned);
	T_CHECK(ops()->owns(a->base.va, 1) && ops()->owns(a->base.va - 1, 2));
	t_fill(out, 1, 0, sizeof(out));
	T_OK(mem_copy_sync(a, MEM_TO_DEVICE, 0, out, sizeof(out)));
	T_OK(mem_copy_sync(a, MEM_TO_DEVICE, 1001, out + 5, 10));
	T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 0, in, sizeof(in)));
	memcpy(out + 1001, out + 5, 10);
	T_CHECK(!memcmp(in, out, sizeof(in)));
	SAME_THREAD(before);
	mem_free(a);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
}

static void limits_are_said(void)
{
	struct stub_cuda_state before = state();
	struct mem_alloc *a = NULL;

	T_EQ(mem_alloc(ops(), 0, UINT64_C(1) << 50, 0, &a), -ENOMEM);
	T_CHECK(strstr(err_text(), "cuda:0 has no"));
	T_EQ(mem_alloc(ops(), 63, 1, 0, &a), -ENODEV);
	T_CHECK(!a);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
}

static void wraps_know_their_allocation(void)
{
	struct mem_alloc *w, *v, *a = alloc(5000);
	uint64_t last;
	uint8_t buf[100];
	cu_ptr p, q;

	/* Of our own. */
	T_OK(mem_wrap(a->base.va + 1000, 100, 0, 0, &w));
	T_EQ(w->base.va, a->base.va);
	T_EQ(w->size, 5000);
	T_EQ(w->buffer_id, a->buffer_id);
	T_CHECK(!w->owned);
	mem_free(w);
	T_EQ(mem_wrap(a->base.va + 4000, 1001, PST_KIND_CUDA, 0, &w), -EFAULT);
	mem_free(a);

	/* Of the program's. */
	(void)app_enter(0);
	CU(cu.cuMemAlloc_v2(&p, 9000));
	T_OK(mem_wrap(p + 100, 100, 0, 0, &w));
	T_OK(mem_wrap(p, 9000, PST_KIND_CUDA, 0, &v));
	T_EQ(w->base.va, p);
	T_EQ(w->buffer_id, v->buffer_id);
	T_CHECK(w->rights == 3 && !cuda_alloc_of(w)->foreign);
	t_fill(buf, 3, 0, 100);
	T_OK(mem_copy_sync(w, MEM_TO_DEVICE, 100, buf, 100));
	last = v->buffer_id;
	mem_free(v);
	T_EQ(mem_wrap(p + 8000, UINT64_C(1) << 30, PST_KIND_CUDA, 0, &v), -EFAULT);

	/* Freed under the wrap; and the address comes back as something else. */
	CU(cu.cuMemFree_v2(p));
	T_EQ(mem_copy_sync(w, MEM_TO_DEVICE, 100, buf, 100), -EFAULT);
	T_CHECK(strstr(err_text(), "freed by its owner"));
	CU(cu.cuMemAlloc_v2(&q, 9000));
	T_EQ(mem_copy_sync(w, MEM_TO_DEVICE, 100, buf, 100), -EFAULT);
	T_OK(mem_wrap(q, 9000, 0, 0, &v));
	if (x.state)
		T_EQ(q, p);
	T_CHECK(v->buffer_id != last && v->buffer_id != w->buffer_id);
	mem_free(v);
	mem_free(w);
	CU(cu.cuMemFree_v2(q));
	T_EQ(mem_wrap(q, 1, PST_KIND_CUDA, 0, &v), -EFAULT);
	app_leave(0);
}

static void strange_memory(void)
{
	struct mem_alloc *w = NULL;
	struct pst_grant g;
	uint8_t buf[50] = "pool", in[50];
	cu_stream st;
	cu_ptr p;

	(void)app_enter(0);
	CU(x.alloc_managed(&p, 5000, 1));
	T_EQ(mem_wrap(p, 10, 0, 0, &w), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "managed"));
	CU(cu.cuMemFree_v2(p));

	CU(cu.cuStreamCreate(&st, 0));
	CU(x.alloc_async(&p, 5000, st));
	CU(cu.cuStreamSynchronize(st));
	T_OK(mem_wrap(p, 50, 0, 0, &w));
	T_OK(mem_copy_sync(w, MEM_TO_DEVICE, 0, buf, 50));
	T_OK(mem_copy_sync(w, MEM_FROM_DEVICE, 0, in, 50));
	T_CHECK(!memcmp(in, buf, 50));
	T_EQ(mem_export(w, 3, &g), -EOPNOTSUPP);
	mem_free(w);
	CU(cu.cuMemFree_v2(p));
	CU(cu.cuStreamDestroy_v2(st));
	app_leave(0);
}

/* Memory of a context that is not the device's primary one: by copies, not by the kernel. */
static void other_contexts(void)
{
	struct stub_cuda_state before = state(), inside;
	struct mem_stream *st;
	struct mem_alloc *w;
	struct mem_copy v[8];
	struct pst_grant g;
	uint64_t ticket;
	uint8_t *host = map(1 << 20), in[800];
	cu_ctx ctx;
	cu_ptr p;

	CU(x.ctx_create(&ctx, 0, 0));
	inside = state();
	CU(cu.cuMemAlloc_v2(&p, 100000));
	T_OK(mem_wrap(p, 100000, 0, 0, &w));
	SAME_THREAD(inside);
	T_CHECK(cuda_alloc_of(w)->foreign);
	st = stream(0);
	T_OK(ops()->pin(0, host, 1 << 20));
	t_fill(host, 9, 0, 800);
	for (unsigned i = 0; i < 8; i++)
		v[i] = (struct mem_copy){
			.alloc = w, .off = 1000 * i, .host = host + 100 * i, .len = 100
		};
	T_OK(mem_copy(st, MEM_TO_DEVICE, v, 8, &ticket));
	T_EQ(mem_copied_by(st), PST_PATH_STAGED);
	T_EQ(wait_done(st, ticket), 1);
	for (unsigned i = 0; i < 8; i++)
		T_OK(mem_copy_sync(w, MEM_FROM_DEVICE, 1000 * i, in + 100 * i, 100));
	T_EQ(t_differs(in, 9, 0, 800), 800);
	T_OK(mem_export(w, 3, &g));
	T_EQ(g.fd, -1);
	SAME_THREAD(inside);
	ops()->unpin(0, host, 1 << 20);
	mem_stream_free(st);
	mem_free(w);
	CU(cu.cuMemFree_v2(p));
	CU(x.ctx_destroy(ctx));
	(void)munmap(host, 1 << 20);
	SAME_OBJECTS(before);
}

static void ranges_span_chunks(void)
{
	struct stub_cuda_state before = state();
	struct mapped m = mapped_new(6, 4, CU_HANDLE_POSIX_FD, CU_PROT_READ_WRITE);
	struct mem_alloc *w, *v;
	struct pst_grant g;
	static uint8_t out[CHUNK + 2000], in[CHUNK + 2000];

	/* From the middle of the first to the middle of the third. */
	T_OK(mem_wrap(m.va + CHUNK - 1000, CHUNK + 2000, 0, 0, &w));
	T_EQ(w->base.va, m.va);
	T_EQ(w->size, 3 * CHUNK);
	T_EQ(cuda_alloc_of(w)->chunks, 3);
	t_fill(out, 4, 0, sizeof(out));
	T_OK(mem_copy_sync(w, MEM_TO_DEVICE, CHUNK - 1000, out, sizeof(out)));
	T_OK(mem_copy_sync(w, MEM_FROM_DEVICE, CHUNK - 1000, in, sizeof(in)));
	T_CHECK(!memcmp(in, out, sizeof(in)));
	T_EQ(mem_export(w, 3, &g), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "spans 3"));

	/* The same again is the same; one chunk is another. */
	T_OK(mem_wrap(m.va + 10, 2 * CHUNK, 0, 0, &v));
	T_EQ(v->buffer_id, w->buffer_id);
	mem_free(v);
	T_OK(mem_wrap(m.va + CHUNK, 10, 0, 0, &v));
	T_EQ(v->base.va, m.va + CHUNK);
	T_EQ(v->size, CHUNK);
	T_CHECK(v->buffer_id != w->buffer_id);
	mem_free(v);

	/* Past what is mapped. */
	T_EQ(mem_wrap(m.va + 3 * CHUNK, CHUNK + 1, 0, 0, &v), -EFAULT);
	T_CHECK(strstr(err_text(), "past what is mapped"));

	/* A chunk that was exchanged makes it another range. */
	CU(cu.cuMemUnmap(m.va + 2 * CHUNK, CHUNK));
	mapped_chunk(&m, 2, 0, CU_PROT_READ_WRITE);
	T_OK(mem_wrap(m.va + CHUNK - 1000, CHUNK + 2000, 0, 0, &v));
	T_CHECK(v->buffer_id != w->buffer_id);
	mem_free(v);
	mem_free(w);

	/* Not made for sharing; no access; only to be read. */
	T_OK(mem_wrap(m.va + 2 * CHUNK, 10, 0, 0, &v));
	T_EQ(mem_export(v, 3, &g), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "POSIX_FILE_DESCRIPTOR"));
	mem_free(v);
	mapped_chunk(&m, 4, 0, 0);
	mapped_chunk(&m, 5, 0, CU_PROT_READ);
	m.nr = 6;
	T_EQ(mem_wrap(m.va + 4 * CHUNK, 10, 0, 0, &v), -EACCES);
	T_EQ(mem_wrap(m.va + 3 * CHUNK, 2 * CHUNK, 0, 0, &v), -EACCES);
	T_OK(mem_wrap(m.va + 5 * CHUNK, 10, 0, 0, &v));
	T_EQ(v->rights, PST_RIGHT_READ);
	T_EQ(mem_copy_sync(v, MEM_TO_DEVICE, 0, out, 10), -EACCES);
	T_OK(mem_copy_sync(v, MEM_FROM_DEVICE, 0, in, 10));
	mem_free(v);
	mapped_free(&m);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
}

/* ------------------------------------------------------------------ grants */

static const uint64_t grant_len = 100003;

/* The other process: import twice, check, write, and say so. */
static int child_import(int sock)
{
	struct pst_grant g = { .sz = sizeof(g) };
	struct mem_alloc *a = NULL, *b = NULL, *c = NULL;
	uint8_t *buf = malloc(grant_len);
	struct pst_grant again = { .sz = sizeof(again) };
	char result = 0;

	if (!buf || grant_recv(sock, &g, t_in_ms(10000)) < 0) {
		(void)fprintf(stderr, "# child: %s\n", err_text());
		return 1;
	}
	if (mem_import(&g, &a) < 0 || mem_import(&g, &b) < 0 || a->buffer_id == b->buffer_id)
		result = 1;
	else if (mem_copy_sync(a, MEM_FROM_DEVICE, 0, buf, grant_len) < 0 ||
		 t_differs(buf, 11, 0, grant_len) != grant_len)
		result = 2;
	t_fill(buf, 12, 0, grant_len);
	if (!result && g.rights == PST_RIGHT_READ) {
		if (mem_copy_sync(b, MEM_TO_DEVICE, 0, buf, grant_len) != -EACCES)
			result = 3;
	} else if (!result && mem_copy_sync(b, MEM_TO_DEVICE, 0, buf, grant_len) < 0) {
		result = 4;
	}
	/* What was got can be passed on. */
	if (!result && (mem_export(a, g.rights, &again) < 0 || mem_import(&again, &c) < 0))
		result = 5;
	if (!result && memcmp(again.ipc, g.ipc, sizeof(g.ipc)) != 0)
		result = 6;
	mem_free(c);
	if (again.fd > 2)
		(void)close(again.fd);
	/* More than the allocation has. */
	g.size = UINT64_C(64) << 20;
	g.len = 1;
	if (!result && mem_import(&g, &c) != -EINVAL)
		result = 7;
	if (result)
		(void)fprintf(stderr, "# child: step %d: %s\n", result, err_text());
	mem_free(a);
	mem_free(b);
	if (g.fd >= 0)
		(void)close(g.fd);
	free(buf);
	if (x.state) {
		struct stub_cuda_state s = state();

		if (s.contexts || s.ranges || s.handles || s.reservations || s.streams) {
			(void)fprintf(stderr, "# child: something was left\n");
			result = 8;
		}
	}
	return write(sock, &result, 1) == 1 ? result : 9;
}

static int with_child(const char *what, const struct pst_grant *g)
{
	char arg[16], result = 99;
	int sv[2], status;
	pid_t pid;

	T_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	(void)snprintf(arg, sizeof(arg), "%d", sv[1]);
	pid = fork();
	if (!pid) {
		(void)execl(self, self, what, arg, (char *)NULL);
		_exit(127);
	}
	(void)close(sv[1]);
	T_OK(grant_send(sv[0], g, t_in_ms(10000)));
	if (read(sv[0], &result, 1) != 1)
		result = 98;
	(void)close(sv[0]);
	T_CHECK(waitpid(pid, &status, 0) == pid);
	return result ? result : status;
}

static void share(struct mem_alloc *a, uint32_t rights)
{
	uint8_t *buf = malloc(grant_len);
	struct pst_grant g;

	T_CHECK(buf);
	t_fill(buf, 11, 0, grant_len);
	T_OK(mem_copy_sync(a, MEM_TO_DEVICE, 0, buf, grant_len));
	T_OK(mem_export(a, rights, &g));
	T_EQ(g.size, a->size);
	T_EQ(with_child("import", &g), 0);
	T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 0, buf, grant_len));
	T_EQ(t_differs(buf, rights == 3 ? 12 : 11, 0, grant_len), grant_len);
	if (g.fd >= 0)
		(void)close(g.fd);
	explicit_bzero(&g, sizeof(g));
	free(buf);
}

static void grants_by_handle(void)
{
	struct stub_cuda_state before = state();
	struct mem_alloc *a, *b = NULL;
	struct pst_grant g;

	for (uint32_t rights = 1; rights <= 3; rights += 2) {
		T_OK(mem_alloc(ops(), 0, grant_len, PST_MEM_SHARED, &a));
		share(a, rights);
		mem_free(a);
	}
	/* In our own process, of no device, of nothing. */
	T_OK(mem_alloc(ops(), 0, grant_len, PST_MEM_SHARED, &a));
	T_OK(mem_export(a, 3, &g));
	T_EQ(mem_import(&g, &b), -EINVAL);
	T_CHECK(strstr(err_text(), "own"));
	g.uuid[3] ^= 1;
	T_EQ(mem_import(&g, &b), -ENODEV);
	g.uuid[3] ^= 1;
	memset(g.ipc, 0, sizeof(g.ipc));
	T_EQ(mem_import(&g, &b), -EINVAL);
	if (x.state) {
		g.ipc[0] = 1;
		T_EQ(mem_import(&g, &b), -EINVAL);
	}
	mem_free(a);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
}

static void grants_by_descriptor(void)
{
	struct stub_cuda_state before = state();
	struct mapped m = mapped_new(2, 2, CU_HANDLE_POSIX_FD, CU_PROT_READ_WRITE);
	struct mem_alloc *w, *b = NULL;
	struct pst_grant g;
	uint8_t in[100];

	T_OK(mem_wrap(m.va + CHUNK, CHUNK, 0, 0, &w));
	share(w, 1);
	share(w, 3);
	/* The driver opens descriptors in any process, our own too. */
	T_OK(mem_export(w, 1, &g));
	T_OK(mem_import(&g, &b));
	T_EQ(b->rights, PST_RIGHT_READ);
	T_CHECK(b->base.va != w->base.va);
	T_OK(mem_copy_sync(b, MEM_FROM_DEVICE, 0, in, 100));
	T_EQ(t_differs(in, 12, 0, 100), 100);
	mem_free(b);
	b = NULL;
	if (cuda_nr_devices() > 1) {
		memcpy(g.uuid, cuda_device(1)->info.uuid, 16);
		T_EQ(mem_import(&g, &b), -EINVAL);
	}
	(void)close(g.fd);
	memcpy(g.uuid, cuda_device(0)->info.uuid, 16);
	g.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	T_EQ(mem_import(&g, &b), -EINVAL);
	(void)close(g.fd);
	mem_free(w);
	mapped_free(&m);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
}

static void dmabufs_cover_whole_pages(void)
{
	struct stub_cuda_state before = state();
	struct mem_alloc *a = alloc(3 << 20);
	struct mem_dmabuf d;

	T_OK(mem_export_dmabuf(a, 5000, 4096, &d));
	T_EQ(d.size, 8192);
	T_EQ(d.off, 5000 - 4096);
	T_CHECK(fcntl(d.fd, F_GETFD) & FD_CLOEXEC);
	(void)close(d.fd);
	T_EQ(mem_export_dmabuf(a, 3 << 20, 1, &d), -ERANGE);
	T_EQ(mem_export_dmabuf(a, 0, 0, &d), -ERANGE);
	mem_free(a);
	SAME_OBJECTS(before);
}

/* --------------------------------------------------------------------- pin */

static void pins_go_in_pieces(void)
{
	struct stub_cuda_state before = state(), now;
	uint64_t len = MIB(160), n;
	char *p = map(len);
	cu_ptr dev;

	T_OK(ops()->pin(0, p, len));
	now = state();
	if (x.state) {
		T_EQ(now.registrations, before.registrations + 3);
		T_CHECK(now.largest_registration <= MIB(64));
	}
	T_EQ(cuda_pin_find(p + 10, 100, MEM_TO_DEVICE, &dev, &n), 100);
	T_CHECK(dev);
	T_EQ(cuda_pin_find(p + MIB(64) - 10, 100, MEM_TO_DEVICE, &dev, &n), 10);
	T_EQ(n, 10);
	T_EQ(cuda_pin_find(p + len - 10, 100, MEM_TO_DEVICE, &dev, &n), 10);
	T_EQ(cuda_pin_find(p - 10, 100, MEM_TO_DEVICE, &dev, &n), 0);
	T_EQ(n, 10);
	/* Counted. */
	T_OK(ops()->pin(cuda_nr_devices() - 1, p, len));
	ops()->unpin(0, p, len);
	T_EQ(cuda_pin_find(p, 100, MEM_TO_DEVICE, &dev, &n), 100);
	/* A part of it is somebody else's. */
	T_EQ(ops()->pin(0, p + 4096, 4096), -EBUSY);
	ops()->unpin(0, p, len);
	T_EQ(cuda_pin_find(p, 100, MEM_TO_DEVICE, &dev, &n), 0);
	T_EQ(ops()->pin(0, p + 1, 4096), -EINVAL);
	T_EQ(ops()->pin(0, p, 0), -EINVAL);
	ops()->unpin(0, p, len);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
	(void)munmap(p, len);
}

static void pins_are_undone(void)
{
	struct stub_cuda_state before = state();
	uint64_t len = MIB(160), n;
	char *p = map(len);
	cu_ptr dev;

	NEED_STUB();
	(void)x.fail("cuMemHostRegister_v2:3:2");
	T_EQ(ops()->pin(0, p, len), -ENOMEM);
	T_CHECK(x.fail(NULL));
	T_EQ(cuda_pin_find(p, 100, MEM_TO_DEVICE, &dev, &n), 0);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
	(void)munmap(p, len);
}

static void files_are_pinned_read_only(void)
{
	struct stub_cuda_state before = state();
	char path[] = "/tmp/pst-test-XXXXXX";
	_cleanup_(closep) int fd = mkstemp(path);
	struct mem_alloc *a = alloc(300000);
	static uint8_t out[300000], in[300000];
	char *p;

	T_CHECK(fd >= 0);
	(void)unlink(path);
	t_fill(out, 21, 0, sizeof(out));
	T_EQ(write(fd, out, sizeof(out)), sizeof(out));
	p = mmap(NULL, sizeof(out), PROT_READ, MAP_SHARED, fd, 0);
	T_CHECK(p != MAP_FAILED);
	if (x.state)
		T_EQ(ops()->pin(0, p, sizeof(out)), -EINVAL);
	T_OK(mem_pin_file(ops(), 0, p, sizeof(out)));
	T_OK(mem_copy_sync(a, MEM_TO_DEVICE, 0, p, sizeof(out)));
	{
		struct mem_stream *st = stream(0);
		struct mem_copy v[6];
		uint64_t t;

		/* Many small pieces straight out of the page cache; the other way is refused. */
		for (unsigned i = 0; i < 6; i++)
			v[i] = (struct mem_copy){
				.alloc = a, .off = i * 1000, .host = p + i * 1000, .len = 900
			};
		T_OK(mem_copy(st, MEM_TO_DEVICE, v, 6, &t));
		T_EQ(wait_done(st, t), 1);
		if (x.state) {
			T_EQ(mem_copied_by(st), PST_PATH_GATHER);
			T_OK(mem_copy(st, MEM_FROM_DEVICE, v, 6, &t));
			T_EQ(wait_done(st, t), -EINVAL);
			T_CHECK(!cuda_device(0)->lost);
		}
		mem_stream_free(st);
		T_CHECK(ops()->pin(0, p, sizeof(out)) < 0);
	}
	mem_unpin_file(ops(), 0, p, sizeof(out));
	T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 0, in, sizeof(in)));
	T_CHECK(!memcmp(in, out, sizeof(in)));
	T_EQ(mem_pin_file(&mem_soft_ops, 0, p, sizeof(out)), -EOPNOTSUPP);
	T_EQ(mem_pin_file(ops(), 99, p, sizeof(out)), -ENODEV);
	(void)munmap(p, sizeof(out));
	mem_free(a);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
}

/* ----------------------------------------------------------------- streams */

/* Each copy overwrites the one before: only the right order leaves the right bytes. */
static void copies_are_in_order(void)
{
	enum { LEN = 3000, ROUNDS = 300 };
	struct mem_alloc *a = alloc(LEN + 7);
	struct mem_stream *st = stream(0);
	uint8_t *out = map(ROUNDS * 4096), *in = map(ROUNDS * 4096);
	uint64_t t[2], last = 0;

	T_OK(ops()->pin(0, out, ROUNDS * 4096));
	T_OK(ops()->pin(0, in, ROUNDS * 4096));
	for (int i = 0; i < ROUNDS; i++) {
		struct mem_copy w = { .alloc = a, .off = 7, .host = out + i * 4096, .len = LEN };
		struct mem_copy r = { .alloc = a, .off = 7, .host = in + i * 4096, .len = LEN };
		int e;

		t_fill(out + i * 4096, (uint64_t)i, 0, LEN);
		while ((e = mem_copy(st, MEM_TO_DEVICE, &w, 1, &t[0])) == -EAGAIN)
			T_CHECK(mem_poll(st, last) >= 0);
		T_OK(e);
		while ((e = mem_copy(st, MEM_FROM_DEVICE, &r, 1, &t[1])) == -EAGAIN)
			T_CHECK(mem_poll(st, last) >= 0);
		T_OK(e);
		T_CHECK(t[0] > last && t[1] > t[0]);
		last = t[1];
	}
	T_EQ(wait_done(st, last), 1);
	for (int i = 0; i < ROUNDS; i++)
		T_EQ(t_differs(in + i * 4096, (uint64_t)i, 0, LEN), LEN);
	T_EQ(mem_poll(st, last - 500), 1);
	mem_stream_free(st);
	ops()->unpin(0, out, ROUNDS * 4096);
	ops()->unpin(0, in, ROUNDS * 4096);
	(void)munmap(out, ROUNDS * 4096);
	(void)munmap(in, ROUNDS * 4096);
	mem_free(a);
}

static void tickets(void)
{
	struct mem_alloc *a = alloc(100);
	struct mem_stream *st = stream(0);
	uint8_t *host = map(4096);
	struct mem_copy c = { .alloc = a, .host = host, .len = 100 };
	uint64_t t = 0, first;
	int r;

	T_EQ(mem_poll(st, 0), -EINVAL);
	T_EQ(mem_poll(st, 1), -EINVAL);
	T_EQ(mem_stream_fd(st), -1);
	T_EQ(ops()->copy(st, MEM_TO_DEVICE, &c, 1u << 20, &t), -EINVAL);
	T_OK(mem_copy(st, MEM_TO_DEVICE, &c, 0, &t));
	T_EQ(wait_done(st, t), 1);
	c.len = 0;
	T_OK(mem_copy(st, MEM_TO_DEVICE, (struct mem_copy[]){ c, c, c, c, c }, 5, &t));
	T_EQ(wait_done(st, t), 1);
	c.len = 100;
	first = t;
	T_OK(ops()->pin(0, host, 4096));
	if (x.state) {
		unsigned nr = 0;

		x.delay_us(2000);
		while (!(r = mem_copy(st, MEM_TO_DEVICE, &c, 1, &t)))
			nr++;
		T_EQ(r, -EAGAIN);
		T_CHECK(nr >= 64);
		x.delay_us(0);
		T_EQ(wait_done(st, t), 1);
	}
	for (int i = 0; i < 1100; i++) {
		T_OK(mem_copy(st, MEM_TO_DEVICE, &c, 1, &t));
		T_EQ(wait_done(st, t), 1);
	}
	T_EQ(mem_poll(st, first), -EINVAL);
	T_OK(fault_set("mem.copy:1:EREMOTEIO"));
	T_OK(mem_copy(st, MEM_TO_DEVICE, &c, 1, &t));
	T_EQ(wait_done(st, t), -EREMOTEIO);
	T_OK(fault_set(NULL));
	T_OK(mem_copy(st, MEM_TO_DEVICE, &c, 1, &t));
	T_EQ(wait_done(st, t), 1);
	mem_stream_free(st);
	ops()->unpin(0, host, 4096);
	(void)munmap(host, 4096);
	mem_free(a);
}

static void streams_are_for_their_device(void)
{
	struct mem_alloc *a = alloc(100);
	struct mem_stream *st;
	uint8_t buf[10];
	struct mem_copy c = { .alloc = a, .host = buf, .len = 10 };
	uint64_t t;

	NEED_DEVICES(2);
	st = stream(1);
	T_EQ(mem_copy(st, MEM_TO_DEVICE, &c, 1, &t), -EINVAL);
	mem_stream_free(st);
	mem_free(a);
}

/* ------------------------------------------------------------------ gather */

static uint64_t random_next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

enum { G_HOST = 1 << 20, G_DEV = 4 << 20, G_PIECES = 64 };

/* Random pieces there and back through one stream, checked byte by byte. */
static void pieces(struct mem_stream *st, struct mem_alloc *a, uint8_t *host, uint8_t *model,
		   uint64_t *seed, uint32_t path)
{
	unsigned nr = 4 + (unsigned)(random_next(seed) % (G_PIECES - 4));
	struct mem_copy v[G_PIECES];
	uint64_t t, dev = 0, at = 0;

	for (unsigned i = 0; i < nr; i++) {
		uint64_t len = random_next(seed) % 3 ? 1 + random_next(seed) % 200
						     : random_next(seed) % 15000;

		/* Gaps in the device's memory must stay as they are. */
		dev += random_next(seed) % 40000;
		at += random_next(seed) % 5 * (random_next(seed) % 17);
		v[i] = (struct mem_copy){ .alloc = a, .off = dev, .host = host + at, .len = len };
		t_fill(host + at, *seed, at, len);
		memcpy(model + dev, host + at, len);
		dev += len;
		at += len;
	}
	T_CHECK(at <= G_HOST && dev <= G_DEV);
	T_OK(mem_copy(st, MEM_TO_DEVICE, v, nr, &t));
	T_EQ(mem_copied_by(st), path);
	T_EQ(wait_done(st, t), 1);

	memset(host, 0, G_HOST);
	T_OK(mem_copy(st, MEM_FROM_DEVICE, v, nr, &t));
	T_EQ(mem_copied_by(st), path);
	T_EQ(wait_done(st, t), 1);
	for (unsigned i = 0; i < nr; i++)
		T_CHECK(!memcmp(v[i].host, model + v[i].off, v[i].len));
}

static void many(int rounds, uint32_t path)
{
	struct stub_cuda_state before = state();
	struct mem_alloc *a = alloc(G_DEV);
	struct mem_stream *st = stream(0);
	uint8_t *host = map(G_HOST), *model = map(G_DEV), *in = map(G_DEV);
	uint64_t seed = 12345;

	T_OK(ops()->pin(0, host, G_HOST));
	T_OK(mem_copy_sync(a, MEM_TO_DEVICE, 0, model, G_DEV));
	for (int i = 0; i < rounds; i++)
		pieces(st, a, host, model, &seed, path);
	T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 0, in, G_DEV));
	T_CHECK(!memcmp(in, model, G_DEV));
	mem_stream_free(st);
	ops()->unpin(0, host, G_HOST);
	mem_free(a);
	(void)munmap(host, G_HOST);
	(void)munmap(model, G_DEV);
	(void)munmap(in, G_DEV);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
}

static void many_pieces_by_the_kernel(void)
{
	struct stub_cuda_state before = state();

	many(60, PST_PATH_GATHER);
	if (x.state)
		T_EQ(state().kernels - before.kernels, 120);
}

/* The list of tiles goes round and fills up. */
static void the_ring_goes_round(void)
{
	struct mem_alloc *a = alloc(G_DEV);
	struct mem_stream *st = stream(0);
	uint8_t *host = map(G_DEV), *in = map(G_DEV);
	static struct mem_copy v[1000];
	uint64_t t = 0, oldest = 1;
	unsigned again = 0;
	int r;

	T_OK(ops()->pin(0, host, G_DEV));
	if (x.delay_us)
		x.delay_us(300);
	for (int round = 0; round < 100; round++) {
		unsigned nr = 500 + (unsigned)(round * 37 % 500);

		if (round % 50 == 0) /* nothing is under way */
			t_fill(host, (uint64_t)round, 0, 4000);
		for (unsigned i = 0; i < nr; i++)
			v[i] = (struct mem_copy){ .alloc = a,
						  .off = (nr - 1 - i) * 4000,
						  .host = host + i * 4000,
						  .len = 3999 };
		while ((r = mem_copy(st, MEM_TO_DEVICE, v, nr, &t)) == -EAGAIN) {
			again++;
			T_CHECK(mem_poll(st, oldest) >= 0);
			if (mem_poll(st, oldest) > 0)
				oldest++;
		}
		T_OK(r);
		T_EQ(mem_copied_by(st), PST_PATH_GATHER);
		T_EQ(t, (uint64_t)round + 1);
		if (round % 50 == 49) {
			T_EQ(wait_done(st, t), 1);
			T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, (nr - 1) * 4000, in, 3999));
			T_CHECK(!memcmp(in, host, 3999));
		}
	}
	if (x.delay_us) {
		x.delay_us(0);
		T_CHECK(again > 0);
	}
	/* More tiles than the ring has: then without the kernel. */
	static struct mem_copy big[9000];

	for (unsigned i = 0; i < 9000; i++)
		big[i] = (struct mem_copy){
			.alloc = a, .off = i * 400, .host = host + i * 400, .len = 399
		};
	T_OK(mem_copy(st, MEM_TO_DEVICE, big, 9000, &t));
	T_EQ(mem_copied_by(st), PST_PATH_STAGED);
	T_EQ(wait_done(st, t), 1);
	mem_stream_free(st);
	ops()->unpin(0, host, G_DEV);
	(void)munmap(host, G_DEV);
	(void)munmap(in, G_DEV);
	mem_free(a);
}

static void pieces_cross_registrations_and_chunks(void)
{
	struct mapped m = mapped_new(2, 2, 0, CU_PROT_READ_WRITE);
	struct mem_stream *st = stream(0);
	uint64_t len = MIB(128), t;
	uint8_t *host = map(len), in[5000];
	struct mem_copy v[5];
	struct mem_alloc *w;

	T_OK(ops()->pin(0, host, len));
	T_OK(mem_wrap(m.va, 2 * CHUNK, 0, 0, &w));
	t_fill(host + MIB(64) - 2501, 5, 0, 5000);
	for (unsigned nr = 1; nr <= 5; nr += 4) {
		for (unsigned i = 0; i < nr; i++)
			v[i] = (struct mem_copy){ .alloc = w,
						  .off = CHUNK - 2500 + i * 6000,
						  .host = host + MIB(64) - 2501,
						  .len = 5000 };
		T_OK(mem_copy(st, MEM_TO_DEVICE, v, nr, &t));
		T_EQ(mem_copied_by(st), nr == 1 ? PST_PATH_STAGED : PST_PATH_GATHER);
		T_EQ(wait_done(st, t), 1);
		for (unsigned i = 0; i < nr; i++) {
			T_OK(mem_copy_sync(w, MEM_FROM_DEVICE, v[i].off, in, 5000));
			T_EQ(t_differs(in, 5, 0, 5000), 5000);
		}
	}
	mem_stream_free(st);
	ops()->unpin(0, host, len);
	mem_free(w);
	mapped_free(&m);
	(void)munmap(host, len);
}

/* Without the kernel: the driver's batch, in both its forms; without that, a loop. */
static void many_pieces_otherwise(void)
{
	struct stub_cuda_state before = state(), now;
	__typeof__(cu.cuMemcpyBatchAsync_v2) v2 = cu.cuMemcpyBatchAsync_v2;

	NEED_STUB();
	(void)x.fail("cuModuleLoadDataEx:0:221");
	many(5, PST_PATH_STAGED);
	now = state();
	T_CHECK(now.batched > before.batched);
	T_EQ(now.kernels, before.kernels);

	cu.cuMemcpyBatchAsync_v2 = NULL;
	before = now;
	many(5, PST_PATH_STAGED);
	now = state();
	T_CHECK(now.batched > before.batched);
	cu.cuMemcpyBatchAsync_v2 = v2;

	(void)x.fail("cuModuleGetFunction:0:500");
	many(2, PST_PATH_STAGED);
	(void)x.fail("cuLaunchKernel:0:701");
	many(2, PST_PATH_STAGED);
	T_CHECK(x.fail("cuMemHostGetDevicePointer_v2:0:1"));
	many(2, PST_PATH_STAGED);
	T_CHECK(x.fail(NULL));

	/* Host memory that nobody registered. */
	{
		struct mem_alloc *a = alloc(100000);
		struct mem_stream *st = stream(0);
		uint8_t out[6][1000], in[6][1000];
		struct mem_copy v[6];
		uint64_t t;

		t_fill(out, 2, 0, sizeof(out));
		for (unsigned i = 0; i < 6; i++)
			v[i] = (struct mem_copy){
				.alloc = a, .off = i * 3000, .host = out[i], .len = 1000
			};
		T_OK(mem_copy(st, MEM_TO_DEVICE, v, 6, &t));
		T_EQ(mem_copied_by(st), PST_PATH_STAGED);
		T_EQ(wait_done(st, t), 1);
		for (unsigned i = 0; i < 6; i++)
			v[i].host = in[i];
		T_OK(mem_copy(st, MEM_FROM_DEVICE, v, 6, &t));
		T_EQ(wait_done(st, t), 1);
		T_CHECK(!memcmp(in, out, sizeof(in)));
		mem_stream_free(st);
		mem_free(a);
	}

	/* A driver that refuses batches is not asked again; the kernel stays away while somebody
	 * holds the context that it could not be loaded into. */
	{
		struct mem_alloc *keep = alloc(1);

		(void)x.fail("cuModuleLoadDataEx:0:221");
		many(1, PST_PATH_STAGED);
		T_CHECK(x.fail("cuMemcpyBatchAsync_v2:1:801"));
		before = state();
		many(5, PST_PATH_STAGED);
		T_CHECK(x.fail(NULL));
		T_EQ(state().batched, before.batched);
		mem_free(keep);
	}
}

/* ---------------------------------------------------------------- failures */

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
	int r = ops()->pin(0, f->host, MIB(130));

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
		r = ops()->pin(0, f->host, 65536);
	for (unsigned i = 0; r == 0 && i < 6; i++)
		v[i] = (struct mem_copy){
			.alloc = a, .off = i * 2000, .host = f->host + i * 1000, .len = 1000
		};
	if (r == 0) {
		r = mem_copy(st, MEM_TO_DEVICE, v, 6, &t);
		if (r == 0)
			while ((r = mem_poll(st, t)) == 0)
				(void)usleep(200); /* few calls of the driver: they count */
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

/* Fail the first, second, ... call of the driver until none is left to fail. */
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
	/* And it all still works. */
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

/* I/O while another thread of the program captures a graph. */
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
		/* The check is one: the program's own thread would disturb it. */
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

static void *thread_main(void *arg)
{
	unsigned device = *(unsigned *)arg % cuda_nr_devices();
	struct mem_alloc *a = NULL, *w = NULL;
	struct mem_stream *st = NULL;
	uint8_t *host = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
	struct mem_copy v[6];
	uint64_t t;

	for (int i = 0; i < 20; i++) {
		if (mem_alloc(ops(), device, 65536, 0, &a) < 0 ||
		    mem_wrap(a->base.va + 5, 100, 0, 0, &w) < 0 ||
		    ops()->pin(device, host, 65536) < 0 || mem_stream_new(ops(), device, &st) < 0)
			return (void *)err_text();
		t_fill(host, (uint64_t)i + device, 0, 6000);
		for (unsigned k = 0; k < 6; k++)
			v[k] = (struct mem_copy){ .alloc = k % 2 ? w : a,
						  .off = k * 5000,
						  .host = host + k * 1000,
						  .len = 1000 };
		for (int dir = 0; dir < 2; dir++) {
			int r = mem_copy(st, dir ? MEM_FROM_DEVICE : MEM_TO_DEVICE, v, 6, &t);

			while (!r)
				r = mem_poll(st, t);
			if (r < 0)
				return (void *)err_text();
			if (!dir)
				memset(host, 0, 6000);
		}
		if (t_differs(host, (uint64_t)i + device, 0, 6000) != 6000)
			return (void *)(uintptr_t) "wrong bytes";
		mem_stream_free(st);
		ops()->unpin(device, host, 65536);
		mem_free(w);
		mem_free(a);
	}
	(void)munmap(host, 65536);
	return NULL;
}

static void threads_do_not_meet(void)
{
	struct stub_cuda_state before = state();
	pthread_t t[4];
	unsigned idx[4];
	void *why = NULL, *r;

	for (unsigned i = 0; i < 4; i++) {
		idx[i] = i;
		T_EQ(pthread_create(&t[i], NULL, thread_main, &idx[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		(void)pthread_join(t[i], &r);
		why = r ? r : why;
	}
	if (why)
		T_FAIL("a thread failed: %s", (const char *)why);
	SAME_OBJECTS(before);
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
	T_OK(ops()->pin(1, host, 65536));
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

	/* Everything on it fails at once, and the driver is not asked. */
	x.state(&before);
	T_EQ(mem_copy(st, MEM_TO_DEVICE, &c, 1, &t), -EIO);
	T_EQ(mem_copy(st, MEM_TO_DEVICE, many_of, 6, &t), -EIO);
	T_EQ(mem_alloc(ops(), 1, 1, 0, &b), -EIO);
	T_EQ(mem_export(a, 3, &g), -EIO);
	T_EQ(ops()->pin(1, host, 4096), -EIO);
	T_EQ(mem_stream_new(ops(), 1, &(struct mem_stream *){ NULL }), -EIO);
	T_EQ(state().calls, before.calls);
	SAME_THREAD(before);

	/* The other one works. */
	T_OK(mem_alloc(ops(), 0, 100, 0, &b));
	T_OK(mem_copy_sync(b, MEM_TO_DEVICE, 0, host, 100));
	mem_free(b);

	/* What was there can be ended. */
	ops()->unpin(1, host, 65536);
	mem_stream_free(st);
	mem_free(a);
	T_EQ(state().ctx_refs[1], 0);
	T_EQ(errors_logged, 1);
	log_set(NULL, NULL, 0);
	(void)munmap(host, 65536);
}

static void sentences_say_what_is_missing(void)
{
	static const struct {
		const char *lib, *devices, *fail, *want;
	} cases[] = {
		{ "/nonexistent/libcuda.so.1", "1", "", "no NVIDIA driver here: /nonexistent/" },
		{ "libc.so.6", "1", "", "lacks cuInit" },
		{ NULL, "0", "", "CUDA_ERROR_NO_DEVICE" },
		{ NULL, "1", "cuInit:1:999", "cuInit failed: error 999" },
		{ NULL, "1", "cuDeviceGetCount:1:2", "it shows no device" },
		{ NULL, "1", "cuDeviceGetUuid_v2:1:46", "a device does not answer" },
		{ NULL, "1", "cuDeviceGet:1:46", "a device does not answer" },
	};

	NEED_STUB();
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		char text[256] = "";
		int fds[2], status;
		ssize_t n;
		pid_t pid;

		T_EQ(pipe(fds), 0);
		pid = fork();
		if (!pid) {
			char arg[16];

			(void)snprintf(arg, sizeof(arg), "%d", fds[1]);
			if (cases[i].lib)
				(void)setenv("PST_LIBCUDA", cases[i].lib, 1);
			(void)setenv("STUB_CUDA_DEVICES", cases[i].devices, 1);
			(void)setenv("STUB_CUDA_FAIL", cases[i].fail, 1);
			(void)execl(self, self, "why", arg, (char *)NULL);
			_exit(127);
		}
		(void)close(fds[1]);
		n = read(fds[0], text, sizeof(text) - 1);
		(void)close(fds[0]);
		T_CHECK(waitpid(pid, &status, 0) == pid);
		if (n <= 0 || !strstr(text, cases[i].want))
			T_FAIL("\"%s\" does not say \"%s\"", text, cases[i].want);
	}
}

static void nothing_is_left(void)
{
	struct stub_cuda_state s = state();

	NEED_STUB();
	T_EQ(s.contexts, 0);
	T_EQ(s.streams, 0);
	T_EQ(s.events, 0);
	T_EQ(s.ranges, 0);
	T_EQ(s.handles, 0);
	T_EQ(s.reservations, 0);
	T_EQ(s.registrations, 0);
	T_EQ(s.modules, 0);
	T_EQ(s.depth, 0);
}

static void no_cuda(void)
{
	T_SKIP("%s", err_text());
}

static int child_why(int fd)
{
	const struct mem_ops *o = mem_provider(PST_KIND_CUDA);
	const char *text = o ? "it works" : err_text();
	unsigned idx;

	/* Host memory is not touched by any of this. */
	if (mem_find("host", &o, &idx) < 0)
		text = "no host memory";
	return write(fd, text, strlen(text)) < 0;
}

int main(int argc, char **argv)
{
	self = argv[0];
	(void)setenv("STUB_CUDA_DEVICES", "2", 0);
	if (argc == 3 && !strcmp(argv[1], "why"))
		return child_why(atoi(argv[2]));
	if (!mem_provider(PST_KIND_CUDA) || !find_all()) {
		T_RUN(no_cuda);
		return t_done();
	}
	if (argc == 3 && !strcmp(argv[1], "import"))
		return child_import(atoi(argv[2]));

	T_RUN(devices_are_named);
	T_RUN(owning_makes_no_context);
	T_RUN(bytes_come_back);
	T_RUN(limits_are_said);
	T_RUN(wraps_know_their_allocation);
	T_RUN(strange_memory);
	T_RUN(other_contexts);
	T_RUN(ranges_span_chunks);
	T_RUN(grants_by_handle);
	T_RUN(grants_by_descriptor);
	T_RUN(dmabufs_cover_whole_pages);
	T_RUN(pins_go_in_pieces);
	T_RUN(pins_are_undone);
	T_RUN(files_are_pinned_read_only);
	T_RUN(copies_are_in_order);
	T_RUN(tickets);
	T_RUN(streams_are_for_their_device);
	T_RUN(many_pieces_by_the_kernel);
	T_RUN(the_ring_goes_round);
	T_RUN(pieces_cross_registrations_and_chunks);
	T_RUN(many_pieces_otherwise);
	T_RUN(every_call_may_fail);
	T_RUN(captures_are_not_disturbed);
	T_RUN(threads_do_not_meet);
	T_RUN(a_lost_device_leaves_the_others_alone);
	T_RUN(sentences_say_what_is_missing);
	T_RUN(nothing_is_left);
	return t_done();
}
