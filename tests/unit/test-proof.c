/* SPDX-License-Identifier: MIT */
/*
 * No path is trusted before its bytes were compared: here O_DIRECT and the copies of a device
 * lie, and wrong bytes must never reach the caller.
 *
 * Linked with --wrap=io_backend_pick and --wrap=mem_copy, so that queues get the store below:
 * threads that read and write as they should, and then spoil what O_DIRECT moved.
 *
 * Verdicts live as long as the process, so each case is a process of its own, forked before
 * the library was used.
 */
#include <sys/wait.h>

#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "fusefs.h"
#include "rig.h"

#define SEED 51
#define FILE_LEN RIG_MIB(2)

const struct io_backend *__real_store_pick(uint32_t store, int *ret_err);
const struct io_backend *__wrap_io_backend_pick(uint32_t store, int *ret_err);
int __real_mem_copy(struct mem_stream *st, enum mem_dir dir, const struct mem_copy *v, unsigned nr,
		    uint64_t *ret_ticket);
int __wrap_mem_copy(struct mem_stream *st, enum mem_dir dir, const struct mem_copy *v, unsigned nr,
		    uint64_t *ret_ticket);

/* ------------------------------------------------------------------- lies */

static struct {
	_Atomic bool reads, writes; /* O_DIRECT spoils these */
	_Atomic bool to, from;      /* the device loses the end of these copies */
	_Atomic unsigned direct;    /* O_DIRECT operations that moved anything */
} lie;

/* Somebody else writes where O_DIRECT has just moved something. */
static struct {
	_Atomic bool on, once; /* after each operation, after the next */
	_Atomic unsigned turn;
} writer;

static void writer_writes(const struct io_op *op)
{
	unsigned turn = ++writer.turn;

	if (pwrite(op->file->fd, &turn, sizeof(turn), (off_t)(op->off + op->moved / 2)) !=
	    sizeof(turn))
		abort();
}

static struct io_backend lying_ops;

static int lying_ctx_new(unsigned depth, struct io_ctx **ret)
{
	int r = threads_backend.ctx_new(depth, ret);

	if (r == 0)
		(*ret)->ops = &lying_ops;
	return r;
}

static unsigned lying_reap(struct io_ctx *l, struct io_op **ret, unsigned max)
{
	unsigned n = threads_backend.reap(l, ret, max);

	for (unsigned i = 0; i < n; i++) {
		struct io_op *op = ret[i];

		if (!(op->flags & IO_OP_DIRECT) || op->res <= 0)
			continue;
		lie.direct++;
		if (writer.on || atomic_exchange(&writer.once, false))
			writer_writes(op);
		if (op->kind == IO_READ && lie.reads)
			((char *)op->buf)[op->moved / 2] ^= 1;
		if (op->kind == IO_WRITE && lie.writes &&
		    pwrite(op->file->fd, "", 1, (off_t)(op->off + op->moved / 2)) != 1)
			abort();
	}
	return n;
}

const struct io_backend *__wrap_io_backend_pick(uint32_t store, int *ret_err)
{
	(void)store;
	*ret_err = 0;
	lying_ops = threads_backend;
	lying_ops.ctx_new = lying_ctx_new;
	lying_ops.reap = lying_reap;
	return &lying_ops;
}

int __wrap_mem_copy(struct mem_stream *st, enum mem_dir dir, const struct mem_copy *v, unsigned nr,
		    uint64_t *ret_ticket)
{
	struct mem_copy w[1];

	if (nr != 1 || !(dir == MEM_TO_DEVICE ? lie.to : lie.from))
		return __real_mem_copy(st, dir, v, nr, ret_ticket);
	w[0] = v[0];
	w[0].len -= 8; /* one byte may be there by chance, from before */
	return __real_mem_copy(st, dir, w, 1, ret_ticket);
}

/* ------------------------------------------------------------- processes */

/* Where the cache lies and hangs, until the child has ended, with the cache's thread in it. */
static struct fusefs *hung;

/* How a child ended; one that does not end is killed. */
static int wait_child(pid_t pid)
{
	uint64_t end = t_in_ms(RIG_WAIT_MS);
	int status = -1;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (t_now() > end) {
			(void)kill(pid, SIGKILL);
			if (hung) /* or the kernel does not let go of the child */
				fusefs_stop(hung);
		}
		(void)usleep(1000);
	}
	return status;
}

/* Run fn in a child and take over how it ended. */
static void in_child(void (*fn)(void))
{
	char why[sizeof(t_why)] = "";
	int out[2], status = -1, how;
	pid_t pid;
	ssize_t n;

	(void)fflush(stdout);
	T_EQ(pipe2(out, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		how = setjmp(t_jump);
		if (!how) {
			rig_q = rig_queue(0, 0);
			fn();
			rig_q = pst_queue_free(rig_q);
			if (!hung)
				rig_quiet();
#ifdef __SANITIZE_ADDRESS__
			/* Its search for leaks waits for every thread. */
			if (hung)
				_exit(0);
#endif
			exit(0);
		}
		(void)!write(out[1], t_why, strlen(t_why));
		_exit(how == T_JUMP_SKIP ? 77 : 1);
	}
	(void)close(out[1]);
	status = wait_child(pid);
	if (hung)
		fusefs_stop(hung);
	n = read(out[0], why, sizeof(why) - 1);
	(void)n;
	(void)close(out[0]);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		T_SKIP("%s", why);
	if (status)
		T_FAIL("%.400s (status 0x%x)", why, (unsigned)status);
}

static void cache_new(void)
{
	static unsigned nr;
	char dir[PATH_MAX + 32];

	(void)snprintf(dir, sizeof(dir), "%s/cache-%u", rig_dir, nr++);
	T_EQ(mkdir(dir, 0700), 0);
	(void)setenv("XDG_CACHE_HOME", dir, 1);
}

static const char *cache_path(const char *name)
{
	static char path[4][PATH_MAX + 128];
	static unsigned turn;
	char *p = path[turn++ % 4];

	(void)snprintf(p, sizeof(path[0]), "%s/%s", getenv("XDG_CACHE_HOME"), name);
	return p;
}

/* The same over both kinds of memory, from nothing. */
static void both(const char *name, void (*fn)(void))
{
	static const char *const devs[] = { "host", "soft:0" };
	char full[160];

	for (unsigned i = 0; i < 2; i++) {
		rig_dev = devs[i];
		(void)snprintf(full, sizeof(full), "%s %s", name, devs[i]);
		t_run(full, fn);
	}
}

#define BOTH(fn) both(#fn, fn)

/* -------------------------------------------------------------- requests */

static struct pst_file *open_cold(const char *name, uint32_t flags)
{
	struct pst_file *f;

	rig_make(rig_path(name), SEED, FILE_LEN);
	rig_cold(rig_path(name));
	f = rig_open(rig_path(name), flags);
	if (!rig_file_info(f).direct)
		T_SKIP("a file system with O_DIRECT for PST_TEST_DIR");
	return f;
}

static struct pst_path_info check(struct pst_file *f, struct pst_mem *m, uint32_t op, uint32_t path)
{
	struct pst_path_info info = { .sz = sizeof(info) };

	T_OK(pst_path_check(f, m, op, path, &info));
	return info;
}

/* The cache was read, if there is one: a thread has the name from when it is asked to. */
static void wait_cache(void)
{
	uint64_t end = t_in_ms(RIG_WAIT_MS);

	while (rig_count_tasks() && strstr(rig_task_names, "pst-proofs")) {
		if (t_now() > end)
			T_FAIL("the cache of proofs is still being read");
		(void)usleep(100);
	}
}

/* A read whose first hop is O_DIRECT. */
static struct pst_done read_direct(struct pst_file *f, struct pst_mem *m, uint64_t off,
				   uint64_t len)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, off, off, len);

	io.policy = PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED);
	return rig_do(rig_q, &io);
}

static bool took(const struct pst_done *d, uint32_t path)
{
	return d->paths & PST_PATH_BIT(path);
}

/* ------------------------------------------------------------------ honest */

static void honest_child(void)
{
	struct pst_file *f = open_cold("honest", RIG_RW);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	struct pst_done d;

	if (!hung)
		wait_cache();
	T_EQ(check(f, m, PST_OP_READ, PST_PATH_DIRECT).state, PST_STATE_POSSIBLE);
	T_EQ(check(f, m, PST_OP_WRITE, PST_PATH_DIRECT).state, PST_STATE_POSSIBLE);
	d = rig_read(f, m, 0, 0, 65536);
	T_EQ(d.res, 65536);
	T_CHECK(took(&d, PST_PATH_DIRECT));
	T_CHECK(d.flags & PST_DONE_PROOF);
	T_EQ(d.why, 0);
	T_EQ(lie.direct, 1);
	T_EQ(check(f, m, PST_OP_READ, PST_PATH_DIRECT).state, PST_STATE_PROVEN);
	T_EQ(check(f, m, PST_OP_WRITE, PST_PATH_DIRECT).state, PST_STATE_POSSIBLE);
	d = read_direct(f, m, 65536, 65536);
	T_EQ(d.flags & PST_DONE_PROOF, 0);
	T_CHECK(took(&d, PST_PATH_DIRECT) && !took(&d, PST_PATH_BUFFERED));
	T_EQ(rig_mem_differs(m, 0, 131072, SEED, 0), 131072);

	d = rig_write(f, m, 0, 0, 65536);
	T_EQ(d.res, 65536);
	T_CHECK(d.flags & PST_DONE_PROOF);
	T_EQ(check(f, m, PST_OP_WRITE, PST_PATH_DIRECT).state, PST_STATE_PROVEN);
	d = rig_write(f, m, 0, 0, 65536);
	T_EQ(d.flags & PST_DONE_PROOF, 0);
	pst_file_close(f);
	pst_mem_free(m);
}

/* The next process knows. */
static void knows_child(void)
{
	struct pst_file *f = open_cold("honest", RIG_RW);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);

	wait_cache();
	T_EQ(check(f, m, PST_OP_READ, PST_PATH_DIRECT).state, PST_STATE_PROVEN);
	T_EQ(check(f, m, PST_OP_WRITE, PST_PATH_DIRECT).state, PST_STATE_PROVEN);
	T_EQ(rig_read(f, m, 0, 0, 65536).flags & PST_DONE_PROOF, 0);
	T_EQ(rig_write(f, m, 0, 0, 65536).flags & PST_DONE_PROOF, 0);
	pst_file_close(f);
	pst_mem_free(m);
}

static void check_mode(const char *path, mode_t type, mode_t mode)
{
	struct stat st;

	T_EQ(lstat(path, &st), 0);
	T_EQ(st.st_mode & S_IFMT, type);
	T_EQ(st.st_mode & 07777, mode);
	T_EQ(st.st_uid, geteuid());
}

static void a_proof_is_made_once(void)
{
	mode_t before = umask(0);

	cache_new();
	in_child(honest_child);
	in_child(knows_child);
	(void)umask(before);
	check_mode(cache_path("penstock"), S_IFDIR, 0700);
	check_mode(cache_path("penstock/proofs"), S_IFREG, 0600);
}

/* A file that is open for writing only is proven through another descriptor. */
static void write_only_child(void)
{
	struct pst_file *f = open_cold("write-only", PST_FILE_WRITE);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	struct pst_done d;

	rig_mem_fill(m, 0, 65536, 3, 0);
	d = rig_write(f, m, 0, 0, 65536);
	T_EQ(d.res, 65536);
	T_CHECK(took(&d, PST_PATH_DIRECT));
	T_CHECK(d.flags & PST_DONE_PROOF);
	T_EQ(d.why, 0);
	pst_file_close(f);
	pst_mem_free(m);
}

static void write_only_files_are_proven(void)
{
	cache_new();
	in_child(write_only_child);
}

/* The end of the file, edges, several pieces: what an honest path gives is no wrong data. */
static void odd_child(void)
{
	struct pst_file *f = open_cold("odd", RIG_RW);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN + 8192);
	struct pst_seg segs[] = { { 100, 0, 70000, 0, 0, 1 },
				  { 200000, 70000, 5000, 6000, 5000, 20 } };
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, 0);
	struct pst_done d;

	io.segs = segs;
	io.nr_segs = 2;
	io.len = 0;
	d = rig_do(rig_q, &io);
	T_EQ(d.res, 170000);
	T_EQ(rig_mem_differs(m, 0, 70000, SEED, 100), 70000);
	for (unsigned i = 0; i < 20; i++)
		T_EQ(rig_mem_differs(m, 70000 + i * 5000, 5000, SEED, 200000 + i * 6000), 5000);
	d = rig_read(f, m, FILE_LEN - 65536, 0, 65536 + 8192);
	T_EQ(d.res, 65536);
	T_EQ(rig_mem_differs(m, 0, 65536, SEED, FILE_LEN - 65536), 65536);
	rig_mem_fill(m, 0, 100000, SEED, 777);
	d = rig_write(f, m, 777, 0, 100000);
	T_EQ(d.res, 100000);
	T_CHECK(check(f, m, PST_OP_READ, PST_PATH_DIRECT).why == PST_WHY_NONE);
	T_CHECK(check(f, m, PST_OP_WRITE, PST_PATH_DIRECT).why == PST_WHY_NONE);
	pst_file_close(f);
	pst_mem_free(m);
}

static void odd_requests_are_no_lies(void)
{
	cache_new();
	in_child(odd_child);
}

/* ------------------------------------------------------------------- lies */

static void check_off(struct pst_file *f, struct pst_mem *m, uint32_t op)
{
	struct pst_path_info info = check(f, m, op, PST_PATH_DIRECT);

	T_EQ(info.state, PST_STATE_IMPOSSIBLE);
	T_EQ(info.why, PST_WHY_NOT_PROVEN);
}

static void lying_reads_child(void)
{
	struct pst_file *f = open_cold("lies", RIG_R), *g = open_cold("other", RIG_RW);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	struct pst_done d;

	lie.reads = true;
	for (unsigned i = 0; i < 3; i++) {
		T_EQ(check(g, m, PST_OP_READ, PST_PATH_DIRECT).state, PST_STATE_POSSIBLE);
		d = read_direct(f, m, i * 65536, 65536);
		T_EQ(d.res, 65536);
		T_EQ(d.why, PST_WHY_NOT_PROVEN);
		T_CHECK(took(&d, PST_PATH_BUFFERED));
		T_EQ(d.flags & PST_DONE_PROOF, 0);
		T_EQ(rig_mem_differs(m, i * 65536, 65536, SEED, i * 65536), 65536);
		T_EQ(lie.direct, 4 * (i + 1)); /* itself, and three more to be sure */
	}
	check_off(g, m, PST_OP_READ);
	check_off(f, m, PST_OP_READ);
	T_EQ(check(g, m, PST_OP_WRITE, PST_PATH_DIRECT).state, PST_STATE_POSSIBLE);

	/* Off for the whole mount: no more of it, and every request says why. */
	for (unsigned i = 0; i < 2; i++) {
		d = rig_read(i ? g : f, m, 1 << 20, 1 << 20, 65536);
		T_EQ(d.res, 65536);
		T_EQ(d.why, PST_WHY_NOT_PROVEN);
		T_CHECK(!took(&d, PST_PATH_DIRECT));
		T_EQ(rig_mem_differs(m, 1 << 20, 65536, SEED, 1 << 20), 65536);
	}
	T_EQ(lie.direct, 12);
	pst_file_close(f);
	pst_file_close(g);
	pst_mem_free(m);
}

static void wrong_reads_never_arrive(void)
{
	cache_new();
	in_child(lying_reads_child);
	/* A wrong answer is not kept for the next process, nor taken for a right one. */
	in_child(lying_reads_child);
}

static void lying_writes_child(void)
{
	struct pst_file *f = open_cold("lies", RIG_RW), *g = open_cold("other", PST_FILE_WRITE);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	char *buf = malloc(FILE_LEN);
	struct pst_done d;

	lie.writes = true;
	rig_mem_fill(m, 0, FILE_LEN, 4, 0);
	for (unsigned i = 0; i < 3; i++) {
		struct pst_file *to = i == 1 ? g : f;

		d = rig_write(to, m, i * 65536, i * 65536, 65536);
		T_EQ(d.res, 65536);
		T_EQ(d.why, PST_WHY_NOT_PROVEN);
		T_CHECK(took(&d, PST_PATH_BUFFERED));
		T_EQ(d.flags & PST_DONE_PROOF, 0);
		T_EQ(rig_slurp(rig_path(i == 1 ? "other" : "lies"), i * 65536, buf, 65536), 65536);
		T_EQ(rig_differs(buf, 4, i * 65536, 65536), 65536);
	}
	check_off(g, m, PST_OP_WRITE);
	check_off(f, m, PST_OP_WRITE);
	T_EQ(check(f, m, PST_OP_READ, PST_PATH_DIRECT).state, PST_STATE_POSSIBLE);
	d = rig_write(f, m, 0, 0, 1 << 20);
	T_EQ(d.why, PST_WHY_NOT_PROVEN);
	T_EQ(lie.direct, 12);
	T_EQ(rig_slurp(rig_path("lies"), 0, buf, 1 << 20), 1 << 20);
	T_EQ(rig_differs(buf, 4, 0, 1 << 20), 1 << 20);
	free(buf);
	pst_file_close(f);
	pst_file_close(g);
	pst_mem_free(m);
}

static void wrong_writes_are_written_again(void)
{
	cache_new();
	in_child(lying_writes_child);
}

/* Who wants O_DIRECT or nothing gets an error and not the bytes. */
static void strict_child(void)
{
	struct pst_file *f = open_cold("strict", RIG_RW);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, 65536);
	struct pst_done d;

	lie.reads = lie.writes = true;
	io.policy = PST_POLICY1(PST_PATH_DIRECT);
	d = rig_do(rig_q, &io);
	T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(d.prefix, 0);
	T_EQ(d.why, PST_WHY_NOT_PROVEN);
	io.policy = PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED);
	io.flags = PST_IO_STRICT;
	d = rig_do(rig_q, &io);
	T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(d.prefix, 0);
	T_EQ(d.why, PST_WHY_NOT_PROVEN);
	io.op = PST_OP_WRITE;
	d = rig_do(rig_q, &io);
	T_EQ(d.res, -EOPNOTSUPP);
	T_EQ(d.why, PST_WHY_NOT_PROVEN);
	T_EQ(lie.direct, 12);
	pst_file_close(f);
	pst_mem_free(m);
}

static void strict_requests_fail(void)
{
	cache_new();
	in_child(strict_child);
}

/*
 * Somebody else writes to the file after each operation by O_DIRECT, so that a plain read never
 * gives the same.  That is no lie: another file of the mount is read and written by O_DIRECT.
 */
static void live_child(void)
{
	struct pst_file *f = open_cold("live", RIG_RW), *g = open_cold("quiet", RIG_RW);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	struct pst_done d;

	rig_mem_fill(m, 0, FILE_LEN, 4, 0);
	writer.on = true;
	for (unsigned i = 0; i < 4; i++) {
		d = read_direct(f, m, i * 65536, 65536);
		T_EQ(d.res, 65536);
		T_EQ(d.why, PST_WHY_NOT_PROVEN);
		T_CHECK(took(&d, PST_PATH_BUFFERED));
		d = rig_write(f, m, i * 65536, i * 65536, 65536);
		T_EQ(d.res, 65536);
		T_EQ(d.why, PST_WHY_NOT_PROVEN);
		T_CHECK(took(&d, PST_PATH_BUFFERED));
	}
	writer.on = false;
	T_EQ(check(g, m, PST_OP_READ, PST_PATH_DIRECT).state, PST_STATE_POSSIBLE);
	T_EQ(check(g, m, PST_OP_WRITE, PST_PATH_DIRECT).state, PST_STATE_POSSIBLE);
	d = read_direct(g, m, 0, 65536);
	T_EQ(d.res, 65536);
	T_EQ(d.why, 0);
	T_CHECK(took(&d, PST_PATH_DIRECT) && !took(&d, PST_PATH_BUFFERED));
	T_CHECK(d.flags & PST_DONE_PROOF);
	d = rig_write(g, m, 0, 0, 65536);
	T_EQ(d.why, 0);
	T_CHECK(took(&d, PST_PATH_DIRECT));
	T_EQ(check(g, m, PST_OP_READ, PST_PATH_DIRECT).state, PST_STATE_PROVEN);
	T_EQ(check(g, m, PST_OP_WRITE, PST_PATH_DIRECT).state, PST_STATE_PROVEN);
	pst_file_close(f);
	pst_file_close(g);
	pst_mem_free(m);
}

/* It was written to once, behind the first operation, and is quiet since. */
static void once_child(void)
{
	struct pst_file *f = open_cold("once", RIG_RW);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);

	rig_mem_fill(m, 0, FILE_LEN, 4, 0);
	for (unsigned i = 0; i < 4; i++) {
		writer.once = true;
		T_EQ(read_direct(f, m, i * 65536, 65536).why, PST_WHY_NOT_PROVEN);
		writer.once = true;
		T_EQ(rig_write(f, m, i * 65536, i * 65536, 65536).why, PST_WHY_NOT_PROVEN);
	}
	T_EQ(lie.direct, 16); /* each was tried once more, and was right */
	T_EQ(check(f, m, PST_OP_READ, PST_PATH_DIRECT).state, PST_STATE_POSSIBLE);
	T_EQ(check(f, m, PST_OP_WRITE, PST_PATH_DIRECT).state, PST_STATE_POSSIBLE);
	T_EQ(rig_write(f, m, 0, 0, 65536).why, 0);
	T_EQ(check(f, m, PST_OP_WRITE, PST_PATH_DIRECT).state, PST_STATE_PROVEN);
	pst_file_close(f);
	pst_mem_free(m);
}

static void one_change_is_no_lie(void)
{
	cache_new();
	in_child(once_child);
}

static void a_file_that_others_write_to_is_no_lie(void)
{
	cache_new();
	in_child(live_child);
}

/* Many at once, of which the first proofs are still under way. */
static void crowd_child(void)
{
	struct pst_file *f = open_cold("crowd", RIG_RW);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	struct pst_done d[32];
	char *buf = malloc(FILE_LEN);

	lie.reads = lie.writes = true;
	for (unsigned round = 0; round < 2; round++) {
		bool write = round == 1;

		if (write)
			rig_mem_fill(m, 0, FILE_LEN, 6, 0);
		for (unsigned i = 0; i < 32; i++) {
			struct pst_io io = rig_io(write ? PST_OP_WRITE : PST_OP_READ, f, m,
						  i * 65536, i * 65536, 65536);

			io.policy = PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED);
			io.flags = PST_IO_CRC32C;
			io.user_data = i;
			T_OK(pst_queue_prep(rig_q, &io));
		}
		T_EQ(pst_queue_submit(rig_q), 32);
		T_EQ(pst_queue_reap(rig_q, d, 32, 32, t_in_ms(RIG_WAIT_MS)), 32);
		T_OK(pst_mem_copy_out(m, 0, buf, FILE_LEN));
		for (unsigned i = 0; i < 32; i++) {
			T_EQ(d[i].res, 65536);
			/* Or it joined those that were written again. */
			T_CHECK(d[i].why == PST_WHY_NOT_PROVEN ||
				d[i].why == PST_WHY_DIRECT_ERROR ||
				(write && d[i].why == PST_WHY_MIXED));
			T_CHECK(d[i].flags & PST_DONE_CRC32C);
			T_EQ(d[i].crc32c, rig_crc32c(0, buf + d[i].user_data * 65536, 65536));
		}
		if (write)
			T_EQ(rig_slurp(rig_path("crowd"), 0, buf, FILE_LEN), FILE_LEN);
		T_EQ(rig_differs(buf, write ? 6 : SEED, 0, FILE_LEN), FILE_LEN);
	}
	free(buf);
	pst_file_close(f);
	pst_mem_free(m);
}

static void a_crowd_of_lies(void)
{
	cache_new();
	in_child(crowd_child);
}

/* Whatever a queue remembers of its last request, a bad mount is bad for it too. */
static void memo_child(void)
{
	struct pst_file *f = open_cold("lies", RIG_R), *g = open_cold("other", RIG_R);
	struct pst_mem *m = rig_alloc(rig_dev, FILE_LEN);
	struct pst_queue *first = rig_q, *q = rig_queue(0, 0);
	unsigned before;

	lie.reads = true;
	rig_q = q;
	T_EQ(read_direct(g, m, 0, 65536).why, PST_WHY_NOT_PROVEN);
	rig_q = first;
	for (unsigned i = 0; i < 3; i++)
		(void)read_direct(f, m, 0, 65536);
	check_off(g, m, PST_OP_READ);
	before = lie.direct;
	rig_q = q;
	for (unsigned i = 0; i < 3; i++)
		T_EQ(read_direct(g, m, 0, 65536).res, 65536);
	rig_q = first;
	T_EQ(lie.direct, before);
	T_EQ(rig_mem_differs(m, 0, 65536, SEED, 0), 65536);
	pst_queue_free(q);
	pst_file_close(f);
	pst_file_close(g);
	pst_mem_free(m);
}

static void a_bad_mount_is_bad_for_every_queue(void)
{
	cache_new();
	in_child(memo_child);
}

/* ----------------------------------------------------------------- devices */

static void lying_device_child(void)
{
	struct pst_file *f = open_cold("device", RIG_R);
	struct pst_mem *m = rig_alloc("soft:0", 65536);
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, 65536);

	for (unsigned i = 1; i < 4; i++) {
		lie.to = i & 1;
		lie.from = i & 2;
		T_EQ(pst_queue_prep(rig_q, &io), -EIO);
		T_CHECK(strstr(pst_error_text(), "soft"));
		T_EQ(check(f, m, PST_OP_READ, PST_PATH_STAGED).state, PST_STATE_POSSIBLE);
		T_EQ(rig_stats(NULL).pool_bytes, 0);
	}
	T_EQ(pst_queue_submit(rig_q), 0);
	T_OK(pst_mem_drain(m, 0));
	lie.to = lie.from = false;
	T_EQ(rig_do(rig_q, &io).res, 65536);
	T_EQ(check(f, m, PST_OP_READ, PST_PATH_STAGED).state, PST_STATE_PROVEN);
	pst_file_close(f);
	pst_mem_free(m);
}

static void a_lying_device_is_refused(void)
{
	cache_new();
	in_child(lying_device_child);
}

/* ------------------------------------------------------------------- cache */

static bool cache_is_empty(void)
{
	struct stat st;

	return stat(cache_path("penstock/proofs"), &st) < 0 || st.st_size == 0;
}

/* A cache that says it all, made by an honest process. */
static void cache_full(void)
{
	cache_new();
	in_child(honest_child);
	T_CHECK(!cache_is_empty());
}

/* Works, believes nothing of it, and writes nothing there. */
static void untrusted(void)
{
	char before[4096], after[4096];
	int fd = open(cache_path("penstock/proofs"), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t had = fd >= 0 ? pread(fd, before, sizeof(before), 0) : -1, has;

	if (fd >= 0)
		(void)close(fd);
	in_child(honest_child);
	fd = open(cache_path("penstock/proofs"), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	has = fd >= 0 ? pread(fd, after, sizeof(after), 0) : -1;
	if (fd >= 0)
		(void)close(fd);
	T_EQ(has, had);
	T_CHECK(has <= 0 || memcmp(before, after, (size_t)has) == 0);
}

static void a_public_directory(void)
{
	static const mode_t modes[] = { 0777, 0770, 0707, 0711, 0701 };

	cache_full();
	for (unsigned i = 0; i < RIG_NR(modes); i++) {
		T_EQ(chmod(cache_path("penstock"), modes[i]), 0);
		untrusted();
	}
	T_EQ(chmod(cache_path("penstock"), 0700), 0);
	in_child(knows_child);
}

static void a_linked_directory(void)
{
	cache_full();
	T_EQ(rename(cache_path("penstock"), cache_path("elsewhere")), 0);
	T_EQ(symlink(cache_path("elsewhere"), cache_path("penstock")), 0);
	untrusted();
}

static void a_linked_file(void)
{
	cache_full();
	T_EQ(rename(cache_path("penstock/proofs"), cache_path("elsewhere")), 0);
	T_EQ(symlink(cache_path("elsewhere"), cache_path("penstock/proofs")), 0);
	untrusted();
	/* And where it points to nothing, nothing is made there. */
	T_EQ(unlink(cache_path("elsewhere")), 0);
	untrusted();
	T_EQ(access(cache_path("elsewhere"), F_OK), -1);
}

static void a_strangers_directory(void)
{
	if (geteuid())
		T_SKIP("root, to give a directory away");
	cache_full();
	T_EQ(chown(cache_path("penstock"), 12345, 12345), 0);
	untrusted();
	T_EQ(chown(cache_path("penstock"), 0, 0), 0);
	T_EQ(chown(cache_path("penstock/proofs"), 12345, 12345), 0);
	untrusted();
}

static void is_empty(const char *path)
{
	struct dirent *e;
	DIR *d = opendir(path);

	T_CHECK(d);
	while ((e = readdir(d)) && e->d_name[0] == '.' &&
	       strspn(e->d_name, ".") == strlen(e->d_name))
		;
	if (e)
		T_FAIL("there is %.100s in %.200s", e->d_name, path);
	(void)closedir(d);
}

/* sudo keeps HOME: root makes nothing in the places of a user. */
static void a_strangers_home(void)
{
	static const char *const subs[] = { "", "/", "/cache", "/cache//" };
	char xdg[PATH_MAX + 64];
	const char *home;

	if (geteuid())
		T_SKIP("root, to give a directory away");
	cache_new();
	home = strdup(cache_path("home"));
	T_EQ(mkdir(home, 0755), 0);
	T_EQ(chown(home, 12345, 12345), 0);
	for (unsigned i = 0; i < RIG_NR(subs); i++) {
		(void)snprintf(xdg, sizeof(xdg), "%s%s", home, subs[i]);
		(void)setenv("XDG_CACHE_HOME", xdg, 1);
		in_child(honest_child);
		is_empty(home);
	}
	(void)unsetenv("XDG_CACHE_HOME");
	(void)setenv("HOME", home, 1);
	in_child(honest_child);
	is_empty(home);
	/* It is the user and not the path. */
	T_EQ(chown(home, 0, 0), 0);
	in_child(honest_child);
	in_child(knows_child);
	(void)snprintf(xdg, sizeof(xdg), "%s/.cache/penstock/proofs", home);
	check_mode(xdg, S_IFREG, 0600);
	free((char *)(uintptr_t)home);
}

/* Nobody waits for it: no open, no request, no exit. */
static void a_home_that_hangs(void)
{
	struct fusefs fs;

	if (fusefs_start(&fs, "/tmp") < 0)
		T_SKIP("%s", fs.why);
	(void)setenv("XDG_CACHE_HOME", fs.dir, 1);
	(void)kill(fs.pid, SIGSTOP);
	hung = &fs;
	in_child(honest_child);
	hung = NULL;
}

static void no_file(void)
{
	cache_full();
	T_EQ(unlink(cache_path("penstock/proofs")), 0);
	T_EQ(mkfifo(cache_path("penstock/proofs"), 0600), 0);
	in_child(honest_child); /* nor does it wait for a writer */
	T_EQ(unlink(cache_path("penstock/proofs")), 0);
	T_EQ(mkdir(cache_path("penstock/proofs"), 0700), 0);
	in_child(honest_child);
	cache_new();
	(void)close(open(cache_path("penstock"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	in_child(honest_child);
	(void)setenv("XDG_CACHE_HOME", "relative", 1);
	(void)setenv("HOME", "", 1);
	in_child(honest_child);
	T_EQ(access("relative", F_OK), -1);
}

/* Bytes of any kind are no verdict, and do not stay in the way for ever. */
static void rubbish(void)
{
	char *buf = malloc(1 << 20);
	int fd;

	cache_new();
	T_EQ(mkdir(cache_path("penstock"), 0700), 0);
	for (unsigned i = 0; i < 4; i++) {
		size_t len = i == 3 ? 1 << 20 : 5000;

		fd = open(cache_path("penstock/proofs"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
			  0600);
		T_CHECK(fd >= 0);
		rig_fill(buf, i, 0, len);
		if (i == 1)
			memset(buf, '\n', len);
		if (i == 2)
			memset(buf, 'a', len);
		T_EQ(write(fd, buf, len), (ssize_t)len);
		(void)close(fd);
		in_child(honest_child);
	}
	/* That was too long, and was begun anew. */
	in_child(knows_child);
	free(buf);
}

/* A part of a key, or one with something behind it, is another key. */
static void other_keys(void)
{
	char buf[8192], line[8300];
	ssize_t n;
	int fd;

	cache_full();
	fd = open(cache_path("penstock/proofs"), O_RDWR | O_CLOEXEC);
	T_CHECK(fd >= 0);
	n = read(fd, buf, sizeof(buf) - 1);
	T_CHECK(n > 0);
	buf[n] = '\0';
	T_EQ(ftruncate(fd, 0), 0);
	for (char *s = strtok(buf, "\n"); s; s = strtok(NULL, "\n")) {
		int len = snprintf(line, sizeof(line), "x%s\n%sx\n %s\n%s \n%.*s\n", s, s, s, s,
				   (int)strlen(s) - 1, s);

		T_EQ(pwrite(fd, line, (size_t)len, lseek(fd, 0, SEEK_END)), len);
	}
	(void)close(fd);
	in_child(honest_child);
}

int main(void)
{
	rig_init();
	work_idle_ns = 0; /* wait_cache() waits for the end of a thread */
	BOTH(a_proof_is_made_once);
	BOTH(write_only_files_are_proven);
	BOTH(odd_requests_are_no_lies);
	BOTH(wrong_reads_never_arrive);
	BOTH(wrong_writes_are_written_again);
	BOTH(strict_requests_fail);
	BOTH(a_file_that_others_write_to_is_no_lie);
	BOTH(one_change_is_no_lie);
	BOTH(a_crowd_of_lies);
	BOTH(a_bad_mount_is_bad_for_every_queue);
	rig_dev = "host";
	T_RUN(a_lying_device_is_refused);
	T_RUN(a_public_directory);
	T_RUN(a_linked_directory);
	T_RUN(a_linked_file);
	T_RUN(a_strangers_directory);
	T_RUN(a_strangers_home);
	BOTH(a_home_that_hangs);
	rig_dev = "host";
	T_RUN(no_file);
	T_RUN(rubbish);
	T_RUN(other_keys);
	return rig_done();
}
