/* SPDX-License-Identifier: MIT */
/* I/O contexts on file systems that hang, are slow or fail. */
#include "file_io_rig.h"

static void odd_short_reads(void)
{
	struct file *f;
	struct io_op op;

	need_fuse();
	set_up(4);
	f = fuse_file("short", PST_FILE_READ);
	T_EQ(local_of(f)->fd_direct, -1);
	T_EQ(f->why, PST_WHY_NO_DIRECT);
	op = op_rw(IO_READ, mem, 99, 300000);
	op.file = f;
	run(&op);
	T_EQ(op.res, 300000);
	T_EQ(t_differs(mem, FUSEFS_SEED, 99, 300000), 300000);
	file_free(f);
	tear_down();
}

static void an_error_in_the_middle(void)
{
	struct file *f;
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
	file_free(f);

	f = fuse_file("full", PST_FILE_READ | PST_FILE_WRITE);
	op = op_rw(IO_WRITE, mem, 0, MIB(2));
	op.file = f;
	run(&op);
	T_EQ(op.res, -ENOSPC);
	/* Fewer bytes if the kernel splits the write, whose parts end in any order. */
	T_CHECK(op.moved <= MIB(1));
	file_free(f);

	f = fuse_file("shrink", PST_FILE_READ);
	op = op_rw(IO_READ, mem, 0, MIB(2));
	op.file = f;
	run(&op);
	T_EQ(op.res, MIB(1));
	file_free(f);
	tear_down();
}

/* A file system returns ECANCELED without a cancel: the result is reported, and not retried. */
static void a_cancel_that_nobody_asked_for(void)
{
	static const uint8_t kinds[] = { IO_READ, IO_WRITE, IO_FSYNC };
	struct file *f;
	struct io_op op;

	need_fuse();
	set_up(4);
	f = fuse_file("aborts", PST_FILE_READ | PST_FILE_WRITE);
	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
		op = op_rw(kinds[i], mem, 0, kinds[i] == IO_FSYNC ? 0 : 4096);
		op.file = f;
		run(&op);
		T_EQ(op.res, -ECANCELED);
		T_CHECK(!op.canceled);
	}
	file_free(f);
	tear_down();
}

static void nowait_where_nobody_can_say(void)
{
	struct file *f;
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
	file_free(f);
	tear_down();
}

static void wrapped_with_o_nonblock(void)
{
	struct file *f;
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
	file_free(f);
	tear_down();
}

static void on_alarm(int sig)
{
	(void)sig;
}

/* A signal interrupts a wait in the kernel, but not one on a condition variable, which ends at
 * its deadline. */
static void wait_is_interrupted(struct io_ctx *hung)
{
	struct sigaction sa = { .sa_handler = on_alarm }, old;
	/* Repeat the signal: the first may come before the wait has begun. */
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
	struct file *f;
	uint64_t start, hang_guard;

	need_fuse();
	set_up(4);
	T_OK(io_ctx_new(ops, 4, &hung));
	f = fuse_file("hang", PST_FILE_READ);
	stuck = op_rw(IO_READ, mem + MIB(1), 0, 4096);
	stuck.file = f;
	T_OK(hung->ops->queue(hung, &stuck));
	T_OK(hung->ops->flush(hung));
	/* Wait until the read is at the file system: a release before that would not answer it. */
	hang_guard = t_in_ms(HANG_MS);
	while (fusefs_waiting(&fuse) < 1 && t_now() < hang_guard)
		(void)usleep(1000);
	T_EQ(fusefs_waiting(&fuse), 1);
	start = t_now();
	T_EQ(hung->ops->wait(hung, 1, t_in_ms(50)), -ETIMEDOUT);
	T_CHECK(t_now() - start >= 50 * NSEC_PER_MSEC);
	T_EQ(hung->ops->reap(hung, &got, 1), 0);

	/* Another context, and another file, still work. */
	op = op_rw(IO_READ, mem, 4096, 65536);
	run(&op);
	T_EQ(op.res, 65536);

	wait_is_interrupted(hung);

	hung->ops->cancel(hung, &stuck);
	op = op_rw(IO_READ, mem, 4096, 65536);
	run(&op);
	T_EQ(op.res, 65536);

	/* The operation ends when the file system answers, or by the cancel. */
	fusefs_release(&fuse);
	finish(hung, &stuck);
	T_CHECK(stuck.res == 4096 || stuck.res == -ECANCELED || stuck.res == -EINTR);
	io_ctx_free(hung);
	file_free(f);
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
	/* A joined thread may stay visible in /proc for a moment. */
	for (int i = 0; i < 1000 && nr_io_threads() > 0; i++)
		(void)usleep(1000);
	T_EQ(nr_io_threads(), 0);
}

static void threads_grow_when_all_are_busy(void)
{
	struct io_op op[8], *got;
	struct file *f;
	unsigned done = 0;

	need_fuse();
	set_up(8);
	f = fuse_file("slow", PST_FILE_READ);
	for (unsigned i = 0; i < 8; i++) {
		op[i] = op_rw(IO_READ, mem + i * 4096, i * 4096, 4096);
		op[i].file = f;
		T_OK(ctx->ops->queue(ctx, &op[i]));
	}
	T_OK(ctx->ops->flush(ctx));
	/* Wait until the threads have set their names. */
	for (int i = 0; i < 1000 && nr_io_threads() < 8; i++)
		(void)usleep(1000);
	T_EQ(nr_io_threads(), 8);
	while (done < 8) {
		T_OK(ctx->ops->wait(ctx, 1, t_in_ms(HANG_MS)));
		done += ctx->ops->reap(ctx, &got, 1);
	}
	T_EQ(t_differs(mem, FUSEFS_SEED, 0, 8 * 4096), 8 * 4096);
	file_free(f);
	tear_down();
}

static void cases(void)
{
	RUN(odd_short_reads);
	RUN(an_error_in_the_middle);
	RUN(a_cancel_that_nobody_asked_for);
	RUN(nowait_where_nobody_can_say);
	RUN(wrapped_with_o_nonblock);
	RUN(a_file_system_that_hangs);
	if (ops == &threads_backend)
		RUN(threads_grow_when_all_are_busy);
	RUN(no_thread_remains);
}

int main(void)
{
	return run_over_backends(cases);
}
