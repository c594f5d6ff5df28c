/* SPDX-License-Identifier: MIT */
/* The blocking calls: pst_read(), pst_write(), pst_readv(), pst_writev(), pst_file_sync(). */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "fusefs.h"
#include "rig.h"

#define SEED 11
#define LEN RIG_MIB(4)
#define NR 300u
#define EACH 10000u

static const char *const devices[] = { "host", "soft:0" };

static struct pst_mem *mem_new(const char *device, uint64_t len)
{
	struct pst_mem *m = NULL;

	T_OK(pst_mem_alloc(device, len, NULL, &m));
	return m;
}

static uint64_t address(const struct pst_mem *m)
{
	struct pst_mem_info info = { .sz = sizeof(info) };

	T_OK(pst_mem_info(m, &info));
	return info.addr;
}

static uint64_t requests(void)
{
	return rig_stats(NULL).requests;
}

static void one_range(void)
{
	struct pst_done d;
	char text[256];

	rig_make(rig_path("data"), SEED, LEN);
	for (unsigned i = 0; i < RIG_NR(devices); i++) {
		struct pst_file *f = rig_open(rig_path("data"), RIG_R),
				*to = rig_open(rig_path("to"), RIG_NEW);
		struct pst_mem *m = mem_new(devices[i], LEN);

		T_EQ(pst_read(f, 5000, m, 777, 100001, &d), 100001);
		T_EQ(rig_mem_differs(m, 777, 100001, SEED, 5000), 100001);
		T_EQ(d.res, 100001);
		T_EQ(d.prefix, 100001);
		T_EQ(d.op, PST_OP_READ);
		T_CHECK(d.paths != 0);
		T_CHECK(strstr(pst_done_text(&d, text, sizeof(text)), "read of 100001 bytes by"));
		T_EQ(pst_read(f, 0, m, 0, LEN, NULL), LEN);
		T_EQ(rig_mem_differs(m, 0, LEN, SEED, 0), LEN);
		T_EQ(pst_write(to, 0, m, 0, LEN, &d), LEN);
		T_EQ(d.op, PST_OP_WRITE);
		T_EQ(pst_file_sync(to), 0);
		T_EQ(pst_read(to, 4096, m, 0, 4096, NULL), 4096);
		T_EQ(rig_mem_differs(m, 0, 4096, SEED, 4096), 4096);
		pst_mem_free(m);
		pst_file_close(f);
		pst_file_close(to);
	}
}

static void addresses(void)
{
	struct pst_file *f, *to;
	struct pst_mem *m = mem_new("soft:0", LEN);
	char *buf = malloc(LEN);

	T_CHECK(buf);
	rig_make(rig_path("data"), SEED, LEN);
	f = rig_open(rig_path("data"), RIG_R);
	to = rig_open(rig_path("to"), RIG_NEW);
	T_EQ(pst_read(f, 1, NULL, (uintptr_t)buf + 3, LEN - 9, NULL), LEN - 9);
	T_EQ(t_differs(buf + 3, SEED, 1, LEN - 9), LEN - 9);
	T_EQ(pst_read(f, 0, NULL, address(m) + 12345, 54321, NULL), 54321);
	T_EQ(rig_mem_differs(m, 12345, 54321, SEED, 0), 54321);
	T_EQ(pst_write(to, 0, NULL, address(m) + 12345, 54321, NULL), 54321);
	T_EQ(pst_read(to, 0, NULL, (uintptr_t)buf, LEN, NULL), 54321);
	T_EQ(t_differs(buf, SEED, 0, 54321), 54321);
	pst_mem_free(m);
	pst_file_close(f);
	pst_file_close(to);
	free(buf);
}

/* One third of the tensors is on the host, one third has a device allocation each, and one third
 * shares one device allocation. */
static void tensors(void)
{
	static struct pst_vec v[NR];
	static struct pst_mem *own[NR];
	static char *host[NR];
	struct pst_mem *shared = mem_new("soft:0", (uint64_t)NR * EACH);
	uint64_t before;
	struct pst_file *f;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, (uint64_t)NR * EACH);
	f = rig_open(rig_path("data"), RIG_R);
	for (unsigned i = 0; i < NR; i++) {
		/* in another order than in the file */
		unsigned at = i * 7 % NR;

		v[i] = (struct pst_vec){ .file_off = (uint64_t)at * EACH, .len = EACH - at };
		if (i % 3 == 0)
			v[i].mem_off = (uintptr_t)(host[i] = malloc(EACH));
		else if (i % 3 == 1)
			v[i].mem_off = address(own[i] = mem_new("soft:0", EACH));
		else
			v[i].mem_off = address(shared) + (uint64_t)i * EACH;
	}
	before = requests();
	T_EQ(pst_readv(f, v, NR, NULL, &d), (int64_t)NR * EACH - NR * (NR - 1) / 2);
	T_EQ(d.prefix, (uint64_t)d.res);
	/* One request for each device allocation, and one for the host. */
	T_EQ(requests() - before, NR / 3 + 2);
	for (unsigned i = 0; i < NR; i++) {
		if (i % 3 == 0)
			T_EQ(t_differs(host[i], SEED, v[i].file_off, v[i].len), v[i].len);
		else if (i % 3 == 1)
			T_EQ(rig_mem_differs(own[i], 0, v[i].len, SEED, v[i].file_off), v[i].len);
		else
			T_EQ(rig_mem_differs(shared, (uint64_t)i * EACH, v[i].len, SEED,
					     v[i].file_off),
			     v[i].len);
	}

	/* Write the bytes back, by handle where there is one. */
	for (unsigned i = 0; i < NR; i++)
		if (own[i])
			v[i].mem = own[i], v[i].mem_off = 0;
	pst_file_close(f);
	f = rig_open(rig_path("back"), RIG_NEW);
	T_EQ(pst_writev(f, v, NR, NULL, &d), (int64_t)NR * EACH - NR * (NR - 1) / 2);
	T_EQ(d.res, (int64_t)d.prefix);
	for (unsigned i = 0; i < NR; i++) {
		char back[EACH];

		T_CHECK(rig_slurp(rig_path("back"), v[i].file_off, back, v[i].len) == v[i].len);
		T_EQ(t_differs(back, SEED, v[i].file_off, v[i].len), v[i].len);
	}
	pst_file_close(f);
	for (unsigned i = 0; i < NR; i++) {
		free(host[i]);
		pst_mem_free(own[i]);
	}
	pst_mem_free(shared);
}

static void end_of_file(void)
{
	struct pst_mem *m = mem_new("host", 3 * 8192), *n = mem_new("soft:0", 3 * 8192);
	struct pst_vec v[] = {
		{ m, 0, 0, 8192, 0 },
		{ n, 0, 8192, 8192, 0 },
		{ m, 8192, 16384, 8192, 0 },
		{ n, 8192, 0, 8192, 0 },
	};
	struct pst_file *f;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, 16384 + 100);
	f = rig_open(rig_path("data"), RIG_R);
	/* The third range gets 100 bytes; the fourth is past the end of the file. */
	T_EQ(pst_readv(f, v, RIG_NR(v), NULL, &d), 16384 + 100);
	T_EQ(d.prefix, 16384 + 100);
	T_EQ(rig_mem_differs(m, 0, 8192, SEED, 0), 8192);
	T_EQ(rig_mem_differs(n, 0, 8192, SEED, 8192), 8192);
	T_EQ(rig_mem_differs(m, 8192, 100, SEED, 16384), 100);
	T_EQ(pst_read(f, 16384 + 100, m, 0, 10, &d), 0);
	T_EQ(d.res, 0);
	pst_file_close(f);
	pst_mem_free(m);
	pst_mem_free(n);
}

#define SAYS(call, error, word)                                                    \
	do {                                                                       \
		errno = 77;                                                        \
		T_EQ(call, -(error));                                              \
		T_EQ(errno, 77);                                                   \
		if (!strstr(pst_error_text(), word))                               \
			T_FAIL("%s: \"%s\" lacks " word, #call, pst_error_text()); \
	} while (0)

static void bad_arguments(void)
{
	struct pst_mem *m = mem_new("host", 8192);
	struct pst_vec v[2] = { { m, 0, 0, 4096, 0 }, { m, 4096, 0, 4096, 0 } };
	/*
	 * Use memory without access rights: an unmapped address could be mapped by another
	 * thread.
	 */
	char *gone = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pst_file *f, *w;
	struct pst_done d;

	rig_make(rig_path("data"), SEED, 8192);
	f = rig_open(rig_path("data"), RIG_R);
	w = rig_open(rig_path("to"), PST_FILE_WRITE | PST_FILE_CREATE);
	SAYS(pst_read(NULL, 0, m, 0, 1, &d), EINVAL, "file");
	T_EQ(d.res, -EINVAL);
	SAYS(pst_read(f, 0, m, 0, 0, NULL), EINVAL, "zero");
	SAYS(pst_read(f, 0, NULL, 0, 1, NULL), EINVAL, "address");
	SAYS(pst_readv(f, NULL, 1, NULL, NULL), EINVAL, "range");
	SAYS(pst_readv(f, v, 0, NULL, NULL), EINVAL, "ranges");
	SAYS(pst_readv(f, v, PST_VECS_MAX + 1, NULL, NULL), EINVAL, "ranges");
	SAYS(pst_read(f, 0, m, 8192, 1, &d), ERANGE, "");
	T_EQ(d.res, -ERANGE);
	SAYS(pst_read(w, 0, m, 0, 1, NULL), EBADF, "reading");
	SAYS(pst_write(f, 0, m, 0, 1, NULL), EBADF, "writing");
	SAYS(pst_read(f, INT64_MAX, m, 0, 1, NULL), EOVERFLOW, "");
	v[0].len = v[1].len = (uint64_t)1 << 63;
	SAYS(pst_readv(f, v, 2, NULL, NULL), EOVERFLOW, "");
	T_CHECK(gone != MAP_FAILED);
	SAYS(pst_read(f, 0, NULL, (uintptr_t)gone, 4096, NULL), EFAULT, "");
	SAYS(pst_file_sync(NULL), EINVAL, "file");
	/* The first range is good: its memory is not in use afterwards. */
	v[0] = (struct pst_vec){ m, 0, 0, 4096, 0 };
	v[1] = (struct pst_vec){ NULL, (uintptr_t)gone, 0, 4096, 0 };
	SAYS(pst_readv(f, v, 2, NULL, &d), EFAULT, "");
	T_EQ(munmap(gone, 4096), 0);
	T_EQ(pst_mem_drain(m, 0), 0);
	pst_file_close(f);
	pst_file_close(w);
	pst_mem_free(m);
}

/* The second of three ranges fails: the count ends before it. */
static void errors(void)
{
	struct pst_mem *m = mem_new("host", RIG_MIB(3)), *n = mem_new("host", RIG_MIB(1));
	struct pst_vec v[] = { { m, 0, 0, 65536, 0 },
			       { m, 65536, RIG_MIB(2), 65536, 0 },
			       { n, 0, 65536, 65536, 0 } };
	struct pst_file *f = NULL;
	struct fusefs fs = { 0 };
	struct pst_done d;
	char path[200];

	if (fusefs_start(&fs, rig_dir) < 0)
		T_SKIP("%s", fs.why);
	(void)snprintf(path, sizeof(path), "%s/eio", fs.dir);
	T_OK(pst_file_open(path, PST_FILE_READ, NULL, &f));
	SAYS(pst_readv(f, v, 3, NULL, &d), EIO, "read failed");
	T_EQ(d.res, -EIO);
	T_EQ(d.prefix, 65536);
	T_EQ(rig_mem_differs(m, 0, 65536, FUSEFS_SEED, 0), 65536);
	T_EQ(rig_mem_differs(n, 0, 65536, FUSEFS_SEED, 65536), 65536);
	pst_file_close(f);
	pst_mem_free(m);
	pst_mem_free(n);
	fusefs_stop(&fs);
}

/* The first range is short, and the second has no memory: the call fails. */
static void error_behind_the_end(void)
{
	const struct pst_mem_opts later = { .sz = sizeof(later),
					    .flags = PST_MEM_LATER,
					    .kind = PST_KIND_HOST };
	struct pst_mem *m = mem_new("host", 8192), *none = NULL;
	char *gap = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pst_vec v[] = { { m, 0, 8182, 100, 0 }, { NULL, 0, 0, 4096, 0 } };
	struct pst_file *f;
	struct pst_done d;

	T_CHECK(gap != MAP_FAILED);
	T_OK(pst_mem_wrap((uintptr_t)gap, 8192, &later, &none));
	rig_make(rig_path("data"), SEED, 8192);
	f = rig_open(rig_path("data"), RIG_R);
	v[1].mem = none;
	SAYS(pst_readv(f, v, 2, NULL, &d), EFAULT, "read failed");
	T_EQ(d.prefix, 10);
	pst_file_close(f);
	pst_mem_free(none);
	pst_mem_free(m);
	(void)munmap(gap, 8192);
}

static struct pst_file *shared_file;

static void *reader(void *arg)
{
	char *buf = malloc(65536);
	uint64_t bad = 0;

	for (uint64_t i = 0; i < 100 && buf; i++) {
		uint64_t off = (i * 8 + (uintptr_t)arg) * 4096 % (LEN - 65536);

		bad += pst_read(shared_file, off, NULL, (uintptr_t)buf, 65536, NULL) != 65536 ||
		       t_differs(buf, SEED, off, 65536) != 65536;
	}
	free(buf);
	return (void *)(uintptr_t)(bad + !buf);
}

static void threads(void)
{
	pthread_t t[8];
	void *bad;

	rig_make(rig_path("data"), SEED, LEN);
	shared_file = rig_open(rig_path("data"), RIG_R);
	for (uintptr_t i = 0; i < RIG_NR(t); i++)
		T_EQ(pthread_create(&t[i], NULL, reader, (void *)i), 0);
	for (unsigned i = 0; i < RIG_NR(t); i++) {
		T_EQ(pthread_join(t[i], &bad), 0);
		T_EQ((uintptr_t)bad, 0);
	}
	pst_file_close(shared_file);
}

static void forked(void)
{
	struct pst_mem *m = mem_new("host", 4096);
	struct pst_done d = { 0 };
	struct pst_file *f;
	int status;
	pid_t pid;

	rig_make(rig_path("data"), SEED, 8192);
	f = rig_open(rig_path("data"), RIG_R);
	T_EQ(pst_read(f, 0, m, 0, 4096, NULL), 4096);
	pid = fork();
	if (!pid)
		_exit(pst_read(f, 0, m, 0, 4096, &d) == -EOWNERDEAD && d.res == -EOWNERDEAD &&
				      pst_file_sync(f) == -EOWNERDEAD
			      ? 0
			      : 1);
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	T_EQ(status, 0);
	pst_file_close(f);
	pst_mem_free(m);
}

int main(void)
{
	rig_init();
	RIG_RUN1(one_range);
	RIG_RUN1(addresses);
	RIG_RUN1(tensors);
	RIG_RUN1(end_of_file);
	RIG_RUN1(bad_arguments);
	RIG_RUN1(errors);
	RIG_RUN1(error_behind_the_end);
	RIG_RUN1(threads);
	RIG_RUN1(forked);
	return rig_done();
}
