/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/err.h"
#include "mem/mem.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

static struct mem_alloc *alloc(uint64_t len, uint32_t flags)
{
	struct mem_alloc *a = NULL;

	T_OK(mem_alloc(mem_provider(PST_KIND_HOST), 0, len, flags, &a));
	return a;
}

static void memory_is_zero_and_aligned(void)
{
	static const uint64_t lens[] = { 1, 4096, 4097, MIB(2) - 1, MIB(2), MIB(5) + 1 };

	for (unsigned i = 0; i < 2 * sizeof(lens) / sizeof(*lens); i++) {
		uint64_t len = lens[i / 2];
		struct mem_alloc *a = alloc(len, i & 1 ? PST_MEM_SHARED : 0);
		const char *p = a->host;

		T_EQ(a->base.va, (uintptr_t)p);
		T_EQ((uintptr_t)p % (len >= MIB(2) ? MIB(2) : 4096), 0);
		T_EQ(a->flags, i & 1 ? PST_MEM_SHARED : 0);
		for (uint64_t k = 0; k < len; k++)
			T_EQ(p[k], 0);
		memset(a->host, 0xff, align_up(len, 4096));
		mem_free(a);
	}
}

/* Return the process' address space in pages, from /proc/self/statm. */
static long pages(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	long n = -1;

	if (f) {
		if (fscanf(f, "%ld", &n) != 1)
			n = -1;
		(void)fclose(f);
	}
	return n;
}

static void freeing_unmaps_all(void)
{
	long before;

	mem_free(alloc(MIB(3), PST_MEM_SHARED));
	before = pages();
	for (int i = 0; i < 50; i++)
		mem_free(alloc(MIB(3) + 4097, i & 1 ? PST_MEM_SHARED : 0));
	T_CHECK(pages() - before < 256); /* the C library's allocator may keep a little */
}

static void only_shared_memory_is_exported(void)
{
	struct mem_alloc *a = alloc(100, 0), *w;
	struct pst_grant g;
	char buf[16];

	T_EQ(mem_export(a, PST_RIGHT_READ, &g), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "PST_MEM_SHARED"));
	mem_free(a);
	T_OK(mem_wrap((uintptr_t)buf, sizeof(buf), 0, PST_MEM_PINNED, &w));
	T_EQ(w->flags, PST_MEM_PINNED);
	T_CHECK(w->host == buf);
	T_EQ(mem_export(w, PST_RIGHT_READ, &g), -EOPNOTSUPP);
	mem_free(w);
}

/* A peer can neither crash the owner by shrinking the memory nor write without the right. */
static void grants_are_sealed_and_limited(void)
{
	struct mem_alloc *a = alloc(5000, PST_MEM_SHARED);
	struct pst_grant g;

	T_OK(mem_export(a, PST_RIGHT_READ | PST_RIGHT_WRITE, &g));
	T_CHECK(ftruncate(g.fd, 100) < 0);
	T_CHECK(ftruncate(g.fd, 10000) < 0);
	T_CHECK(fcntl(g.fd, F_ADD_SEALS, F_SEAL_WRITE) < 0);
	T_EQ(fcntl(g.fd, F_GETFD), FD_CLOEXEC);
	T_EQ(fcntl(g.fd, F_GETFL) & O_ACCMODE, O_RDWR);
	(void)close(g.fd);
	T_OK(mem_export(a, PST_RIGHT_READ, &g));
	T_EQ(fcntl(g.fd, F_GETFD), FD_CLOEXEC);
	T_EQ(fcntl(g.fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	T_CHECK(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, g.fd, 0) == MAP_FAILED);
	(void)close(g.fd);
	mem_free(a);
}

static void hostile_descriptors_are_refused(void)
{
	struct pst_grant g = { .sz = sizeof(g),
			       .kind = PST_KIND_HOST,
			       .rights = PST_RIGHT_READ,
			       .size = 4096,
			       .len = 4096 };
	struct mem_alloc *b = NULL;
	int fds[2];

	g.fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	T_EQ(ftruncate(g.fd, 4096), 0);
	T_EQ(mem_import(&g, &b), -EINVAL);
	T_CHECK(strstr(err_text(), "not sealed"));
	T_EQ(fcntl(g.fd, F_ADD_SEALS, F_SEAL_GROW), 0);
	T_EQ(mem_import(&g, &b), -EINVAL);
	T_EQ(fcntl(g.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE), 0);
	g.rights = PST_RIGHT_READ | PST_RIGHT_WRITE;
	T_EQ(mem_import(&g, &b), -EACCES);
	g.rights = PST_RIGHT_READ;
	T_OK(mem_import(&g, &b));
	mem_free(b);
	(void)close(g.fd);
	b = NULL;

	g.fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	T_EQ(mem_import(&g, &b), -EINVAL);
	(void)close(g.fd);
	g.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	T_EQ(mem_import(&g, &b), -EINVAL);
	(void)close(g.fd);
	T_EQ(pipe(fds), 0);
	g.fd = fds[0];
	T_EQ(mem_import(&g, &b), -EINVAL);
	(void)close(fds[0]);
	(void)close(fds[1]);
	T_CHECK(!b);
}

/* Writing through a read-only import crashes, and changes nothing. */
static void read_only_imports_are_mapped_so(void)
{
	struct mem_alloc *a = alloc(4096, PST_MEM_SHARED), *b;
	struct pst_grant g;
	int status;
	pid_t pid;

	T_OK(mem_export(a, PST_RIGHT_READ, &g));
	T_OK(mem_import(&g, &b));
	(void)close(g.fd);
	pid = fork();
	if (!pid) {
		(void)signal(SIGSEGV, SIG_DFL);
		(void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 });
		*(_Atomic char *)b->host = 1;
		_exit(0);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	T_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	mem_free(b);
	mem_free(a);
}

static void a_file_size_limit_is_an_error_and_no_signal(void)
{
	struct rlimit old, low;
	struct mem_alloc *a = NULL;
	int r;

	T_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
	low = old;
	low.rlim_cur = 4096;
	T_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
	r = mem_alloc(mem_provider(PST_KIND_HOST), 0, 4097, PST_MEM_SHARED, &a);
	T_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
	T_EQ(r, -ENOMEM);
	T_CHECK(strstr(err_text(), "RLIMIT_FSIZE"));
}

static void without_descriptors(void)
{
	struct rlimit old, low;
	struct mem_alloc *a = alloc(1, PST_MEM_SHARED), *b = NULL;
	struct pst_grant g, h;
	int r[4];

	T_OK(mem_export(a, PST_RIGHT_READ, &g));
	T_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = 3;
	T_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
	r[0] = mem_alloc(mem_provider(PST_KIND_HOST), 0, 1, PST_MEM_SHARED, &b);
	r[1] = mem_export(a, PST_RIGHT_READ, &h);
	r[2] = mem_export(a, PST_RIGHT_READ | PST_RIGHT_WRITE, &h);
	r[3] = mem_import(&g, &b);
	T_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
	for (int i = 0; i < 4; i++)
		T_EQ(r[i], -EMFILE);
	(void)close(g.fd);
	mem_free(a);
}

int main(void)
{
	T_RUN(memory_is_zero_and_aligned);
	T_RUN(freeing_unmaps_all);
	T_RUN(only_shared_memory_is_exported);
	T_RUN(grants_are_sealed_and_limited);
	T_RUN(hostile_descriptors_are_refused);
	T_RUN(read_only_imports_are_mapped_so);
	T_RUN(a_file_size_limit_is_an_error_and_no_signal);
	T_RUN(without_descriptors);
	return t_done();
}
