/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of proofs.  O_DIRECT spoils bytes here, by means of calls.h.  A verdict lasts
 * as long as its process, so each case is a process of its own, forked before the library was used.
 */
#ifndef PST_TEST_PROOF_H
#define PST_TEST_PROOF_H
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "calls.h"
#include "fusefs.h"
#include "rig.h"

#include "child.h"

#define SEED 51
#define FILE_LEN RIG_MIB(2)

/* ------------------------------------------------------------------- lies */

static struct {
	_Atomic bool reads, writes; /* O_DIRECT reads or writes spoil bytes */
	_Atomic unsigned direct;    /* number of O_DIRECT operations that moved bytes */
} lie;

/* A writer that changes bytes of the file right after O_DIRECT has moved them. */
static struct {
	_Atomic bool on, once; /* on: after each operation; once: after the next one only */
	_Atomic unsigned turn;
} writer;

static inline void writer_writes(const struct call *c, size_t moved)
{
	unsigned turn = ++writer.turn;
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", c->fd);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || syscall(SYS_pwrite64, fd, &turn, sizeof(turn), c->off + (off_t)moved / 2) !=
			      sizeof(turn))
		abort();
	(void)close(fd);
}

/* Flip a bit of the middle byte on its way into the file. */
static inline ssize_t write_wrong(const struct call *c)
{
	struct call other = *c;
	ssize_t n;

	other.buf = aligned_alloc(4096, (c->len + 4095) & ~(size_t)4095);
	if (!other.buf)
		abort();
	memcpy(other.buf, c->buf, c->len);
	((char *)other.buf)[c->len / 2] ^= 1;
	n = call_real(&other, c->len);
	free(other.buf);
	return n;
}

static inline ssize_t lying_call(const struct call *c)
{
	bool write = c->kind == CALL_WRITE, read = c->kind == CALL_READ;
	ssize_t n;

	if (!(write || read) || !call_is_direct(c))
		return call_real(c, c->len);
	n = write && lie.writes ? write_wrong(c) : call_real(c, c->len);
	if (n <= 0)
		return n;
	lie.direct++;
	if (writer.on || atomic_exchange(&writer.once, false))
		writer_writes(c, (size_t)n);
	if (read && lie.reads)
		((char *)c->buf)[n / 2] ^= 1;
	return n;
}

/* ------------------------------------------------------------- processes */

/* The file system of the proof cache.  The cache's thread hangs in it until the child has ended. */
static struct fusefs *hung;

/* Wait for the child and return its status; kill it if it hangs. */
static inline int wait_child(pid_t pid)
{
	uint64_t end = t_in_ms(RIG_WAIT_MS);
	int status = -1;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (t_now() > end) {
			(void)kill(pid, SIGKILL);
			if (hung) /* otherwise the killed child cannot exit */
				fusefs_stop(hung);
		}
		(void)usleep(1000);
	}
	return status;
}

static void (*child_fn)(void);

static inline void child_main(void)
{
	rig_q = rig_queue(PST_BACKEND_THREADS, 0);
	child_fn();
	rig_q = pst_queue_free(rig_q);
	if (!hung)
		rig_quiet();
#ifdef __SANITIZE_ADDRESS__
	/* The leak checker would wait for the hung thread. */
	if (hung)
		_exit(0);
#endif
	exit(0);
}

/* Run fn in a child; fail or skip if the child does. */
static inline void in_child(void (*fn)(void))
{
	struct child c;
	int status;

	child_fn = fn;
	c = child_start(child_main);
	status = wait_child(c.pid);
	if (hung)
		fusefs_stop(hung);
	child_ended(&c, status);
}

static inline void cache_new(void)
{
	static unsigned nr;
	char dir[PATH_MAX + 32];

	(void)snprintf(dir, sizeof(dir), "%s/cache-%u", rig_dir, nr++);
	T_EQ(mkdir(dir, 0700), 0);
	(void)setenv("XDG_CACHE_HOME", dir, 1);
}

static inline const char *cache_path(const char *name)
{
	static char path[4][PATH_MAX + 128];
	static unsigned turn;
	char *p = path[turn++ % 4];

	(void)snprintf(p, sizeof(path[0]), "%s/%s", getenv("XDG_CACHE_HOME"), name);
	return p;
}

/* Run a case on host and on device memory, each without earlier proofs. */
static inline void both(const char *name, void (*fn)(void))
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

static inline struct pst_file *open_cold(const char *name, uint32_t flags)
{
	struct pst_file *f;

	rig_make(rig_path(name), SEED, FILE_LEN);
	rig_cold(rig_path(name));
	f = rig_open(rig_path(name), flags);
	if (!rig_file_info(f).direct)
		T_SKIP("a file system with O_DIRECT for PST_TEST_DIR");
	return f;
}

static inline struct pst_path_info check(struct pst_file *f, struct pst_mem *m, uint32_t op,
					 uint32_t path)
{
	struct pst_path_info info = { .sz = sizeof(info) };

	T_OK(pst_path_check(f, m, op, path, &info));
	return info;
}

/* Wait until the library has read its cache of proofs. */
static inline void wait_cache(void)
{
	uint64_t end = t_in_ms(RIG_WAIT_MS);

	while (rig_count_tasks() && strstr(rig_task_names, "pst-proofs")) {
		if (t_now() > end)
			T_FAIL("the cache of proofs is still being read");
		(void)usleep(100);
	}
}

/* Read with O_DIRECT as the first hop. */
static inline struct pst_done read_direct(struct pst_file *f, struct pst_mem *m, uint64_t off,
					  uint64_t len)
{
	struct pst_io io = rig_io(PST_OP_READ, f, m, off, off, len);

	io.policy = PST_POLICY2(PST_PATH_DIRECT, PST_PATH_BUFFERED);
	return rig_do(rig_q, &io);
}

static inline bool took(const struct pst_done *d, uint32_t path)
{
	return d->paths & PST_PATH_BIT(path);
}

/* ------------------------------------------------------------------ honest */

static inline void honest_child(void)
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

/* Check that the next process takes the proofs from the cache. */
static inline void knows_child(void)
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

static inline void check_mode(const char *path, mode_t type, mode_t mode)
{
	struct stat st;

	T_EQ(lstat(path, &st), 0);
	T_EQ(st.st_mode & S_IFMT, type);
	T_EQ(st.st_mode & 07777, mode);
	T_EQ(st.st_uid, geteuid());
}

#endif
