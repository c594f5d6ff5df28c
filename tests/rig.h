/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of the library: a scratch directory, pattern files, a queue, one request
 * and its completion, and a matrix of back ends and kinds of memory to run a case with.
 *
 *	static void reads(void)
 *	{
 *		struct pst_file *f = rig_open("data", RIG_R);
 *		...
 *		T_EQ(rig_read(f, m, 0, 0, 4096).res, 4096);
 *	}
 *	int main(void)
 *	{
 *		rig_init();
 *		RIG_RUN(reads);
 *		return rig_done();
 *	}
 *
 * After each case everything must be quiet again: no request in flight, no staging memory, no
 * thread of the library.
 */
#ifndef PST_RIG_H
#define PST_RIG_H

#define T_ERROR_TEXT() pst_error_text()

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <penstock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scratch.h"
#include "t.h"

#define RIG_R PST_FILE_READ
#define RIG_RW (PST_FILE_READ | PST_FILE_WRITE)
#define RIG_NEW (RIG_RW | PST_FILE_CREATE | PST_FILE_TRUNC)
#define RIG_TSAN T_TSAN /* 1 under the thread sanitizer */

#define RIG_WAIT_MS 60000

#define RIG_NR(a) (sizeof(a) / sizeof((a)[0]))
#define RIG_MIB(n) ((uint64_t)(n) << 20)

static char rig_dir[100];

/* Threads and statistics before the case, including leftovers of failed cases. */
static unsigned rig_tasks;
static struct pst_stats rig_before;

/* Parameters of the running case. */
static struct pst_queue *rig_q;
static const char *rig_dev;
static uint32_t rig_backend;

/* ------------------------------------------------------------ environment */

static pid_t rig_pid;

static inline void rig_clean(void)
{
	if (getpid() == rig_pid) /* not in a child that ended by exit() */
		(void)scratch_remove(rig_dir);
}

/* Names of the library's threads, set by rig_count_tasks().  Other threads may belong to the
 * test, a sanitizer, or the kernel's io_uring. */
static char rig_task_names[256];

static inline bool rig_is_task(const char *task)
{
	char path[64], comm[17] = "";
	size_t len = strlen(rig_task_names);
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", task);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false; /* the thread has ended */
	n = read(fd, comm, sizeof(comm) - 1);
	(void)close(fd);
	if (n <= 0 || strncmp(comm, "pst-", 4) != 0)
		return false;
	comm[strcspn(comm, "\n")] = '\0';
	(void)snprintf(rig_task_names + len, sizeof(rig_task_names) - len, " %s", comm);
	return true;
}

static inline unsigned rig_count_tasks(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	unsigned n = 0;

	rig_task_names[0] = '\0';
	while (d && (e = readdir(d)) != NULL)
		n += e->d_name[0] != '.' && rig_is_task(e->d_name);
	if (d)
		(void)closedir(d);
	return n;
}

/* Make a scratch directory under PST_TEST_DIR and use it as the cache, so that no verdicts of
 * earlier processes are found. */
static inline void rig_init(void)
{
	int r = scratch_new(NULL, rig_dir, sizeof(rig_dir));

	if (r < 0) {
		printf("Bail out! no scratch directory %s: %s\n", rig_dir, strerror(-r));
		exit(1);
	}
	rig_pid = getpid();
	(void)atexit(rig_clean);
	(void)setenv("XDG_CACHE_HOME", rig_dir, 1);
	rig_tasks = rig_count_tasks();
}

static inline const char *rig_path(const char *name)
{
	static char path[4][512];
	static unsigned turn;
	char *p = path[turn++ % 4];

	(void)snprintf(p, sizeof(path[0]), "%s/%s", rig_dir, name);
	return p;
}

/* --------------------------------------------------------------- patterns */

static uint64_t rig_random_state = 88172645463325252u;

static inline uint64_t rig_random(void)
{
	uint64_t x = rig_random_state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return rig_random_state = x;
}

/* Return a number from 0 to n - 1. */
static inline uint64_t rig_below(uint64_t n)
{
	return rig_random() % n;
}

/* Compute CRC-32C by RFC 3720's definition, to compare the library's with. */
T_AT_ONCE static inline uint32_t rig_crc32c(uint32_t crc, const void *buf, size_t len)
{
	static uint32_t table[256];

	if (!table[1])
		for (uint32_t i = 0; i < 256; i++) {
			uint32_t c = i;

			for (int k = 0; k < 8; k++)
				c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
			table[i] = c;
		}
	T_READS(buf, len);
	crc = ~crc;
	for (const uint8_t *p = buf; len--; p++)
		crc = crc >> 8 ^ table[(crc ^ *p) & 255];
	return ~crc;
}

/* ------------------------------------------------------------------ files */

/* Write len bytes of the pattern to path and sync them to the disk. */
static inline void rig_make(const char *path, uint64_t seed, uint64_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	size_t step = 1u << 20;
	char *buf = malloc(step);
	bool good = fd >= 0 && buf;

	for (uint64_t off = 0; good && off < len; off += step) {
		size_t n = len - off < step ? len - off : step;

		t_fill(buf, seed, off, n);
		good = pwrite(fd, buf, n, (off_t)off) == (ssize_t)n;
	}
	free(buf);
	if (good)
		(void)fsync(fd);
	if (fd >= 0)
		(void)close(fd);
	if (!good)
		T_FAIL("%.200s cannot be made: %s", path, strerror(errno));
}

/* Drop the file's clean pages from the page cache. */
static inline void rig_cold(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		T_FAIL("%.200s: %s", path, strerror(errno));
	(void)fsync(fd);
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	(void)close(fd);
}

/* Read all of the file into the page cache. */
static inline void rig_warm(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char buf[65536];

	if (fd < 0)
		T_FAIL("%.200s: %s", path, strerror(errno));
	while (read(fd, buf, sizeof(buf)) > 0)
		;
	(void)close(fd);
}

/* Read bytes of the file without the library; return their number. */
static inline size_t rig_slurp(const char *path, uint64_t off, void *buf, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t got = 0;
	ssize_t n;

	if (fd < 0)
		T_FAIL("%.200s: %s", path, strerror(errno));
	while (got < len && (n = pread(fd, (char *)buf + got, len - got, (off_t)(off + got))) > 0)
		got += (size_t)n;
	(void)close(fd);
	return got;
}

static inline struct pst_file *rig_open(const char *path, uint32_t flags)
{
	struct pst_file *f = NULL;

	T_OK(pst_file_open(path, flags, NULL, &f));
	return f;
}

static inline struct pst_file_info rig_file_info(struct pst_file *f)
{
	struct pst_file_info info = { .sz = sizeof(info) };

	T_OK(pst_file_info(f, &info));
	return info;
}

/* ----------------------------------------------------------------- memory */

static inline struct pst_mem *rig_alloc(const char *dev, uint64_t len)
{
	struct pst_mem *m = NULL;

	T_OK(pst_mem_alloc(dev, len, NULL, &m));
	return m;
}

/* Fill memory with the pattern, or return the offset of the first byte that differs. */
static inline void rig_mem_fill(struct pst_mem *m, uint64_t off, uint64_t len, uint64_t seed,
				uint64_t at)
{
	char *buf = malloc(len);

	T_CHECK(buf);
	t_fill(buf, seed, at, len);
	T_OK(pst_mem_copy_in(m, off, buf, len));
	free(buf);
}

static inline size_t rig_mem_differs(struct pst_mem *m, uint64_t off, uint64_t len, uint64_t seed,
				     uint64_t at)
{
	char *buf = malloc(len);
	size_t n;

	T_CHECK(buf);
	T_OK(pst_mem_copy_out(m, off, buf, len));
	n = t_differs(buf, seed, at, len);
	free(buf);
	return n;
}

/* ----------------------------------------------------------------- queues */

static inline struct pst_queue *rig_queue(uint32_t backend, uint32_t depth)
{
	struct pst_queue_opts o = { .sz = sizeof(o), .backend = backend, .depth = depth };
	struct pst_queue *q = NULL;

	T_OK(pst_queue_new(&o, &q));
	return q;
}

/* Return 0 if PST_BACKEND_URING or _THREADS works here, or the -errno that prevents it. */
static inline int rig_backend_check(uint32_t backend)
{
	struct pst_check c[4] = { { .sz = sizeof(*c) },
				  { .sz = sizeof(*c) },
				  { .sz = sizeof(*c) },
				  { .sz = sizeof(*c) } };
	const char *name = backend == PST_BACKEND_URING ? "io_uring" : "threads";
	int nr = pst_check("io", NULL, c, RIG_NR(c));

	for (int i = 0; i < nr; i++)
		if (!strcmp(c[i].name, name))
			return -c[i].err;
	return nr < 0 ? nr : -EINVAL;
}

/*
 * Return the best available back end, to request it by name: completions of a queue with
 * PST_BACKEND_AUTO would report a missing io_uring.
 */
static inline uint32_t rig_best_backend(void)
{
	return rig_backend_check(PST_BACKEND_URING) == 0 ? PST_BACKEND_URING : PST_BACKEND_THREADS;
}

static inline struct pst_stats rig_stats(struct pst_queue *q)
{
	struct pst_stats st = { .sz = sizeof(st) };

	T_OK(pst_stats(q, &st));
	return st;
}

/* Print a completion in words, for failures. */
static inline void rig_show(const struct pst_done *d)
{
	char text[400];

	printf("# %s\n", pst_done_text(d, text, sizeof(text)));
}

/* Wait for exactly one completion. */
static inline struct pst_done rig_reap1(struct pst_queue *q)
{
	struct pst_done d = { 0 };

	T_EQ(pst_queue_reap(q, &d, 1, 1, t_in_ms(RIG_WAIT_MS)), 1);
	return d;
}

static inline struct pst_done rig_do(struct pst_queue *q, const struct pst_io *io)
{
	T_OK(pst_queue_prep(q, io));
	T_EQ(pst_queue_submit(q), 1);
	return rig_reap1(q);
}

static inline struct pst_io rig_io(uint32_t op, struct pst_file *f, struct pst_mem *m,
				   uint64_t file_off, uint64_t mem_off, uint64_t len)
{
	return (struct pst_io){
		.op = op, .file = f, .mem = m, .file_off = file_off, .mem_off = mem_off, .len = len
	};
}

static inline struct pst_done rig_read(struct pst_file *f, struct pst_mem *m, uint64_t file_off,
				       uint64_t mem_off, uint64_t len)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, file_off, mem_off, len);

	return rig_do(rig_q, &io);
}

static inline struct pst_done rig_write(struct pst_file *f, struct pst_mem *m, uint64_t file_off,
					uint64_t mem_off, uint64_t len)
{
	struct pst_io io = rig_io(PST_OP_WRITE, f, m, file_off, mem_off, len);

	return rig_do(rig_q, &io);
}

static inline struct pst_done rig_sync(struct pst_file *f)
{
	struct pst_io io = { .op = PST_OP_SYNC, .file = f };

	return rig_do(rig_q, &io);
}

static inline bool rig_soft(void)
{
	return strcmp(rig_dev, "host") != 0;
}

/*
 * Skip without much RLIMIT_MEMLOCK.  The kernel counts locked memory per user, including rings
 * and registered memory of other programs, so a request may rightly report MEMLOCK when a case
 * expects another reason.
 */
static inline void rig_needs_memlock(void)
{
	struct rlimit rl;

	T_EQ(getrlimit(RLIMIT_MEMLOCK, &rl), 0);
	if (geteuid() != 0 && rl.rlim_cur < RIG_MIB(256))
		T_SKIP("RLIMIT_MEMLOCK of 256 MiB (ulimit -l), or root");
}

/* --------------------------------------------------------------- the cases */

/* Check that all queues are freed and the library's threads have ended, which may take a moment. */
static inline void rig_quiet(void)
{
	uint64_t end = t_hang();
	struct pst_stats st;
	unsigned tasks;

	for (;;) {
		st = rig_stats(NULL);
		tasks = rig_count_tasks();
		if ((st.inflight <= rig_before.inflight && st.busy <= rig_before.busy &&
		     st.pool_bytes <= rig_before.pool_bytes && tasks <= rig_tasks) ||
		    t_now() >= end)
			break;
		(void)usleep(1000);
	}
	T_CHECK(st.inflight <= rig_before.inflight);
	T_CHECK(st.busy <= rig_before.busy);
	T_CHECK(st.pool_bytes <= rig_before.pool_bytes);
	if (tasks > rig_tasks)
		T_FAIL("threads are left:%s", rig_task_names);
}

static void (*rig_fn)(void);
static struct pst_queue *rig_last; /* queue that the previous case left */

static inline void rig_case(void)
{
	/* A failed or skipped case did not clean up. */
	rig_last = pst_queue_free(rig_last);
	if (t_failed) {
		rig_before = rig_stats(NULL);
		rig_tasks = rig_count_tasks();
	}
	if (rig_backend) {
		int r = rig_backend_check(rig_backend);

		if (r < 0)
			T_SKIP("io_uring: %s", pst_error_text());
		rig_q = rig_queue(rig_backend, 0);
	}
	rig_fn();
	if (rig_q) {
		T_EQ(rig_stats(rig_q).inflight, 0);
		rig_q = pst_queue_free(rig_q);
	}
	rig_quiet();
}

/* Run one case that makes its own queues. */
static inline void rig_run1(const char *name, void (*fn)(void))
{
	rig_backend = 0;
	rig_dev = "host";
	rig_last = rig_q;
	rig_q = NULL;
	rig_fn = fn;
	t_run(name, rig_case);
}

#define RIG_RUN1(fn) rig_run1(#fn, fn)

enum { RIG_HOST = 1, RIG_SOFT = 2 };

/* Run a case for each back end and each kind of memory in @mem (RIG_*), with rig_q, rig_dev and
 * rig_backend set. */
static inline void rig_run(const char *name, void (*fn)(void), unsigned mem)
{
	static const char *const devs[] = { "host", "soft:0" };
	static const char *const backends[] = { "", "uring", "threads" };
	char full[160];

	for (rig_backend = PST_BACKEND_URING; rig_backend <= PST_BACKEND_THREADS; rig_backend++)
		for (unsigned i = 0; i < RIG_NR(devs); i++) {
			if (!(mem & 1u << i))
				continue;
			rig_dev = devs[i];
			rig_last = rig_q;
			rig_q = NULL;
			rig_fn = fn;
			(void)snprintf(full, sizeof(full), "%s %s%s%s", name, backends[rig_backend],
				       mem == RIG_HOST ? "" : " ", mem == RIG_HOST ? "" : devs[i]);
			t_run(full, rig_case);
		}
}

#define RIG_RUN(fn) rig_run(#fn, fn, RIG_HOST | RIG_SOFT)
#define RIG_RUN_SOFT(fn) rig_run(#fn, fn, RIG_SOFT)
#define RIG_RUN_BACKENDS(fn) rig_run(#fn, fn, RIG_HOST)

static inline int rig_done(void)
{
	rig_last = pst_queue_free(rig_last);
	rig_q = pst_queue_free(rig_q); /* a skipped last case may have left it */
	return t_done();
}

#endif
