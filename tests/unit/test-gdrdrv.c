/* SPDX-License-Identifier: MIT */
/*
 * Windows by gdrdrv: a stub of the module (tests/stub/gdrdrv.c) checks each call.  Runs on
 * memory of the CUDA stub.
 */
#include <signal.h>
#include <sys/wait.h>

#include "mem/cuda/cuda.h"

#define T_ERROR_TEXT() pst_error_text()
#include "t.h"

#include "stub/gdrdrv_stub.h"

#define GPU_PAGE 65536u
#define LEN (1u << 20)

static struct pst_mem *mem; /* LEN bytes and a page */
static uint64_t first;      /* offset of mem's first whole page */

static int open_on(struct pst_mem *m, uint64_t off, uint64_t len, uint32_t caching,
		   struct pst_window **ret)
{
	struct pst_window_opts o = { .sz = sizeof(o), .backend = "gdrdrv", .caching = caching };

	return pst_window_open(m, off, len, &o, ret);
}

static void needs_cuda(void)
{
	struct pst_mem_info info = { .sz = sizeof(info) };

	if (!mem && pst_mem_alloc("cuda:0", LEN + GPU_PAGE, NULL, &mem) < 0)
		T_SKIP("%s", pst_error_text());
	T_OK(pst_mem_info(mem, &info));
	first = (GPU_PAGE - info.addr % GPU_PAGE) % GPU_PAGE;
	stub_gdrdrv_reset();
}

/* Check that nothing is pinned, mapped or open, and that no rule of the module was broken. */
static void is_over(void)
{
	T_EQ(stub_gdrdrv.files, 0);
	T_EQ(stub_gdrdrv.pins, 0);
	T_EQ(stub_gdrdrv.maps, 0);
	if (stub_gdrdrv.broken[0])
		T_FAIL("%s", stub_gdrdrv.broken);
}

static void check_bytes(struct pst_mem *m, struct pst_window *w, uint64_t off, uint64_t len)
{
	char *in = malloc(len), *out = malloc(len);

	T_CHECK(in && out);
	t_fill(in, off, 0, len);
	T_OK(pst_window_store(w, 0, in, len));
	T_OK(pst_mem_copy_out(m, off, out, len));
	T_EQ(t_differs(out, off, 0, len), len);
	t_fill(in, off + 1, 0, len);
	T_OK(pst_mem_copy_in(m, off, in, len));
	T_OK(pst_window_load(w, 0, out, len));
	T_EQ(t_differs(out, off + 1, 0, len), len);
	free(in);
	free(out);
}

static void bytes_at_odd_places(void)
{
	static const uint64_t places[][2] = {
		{ 0, LEN },
		{ 1, 1 },
		{ 63, 4097 },
		{ GPU_PAGE - 1, 2 },
		{ GPU_PAGE, GPU_PAGE },
		{ GPU_PAGE + 4095, 3 * GPU_PAGE + 7 },
		{ LEN - 1, 1 },
	};
	struct pst_window_info info = { .sz = sizeof(info) };
	unsigned fds;

	needs_cuda();
	for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct pst_window *w = NULL;

		fds = t_count_fds();
		T_OK(open_on(mem, first + places[i][0], places[i][1], 0, &w));
		T_OK(pst_window_info(w, &info));
		T_CHECK(!strcmp(info.backend, "gdrdrv"));
		T_EQ(info.caching, PST_CACHING_WC);
		T_EQ(info.state, PST_STATE_PROVEN);
		T_EQ(info.len, places[i][1]);
		check_bytes(mem, w, first + places[i][0], places[i][1]);
		T_EQ(stub_gdrdrv.pins, 1);
		/* While a window is open, the proof's stream has a descriptor. */
		T_CHECK(t_fds_left(fds + 1) <= fds + 1);
		pst_window_close(w);
		is_over();
	}
	T_CHECK(stub_gdrdrv.pinned_v2 && !stub_gdrdrv.pinned_v1 && !stub_gdrdrv.asked_types);
}

static void it_is_the_first_choice(void)
{
	struct pst_window_backend b[8] = { 0 };
	struct pst_window_info info = { .sz = sizeof(info) };
	struct pst_window *w = NULL;

	needs_cuda();
	T_OK(pst_window_open(mem, first, 4096, NULL, &w));
	T_OK(pst_window_info(w, &info));
	T_CHECK(!strcmp(info.backend, "gdrdrv"));
	pst_window_close(w);
	for (unsigned i = 0; i < 8; i++)
		b[i].sz = sizeof(b[i]);
	T_CHECK(pst_window_backends("cuda:0", b, 8) >= 1);
	T_CHECK(!strcmp(b[0].name, "gdrdrv"));
	T_EQ(b[0].state, PST_STATE_PROVEN);
	is_over();
}

static void refused(int err, const char *why)
{
	struct pst_window *w = NULL;

	T_EQ(open_on(mem, first, 4096, 0, &w), -err);
	T_CHECK(!w);
	if (!strstr(pst_error_text(), why))
		T_FAIL("'%s' does not say '%s'", pst_error_text(), why);
	is_over();
}

static void no_module(void)
{
	needs_cuda();
	stub_gdrdrv.open_errno = ENOENT;
	refused(EOPNOTSUPP, "there is no /dev/gdrdrv");
	stub_gdrdrv.open_errno = ENXIO;
	refused(EOPNOTSUPP, "there is no module");
	stub_gdrdrv.open_errno = EACCES;
	refused(EOPNOTSUPP, "cannot be opened: EACCES");
	stub_gdrdrv.open_errno = EMFILE;
	refused(EMFILE, "no descriptor");
}

static void versions_that_do_not_fit(void)
{
	needs_cuda();
	stub_gdrdrv.version = 1 << 16 | 9;
	refused(EOPNOTSUPP, "gdrdrv 1.9");
	stub_gdrdrv.version = 3 << 16;
	stub_gdrdrv.minimum = 2 << 16 | 7;
	refused(EOPNOTSUPP, "wants programs of 2.7");
}

static void older_versions(void)
{
	struct pst_window_info info = { .sz = sizeof(info) };

	for (uint32_t minor = 0; minor <= 5; minor++) {
		struct pst_window *w = NULL;

		needs_cuda();
		stub_gdrdrv.version = 2 << 16 | minor;
		T_OK(open_on(mem, first + 5, 100, 0, &w));
		T_OK(pst_window_info(w, &info));
		T_EQ(info.caching, PST_CACHING_WC);
		check_bytes(mem, w, first + 5, 100);
		pst_window_close(w);
		is_over();
		T_CHECK(minor >= 5 ? stub_gdrdrv.pinned_v2 : stub_gdrdrv.pinned_v1);
		T_CHECK(minor >= 5 ? !stub_gdrdrv.pinned_v1 : !stub_gdrdrv.pinned_v2);
		stub_gdrdrv.type = 0;
		refused(EOPNOTSUPP, "does not say how");
	}
}

/* The first GPU page of the memory is partly another allocation's. */
static void pages_of_others(void)
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_mem *held[32], *small = NULL;
	struct pst_window *w = NULL;
	unsigned n = 0;

	needs_cuda();
	while (n < 32 && !small) {
		T_OK(pst_mem_alloc("cuda:0", 4096, NULL, &held[n]));
		T_OK(pst_mem_info(held[n], &info));
		if (info.addr % GPU_PAGE)
			small = held[n];
		else
			n++;
	}
	while (n--)
		pst_mem_free(held[n]);
	if (!small)
		T_SKIP("every allocation begins with a page");
	T_EQ(open_on(small, 0, 4096, 0, &w), -EOPNOTSUPP);
	T_CHECK(strstr(pst_error_text(), "64 KiB page"));
	/* Without a backend named, the library uses another one. */
	T_OK(pst_window_open(small, 0, 4096, NULL, &w));
	pst_window_close(w);
	pst_mem_free(small);
	is_over();
}

static void kinds_of_mappings(void)
{
	struct pst_window_info info = { .sz = sizeof(info) };
	struct pst_window *w = NULL;

	needs_cuda();
	T_OK(open_on(mem, first, 4096, PST_CACHING_WC, &w));
	T_EQ(stub_gdrdrv.asked_types, 1);
	pst_window_close(w);
	T_EQ(open_on(mem, first, 4096, PST_CACHING_CACHED, &w), -EOPNOTSUPP);
	T_CHECK(strstr(pst_error_text(), "in the way that is wanted"));
	stub_gdrdrv.types |= 1u << 2 | 1u << 3;
	T_OK(open_on(mem, first, 4096, PST_CACHING_CACHED, &w));
	T_OK(pst_window_info(w, &info));
	T_EQ(info.caching, PST_CACHING_CACHED);
	pst_window_close(w);
	T_OK(open_on(mem, first, 4096, PST_CACHING_DEVICE, &w));
	T_OK(pst_window_info(w, &info));
	T_EQ(info.caching, PST_CACHING_DEVICE);
	pst_window_close(w);
	/* An old module cannot tell the kind of mapping: it is deduced. */
	stub_gdrdrv.version = 2 << 16 | 4;
	T_OK(open_on(mem, first, 4096, PST_CACHING_WC, &w));
	pst_window_close(w);
	T_EQ(open_on(mem, first, 4096, PST_CACHING_CACHED, &w), -EOPNOTSUPP);
	T_CHECK(strstr(pst_error_text(), "write combining, not cached"));
	is_over();
}

static void pinning_fails(void)
{
	needs_cuda();
	stub_gdrdrv.pin_errno = EINVAL;
	refused(EOPNOTSUPP, "does not pin the memory: EINVAL");
	stub_gdrdrv.pin_errno = ENOMEM;
	refused(ENOMEM, "no room");
}

/* The owner may free the memory at any time: only a persistent mapping is accepted. */
static void memory_of_others(void)
{
	struct pst_mem *wrapped = NULL, *kept = mem;
	struct pst_window *w = NULL;
	cu_ctx ctx;
	cu_ptr va;
	char b[64];

	needs_cuda();
	T_EQ(cu.cuDevicePrimaryCtxRetain(&ctx, 0), CU_OK);
	T_EQ(cu.cuCtxPushCurrent_v2(ctx), CU_OK);
	T_EQ(cu.cuMemAlloc_v2(&va, LEN), CU_OK);
	T_OK(pst_mem_wrap((va + GPU_PAGE - 1) / GPU_PAGE * GPU_PAGE, LEN / 2, NULL, &wrapped));
	mem = wrapped;
	first = 0;
	stub_gdrdrv.persistent = false;
	refused(EOPNOTSUPP, "use_persistent_mapping=1");
	stub_gdrdrv_reset();
	stub_gdrdrv.version = 2 << 16 | 4;
	refused(EOPNOTSUPP, "load version 2.5");
	mem = kept;

	stub_gdrdrv_reset();
	T_OK(open_on(wrapped, 0, 4096, 0, &w));
	T_OK(pst_window_store(w, 0, "stays", 6));
	pst_mem_free(wrapped);
	T_EQ(cu.cuMemFree_v2(va), CU_OK);
	T_OK(pst_window_load(w, 0, b, 6));
	T_CHECK(!strcmp(b, "stays"));
	pst_window_close(w);
	T_EQ(cu.cuCtxPopCurrent_v2(&ctx), CU_OK);
	T_EQ(cu.cuDevicePrimaryCtxRelease_v2(0), CU_OK);
	is_over();
}

/* Fail each call of the module once. */
static void any_call_fails(void)
{
	struct pst_window *w = NULL;
	unsigned n = 1;

	needs_cuda();
	for (;; n++) {
		unsigned fds = t_count_fds();
		int r;

		stub_gdrdrv_reset();
		stub_gdrdrv.fail_at = n;
		r = open_on(mem, first + 100, 5000, PST_CACHING_WC, &w);
		if (stub_gdrdrv.calls < n) {
			T_OK(r);
			break;
		}
		T_CHECK(r == -EOPNOTSUPP && strstr(pst_error_text(), "EIO"));
		is_over();
		T_CHECK(t_fds_left(fds) <= fds);
	}
	/* six calls can fail: open, version, pin, type, mmap and info */
	T_EQ(n, 7);
	pst_window_close(w);
	is_over();
}

static void a_child_has_no_mapping(void)
{
	struct pst_window *w = NULL;
	volatile char *p;
	int status = 0;
	pid_t pid;

	needs_cuda();
	T_OK(open_on(mem, first, 4096, 0, &w));
	p = pst_window_ptr(w);
	(void)*p;
	pid = fork();
	if (pid == 0) {
		(void)signal(SIGSEGV, SIG_DFL);
		(void)alarm(10);
		_exit(*p ? 1 : 2);
	}
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	T_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	pst_window_close(w);
	is_over();
}

/* Run this case last: afterwards the library does not trust the back end any more. */
static void a_wrong_mapping_is_noticed(void)
{
	char *buf = malloc(LEN);

	needs_cuda();
	T_CHECK(buf);
	t_fill(buf, 3, 0, LEN);
	T_OK(pst_mem_copy_in(mem, first, buf, LEN));
	free(buf);
	stub_gdrdrv.lies = true;
	refused(EOPNOTSUPP, "shows other bytes");
}

int main(void)
{
	T_RUN(bytes_at_odd_places);
	T_RUN(it_is_the_first_choice);
	T_RUN(no_module);
	T_RUN(versions_that_do_not_fit);
	T_RUN(older_versions);
	T_RUN(pages_of_others);
	T_RUN(kinds_of_mappings);
	T_RUN(pinning_fails);
	T_RUN(memory_of_others);
	T_RUN(any_call_fails);
	T_RUN(a_child_has_no_mapping);
	T_RUN(a_wrong_mapping_is_noticed);
	pst_mem_free(mem);
	return t_done();
}
