/* SPDX-License-Identifier: MIT */
/*
 * usrbio-foreign-dlopen MOUNTPOINT FILE [LIBRARY [ROUNDS]]
 *
 * Loads the usrbio library by name, writes to FILE and reads it back through rings, and unloads the
 * library, like a client that was built without the header.  With ROUNDS it repeats this; threads,
 * descriptors and mappings must not grow after the first rounds.
 *
 * Status: 0; 1 after a failure; 2 if the library cannot be loaded.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "foreign_abi.h"

#define LIBRARY "libhf3fs_api_shared.so"
#define SIZE ((size_t)1 << 20)
#define PIECE ((size_t)64 << 10)
#define ENTRIES 16
#define WARM_UP 10 /* rounds before counts must not grow */

static const char *mnt, *path;

__attribute__((format(printf, 1, 2))) static int fail(const char *format, ...)
{
	va_list ap;

	(void)fprintf(stderr, "usrbio-foreign-dlopen: ");
	va_start(ap, format);
	(void)vfprintf(stderr, format, ap);
	va_end(ap);
	(void)fprintf(stderr, "\n");
	return 1;
}

/* ------------------------------------------------------------------- loading */

static const struct {
	const char *name;
	size_t at;
} symbols[] = {
	{ "hf3fs_reg_fd", offsetof(struct abi, reg_fd) },
	{ "hf3fs_dereg_fd", offsetof(struct abi, dereg_fd) },
	{ "hf3fs_iovcreate", offsetof(struct abi, iovcreate) },
	{ "hf3fs_iovdestroy", offsetof(struct abi, iovdestroy) },
	{ "hf3fs_iorcreate4", offsetof(struct abi, iorcreate4) },
	{ "hf3fs_iordestroy", offsetof(struct abi, iordestroy) },
	{ "hf3fs_prep_io", offsetof(struct abi, prep_io) },
	{ "hf3fs_submit_ios", offsetof(struct abi, submit_ios) },
	{ "hf3fs_wait_for_ios", offsetof(struct abi, wait_for_ios) },
};

/* Load the library.  Return its handle; NULL after printing the error. */
static void *load(const char *library, struct abi *ret_abi)
{
	void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);

	if (!lib) {
		(void)fail("%s", dlerror());
		return NULL;
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *sym = dlsym(lib, symbols[i].name);

		if (!sym) {
			(void)fail("%s", dlerror());
			(void)dlclose(lib);
			return NULL;
		}
		memcpy((char *)ret_abi + symbols[i].at, &sym, sizeof(sym));
	}
	return lib;
}

/* ----------------------------------------------------------------- using it */

static uint8_t byte_at(size_t off, unsigned round)
{
	return (uint8_t)(off * 7 + off / 4096 + round);
}

/* Transfer the whole iov to or from the start of the file in pieces, all in flight at once. */
static int transfer(const struct abi *a, const struct abi_ior *ior, const struct abi_iov *iov,
		    bool read, int fd)
{
	struct abi_cqe cqes[ENTRIES];
	int r, n = 0;

	for (size_t off = 0; off < SIZE; off += PIECE) {
		r = a->prep_io(ior, iov, read, iov->base + off, fd, off, PIECE, iov->base + off);
		if (r < 0)
			return fail("prep_io at %zu: %s", off, strerror(-r));
		n++;
	}
	r = a->submit_ios(ior);
	if (r < 0)
		return fail("submit_ios: %s", strerror(-r));
	r = a->wait_for_ios(ior, cqes, ENTRIES, n, NULL);
	if (r != n)
		return fail("wait_for_ios gave %d and not %d", r, n);
	for (int i = 0; i < n; i++) {
		const uint8_t *at = cqes[i].userdata;

		if (cqes[i].result != (int64_t)PIECE)
			return fail("completion %d has result %lld", i, (long long)cqes[i].result);
		if (at < iov->base || at >= iov->base + SIZE || (size_t)(at - iov->base) % PIECE)
			return fail("completion %d has no userdata of ours", i);
	}
	return 0;
}

static int write_and_read(const struct abi *a, const struct abi_ior *w, const struct abi_ior *r,
			  const struct abi_iov *iov, int fd, unsigned round)
{
	for (size_t i = 0; i < SIZE; i++)
		iov->base[i] = byte_at(i, round);
	if (transfer(a, w, iov, false, fd))
		return 1;
	memset(iov->base, 0, SIZE);
	if (transfer(a, r, iov, true, fd))
		return 1;
	for (size_t i = 0; i < SIZE; i++)
		if (iov->base[i] != byte_at(i, round))
			return fail("byte %zu is wrong", i);
	return 0;
}

static int with_rings(const struct abi *a, const struct abi_iov *iov, int fd, unsigned round)
{
	struct abi_ior w, r;
	int res = a->iorcreate4(&w, mnt, ENTRIES, false, 0, 0, -1, 0);

	if (res < 0)
		return fail("iorcreate4 for writing: %s", strerror(-res));
	res = a->iorcreate4(&r, mnt, ENTRIES, true, 0, 0, -1, 0);
	if (res == 0) {
		res = write_and_read(a, &w, &r, iov, fd, round);
		a->iordestroy(&r);
	} else {
		(void)fail("iorcreate4 for reading: %s", strerror(-res));
	}
	a->iordestroy(&w);
	return res ? 1 : 0;
}

static int with_file(const struct abi *a, const struct abi_iov *iov, unsigned round)
{
	int r, fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0)
		return fail("%s: %m", path);
	r = a->reg_fd(fd, 0);
	if (r <= 0) {
		r = with_rings(a, iov, fd, round);
		a->dereg_fd(fd);
	} else {
		r = fail("reg_fd: %s", strerror(r));
	}
	(void)close(fd);
	return r;
}

static int one_round(const char *library, unsigned round)
{
	struct abi_iov iov;
	struct abi abi;
	void *lib = load(library, &abi);
	int r;

	if (!lib)
		return 2;
	r = abi.iovcreate(&iov, mnt, SIZE, 0, -1);
	if (r == 0) {
		r = with_file(&abi, &iov, round);
		abi.iovdestroy(&iov);
	} else {
		r = fail("iovcreate: %s", strerror(-r));
	}
	if (dlclose(lib) != 0)
		return fail("%s", dlerror());
	return r;
}

/* ---------------------------------------------------------------- counting */

struct usage {
	unsigned threads, fds, maps;
};

/* Count entries whose name is a number, without the descriptor used for listing. */
static unsigned count_entries(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	unsigned n = 0;

	if (!d)
		return 0;
	while ((e = readdir(d)))
		n += e->d_name[0] != '.' && atoi(e->d_name) != dirfd(d);
	(void)closedir(d);
	return n;
}

/* Return true for a kernel thread of io_uring, which starts and ends at any time. */
static bool is_kernels(const char *task)
{
	char file[64], comm[17] = "";
	FILE *f;

	(void)snprintf(file, sizeof(file), "/proc/self/task/%.20s/comm", task);
	f = fopen(file, "re");
	if (f) {
		(void)!fgets(comm, sizeof(comm), f);
		(void)fclose(f);
	}
	return !strncmp(comm, "iou-", 4);
}

static unsigned count_threads(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	unsigned n = 0;

	while (d && (e = readdir(d)))
		n += e->d_name[0] != '.' && !is_kernels(e->d_name);
	if (d)
		(void)closedir(d);
	return n;
}

static struct usage measure(void)
{
	struct usage u = { count_threads(), count_entries("/proc/self/fd"), 0 };
	FILE *f = fopen("/proc/self/maps", "re");
	int c;

	while (f && (c = getc(f)) != EOF)
		u.maps += c == '\n';
	if (f)
		(void)fclose(f);
	return u;
}

static int compare(const struct usage *before, const struct usage *after)
{
	/* glibc makes an arena of two mappings for a thread's first allocation. */
	if (after->threads <= before->threads && after->fds <= before->fds &&
	    after->maps <= before->maps + 2 * after->threads)
		return 0;
	return fail("threads %u, descriptors %u, mappings %u have become %u, %u, %u",
		    before->threads, before->fds, before->maps, after->threads, after->fds,
		    after->maps);
}

static void *nothing(void *arg)
{
	return arg;
}

/* Start a thread first: the thread sanitizer then starts its own, which would otherwise count
 * later. */
static void first_thread(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, nothing, NULL) == 0)
		(void)pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
	const char *library = argc > 3 ? argv[3] : LIBRARY;
	unsigned long rounds = argc > 4 ? strtoul(argv[4], NULL, 10) : 1;
	struct usage before = { 0 }, after;

	if (argc < 3 || argc > 5 || !rounds) {
		(void)fprintf(stderr, "usage: usrbio-foreign-dlopen MOUNTPOINT FILE "
				      "[LIBRARY [ROUNDS]]\n");
		return 2;
	}
	mnt = argv[1];
	path = argv[2];
	first_thread();
	for (unsigned long i = 0; i < rounds; i++) {
		int r = one_round(library, (unsigned)i);

		if (r)
			return r;
		if (i + 1 == WARM_UP)
			before = measure();
	}
	(void)unlink(path);
	after = measure();
	printf("%lu rounds, %u threads, %u descriptors, %u mappings\n", rounds, after.threads,
	       after.fds, after.maps);
	return rounds > WARM_UP ? compare(&before, &after) : 0;
}
