/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of the back ends.  Each case runs on both: io_uring, if the machine has
 * it, and threads.
 */
#ifndef PST_TEST_FILE_IO_RIG_H
#define PST_TEST_FILE_IO_RIG_H

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#define T_ERROR_TEXT() err_text()
#include "scratch.h"
#include "t.h"

#include "base/fault.h"
#include "fusefs.h"
#include "file/local.h"

#define SIZE MIB(4)
#define SEED 7

/* Objects of the running case. */
static const struct io_backend *ops;
static char dir[64], path[128];

static struct file *file;
static struct io_ctx *ctx;
static uint8_t *mem; /* SIZE bytes, page aligned */

static inline void *map(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		T_FAIL("mmap of %zu bytes", len);
	return p;
}

static inline void make_file(const char *name, uint64_t seed, size_t size)
{
	uint8_t *buf = malloc(size);
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	T_CHECK(buf && fd >= 0);
	t_fill(buf, seed, 0, size);
	T_CHECK(write(fd, buf, size) == (ssize_t)size);
	(void)close(fd);
	free(buf);
}

static inline void scratch_file(void)
{
	make_file(path, SEED, SIZE);
}

static inline void set_up(unsigned depth)
{
	if (access(path, F_OK) < 0)
		scratch_file(); /* make the file: a case may run alone */
	mem = map(SIZE);
	T_OK(file_open(path, PST_FILE_READ | PST_FILE_WRITE, 0, &file));
	T_OK(io_ctx_new(ops, depth, &ctx));
}

static inline void tear_down(void)
{
	T_OK(fault_set(NULL));
	io_ctx_free(ctx);
	file_free(file);
	(void)munmap(mem, SIZE);
}

/* Deadline in ms that even a busy machine meets. */
#define HANG_MS 60000u

static inline struct io_op op_rw(enum io_op_kind kind, void *buf, uint64_t off, uint64_t len)
{
	return (struct io_op){
		.file = file, .kind = (uint8_t)kind, .buf = buf, .off = off, .len = len
	};
}

/* Wait for the next completion, which must be this operation's. */
static inline void finish(struct io_ctx *l, const struct io_op *want)
{
	uint64_t deadline = t_in_ms(HANG_MS);
	struct io_op *got;

	while (!l->ops->reap(l, &got, 1)) {
		int r = l->ops->wait(l, 1, deadline);

		if (r != 0 && r != -EINTR)
			T_FAIL("wait gave %d", r);
	}
	T_CHECK(got == want);
}

static inline void run(struct io_op *op)
{
	T_OK(ctx->ops->queue(ctx, op));
	T_OK(ctx->ops->flush(ctx));
	finish(ctx, op);
	T_EQ(ctx->nr_ops, 0);
}

/* ---------------------------------------------------- file systems that misbehave */

static struct fusefs fuse;

static inline struct file *fuse_file(const char *name, uint32_t flags)
{
	struct file *f;
	char p[256];

	(void)snprintf(p, sizeof(p), "%s/%s", fuse.dir, name);
	T_OK(file_open(p, flags, 0, &f));
	return f;
}

static inline void need_fuse(void)
{
	if (!fuse.pid)
		T_SKIP("%s", fuse.why);
}

/* ------------------------------------------------------------------ rounds */

static const char *round_name;  /* appended to each case's name */
static const char *round_lacks; /* why the back end is missing, or NULL */
static bool round_in_memory;    /* the directory is in memory */
static void (*round_fn)(void);

static inline void in_round(void)
{
	if (round_lacks)
		T_SKIP("%s", round_lacks);
	round_fn();
}

static inline void run_in_round(const char *name, void (*fn)(void))
{
	char full[128];

	round_fn = fn;
	(void)snprintf(full, sizeof(full), "%s %s", name, round_name);
	t_run(full, in_round);
}

#define RUN(fn) run_in_round(#fn, fn)

/* Run a case that needs a disk, unless this round's directory is in memory. */
#define RUN_ON_DISK(fn)               \
	do {                          \
		if (!round_in_memory) \
			RUN(fn);      \
	} while (0)

static inline void on(const struct io_backend *o, const char *parent, const char *name,
		      void (*cases)(void))
{
	static char lacks[300];

	ops = o;
	round_name = name;
	round_lacks = NULL;
	round_in_memory = !strcmp(parent, "/dev/shm");
	if (o->check && o->check() < 0) {
		(void)snprintf(lacks, sizeof(lacks), "io_uring: %.250s", err_text());
		round_lacks = lacks;
	}
	if (scratch_new(parent, dir, sizeof(dir)) < 0) {
		printf("Bail out! no scratch directory in %s\n", parent);
		exit(1);
	}
	(void)snprintf(path, sizeof(path), "%s/file", dir);
	run_in_round("scratch_file", scratch_file);
	cases();
	(void)unlink(path);
	(void)rmdir(dir);
}

/* Run the cases on both back ends, in a directory on a disk and in one in memory. */
static inline int run_over_backends(void (*cases)(void))
{
	const char *parent = getenv("PST_TEST_DIR");

	parent = parent ? parent : "/tmp";
	fusefs_start(&fuse, parent);
	on(&threads_backend, parent, "threads", cases);
	on(&threads_backend, "/dev/shm", "threads /dev/shm", cases);
	on(&uring_backend, parent, "uring", cases);
	on(&uring_backend, "/dev/shm", "uring /dev/shm", cases);
	fusefs_stop(&fuse);
	return t_done();
}

#endif
