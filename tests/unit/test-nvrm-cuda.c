/* SPDX-License-Identifier: MIT */
/*
 * Windows on CUDA memory by the nvrm back end, through the public calls, on the CUDA stub that
 * PST_LIBCUDA names and the stub of the driver below it.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <penstock.h>

#include "symbol.h"
#include "mem/mem.h"
#include "stub/cuda_stub.h"
#include "stub/nvrm_stub.h"

#define T_ERROR_TEXT() pst_error_text()
#include "t.h"

#define LEN MIB(1)
#define CHUNK STUB_CHUNK
#define RW (PST_RIGHT_READ | PST_RIGHT_WRITE)
#define WAIT_MS 60000

/* Driver functions that the program itself calls. */
static struct {
#define SYM(name, args) cu_result(*name) args;
#define OPT SYM
#include "mem/cuda/cuda_syms.h"
	cu_result (*cuMemAllocManaged)(cu_ptr *, size_t, unsigned);
	cu_result (*cuMemAllocAsync)(cu_ptr *, size_t, cu_stream);
	void (*stub_cuda_state)(struct stub_cuda_state *);
	bool (*stub_cuda_fail)(const char *);
} cu;

/* Load the CUDA stub and make contexts on its devices.  Return false without a stub. */
static bool cuda(void)
{
	const char *file = getenv("PST_LIBCUDA");
	void *lib = file && *file ? dlopen(file, RTLD_NOW) : NULL;
	cu_ctx ctx;

	if (!lib || !dlsym(lib, "stub_cuda_state"))
		return false;
#define SYM(name, args) symbol(lib, &cu.name, #name);
#define OPT SYM
#include "mem/cuda/cuda_syms.h"
	symbol(lib, &cu.cuMemAllocManaged, "cuMemAllocManaged");
	symbol(lib, &cu.cuMemAllocAsync, "cuMemAllocAsync");
	symbol(lib, &cu.stub_cuda_state, "stub_cuda_state");
	symbol(lib, &cu.stub_cuda_fail, "stub_cuda_fail");
	return cu.cuInit(0) == CU_OK && cu.cuDevicePrimaryCtxRetain(&ctx, 0) == CU_OK &&
	       cu.cuCtxPushCurrent_v2(ctx) == CU_OK;
}

#define CU(call) T_EQ(cu.call, CU_OK)

/* ----------------------------------------------------------------- helpers */

static struct pst_mem *wrap(cu_ptr va, uint64_t len)
{
	struct pst_mem *m = NULL;

	T_OK(pst_mem_wrap(va, len, NULL, &m));
	return m;
}

static const struct pst_window_opts by_nvrm = { .sz = sizeof(by_nvrm), .backend = "nvrm" };

static int open_window(struct pst_mem *m, uint64_t off, uint64_t len, uint32_t flags,
		       struct pst_window **ret)
{
	struct pst_window_opts o = by_nvrm;

	o.flags = flags;
	return pst_window_open(m, off, len, &o, ret);
}

static bool says(const char *what)
{
	if (strstr(pst_error_text(), what))
		return true;
	printf("# the sentence is: %s\n", pst_error_text());
	return false;
}

/*
 * Compare the range with what the device copies, in both directions.  Check that no byte outside
 * has changed.
 */
static void check(struct pst_mem *m, uint64_t off, uint64_t len)
{
	struct pst_window_info info = { .sz = sizeof(info) };
	char *want = malloc(len + 2), *got = malloc(len + 2);
	struct pst_mem_info mi = { .sz = sizeof(mi) };
	struct pst_window *w = NULL;
	uint64_t before, behind;

	T_CHECK(want && got);
	T_OK(pst_mem_info(m, &mi));
	before = off > 0;
	behind = off + len < mi.len;
	T_OK(open_window(m, off, len, 0, &w));
	T_OK(pst_window_info(w, &info));
	T_CHECK(!strcmp(info.backend, "nvrm"));
	T_EQ(info.state, PST_STATE_PROVEN);
	T_EQ(info.caching, PST_CACHING_WC);
	T_EQ(info.len, len);
	/* Written by the device, read by the CPU. */
	t_fill(want, 3, 0, len + before + behind);
	T_OK(pst_mem_copy_in(m, off - before, want, len + before + behind));
	T_OK(pst_window_load(w, 0, got, len));
	T_CHECK(!memcmp(got, want + before, len));
	/* Written by the CPU, read by the device. */
	t_fill(got, 4, 0, len);
	T_OK(pst_window_store(w, 0, got, len));
	memcpy(want + before, got, len);
	T_OK(pst_mem_copy_out(m, off - before, got, len + before + behind));
	T_CHECK(!memcmp(got, want, len + before + behind));
	pst_window_close(w);
	free(want);
	free(got);
}

static int refusal(struct pst_mem *m, uint64_t off, uint64_t len)
{
	struct pst_window *w = NULL;
	int r = open_window(m, off, len, 0, &w);

	if (r == 0)
		pst_window_close(w);
	T_EQ(stub_nvrm_left(), 0);
	return r;
}

/* Adjacent chunks of cuMemCreate(). */
struct row {
	cu_ptr va;
	uint64_t len;
};

static struct row map_row(unsigned nr, uint32_t types, uint32_t prot)
{
	struct cu_access access = { .location = { CU_LOC_DEVICE, 0 }, .flags = prot };
	struct cu_prop prop = { .type = CU_ALLOC_PINNED,
				.handle_types = types,
				.location = { CU_LOC_DEVICE, 0 } };
	struct row row = { .len = nr * CHUNK };

	CU(cuMemAddressReserve(&row.va, row.len, 0, 0, 0));
	for (unsigned i = 0; i < nr; i++) {
		cu_handle h;

		CU(cuMemCreate(&h, CHUNK, &prop, 0));
		CU(cuMemMap(row.va + i * CHUNK, CHUNK, 0, h, 0));
		CU(cuMemRelease(h));
	}
	CU(cuMemSetAccess(row.va, row.len, &access, 1));
	return row;
}

static void unmap_row(struct row row)
{
	CU(cuMemUnmap(row.va, row.len));
	CU(cuMemAddressFree(row.va, row.len));
}

/* -------------------------------------------------------------------- tests */

static void allocated(void)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pst_mem *m = NULL;

		T_OK(pst_mem_alloc(i ? "cuda:1" : "cuda:0", LEN, NULL, &m));
		check(m, 0, LEN);
		check(m, 4095, 2);
		check(m, 12345, 67890);
		pst_mem_free(m);
	}
	T_EQ(stub_nvrm_left(), 0);
}

static void small_allocations(void)
{
	cu_ptr va[64];

	for (unsigned i = 0; i < 64; i++)
		CU(cuMemAlloc_v2(&va[i], 1000 + 37 * i));
	for (unsigned i = 0; i < 64; i++) {
		struct pst_mem *m = wrap(va[i], 1000 + 37 * i);

		check(m, 0, 1000 + 37 * i);
		check(m, i, 1);
		pst_mem_free(m);
	}
	for (unsigned i = 0; i < 64; i++)
		CU(cuMemFree_v2(va[i]));
	T_EQ(stub_nvrm_left(), 0);
}

static void inside_of_an_allocation(void)
{
	struct pst_mem *m;
	cu_ptr va;

	CU(cuMemAlloc_v2(&va, MIB(4)));
	m = wrap(va + 1234567, 7654);
	check(m, 0, 7654);
	check(m, 77, 7);
	pst_mem_free(m);
	CU(cuMemFree_v2(va));
}

static void mapped_memory(void)
{
	struct row row = map_row(5, CU_HANDLE_POSIX_FD, CU_PROT_READ_WRITE);
	struct pst_mem *m = wrap(row.va, row.len);

	check(m, 0, row.len);
	check(m, CHUNK - 1, 2);
	check(m, CHUNK, CHUNK);
	check(m, CHUNK / 2 + 5, 3 * CHUNK);
	pst_mem_free(m);
	/* A range across two chunks, in a wrap that begins in the second one. */
	m = wrap(row.va + CHUNK + 4097, CHUNK);
	check(m, 0, CHUNK);
	check(m, CHUNK - 4097, 4096);
	pst_mem_free(m);
	unmap_row(row);
	T_EQ(stub_nvrm_left(), 0);
}

static void what_cannot_be_shared(void)
{
	struct row row = map_row(2, 0, CU_PROT_READ_WRITE);
	struct pst_mem *m = wrap(row.va, row.len);
	cu_ptr va;

	T_EQ(refusal(m, 0, 64), -EOPNOTSUPP);
	T_CHECK(says("CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR"));
	pst_mem_free(m);
	unmap_row(row);

	CU(cuMemAllocAsync(&va, LEN, NULL));
	m = wrap(va, LEN);
	T_EQ(refusal(m, 0, 64), -EOPNOTSUPP);
	T_CHECK(says("cudaMallocAsync"));
	pst_mem_free(m);
	CU(cuMemFree_v2(va));

	CU(cuMemAllocManaged(&va, LEN, 1));
	T_EQ(pst_mem_wrap(va, LEN, NULL, &m), -EOPNOTSUPP);
	T_CHECK(says("managed"));
	CU(cuMemFree_v2(va));

	CU(cuMemAlloc_v2(&va, LEN));
	m = wrap(va, LEN);
	T_EQ(pst_window_open(m, LEN - 1, 2, NULL, &(struct pst_window *){ NULL }), -ERANGE);
	CU(cuMemFree_v2(va));
	T_EQ(refusal(m, 0, 64), -EOPNOTSUPP);
	T_CHECK(says("freed by its owner"));
	pst_mem_free(m);
}

static void read_only(void)
{
	struct row row = map_row(2, CU_HANDLE_POSIX_FD, CU_PROT_READ);
	struct pst_mem *m = wrap(row.va, row.len);
	struct pst_window *w = NULL;
	char b = 1;

	T_EQ(refusal(m, 0, 64), -EACCES);
	T_OK(open_window(m, 10, CHUNK, PST_WINDOW_READ_ONLY, &w));
	T_OK(pst_window_load(w, CHUNK - 1, &b, 1));
	T_EQ(b, 0);
	T_EQ(pst_window_store(w, 0, &b, 1), -EACCES);
	pst_window_close(w);
	pst_mem_free(m);
	unmap_row(row);
}

static void freed_while_mapped(void)
{
	struct pst_window *w = NULL;
	struct pst_mem *m;
	uint64_t v = 0x1122334455667788, back = 0;
	cu_ptr va;

	CU(cuMemAlloc_v2(&va, 5000));
	m = wrap(va, 5000);
	T_OK(open_window(m, 4000, 1000, 0, &w));
	T_OK(pst_window_store(w, 8, &v, 8));
	pst_mem_free(m);
	CU(cuMemFree_v2(va));
	T_OK(pst_window_load(w, 8, &back, 8));
	T_EQ(back, v);
	pst_window_close(w);
	T_EQ(stub_nvrm_left(), 0);
}

static void forked(void)
{
	struct pst_window *w = NULL;
	struct pst_mem *m = NULL;
	unsigned char vec;
	int status = -1;
	pid_t pid;

	T_OK(pst_mem_alloc("cuda", LEN, NULL, &m));
	T_OK(open_window(m, 0, LEN, 0, &w));
	pid = fork();
	if (pid == 0) {
		char b = 0;
		bool gone = pst_window_store(w, 0, &b, 1) == -EOWNERDEAD && !pst_window_close(w) &&
			    mincore(pst_window_ptr(w), 4096, &vec) < 0 && errno == ENOMEM;

		_exit(gone ? 0 : 1);
	}
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	T_EQ(status, 0);
	pst_window_close(w);
	pst_mem_free(m);
	T_EQ(stub_nvrm_left(), 0);
}

static void backends(void)
{
	struct pst_window_backend b[8] = { 0 };
	int n;

	for (unsigned i = 0; i < 8; i++)
		b[i].sz = sizeof(b[i]);
	n = pst_window_backends("cuda:1", b, 8);
	for (int i = 0; i < n; i++) {
		if (strcmp(b[i].name, "nvrm") != 0)
			continue;
		T_EQ(b[i].state, PST_STATE_PROVEN);
		return;
	}
	T_FAIL("no nvrm among %d", n);
}

/* ---------------------------------------------------------- other processes */

/*
 * Run a child: map what arrives on the socket, report whether the pattern is there, and write
 * another pattern.  The child "grant" does not load CUDA, the child "import" does.
 */
static int as_child(const char *how, int sock)
{
	struct pst_grant g = { .sz = sizeof(g) };
	struct pst_window *w = NULL;
	struct pst_mem *m = NULL;
	char buf[3000];

	if (pst_grant_recv(sock, &g, t_in_ms(WAIT_MS)) < 0)
		return 10;
	if (!strcmp(how, "grant") && pst_window_open_grant(&g, &by_nvrm, &w) < 0)
		return 11;
	if (!strcmp(how, "import") &&
	    (pst_mem_import(&g, &m) < 0 || open_window(m, 0, g.len, 0, &w) < 0))
		return printf("# %s\n", pst_error_text()), 12;
	pst_grant_done(&g);
	if (pst_window_load(w, 0, buf, sizeof(buf)) < 0 ||
	    t_differs(buf, 5, 0, sizeof(buf)) != sizeof(buf))
		return 13;
	t_fill(buf, 6, 0, sizeof(buf));
	if (pst_window_store(w, 0, buf, sizeof(buf)) < 0)
		return 14;
	pst_window_close(w);
	pst_mem_free(m);
	return stub_nvrm_left() ? 15 : 0;
}

static void lend(struct pst_mem *m, uint64_t off, const char *how)
{
	struct pst_grant g = { .sz = sizeof(g) };
	char buf[3000], fd[16];
	int sock[2], status = -1;
	pid_t pid;

	t_fill(buf, 5, 0, sizeof(buf));
	T_OK(pst_mem_copy_in(m, off, buf, sizeof(buf)));
	T_OK(pst_mem_export(m, off, sizeof(buf), RW, &g));
	T_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sock), 0);
	(void)fcntl(sock[0], F_SETFD, FD_CLOEXEC);
	(void)snprintf(fd, sizeof(fd), "%d", sock[1]);
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (!strcmp(how, "grant"))
			(void)setenv("PST_LIBCUDA", "/nonexistent", 1);
		(void)execl("/proc/self/exe", "test", how, fd, (char *)NULL);
		_exit(127);
	}
	(void)close(sock[1]);
	T_OK(pst_grant_send(sock[0], &g, t_in_ms(WAIT_MS)));
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	T_EQ(WEXITSTATUS(status), 0);
	T_CHECK(WIFEXITED(status));
	T_OK(pst_mem_copy_out(m, off, buf, sizeof(buf)));
	T_EQ(t_differs(buf, 6, 0, sizeof(buf)), sizeof(buf));
	pst_grant_done(&g);
	(void)close(sock[0]);
}

static void grants(void)
{
	static const char *const how[] = { "grant", "import" };

	for (unsigned i = 0; i < 2; i++) {
		struct row row = map_row(1, CU_HANDLE_POSIX_FD, CU_PROT_READ_WRITE);
		struct pst_mem *m = wrap(row.va, row.len);
		cu_ptr va;

		lend(m, 0, how[i]);
		lend(m, 123457, how[i]);
		pst_mem_free(m);
		unmap_row(row);
		CU(cuMemAlloc_v2(&va, 10000));
		m = wrap(va, 10000);
		lend(m, 0, how[i]);
		lend(m, 6789, how[i]);
		pst_mem_free(m);
		CU(cuMemFree_v2(va));
	}
}

/* ----------------------------------------------------------------- failures */

/* Fail each call of CUDA, then each of the driver: nothing leaks, and no window has wrong bytes. */
static void calls_that_fail(bool driver, uint64_t off, struct pst_mem *m, const char *spoil)
{
	struct stub_cuda_state before, after;
	unsigned n = 1;

	for (bool met = true; met; n++) {
		struct pst_window *w = NULL;
		char spec[64];

		T_CHECK(n < 300);
		cu.stub_cuda_state(&before);
		(void)snprintf(spec, sizeof(spec), "*:%u:%s", n, spoil);
		if (driver)
			stub_nvrm.fail_at = n;
		else
			(void)cu.stub_cuda_fail(spec);
		if (open_window(m, off, CHUNK, 0, &w) == 0)
			pst_window_close(w);
		met = driver ? stub_nvrm.failed : cu.stub_cuda_fail(NULL);
		stub_nvrm_reset();
		cu.stub_cuda_state(&after);
		T_EQ(stub_nvrm_left(), 0);
		T_EQ(after.ranges, before.ranges);
		T_EQ(after.handles, before.handles);
		T_EQ(after.reservations, before.reservations);
		T_EQ(after.streams, before.streams);
		T_EQ(after.depth, before.depth);
		T_EQ(after.mode, before.mode);
	}
	T_CHECK(n > 10);
}

static void every_call_fails(void)
{
	struct row row = map_row(3, CU_HANDLE_POSIX_FD, CU_PROT_READ_WRITE);
	struct pst_mem *m = wrap(row.va, row.len), *plain = NULL;

	pst_log_set(NULL, NULL, PST_LOG_ERROR);
	T_OK(pst_mem_alloc("cuda", 2 * CHUNK, NULL, &plain));
	for (unsigned driver = 0; driver < 2; driver++) {
		calls_that_fail(driver, 100, m, "2");
		calls_that_fail(driver, 100, plain, "1");
	}
	pst_log_set(NULL, NULL, 0);
	check(m, 0, row.len);
	check(plain, 0, CHUNK);
	pst_mem_free(plain);
	pst_mem_free(m);
	unmap_row(row);
}

static void a_wrong_mapping_is_no_window(void)
{
	struct pst_mem *m = NULL;

	T_OK(pst_mem_alloc("cuda:0", 3 * LEN, NULL, &m));
	check(m, 0, 2 * LEN);
	stub_nvrm.elsewhere = true;
	T_EQ(refusal(m, 0, LEN), -EOPNOTSUPP);
	T_CHECK(says("the window shows other bytes"));
	stub_nvrm.elsewhere = false;
	check(m, 0, LEN);
	pst_mem_free(m);
}

/* The mapping is wrong before anything is proven: the proof on scratch memory notices, and the
 * back end is not used again. */
static int as_misled(void)
{
	struct pst_window *w = NULL;
	struct pst_mem *m = NULL;

	stub_nvrm.elsewhere = true;
	if (pst_mem_alloc("cuda:0", LEN, NULL, &m) < 0 || open_window(m, 0, 64, 0, &w) == 0 ||
	    !says("what the CPU stored is not what the device has"))
		return 1;
	stub_nvrm.elsewhere = false;
	if (open_window(m, 0, 64, 0, &w) == 0 || !says("not used any more"))
		return 2;
	pst_mem_free(m);
	return stub_nvrm_left() ? 3 : 0;
}

static void a_wrong_way_is_not_taken_again(void)
{
	int status = -1;
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)execl("/proc/self/exe", "test", "misled", (char *)NULL);
		_exit(127);
	}
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	T_EQ(status, 0);
}

int main(int argc, char **argv)
{
	if (argc == 2)
		return as_misled();
	if (argc == 3)
		return as_child(argv[1], atoi(argv[2]));
	if (!cuda()) {
		printf("1..0 # SKIP PST_LIBCUDA does not name the library of tests/stub\n");
		return 0;
	}
	T_RUN(every_call_fails);
	T_RUN(allocated);
	T_RUN(small_allocations);
	T_RUN(inside_of_an_allocation);
	T_RUN(mapped_memory);
	T_RUN(what_cannot_be_shared);
	T_RUN(read_only);
	T_RUN(freed_while_mapped);
	T_RUN(forked);
	T_RUN(backends);
	T_RUN(grants);
	T_RUN(a_wrong_mapping_is_no_window);
	T_RUN(a_wrong_way_is_not_taken_again);
	return t_done();
}
