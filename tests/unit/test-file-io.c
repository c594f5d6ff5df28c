/* SPDX-License-Identifier: MIT */
/*
 * The same cases for every store: io_uring where the machine has it, and threads.
 */
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
#include "t.h"

#include "base/fault.h"
#include "fusefs.h"
#include "file/io.h"

#define SIZE MIB(4)
#define SEED 7

/* What the cases below run on. */
static const struct io_backend *ops;
static char dir[64], path[128];

static struct local_file *file;
static struct io_ctx *ctx;
static uint8_t *mem; /* SIZE bytes, page aligned */

static void *map(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		T_FAIL("mmap of %zu bytes", len);
	return p;
}

static void make_file(const char *name, uint64_t seed, size_t size)
{
	uint8_t *buf = malloc(size);
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	T_CHECK(buf && fd >= 0);
	t_fill(buf, seed, 0, size);
	T_CHECK(write(fd, buf, size) == (ssize_t)size);
	(void)close(fd);
	free(buf);
}

static void scratch_file(void)
{
	make_file(path, SEED, SIZE);
}

static void set_up(unsigned depth)
{
	mem = map(SIZE);
	T_OK(local_file_open(path, PST_FILE_READ | PST_FILE_WRITE, 0, &file));
	T_OK(io_ctx_new(ops, depth, &ctx));
}

static void tear_down(void)
{
	T_OK(fault_set(NULL));
	io_ctx_free(ctx);
	local_file_free(file);
	(void)munmap(mem, SIZE);
}

/* For what takes a moment, however busy the machine is. */
#define HANG_MS 60000u

static struct io_op op_rw(enum store_kind kind, void *buf, uint64_t off, uint64_t len)
{
	return (struct io_op){
		.file = file, .kind = (uint8_t)kind, .buf = buf, .off = off, .len = len
	};
}

/* Wait for one operation, which must be the next. */
static void finish(struct io_ctx *l, const struct io_op *want)
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

static void run(struct io_op *op)
{
	T_OK(ctx->ops->queue(ctx, op));
	T_OK(ctx->ops->flush(ctx));
	finish(ctx, op);
	T_EQ(ctx->nr_ops, 0);
}

static const uint64_t sizes[] = { 1, 511, 512, 4096, 4097, 65536, 1000000, MIB(1), MIB(2) };

static void reads_of_many_sizes(void)
{
	set_up(8);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct io_op op = op_rw(IO_READ, mem, i * 3001, sizes[i]);

		memset(mem, 0xee, SIZE);
		run(&op);
		T_EQ(op.res, sizes[i]);
		T_EQ(op.moved, sizes[i]);
		T_EQ(t_differs(mem, SEED, i * 3001, sizes[i]), sizes[i]);
		T_EQ(mem[sizes[i]], 0xee);
		T_CHECK(!op.pinned && !op.pin_err);
	}
	tear_down();
}

static void direct_reads(void)
{
	set_up(8);
	if (file->fd_direct < 0) {
		tear_down();
		T_SKIP("O_DIRECT on the file system of the test");
	}
	for (uint64_t len = 4096; len <= MIB(2); len *= 4) {
		struct io_op op = op_rw(IO_READ, mem, len, len);

		memset(mem, 0xee, SIZE);
		op.flags = IO_OP_DIRECT;
		run(&op);
		T_EQ(op.res, len);
		T_EQ(t_differs(mem, SEED, len, len), len);
	}
	tear_down();
}

static void write_and_check(uint8_t flags, uint64_t off, uint64_t len)
{
	struct io_op op = op_rw(IO_WRITE, mem, off, len);

	op.flags = flags;
	t_fill(mem, SEED + 1, off, len);
	run(&op);
	T_EQ(op.res, len);
	memset(mem, 0, len);
	T_EQ(pread(file->fd, mem, len, (off_t)off), len);
	T_EQ(t_differs(mem, SEED + 1, off, len), len);
}

static void writes(void)
{
	set_up(8);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		write_and_check(0, i * 3001, sizes[i]);
	if (file->fd_direct >= 0)
		for (uint64_t len = 4096; len <= MIB(2); len *= 4)
			write_and_check(IO_OP_DIRECT, len, len);
	make_file(path, SEED, SIZE);
	tear_down();
}

/* Again and again, until it was registered, or why it was not is known; io_uring alone does. */
static void run_registered(struct io_op *op)
{
	uint64_t end = t_hang();

	do {
		op->pinned = false;
		op->pin_err = 0;
		run(op);
		T_EQ(op->res, op->len);
		T_EQ(t_differs(op->buf, SEED, op->off, op->len), op->len);
		T_CHECK(t_now() < end);
	} while (ops == &uring_backend && !op->pinned && !op->pin_err);
	T_EQ(op->pinned, ops == &uring_backend && !op->pin_err);
}

static void registered_buffers(void)
{
	struct io_buf *b;
	struct io_op op;

	set_up(8);
	T_OK(io_buf_new(mem, SIZE, &b));
	T_CHECK(b->nr);
	op = op_rw(IO_READ, mem + 4096, 12345, 100000);
	op.sbuf = b;
	run(&op);
	T_CHECK(!op.pinned && !op.pin_err); /* who knows whether it is used again */
	run_registered(&op);
	for (int i = 0; i < 3; i++) {
		memset(mem, 0, SIZE);
		run(&op);
		T_EQ(t_differs(mem + 4096, SEED, 12345, 100000), 100000);
		T_CHECK(op.pinned == (ops == &uring_backend) || op.pin_err);
	}
	op = op_rw(IO_WRITE, mem, 0, 4096);
	op.sbuf = b;
	t_fill(mem, SEED, 0, 4096);
	run(&op);
	T_EQ(op.res, 4096);
	io_buf_free(b);

	/* The place has a new owner: other memory, and the old must not be touched. */
	memset(mem, 0x55, SIZE);
	T_OK(io_buf_new(mem + MIB(1), MIB(1), &b));
	op = op_rw(IO_READ, mem + MIB(1), 777, 5000);
	op.sbuf = b;
	run_registered(&op);
	for (size_t i = 0; i < MIB(1); i++)
		if (mem[i] != 0x55)
			T_FAIL("byte %zu of the old buffer was written", i);
	io_buf_free(b);
	tear_down();
}

/* One operation uses one registered piece. */
static void registered_buffers_beyond_a_piece(void)
{
	size_t len = IO_BUF_MAX + 65536;
	struct io_buf *b;
	struct io_op op;
	uint8_t *big;

	set_up(8);
	big = map(len);
	T_OK(io_buf_new(big, len, &b));
	T_EQ(b->nr, 2);

	/* Across the border: as if it were not registered, and nothing is pinned for it. */
	op = op_rw(IO_READ, big + IO_BUF_MAX - 4096, 100, 8192);
	op.sbuf = b;
	for (int i = 0; i < 5; i++) {
		run(&op);
		T_EQ(op.res, 8192);
		T_CHECK(!op.pinned && !op.pin_err);
		T_EQ(t_differs(op.buf, SEED, 100, 8192), 8192);
	}

	/* In the second piece, which is small. */
	op = op_rw(IO_READ, big + IO_BUF_MAX + 4096, 100, 8192);
	op.sbuf = b;
	run_registered(&op);
	io_buf_free(b);
	(void)munmap(big, len);
	tear_down();
}

/* Bytes of this process that the kernel keeps in place for io_uring. */
static uint64_t pinned_bytes(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long long kib = UINT64_MAX;
	char line[200];

	T_CHECK(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "VmPin: %llu", &kib) == 1)
			break;
	(void)fclose(f);
	T_CHECK(kib != UINT64_MAX);
	return kib << 10;
}

static size_t pages_there(void *at, size_t len)
{
	unsigned char *there = malloc(len / 4096);
	size_t nr = 0;

	T_CHECK(there);
	T_EQ(mincore(at, len, there), 0);
	for (size_t i = 0; i < len / 4096; i++)
		nr += there[i] & 1;
	free(there);
	return nr;
}

/* Small pages, so that each is there because it was touched. */
static uint8_t *map_small(size_t len)
{
	uint8_t *p = map(len);

	(void)madvise(p, len, MADV_NOHUGEPAGE);
	return p;
}

/* What nobody touched is not registered, and not there afterwards either. */
static void registers_what_is_there(void)
{
	const size_t len = GIB(2), far = MIB(7);
	uint64_t before = pinned_bytes();
	struct io_op op;
	struct io_buf *b;
	uint8_t *big;

	if (sysconf(_SC_PAGESIZE) != 4096)
		T_SKIP("pages of 4096 bytes");
	set_up(8);
	big = map_small(len);
	T_OK(io_buf_new(big, len, &b));
	for (unsigned i = 0; i < 8192; i++) {
		op = op_rw(IO_READ, big + (i & 1 ? far : 0), 4096, 4096);
		op.sbuf = b;
		run(&op);
		T_EQ(op.res, 4096);
		T_CHECK(!op.pinned && !op.pin_err);
	}
	T_EQ(pages_there(big, len), 2);
	T_EQ(pinned_bytes(), before);

	/* With the pages between the two it can be, and nothing but these. */
	memset(big + 4096, 1, far - 4096);
	for (unsigned i = 0; i < 8192 && !op.pinned && !op.pin_err; i++)
		run(&op);
	if (ops == &uring_backend && !op.pin_err) {
		T_CHECK(op.pinned);
		T_EQ(pinned_bytes(), before + far + 4096);
	}
	T_EQ(pages_there(big, len), far / 4096 + 1);

	/* It grows with what is named. */
	op = op_rw(IO_READ, big + far + 4096, 4096, 4096);
	op.sbuf = b;
	for (unsigned i = 0; i < 8192 && !op.pinned && !op.pin_err; i++)
		run(&op);
	if (op.pinned)
		T_EQ(pinned_bytes(), before + far + 8192);
	io_buf_free(b);
	T_EQ(pinned_bytes(), before);
	(void)munmap(big, len);
	tear_down();
}

/* Each byte moved once: registering would cost more than it saves. */
static void registers_nothing_that_is_read_once(void)
{
	uint64_t before = pinned_bytes();
	struct io_buf *b;
	struct io_op op;

	set_up(8);
	memset(mem, 1, SIZE);
	T_OK(io_buf_new(mem, SIZE, &b));
	for (uint64_t at = 0; at < SIZE; at += 65536) {
		op = op_rw(IO_READ, mem + at, at, 65536);
		op.sbuf = b;
		run(&op);
		T_CHECK(!op.pinned && !op.pin_err);
	}
	T_EQ(pinned_bytes(), before);
	io_buf_free(b);
	tear_down();
}

#define LIMIT KIB(256) /* newer kernels count the ring too */
#define FIRST KIB(128)
#define SECOND KIB(192)

/* As a user that RLIMIT_MEMLOCK holds for: the limit is asked, and then the kernel is not. */
static void little_memlock_here(void)
{
	struct rlimit rl = { LIMIT, LIMIT };
	struct io_buf *b[2];
	struct io_op op[2];
	uint64_t before;

	set_up(8);
	io_ctx_free(ctx);
	(void)munmap(mem, SIZE);
	mem = map_small(SIZE); /* of a huge page the kernel counts all */
	memset(mem, 1, SIZE);
	if (setrlimit(RLIMIT_MEMLOCK, &rl) < 0 || (getuid() == 0 && setuid(t_stranger()) < 0))
		T_SKIP("another user: %s", strerror(errno));
	T_OK(io_ctx_new(ops, 8, &ctx));
	before = pinned_bytes();
	T_OK(fault_set("store.pin:1000000:ENOMEM")); /* counts */
	for (int i = 0; i < 2; i++) {
		T_OK(io_buf_new(mem + i * MIB(1), MIB(1), &b[i]));
		op[i] = op_rw(IO_READ, mem + i * MIB(1), 4096, i ? SECOND : FIRST);
		op[i].sbuf = b[i];
	}
	run_registered(&op[0]);
	if (!op[0].pinned) {
		T_EQ(fault_passed(FAULT_FILE_PIN), 1);
		T_SKIP("this user has locked memory in other processes");
	}
	T_EQ(pinned_bytes(), before + FIRST);
	for (int i = 0; i < 200; i++) {
		run(&op[1]);
		T_EQ(op[1].res, SECOND);
		T_CHECK(!op[1].pinned);
	}
	T_EQ(op[1].pin_err, ENOMEM);
	T_EQ(fault_passed(FAULT_FILE_PIN), 1); /* the first buffer */
	T_EQ(pinned_bytes(), before + FIRST);

	/* With room under the limit it is registered after all. */
	io_buf_free(b[0]);
	for (int i = 0; i < 1000 && !op[1].pinned; i++)
		run(&op[1]);
	T_CHECK(op[1].pinned && !op[1].pin_err);
	T_EQ(fault_passed(FAULT_FILE_PIN), 2);
	T_EQ(pinned_bytes(), before + SECOND);

	/* The room comes back with the I/O context, too. */
	T_OK(fault_set(NULL));
	io_ctx_free(ctx);
	T_EQ(pinned_bytes(), before);
	T_OK(io_ctx_new(ops, 8, &ctx));
	op[0].sbuf = b[1];
	op[0].buf = mem + MIB(1);
	run_registered(&op[0]);
	T_CHECK(op[0].pinned);
	io_buf_free(b[1]);
	tear_down();
}

static void in_child(void (*fn)(void))
{
	char text[512] = "";
	int status, out[2];
	pid_t pid;
	ssize_t n;

	T_EQ(pipe2(out, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		int how = setjmp(t_jump);

		if (!how)
			fn();
		else
			(void)!write(out[1], t_why, strlen(t_why));
		_exit(how);
	}
	(void)close(out[1]);
	n = read(out[0], text, sizeof(text) - 1);
	(void)close(out[0]);
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && n >= 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == T_JUMP_SKIP)
		T_SKIP("%s", text);
	if (status)
		T_FAIL("status %d: %.300s", status, text);
}

static void little_memlock(void)
{
	if (ops != &uring_backend)
		T_SKIP("io_uring");
	in_child(little_memlock_here);
}

/* A process may have few descriptors: the ring's table is then short, and the limit stays. */
static void more_files_than_the_table_holds(void)
{
	struct rlimit old, rl, after;
	struct local_file *f[40];
	struct io_op op;

	set_up(4);
	io_ctx_free(ctx);
	T_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
	rl = (struct rlimit){ .rlim_cur = 64, .rlim_max = old.rlim_max };
	T_EQ(setrlimit(RLIMIT_NOFILE, &rl), 0);
	T_OK(io_ctx_new(ops, 4, &ctx));
	for (unsigned i = 0; i < ARRAY_SIZE(f); i++)
		T_OK(local_file_open(path, PST_FILE_READ | PST_FILE_PLAIN, 0, &f[i]));
	for (unsigned i = 0; i < ARRAY_SIZE(f); i++) {
		op = op_rw(IO_READ, mem, i * 1000, 4096);
		op.file = f[i];
		run(&op);
		T_EQ(op.res, 4096);
		T_EQ(t_differs(mem, SEED, i * 1000, 4096), 4096);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(f); i++)
		local_file_free(f[i]);
	T_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
	T_EQ(after.rlim_cur, 64);
	T_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
	tear_down();
}

static void registration_that_fails(void)
{
	struct io_buf *b;

	set_up(8);
	T_OK(fault_set("store.pin:0:ENOMEM"));
	T_OK(io_buf_new(mem, SIZE, &b));
	for (int i = 0; i < 100; i++) {
		struct io_op op = op_rw(IO_READ, mem + 65536 * (i & 3), 0, 4096);

		op.sbuf = b;
		memset(mem, 0, 4 * 65536);
		run(&op);
		T_EQ(op.res, 4096);
		T_CHECK(!op.pinned);
		if (i == 99)
			T_EQ(op.pin_err, ops == &uring_backend ? ENOMEM : 0);
	}
	/* Tried once and not for each operation. */
	T_EQ(fault_passed(FAULT_FILE_PIN), ops == &uring_backend);
	io_buf_free(b);
	tear_down();
}

static void buffers_without_a_place(void)
{
	struct io_buf *b[IO_NR_BUFS + 1];
	struct io_op op;

	set_up(8);
	for (unsigned i = 0; i < ARRAY_SIZE(b); i++)
		T_OK(io_buf_new(mem, 4096, &b[i]));
	T_EQ(b[IO_NR_BUFS]->nr, 0);
	op = op_rw(IO_READ, mem, 0, 4096);
	op.sbuf = b[IO_NR_BUFS];
	run(&op);
	T_EQ(op.res, 4096);
	T_CHECK(!op.pinned);
	for (unsigned i = 0; i < ARRAY_SIZE(b); i++)
		io_buf_free(b[i]);
	tear_down();
}

static void nowait_hot_and_cold(void)
{
	struct io_op op;

	set_up(8);
	T_EQ(fsync(file->fd), 0);
	T_EQ(posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	op = op_rw(IO_READ, mem, MIB(2), 4096);
	op.flags = IO_OP_NOWAIT;
	run(&op);
	if (file->memory_fs) {
		T_EQ(op.res, 4096);
	} else if (op.res != -EAGAIN) {
		tear_down();
		/* The kernel begins to read ahead before it says that it would wait. */
		T_SKIP("a cold page cache, or a disk that takes its time (the read gave %lld)",
		       (long long)op.res);
	}

	T_EQ(pread(file->fd, mem, SIZE, 0), SIZE);
	memset(mem, 0, SIZE);
	op = op_rw(IO_READ, mem, MIB(2), 4096);
	op.flags = IO_OP_NOWAIT;
	run(&op);
	T_EQ(op.res, 4096);
	T_EQ(t_differs(mem, SEED, MIB(2), 4096), 4096);
	op = op_rw(IO_READ, mem, SIZE - 100, 4096);
	op.flags = IO_OP_NOWAIT;
	run(&op);
	T_EQ(op.res, 100);
	tear_down();
}

static void nowait_where_the_cache_ends(void)
{
	struct io_op op;

	set_up(8);
	if (file->memory_fs) {
		tear_down();
		T_SKIP("a file system with a disk below");
	}
	T_EQ(fsync(file->fd), 0);
	T_EQ(posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM), 0);
	T_EQ(posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	T_EQ(pread(file->fd, mem, 8192, 0), 8192);
	op = op_rw(IO_READ, mem, 4096, MIB(1));
	op.flags = IO_OP_NOWAIT;
	run(&op);
	T_CHECK(op.res >= 4096);
	T_EQ(t_differs(mem, SEED, 4096, (size_t)op.res), op.res);
	tear_down();
	if (op.res > 4096)
		T_SKIP("a cold page cache, or a disk that takes its time (the read gave %lld)",
		       (long long)op.res);
}

static void short_counts_are_resumed(void)
{
	struct io_op op;

	set_up(8);
	T_OK(fault_set("store.read:1:short,store.read:2:EAGAIN,store.read:3:EINTR,"
		       "store.write:1:short,store.write:2:EINTR,store.write:3:EAGAIN"));
	op = op_rw(IO_READ, mem, 1234, 100001);
	run(&op);
	T_EQ(op.res, 100001);
	T_EQ(t_differs(mem, SEED, 1234, 100001), 100001);
	T_CHECK(fault_passed(FAULT_FILE_READ) >= 4);

	op = op_rw(IO_WRITE, mem, 1234, 100001);
	run(&op);
	T_EQ(op.res, 100001);
	T_CHECK(fault_passed(FAULT_FILE_WRITE) >= 4);
	T_EQ(pread(file->fd, mem, SIZE, 0), SIZE);
	T_EQ(t_differs(mem, SEED, 0, SIZE), SIZE);

	if (file->fd_direct >= 0) {
		T_OK(fault_set("store.read:1:short,store.read:2:short"));
		memset(mem, 0, SIZE);
		op = op_rw(IO_READ, mem, 0, MIB(1));
		op.flags = IO_OP_DIRECT;
		run(&op);
		T_EQ(op.res, MIB(1));
		T_CHECK(op.flags & IO_OP_DIRECT);
		T_EQ(t_differs(mem, SEED, 0, MIB(1)), MIB(1));
	}
	tear_down();
}

static void errors_keep_what_was_moved(void)
{
	struct io_op op;

	set_up(8);
	T_OK(fault_set(
		"store.read:1:short,store.read:2:EIO,store.write:1:ENOSPC,store.sync:1:EIO"));
	op = op_rw(IO_READ, mem, 0, 8192);
	run(&op);
	T_EQ(op.res, -EIO);
	T_EQ(op.moved, 4096);
	op = op_rw(IO_WRITE, mem, 0, 8192);
	run(&op);
	T_EQ(op.res, -ENOSPC);
	T_EQ(op.moved, 0);
	op = op_rw(IO_FSYNC, NULL, 0, 0);
	run(&op);
	T_EQ(op.res, -EIO);
	tear_down();
}

static void errors_of_the_kernel(void)
{
	struct io_op op;
	void *hole;

	set_up(8);
	/* Memory that is not there. */
	hole = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T_CHECK(hole != MAP_FAILED);
	op = op_rw(IO_READ, hole, 0, 4096);
	run(&op);
	T_EQ(op.res, -EFAULT);
	(void)munmap(hole, 8192);
	local_file_free(file);
	/* A direction that the descriptor has not. */
	T_OK(local_file_open(path, PST_FILE_READ, 0, &file));
	op = op_rw(IO_WRITE, mem, 0, 4096);
	run(&op);
	T_EQ(op.res, -EBADF);
	tear_down();
}

static void end_of_file(void)
{
	struct io_op op;

	set_up(8);
	op = op_rw(IO_READ, mem, SIZE - 1000, 8192);
	run(&op);
	T_EQ(op.res, 1000);
	op = op_rw(IO_READ, mem, SIZE, 8192);
	run(&op);
	T_EQ(op.res, 0);
	if (file->fd_direct >= 0) {
		T_EQ(ftruncate(file->fd, SIZE - 1000), 0);
		op = op_rw(IO_READ, mem, SIZE - 8192, 8192);
		op.flags = IO_OP_DIRECT;
		run(&op);
		T_EQ(op.res, 8192 - 1000);
		T_EQ(t_differs(mem, SEED, SIZE - 8192, 7192), 7192);
		make_file(path, SEED, SIZE);
	}
	tear_down();
}

static void syncs(void)
{
	struct io_op op;

	set_up(8);
	op = op_rw(IO_FSYNC, NULL, 0, 0);
	run(&op);
	T_EQ(op.res, 0);
	op = op_rw(IO_FDATASYNC, NULL, 0, 0);
	run(&op);
	T_EQ(op.res, 0);
	tear_down();
}

static void many_at_once(void)
{
	enum { NR = 200, LEN = 10007 };
	struct io_op *op, *got[16];
	unsigned next = 0, done = 0;

	set_up(32);
	op = calloc(NR, sizeof(*op));
	T_CHECK(op);
	while (done < NR) {
		unsigned n;

		while (next < NR) {
			op[next] = op_rw(IO_READ, mem + next * LEN, next * LEN, LEN);
			if (ctx->ops->queue(ctx, &op[next]) < 0)
				break;
			next++;
		}
		T_CHECK(next - done <= 32);
		T_OK(ctx->ops->flush(ctx));
		T_OK(ctx->ops->wait(ctx, 4, t_in_ms(HANG_MS)));
		n = ctx->ops->reap(ctx, got, 16);
		for (unsigned i = 0; i < n; i++)
			T_EQ(got[i]->res, LEN);
		done += n;
	}
	T_EQ(ctx->nr_ops, 0);
	T_EQ(t_differs(mem, SEED, 0, NR * LEN), NR * LEN);
	free(op);
	tear_down();
}

static void depth_is_kept(void)
{
	struct io_op op[3];

	set_up(2);
	for (int i = 0; i < 3; i++)
		op[i] = op_rw(IO_READ, mem + i * 4096, 0, 4096);
	T_OK(ctx->ops->queue(ctx, &op[0]));
	T_OK(ctx->ops->queue(ctx, &op[1]));
	T_EQ(ctx->ops->queue(ctx, &op[2]), -EAGAIN);
	T_EQ(ctx->nr_ops, 2);
	T_OK(ctx->ops->flush(ctx));
	for (int i = 0; i < 2; i++) {
		struct io_op *got;

		while (!ctx->ops->reap(ctx, &got, 1))
			T_OK(ctx->ops->wait(ctx, 1, t_in_ms(HANG_MS)));
		T_EQ(got->res, 4096);
	}
	run(&op[2]);
	T_EQ(op[2].res, 4096);
	tear_down();
}

static void cancel_before_the_start(void)
{
	struct io_op op[3], *got;
	unsigned canceled = 0;

	set_up(4);
	memset(mem, 0xee, SIZE);
	for (int i = 0; i < 3; i++) {
		op[i] = op_rw(IO_READ, mem + i * 4096, 0, 4096);
		T_OK(ctx->ops->queue(ctx, &op[i]));
	}
	ctx->ops->cancel(ctx, &op[1]);
	ctx->ops->cancel(ctx, &op[1]); /* once more does nothing */
	T_OK(ctx->ops->flush(ctx));
	for (int i = 0; i < 3; i++) {
		while (!ctx->ops->reap(ctx, &got, 1))
			T_OK(ctx->ops->wait(ctx, 1, t_in_ms(HANG_MS)));
		if (got->res == -ECANCELED) {
			T_CHECK(got == &op[1]);
			canceled++;
		} else {
			T_EQ(got->res, 4096);
		}
	}
	T_EQ(canceled, 1);
	T_EQ(mem[4096], 0xee);
	T_EQ(ctx->nr_ops, 0);
	tear_down();
}

static void cancel_nowait_before_the_start(void)
{
	struct io_op op;

	set_up(4);
	op = op_rw(IO_READ, mem, 0, 4096);
	op.flags = IO_OP_NOWAIT;
	T_OK(ctx->ops->queue(ctx, &op));
	ctx->ops->cancel(ctx, &op);
	T_OK(ctx->ops->flush(ctx));
	finish(ctx, &op);
	T_EQ(op.res, -ECANCELED);
	tear_down();
}

static bool readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) == 1;
}

static void the_eventfd(void)
{
	struct io_op op, *got;
	eventfd_t v;
	int efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	T_CHECK(efd >= 0);
	set_up(4);
	T_OK(ctx->ops->arm(ctx, efd, false)); /* before the first true: nothing */
	T_OK(ctx->ops->arm(ctx, efd, true));
	T_CHECK(!readable(efd, 0));

	/* Armed first. */
	op = op_rw(IO_READ, mem, 0, 4096);
	T_OK(ctx->ops->queue(ctx, &op));
	T_OK(ctx->ops->flush(ctx));
	T_CHECK(readable(efd, 5000));
	T_EQ(ctx->ops->reap(ctx, &got, 1), 1);
	(void)eventfd_read(efd, &v);

	/* Done before it was armed. */
	T_OK(ctx->ops->arm(ctx, efd, false));
	T_OK(ctx->ops->queue(ctx, &op));
	T_OK(ctx->ops->flush(ctx));
	T_OK(ctx->ops->wait(ctx, 1, t_in_ms(HANG_MS)));
	T_CHECK(!readable(efd, 0));
	T_OK(ctx->ops->arm(ctx, efd, true));
	T_CHECK(readable(efd, 0));
	T_EQ(ctx->ops->reap(ctx, &got, 1), 1);
	(void)eventfd_read(efd, &v);

	/* Ended without the kernel. */
	T_OK(fault_set("store.read:1:EIO"));
	T_OK(ctx->ops->queue(ctx, &op));
	T_OK(ctx->ops->flush(ctx));
	T_CHECK(readable(efd, 5000));
	T_EQ(ctx->ops->reap(ctx, &got, 1), 1);
	T_EQ(op.res, -EIO);
	tear_down();
	(void)close(efd);
}

static void wait_ends_at_its_deadline(void)
{
	struct io_op op = { 0 };

	set_up(4);
	T_OK(ctx->ops->wait(ctx, 1, t_in_ms(HANG_MS))); /* nothing to wait for */
	op = op_rw(IO_READ, mem, 0, 4096);
	T_OK(ctx->ops->queue(ctx, &op));
	T_OK(ctx->ops->flush(ctx));
	finish(ctx, &op);
	/* And no more then. */
	T_OK(ctx->ops->wait(ctx, 1, PST_NO_DEADLINE));
	tear_down();
}

static void a_reused_place_never_reads_the_old_file(void)
{
	char other[160];
	uint32_t idx;

	set_up(4);
	(void)snprintf(other, sizeof(other), "%s/other", dir);
	make_file(other, SEED + 5, 65536);
	for (int i = 0; i < 20; i++) {
		bool odd = i & 1;
		struct io_op op;

		idx = file->idx;
		local_file_free(file);
		T_OK(local_file_open(odd ? other : path, PST_FILE_READ, 0, &file));
		T_EQ(file->idx, idx);
		op = op_rw(IO_READ, mem, 4096, 8192);
		if (i & 2 && file->fd_direct >= 0)
			op.flags = IO_OP_DIRECT;
		run(&op);
		T_EQ(op.res, 8192);
		T_EQ(t_differs(mem, odd ? SEED + 5 : SEED, 4096, 8192), 8192);
	}
	T_EQ(unlink(other), 0);
	tear_down();
}

/* One thread opens, reads and closes; the other I/O context's tables are cleared meanwhile. */
static void *churn(void *arg)
{
	uint8_t *buf = aligned_alloc(4096, 65536);
	struct io_ctx *l;

	(void)arg;
	if (!buf || io_ctx_new(ops, 4, &l) < 0)
		return (void *)1;
	for (int i = 0; i < 200; i++) {
		struct local_file *f;
		struct io_buf *b;
		struct io_op op, *got;

		if (local_file_open(path, PST_FILE_READ, 0, &f) < 0 ||
		    io_buf_new(buf, 65536, &b) < 0)
			return (void *)2;
		op = (struct io_op){ .file = f,
				     .sbuf = b,
				     .kind = IO_READ,
				     .buf = buf,
				     .off = 4096u * (unsigned)i,
				     .len = 4096 };
		if (l->ops->queue(l, &op) < 0 || l->ops->flush(l) < 0)
			return (void *)3;
		while (!l->ops->reap(l, &got, 1))
			(void)l->ops->wait(l, 1, t_in_ms(HANG_MS));
		if (op.res != 4096 || t_differs(buf, SEED, op.off, 4096) != 4096)
			return (void *)4;
		io_buf_free(b);
		local_file_free(f);
	}
	io_ctx_free(l);
	free(buf);
	return NULL;
}

static void files_come_and_go_on_two_threads(void)
{
	pthread_t t[2];
	void *r[2];

	for (int i = 0; i < 2; i++)
		T_EQ(pthread_create(&t[i], NULL, churn, NULL), 0);
	for (int i = 0; i < 2; i++)
		T_EQ(pthread_join(t[i], &r[i]), 0);
	T_CHECK(!r[0] && !r[1]);
}

struct handed_over {
	struct io_op op;
	int err;
};

static void *start_one(void *arg)
{
	struct handed_over *h = arg;

	h->err = ctx->ops->queue(ctx, &h->op);
	if (!h->err)
		h->err = ctx->ops->flush(ctx);
	return NULL;
}

/*
 * The kernel cancels what a thread started when it ends, or gives -EFAULT for what waited for the
 * page cache; the I/O context must start it again.
 */
static void outlive(bool direct)
{
	struct handed_over h[16];
	struct io_op *got;
	pthread_t t;

	(void)fdatasync(file->fd);
	(void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM);
	(void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED);
	memset(mem, 0, 16 * 65536);
	for (unsigned i = 0; i < 16; i++) {
		h[i].op = op_rw(IO_READ, mem + i * 65536, i * 65536, 65536);
		if (direct)
			h[i].op.flags = IO_OP_DIRECT;
		T_EQ(pthread_create(&t, NULL, start_one, &h[i]), 0);
		T_EQ(pthread_join(t, NULL), 0);
		T_EQ(h[i].err, 0);
	}
	for (unsigned i = 0; i < 16; i++) {
		while (!ctx->ops->reap(ctx, &got, 1))
			T_OK(ctx->ops->wait(ctx, 1, t_in_ms(HANG_MS)));
		T_EQ(got->res, 65536);
	}
	T_EQ(t_differs(mem, SEED, 0, 16 * 65536), 16 * 65536);
}

static void a_lane_outlives_the_thread_that_used_it(void)
{
	set_up(16);
	if (file->fd_direct >= 0)
		outlive(true);
	outlive(false);
	tear_down();
}

/* Memory that is not there is an error all the same. */
static void bad_memory_is_an_error(void)
{
	struct io_op op, *got;

	set_up(16);
	op = op_rw(IO_READ, NULL, 0, 4096);
	T_OK(ctx->ops->queue(ctx, &op));
	T_OK(ctx->ops->flush(ctx));
	while (!ctx->ops->reap(ctx, &got, 1))
		T_OK(ctx->ops->wait(ctx, 1, t_in_ms(HANG_MS)));
	T_EQ(got->res, -EFAULT);
	tear_down();
}

/* ---------------------------------------------------- file systems that misbehave */

static struct fusefs fuse;

static struct local_file *fuse_file(const char *name, uint32_t flags)
{
	struct local_file *f;
	char p[256];

	(void)snprintf(p, sizeof(p), "%s/%s", fuse.dir, name);
	T_OK(local_file_open(p, flags, 0, &f));
	return f;
}

static void need_fuse(void)
{
	if (!fuse.pid)
		T_SKIP("%s", fuse.why);
}

static void odd_short_reads(void)
{
	struct local_file *f;
	struct io_op op;

	need_fuse();
	set_up(4);
	f = fuse_file("short", PST_FILE_READ);
	T_EQ(f->fd_direct, -1);
	T_EQ(f->why, PST_WHY_NO_DIRECT);
	op = op_rw(IO_READ, mem, 99, 300000);
	op.file = f;
	run(&op);
	T_EQ(op.res, 300000);
	T_EQ(t_differs(mem, FUSEFS_SEED, 99, 300000), 300000);
	local_file_free(f);
	tear_down();
}

static void an_error_in_the_middle(void)
{
	struct local_file *f;
	struct io_op op;

	need_fuse();
	set_up(4);
	f = fuse_file("eio", PST_FILE_READ);
	op = op_rw(IO_READ, mem, 0, MIB(2));
	op.file = f;
	run(&op);
	T_EQ(op.res, -EIO);
	T_CHECK(op.moved <= MIB(1));
	T_EQ(t_differs(mem, FUSEFS_SEED, 0, op.moved), op.moved);
	local_file_free(f);

	f = fuse_file("full", PST_FILE_READ | PST_FILE_WRITE);
	op = op_rw(IO_WRITE, mem, 0, MIB(2));
	op.file = f;
	run(&op);
	T_EQ(op.res, -ENOSPC);
	/* Less where the kernel splits the write and the pieces end in any order. */
	T_CHECK(op.moved <= MIB(1));
	local_file_free(f);

	f = fuse_file("shrink", PST_FILE_READ);
	op = op_rw(IO_READ, mem, 0, MIB(2));
	op.file = f;
	run(&op);
	T_EQ(op.res, MIB(1));
	local_file_free(f);
	tear_down();
}

static void nowait_where_nobody_can_say(void)
{
	struct local_file *f;
	struct io_op op;

	need_fuse();
	set_up(4);
	f = fuse_file("normal", PST_FILE_READ);
	op = op_rw(IO_READ, mem, 0, 4096);
	op.file = f;
	op.flags = IO_OP_NOWAIT;
	run(&op);
	T_CHECK(op.res == -EAGAIN || op.res == 4096);
	op.flags = 0;
	run(&op);
	T_EQ(op.res, 4096);
	local_file_free(f);
	tear_down();
}

static void wrapped_with_o_nonblock(void)
{
	struct local_file *f;
	struct io_op op;
	char p[256];
	int fd;

	need_fuse();
	set_up(4);
	(void)snprintf(p, sizeof(p), "%s/slow", fuse.dir);
	fd = open(p, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	T_CHECK(fd >= 0);
	T_OK(local_file_wrap(fd, 0, &f));
	(void)close(fd);
	op = op_rw(IO_READ, mem, 0, 4096);
	op.file = f;
	run(&op);
	T_EQ(op.res, 4096);
	T_EQ(t_differs(mem, FUSEFS_SEED, 0, 4096), 4096);
	local_file_free(f);
	tear_down();
}

static void on_alarm(int sig)
{
	(void)sig;
}

/* By a signal where the kernel waits; a condition variable goes on to its deadline. */
static void wait_is_interrupted(struct io_ctx *hung)
{
	struct sigaction sa = { .sa_handler = on_alarm }, old;
	/* Again and again: the first may come before the wait has begun. */
	struct itimerval it = { { .tv_usec = 20000 }, { .tv_usec = 20000 } }, off = { 0 };
	bool sleeps_on = ops != &uring_backend;
	int r;

	T_EQ(sigaction(SIGALRM, &sa, &old), 0);
	T_EQ(setitimer(ITIMER_REAL, &it, NULL), 0);
	r = hung->ops->wait(hung, 1, t_in_ms(sleeps_on ? 100 : HANG_MS));
	T_EQ(setitimer(ITIMER_REAL, &off, NULL), 0);
	T_EQ(r, sleeps_on ? -ETIMEDOUT : -EINTR);
	T_EQ(sigaction(SIGALRM, &old, NULL), 0);
}

static void a_file_system_that_hangs(void)
{
	struct io_ctx *hung;
	struct io_op stuck, op, *got;
	struct local_file *f;
	uint64_t start, hang_guard;

	need_fuse();
	set_up(4);
	T_OK(io_ctx_new(ops, 4, &hung));
	f = fuse_file("hang", PST_FILE_READ);
	stuck = op_rw(IO_READ, mem + MIB(1), 0, 4096);
	stuck.file = f;
	T_OK(hung->ops->queue(hung, &stuck));
	T_OK(hung->ops->flush(hung));
	/* The file system has it before somebody answers: it would wait for the next one. */
	hang_guard = t_in_ms(HANG_MS);
	while (fusefs_waiting(&fuse) < 1 && t_now() < hang_guard)
		(void)usleep(1000);
	T_EQ(fusefs_waiting(&fuse), 1);
	start = t_now();
	T_EQ(hung->ops->wait(hung, 1, t_in_ms(50)), -ETIMEDOUT);
	T_CHECK(t_now() - start >= 50 * NSEC_PER_MSEC);
	T_EQ(hung->ops->reap(hung, &got, 1), 0);

	/* Another I/O context and another file go on. */
	op = op_rw(IO_READ, mem, 4096, 65536);
	run(&op);
	T_EQ(op.res, 65536);

	wait_is_interrupted(hung);

	hung->ops->cancel(hung, &stuck);
	op = op_rw(IO_READ, mem, 4096, 65536);
	run(&op);
	T_EQ(op.res, 65536);

	/* It ends when the file system answers, or was cancelled already. */
	fusefs_release(&fuse);
	finish(hung, &stuck);
	T_CHECK(stuck.res == 4096 || stuck.res == -ECANCELED || stuck.res == -EINTR);
	io_ctx_free(hung);
	local_file_free(f);
	tear_down();
}

static unsigned nr_io_threads(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	unsigned n = 0;

	T_CHECK(d);
	while ((e = readdir(d))) {
		char p[320], name[32] = "";
		FILE *comm;

		(void)snprintf(p, sizeof(p), "/proc/self/task/%s/comm", e->d_name);
		comm = fopen(p, "re");
		if (!comm)
			continue;
		if (fgets(name, sizeof(name), comm) && !strcmp(name, "pst-io\n"))
			n++;
		(void)fclose(comm);
	}
	(void)closedir(d);
	return n;
}

static void no_thread_remains(void)
{
	/* A thread that was joined may show in /proc a moment longer. */
	for (int i = 0; i < 1000 && nr_io_threads() > 0; i++)
		(void)usleep(1000);
	T_EQ(nr_io_threads(), 0);
}

static void threads_grow_when_all_are_busy(void)
{
	struct io_op op[8], *got;
	struct local_file *f;
	unsigned done = 0;

	if (ops != &threads_backend)
		T_SKIP("a store of threads");
	need_fuse();
	set_up(8);
	f = fuse_file("slow", PST_FILE_READ);
	for (unsigned i = 0; i < 8; i++) {
		op[i] = op_rw(IO_READ, mem + i * 4096, i * 4096, 4096);
		op[i].file = f;
		T_OK(ctx->ops->queue(ctx, &op[i]));
	}
	T_OK(ctx->ops->flush(ctx));
	/* They take their names themselves, in their own time. */
	for (int i = 0; i < 1000 && nr_io_threads() < 8; i++)
		(void)usleep(1000);
	T_EQ(nr_io_threads(), 8);
	while (done < 8) {
		T_OK(ctx->ops->wait(ctx, 1, t_in_ms(HANG_MS)));
		done += ctx->ops->reap(ctx, &got, 1);
	}
	T_EQ(t_differs(mem, FUSEFS_SEED, 0, 8 * 4096), 8 * 4096);
	local_file_free(f);
	tear_down();
}

static void lanes_that_cannot_be(void)
{
	struct io_ctx *l = NULL;

	T_EQ(io_ctx_new(ops, 0, &l), -EINVAL);
	T_EQ(io_ctx_new(ops, 8193, &l), -EINVAL);
	T_OK(fault_set("store.lane:1:ENOMEM"));
	T_EQ(io_ctx_new(ops, 4, &l), -ENOMEM);
	T_CHECK(err_text()[0]);
	T_OK(fault_set(NULL));
	T_CHECK(!l);
	io_ctx_free(NULL);
	T_OK(io_ctx_new(ops, 8192, &l));
	io_ctx_free(l);
}

static void picking(void)
{
	const struct io_backend *o;
	int err = -1;

	o = io_backend_pick(PST_BACKEND_THREADS, &err);
	T_CHECK(o == &threads_backend && err == 0);
	T_OK(fault_set("store.uring:0:EPERM"));
	o = io_backend_pick(PST_BACKEND_AUTO, &err);
	T_CHECK(o == &threads_backend && err == EPERM);
	o = io_backend_pick(PST_BACKEND_URING, &err);
	T_CHECK(!o && err == EPERM);
	T_CHECK(strstr(err_text(), "io_uring"));
	T_OK(fault_set(NULL));
	T_CHECK(!io_backend_pick(99, &err) && err == EINVAL);
	o = io_backend_pick(PST_BACKEND_AUTO, &err);
	T_CHECK(o && (o == &uring_backend) == (err == 0));
}

static void cases(void)
{
	T_RUN(reads_of_many_sizes);
	T_RUN(direct_reads);
	T_RUN(writes);
	T_RUN(registered_buffers);
	T_RUN(registered_buffers_beyond_a_piece);
	T_RUN(registers_what_is_there);
	T_RUN(registers_nothing_that_is_read_once);
	T_RUN(little_memlock);
	T_RUN(more_files_than_the_table_holds);
	T_RUN(registration_that_fails);
	T_RUN(buffers_without_a_place);
	T_RUN(nowait_hot_and_cold);
	T_RUN(nowait_where_the_cache_ends);
	T_RUN(short_counts_are_resumed);
	T_RUN(errors_keep_what_was_moved);
	T_RUN(errors_of_the_kernel);
	T_RUN(end_of_file);
	T_RUN(syncs);
	T_RUN(many_at_once);
	T_RUN(depth_is_kept);
	T_RUN(cancel_before_the_start);
	T_RUN(cancel_nowait_before_the_start);
	T_RUN(the_eventfd);
	T_RUN(wait_ends_at_its_deadline);
	T_RUN(a_reused_place_never_reads_the_old_file);
	T_RUN(files_come_and_go_on_two_threads);
	T_RUN(a_lane_outlives_the_thread_that_used_it);
	T_RUN(bad_memory_is_an_error);
	T_RUN(odd_short_reads);
	T_RUN(an_error_in_the_middle);
	T_RUN(nowait_where_nobody_can_say);
	T_RUN(wrapped_with_o_nonblock);
	T_RUN(a_file_system_that_hangs);
	T_RUN(threads_grow_when_all_are_busy);
	T_RUN(lanes_that_cannot_be);
	T_RUN(no_thread_remains);
}

static void on(const struct io_backend *o, const char *parent)
{
	ops = o;
	(void)snprintf(dir, sizeof(dir), "%s/pst-store-XXXXXX", parent);
	if (!mkdtemp(dir)) {
		printf("# no scratch directory in %s\n", parent);
		return;
	}
	printf("# %s in %s\n", o->name, parent);
	(void)snprintf(path, sizeof(path), "%s/file", dir);
	T_RUN(scratch_file);
	cases();
	(void)unlink(path);
	(void)rmdir(dir);
}

int main(void)
{
	const char *parent = getenv("PST_TEST_DIR");

	parent = parent ? parent : "/tmp";
	fusefs_start(&fuse, parent);
	T_RUN(picking);
	on(&threads_backend, parent);
	on(&threads_backend, "/dev/shm");
	if (uring_backend.check() == 0) {
		on(&uring_backend, parent);
		on(&uring_backend, "/dev/shm");
	} else {
		printf("# without io_uring: %s\n", err_text());
	}
	fusefs_stop(&fuse);
	return t_done();
}
