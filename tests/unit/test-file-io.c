/* SPDX-License-Identifier: MIT */
/* Operations of an I/O context: bytes, short counts, errors, ends of files, cancels, wake-ups. */
#include "file_io_rig.h"

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
	if (local_of(file)->fd_direct < 0) {
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
	T_EQ(pread(local_of(file)->fd, mem, len, (off_t)off), len);
	T_EQ(t_differs(mem, SEED + 1, off, len), len);
}

static void writes(void)
{
	set_up(8);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		write_and_check(0, i * 3001, sizes[i]);
	if (local_of(file)->fd_direct >= 0)
		for (uint64_t len = 4096; len <= MIB(2); len *= 4)
			write_and_check(IO_OP_DIRECT, len, len);
	make_file(path, SEED, SIZE);
	tear_down();
}

/* With few descriptors allowed, the ring's file table is short, and the limit stays as it was. */
static void more_files_than_the_table_holds(void)
{
	struct rlimit old, rl, after;
	struct file *f[40];
	struct io_op op;

	set_up(4);
	io_ctx_free(ctx);
	T_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
	rl = (struct rlimit){ .rlim_cur = 64, .rlim_max = old.rlim_max };
	T_EQ(setrlimit(RLIMIT_NOFILE, &rl), 0);
	T_OK(io_ctx_new(ops, 4, &ctx));
	for (unsigned i = 0; i < ARRAY_SIZE(f); i++)
		T_OK(file_open(path, PST_FILE_READ | PST_FILE_PLAIN, 0, &f[i]));
	for (unsigned i = 0; i < ARRAY_SIZE(f); i++) {
		op = op_rw(IO_READ, mem, i * 1000, 4096);
		op.file = f[i];
		run(&op);
		T_EQ(op.res, 4096);
		T_EQ(t_differs(mem, SEED, i * 1000, 4096), 4096);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(f); i++)
		file_free(f[i]);
	T_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
	T_EQ(after.rlim_cur, 64);
	T_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
	tear_down();
}

static void nowait_hot_and_cold(void)
{
	struct io_op op;

	set_up(8);
	T_EQ(fsync(local_of(file)->fd), 0);
	T_EQ(posix_fadvise(local_of(file)->fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	op = op_rw(IO_READ, mem, MIB(2), 4096);
	op.flags = IO_OP_NOWAIT;
	run(&op);
	if (file->caps & FILE_RESIDENT) {
		T_EQ(op.res, 4096);
	} else if (op.res != -EAGAIN) {
		tear_down();
		/* The kernel starts to read ahead before it returns EAGAIN. */
		T_SKIP("a cold page cache, or a disk that takes its time (the read gave %lld)",
		       (long long)op.res);
	}

	T_EQ(pread(local_of(file)->fd, mem, SIZE, 0), SIZE);
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
	if (file->caps & FILE_RESIDENT) {
		tear_down();
		T_SKIP("a file system with a disk below");
	}
	T_EQ(fsync(local_of(file)->fd), 0);
	T_EQ(posix_fadvise(local_of(file)->fd, 0, 0, POSIX_FADV_RANDOM), 0);
	T_EQ(posix_fadvise(local_of(file)->fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	T_EQ(pread(local_of(file)->fd, mem, 8192, 0), 8192);
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
	T_OK(fault_set("file.read:1:short,file.read:2:EAGAIN,file.read:3:EINTR,"
		       "file.write:1:short,file.write:2:EINTR,file.write:3:EAGAIN"));
	op = op_rw(IO_READ, mem, 1234, 100001);
	run(&op);
	T_EQ(op.res, 100001);
	T_EQ(t_differs(mem, SEED, 1234, 100001), 100001);
	T_CHECK(fault_passed(FAULT_FILE_READ) >= 4);

	op = op_rw(IO_WRITE, mem, 1234, 100001);
	run(&op);
	T_EQ(op.res, 100001);
	T_CHECK(fault_passed(FAULT_FILE_WRITE) >= 4);
	T_EQ(pread(local_of(file)->fd, mem, SIZE, 0), SIZE);
	T_EQ(t_differs(mem, SEED, 0, SIZE), SIZE);

	if (local_of(file)->fd_direct >= 0) {
		T_OK(fault_set("file.read:1:short,file.read:2:short"));
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
	T_OK(fault_set("file.read:1:short,file.read:2:EIO,file.write:1:ENOSPC,file.sync:1:EIO"));
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
	/* Read into inaccessible memory. */
	hole = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T_CHECK(hole != MAP_FAILED);
	op = op_rw(IO_READ, hole, 0, 4096);
	run(&op);
	T_EQ(op.res, -EFAULT);
	(void)munmap(hole, 8192);
	file_free(file);
	/* Write to a file that is open for reading only. */
	T_OK(file_open(path, PST_FILE_READ, 0, &file));
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
	if (local_of(file)->fd_direct >= 0) {
		T_EQ(ftruncate(local_of(file)->fd, SIZE - 1000), 0);
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
	ctx->ops->cancel(ctx, &op[1]); /* a second cancel does nothing */
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
	T_OK(ctx->ops->arm(ctx, efd, false)); /* disarming before the first arming has no effect */
	T_OK(ctx->ops->arm(ctx, efd, true));
	T_CHECK(!readable(efd, 0));

	/* Arm the eventfd before the operation ends. */
	op = op_rw(IO_READ, mem, 0, 4096);
	T_OK(ctx->ops->queue(ctx, &op));
	T_OK(ctx->ops->flush(ctx));
	T_CHECK(readable(efd, 5000));
	T_EQ(ctx->ops->reap(ctx, &got, 1), 1);
	(void)eventfd_read(efd, &v);

	/* The operation is done before the eventfd is armed. */
	T_OK(ctx->ops->arm(ctx, efd, false));
	T_OK(ctx->ops->queue(ctx, &op));
	T_OK(ctx->ops->flush(ctx));
	T_OK(ctx->ops->wait(ctx, 1, t_in_ms(HANG_MS)));
	T_CHECK(!readable(efd, 0));
	T_OK(ctx->ops->arm(ctx, efd, true));
	T_CHECK(readable(efd, 0));
	T_EQ(ctx->ops->reap(ctx, &got, 1), 1);
	(void)eventfd_read(efd, &v);

	/* The operation ends without the kernel. */
	T_OK(fault_set("file.read:1:EIO"));
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
	T_OK(ctx->ops->wait(ctx, 1, t_in_ms(HANG_MS))); /* nothing to wait for: returns at once */
	op = op_rw(IO_READ, mem, 0, 4096);
	T_OK(ctx->ops->queue(ctx, &op));
	T_OK(ctx->ops->flush(ctx));
	finish(ctx, &op);
	/* No operation is in flight, so the wait returns at once. */
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

		idx = local_of(file)->idx;
		file_free(file);
		T_OK(file_open(odd ? other : path, PST_FILE_READ, 0, &file));
		T_EQ(local_of(file)->idx, idx);
		op = op_rw(IO_READ, mem, 4096, 8192);
		if (i & 2 && local_of(file)->fd_direct >= 0)
			op.flags = IO_OP_DIRECT;
		run(&op);
		T_EQ(op.res, 8192);
		T_EQ(t_differs(mem, odd ? SEED + 5 : SEED, 4096, 8192), 8192);
	}
	T_EQ(unlink(other), 0);
	tear_down();
}

/* Open, read and close in one thread, while another context's tables are cleared. */
static void *churn(void *arg)
{
	uint8_t *buf = aligned_alloc(4096, 65536);
	struct io_ctx *l;

	(void)arg;
	if (!buf || io_ctx_new(ops, 4, &l) < 0)
		return (void *)1;
	memset(buf, 0, 65536); /* valgrind does not see io_uring's writes */
	for (int i = 0; i < 200; i++) {
		struct file *f;
		struct io_buf *b;
		struct io_op op, *got;

		if (file_open(path, PST_FILE_READ, 0, &f) < 0 || io_buf_new(buf, 65536, &b) < 0)
			return (void *)2;
		op = (struct io_op){ .file = f,
				     .reg = b,
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
		file_free(f);
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
 * When a thread ends, the kernel cancels its operations, or fails with -EFAULT those that wait
 * for the page cache.  The context must start them again.
 */
static void outlive(bool direct)
{
	struct handed_over h[16];
	struct io_op *got;
	pthread_t t;

	(void)fdatasync(local_of(file)->fd);
	(void)posix_fadvise(local_of(file)->fd, 0, 0, POSIX_FADV_RANDOM);
	(void)posix_fadvise(local_of(file)->fd, 0, 0, POSIX_FADV_DONTNEED);
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

static void a_context_outlives_the_thread_that_used_it(void)
{
	set_up(16);
	if (local_of(file)->fd_direct >= 0)
		outlive(true);
	outlive(false);
	tear_down();
}

/* Unmapped memory is also an error for an operation that another thread restarts. */
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

static void contexts_that_cannot_be(void)
{
	struct io_ctx *l = NULL;

	T_EQ(io_ctx_new(ops, 0, &l), -EINVAL);
	T_EQ(io_ctx_new(ops, 8193, &l), -EINVAL);
	T_OK(fault_set("file.context:1:ENOMEM"));
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
	T_OK(fault_set("file.uring:0:EPERM"));
	o = io_backend_pick(PST_BACKEND_AUTO, &err);
	T_CHECK(o == &threads_backend && err == EPERM);
	o = io_backend_pick(PST_BACKEND_URING, &err);
	T_CHECK(!o && err == EPERM);
	T_CHECK(strstr(err_text(), "io_uring"));
	T_OK(fault_set(NULL));
	T_CHECK(!io_backend_pick(99, &err) && err == EINVAL);
	o = io_backend_pick(PST_BACKEND_AUTO, &err);
	T_CHECK(o == (err ? &threads_backend : &uring_or_threads_backend));
}

static void cases(void)
{
	RUN(reads_of_many_sizes);
	RUN_ON_DISK(direct_reads);
	RUN(writes);
	RUN(more_files_than_the_table_holds);
	RUN(nowait_hot_and_cold);
	RUN_ON_DISK(nowait_where_the_cache_ends);
	RUN(short_counts_are_resumed);
	RUN(errors_keep_what_was_moved);
	RUN(errors_of_the_kernel);
	RUN(end_of_file);
	RUN(syncs);
	RUN(many_at_once);
	RUN(depth_is_kept);
	RUN(cancel_before_the_start);
	RUN(cancel_nowait_before_the_start);
	RUN(the_eventfd);
	RUN(wait_ends_at_its_deadline);
	RUN(a_reused_place_never_reads_the_old_file);
	RUN(files_come_and_go_on_two_threads);
	RUN(a_context_outlives_the_thread_that_used_it);
	RUN(bad_memory_is_an_error);
	RUN(contexts_that_cannot_be);
}

int main(void)
{
	T_RUN(picking);
	return run_over_backends(cases);
}
