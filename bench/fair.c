/* SPDX-License-Identifier: MIT */
/*
 * fair [-n PAIRS] [-m MS] [-d DEPTH] MOUNT
 *
 * Measure how one user of a mount affects another: the first reads 4 KiB through a ring, DEPTH
 * reads in flight, while the other user's five threads are
 *
 *	good     each with a ring that always has 16 random reads of 4 KiB
 *	hostile  filling a ring with bad and huge requests; posting a semaphore in a loop;
 *	         overwriting a ring's memory; publishing and withdrawing memory in a loop;
 *	         opening and closing files in a loop
 *	heavy    each with a ring that always has 16 random reads of 1 MiB
 *	busy     computing in loops, without using the mount
 *	busy3    the same in three sessions, as if the hostile user's worker and the server were
 *		 busy as well
 *
 * These loads take turns; each ratio is the median over adjacent turns.  Needs root.  The users are
 * plain numbers, without names.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <hf3fs_usrbio.h>

#include "base/base.h"
#include "die.h"
#include "tools/common/spread.h"
#include "usrbio/proto/ring.h"
#include "usrbio/proto/sem.h"

#define VICTIM 60001u
#define OTHER 60002u
#define THREADS 5u
#define SIZE KIB(4)
#define FILE_LEN MIB(64)
#define OTHER_DEPTH 16u
#define HEAVY_SIZE MIB(1)
#define DEPTH_MAX 64u
#define PAIRS_MAX 101u
#define SAMPLES (1u << 20)

static struct {
	const char *dir;
	unsigned pairs, ms, depth;
} set = { .pairs = 9, .ms = 500, .depth = 1 };

static char path[4096];

/* Begin a session: sessions get equal shares of the CPUs (sched_autogroup). */
static void own_session(void)
{
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)setsid();
}

static void fair_become(uid_t uid)
{
	if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
		die("cannot become another user: %s; this needs root", strerror(errno));
	own_session();
}

/* ------------------------------------------------------------------- rings */

struct lane {
	int fd;
	struct hf3fs_iov iov;
	struct hf3fs_ior ior;
	uint64_t dice;
};

/* Create a ring and a buffer of room bytes. */
static void open_lane(struct lane *l, uint64_t seed, uint64_t room)
{
	int r;

	l->dice = 88172645463325252u + seed;
	l->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (l->fd < 0)
		die("%s: %s", path, strerror(errno));
	r = hf3fs_reg_fd(l->fd, 0);
	if (r <= 0)
		r = -hf3fs_iovcreate(&l->iov, set.dir, room, 0, -1);
	if (r <= 0)
		r = -hf3fs_iorcreate(&l->ior, set.dir, (int)DEPTH_MAX, true, 0, -1);
	if (r > 0)
		die("%s has no rings: %s", set.dir, strerror(r));
}

static uint64_t roll(struct lane *l)
{
	l->dice ^= l->dice << 13;
	l->dice ^= l->dice >> 7;
	l->dice ^= l->dice << 17;
	return l->dice;
}

static bool read_batch(struct lane *l, unsigned depth, uint64_t size)
{
	struct hf3fs_cqe c[DEPTH_MAX];

	for (unsigned i = 0; i < depth; i++)
		if (hf3fs_prep_io(&l->ior, &l->iov, true, l->iov.base + i * size, l->fd,
				  roll(l) % (FILE_LEN / size) * size, size, NULL) < 0)
			return false;
	if (hf3fs_submit_ios(&l->ior) < 0 ||
	    hf3fs_wait_for_ios(&l->ior, c, (int)depth, (int)depth, NULL) != (int)depth)
		return false;
	for (unsigned i = 0; i < depth; i++)
		if (c[i].result != (int64_t)size)
			return false;
	return true;
}

/* ------------------------------------------------------------------ victim */

/* Memory shared by both processes. */
struct shared {
	atomic_uint go, done; /* turns requested; turns finished */
	double rate;
	struct latency latency;
	uint32_t ns[SAMPLES];
};

static struct shared *sh;

static void fair_measure(struct lane *l)
{
	uint64_t start = now_ns(), from, end, reads = 0;
	size_t nr = 0;

	do {
		from = now_ns();
		if (!read_batch(l, set.depth, SIZE))
			die("a read of the victim failed");
		end = now_ns();
		reads += set.depth;
		if (nr < SAMPLES)
			sh->ns[nr++] = latency_sample(end - from);
	} while (end - start < set.ms * NSEC_PER_MSEC);
	sh->rate = (double)reads * 1e9 / (double)(end - start);
	sh->latency = latency_of(sh->ns, nr);
}

__attribute__((noreturn)) static void be_victim(void)
{
	static struct lane l;

	fair_become(VICTIM);
	open_lane(&l, 1, DEPTH_MAX * SIZE);
	for (unsigned turn = 0;; turn++) {
		while (atomic_load(&sh->go) == turn)
			(void)usleep(1000);
		/* The first turn warms up: the file enters the page cache, and both sides settle on
		 * polling or sleeping. */
		if (turn)
			fair_measure(&l);
		atomic_store(&sh->done, turn + 1);
	}
}

static void fair_take_turn(pid_t victim)
{
	unsigned turn = atomic_fetch_add(&sh->go, 1) + 1;

	while (atomic_load(&sh->done) != turn) {
		if (waitpid(victim, NULL, WNOHANG) == victim)
			die("the victim has ended");
		(void)usleep(1000);
	}
}

/* -------------------------------------------------------------------- good */

static void *be_good(void *arg)
{
	struct lane l;

	open_lane(&l, (uintptr_t)arg, OTHER_DEPTH * SIZE);
	while (read_batch(&l, OTHER_DEPTH, SIZE))
		;
	return NULL;
}

static void *be_heavy(void *arg)
{
	struct lane l;

	open_lane(&l, (uintptr_t)arg, OTHER_DEPTH * HEAVY_SIZE);
	while (read_batch(&l, OTHER_DEPTH, HEAVY_SIZE))
		;
	return NULL;
}

/* ----------------------------------------------------------------- hostile */

static struct lane mine;

/* Fill the ring with bad requests: unknown file numbers, missing memory, excessive lengths. */
static void fair_fill(const struct usrbio_ring *at, uint64_t ino)
{
	uint32_t head = (uint32_t)usrbio_marker(at->sq_head) % at->slots;

	for (uint32_t next = usrbio_ring_next(at, head);
	     (int32_t)next != usrbio_marker(at->sq_tail); next = usrbio_ring_next(at, head)) {
		uint64_t d = roll(&mine);
		struct usrbio_args *a = &at->args[head];

		memcpy(a->buf_id, mine.iov.id, sizeof(a->buf_id));
		a->buf_id[0] ^= d % 4 == 0;
		a->file = d % 3 ? ino : d;
		a->file_off = d % 5 ? 0 : d;
		a->buf_off = 0;
		a->len = d % 7 ? DEPTH_MAX * SIZE : UINT64_C(1) << (d % 64);
		at->sqes[head] = (struct usrbio_sqe){ .index = d % 11 ? (int32_t)head
								      : (int32_t)d };
		usrbio_marker_set(at->sq_head, next);
		head = next;
	}
	/* Make room for all completions. */
	usrbio_marker_set(at->cq_tail, (uint32_t)usrbio_marker(at->cq_head));
}

static sem_t *my_sem(void)
{
	char link[4200], to[4096] = "", name[4200];
	ssize_t n;
	void *p;
	int fd;

	(void)snprintf(link, sizeof(link), "%s/3fs-virt/iovs/submit-ios", set.dir);
	n = readlink(link, to, sizeof(to) - 1);
	(void)snprintf(name, sizeof(name), "%s", n > 0 ? to : "");
	fd = open(name, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		die("%s leads to '%s': %s", link, name, strerror(errno));
	p = mmap(NULL, sizeof(sem_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)close(fd);
	if (p == MAP_FAILED)
		die("a semaphore cannot be mapped");
	return p;
}

static void *keep_full(void *arg)
{
	struct usrbio_ring at;
	struct stat st;

	(void)arg;
	if (usrbio_ring_at(mine.ior.iov.base, mine.ior.iov.size, &at) < 0 ||
	    fstat(mine.fd, &st) < 0)
		die("a ring is none");
	for (;;) {
		fair_fill(&at, st.st_ino);
		(void)hf3fs_submit_ios(&mine.ior);
	}
	return NULL;
}

static void *fair_post(void *arg)
{
	sem_t *sem = my_sem();

	(void)arg;
	for (;;)
		(void)usrbio_sem_post_by_kernel(sem);
	return NULL;
}

static void *scribble(void *arg)
{
	struct hf3fs_ior ior = { 0 };

	(void)arg;
	for (;;) {
		if (hf3fs_iorcreate(&ior, set.dir, (int)DEPTH_MAX, true, 0, -1) < 0)
			continue;
		for (unsigned i = 0; i < 100000; i++)
			((volatile uint8_t *)ior.iov.base)[roll(&mine) % ior.iov.size] ^= 0x5a;
		(void)hf3fs_submit_ios(&ior);
		hf3fs_iordestroy(&ior);
	}
	return NULL;
}

static void *fair_publish(void *arg)
{
	struct hf3fs_iov iov = { 0 };

	(void)arg;
	for (;;)
		if (hf3fs_iovcreate(&iov, set.dir, MIB(1), 0, -1) == 0)
			hf3fs_iovdestroy(&iov);
	return NULL;
}

static void *fair_open_files(void *arg)
{
	(void)arg;
	for (;;) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		if (fd >= 0)
			(void)close(fd);
	}
	return NULL;
}

/* -------------------------------------------------------------------- busy */

static void *compute(void *arg)
{
	(void)arg;
	for (;;)
		atomic_signal_fence(memory_order_seq_cst);
	return NULL;
}

/* ------------------------------------------------------------------- turns */

enum { GOOD, HOSTILE, HEAVY, BUSY, BUSY3, NOBODY };

static const struct other {
	const char *name;
	void *(*threads[THREADS])(void *arg);
	unsigned more_sessions; /* number of further sessions, each with the same threads */
} others[] = {
	[GOOD] = { "good", { be_good, be_good, be_good, be_good, be_good }, 0 },
	[HOSTILE] = { "hostile",
		      { keep_full, fair_post, scribble, fair_publish, fair_open_files },
		      0 },
	[HEAVY] = { "heavy", { be_heavy, be_heavy, be_heavy, be_heavy, be_heavy }, 0 },
	[BUSY] = { "busy", { compute, compute, compute, compute, compute }, 0 },
	[BUSY3] = { "busy3", { compute, compute, compute, compute, compute }, 2 },
	[NOBODY] = { "nobody", { NULL }, 0 },
};

static pid_t fair_start(const struct other *o)
{
	pthread_t thread;
	pid_t pid = o->threads[0] ? fork() : 0;

	if (pid || !o->threads[0])
		return pid;
	fair_become(OTHER);
	open_lane(&mine, 77, DEPTH_MAX * SIZE);
	for (unsigned i = 0; i < o->more_sessions; i++)
		if (fork() == 0) {
			own_session();
			break;
		}
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&thread, NULL, o->threads[i], (void *)(i + 2)))
			die("no thread");
	for (;;)
		(void)pause();
}

/* Kill the other user, and pause 100 ms before the next turn. */
static void end_client(pid_t pid)
{
	if (!pid)
		return;
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	(void)usleep(100000);
}

struct turn {
	double rate, p50_us, p99_us;
};

static struct turn beside(const struct other *o, pid_t victim)
{
	pid_t pid = fair_start(o);
	struct turn t;

	/* Let the other user reach full load. */
	(void)usleep(200000);
	fair_take_turn(victim);
	t = (struct turn){ sh->rate, sh->latency.p50_us, sh->latency.p99_us };
	if (pid && waitpid(pid, NULL, WNOHANG) == pid)
		die("the %s client has ended", o->name);
	end_client(pid);
	return t;
}

static void print_ratio(const char *what, double *v)
{
	struct spread s = spread_of(v, set.pairs);

	(void)printf("%-40s %8.2f %8.2f %8.2f\n", what, s.median, s.lowest, s.highest);
}

static double fair_median(const struct turn *t, size_t off)
{
	double v[PAIRS_MAX];

	for (unsigned i = 0; i < set.pairs; i++)
		v[i] = *(const double *)((const char *)&t[i] + off);
	return median_of(v, set.pairs);
}

static void fair_run(pid_t victim)
{
	static struct turn t[ARRAY_SIZE(others)][PAIRS_MAX];
	double rate[PAIRS_MAX], p99[PAIRS_MAX], heavy[PAIRS_MAX], busy[PAIRS_MAX], busy3[PAIRS_MAX];

	for (unsigned i = 0; i < set.pairs; i++)
		for (unsigned k = 0; k < ARRAY_SIZE(others); k++) {
			unsigned which = (i + k) % ARRAY_SIZE(others);

			t[which][i] = beside(&others[which], victim);
		}
	(void)printf("%-12s %12s %10s %10s\n", "beside", "reads/s", "p50 us", "p99 us");
	for (unsigned k = 0; k < ARRAY_SIZE(others); k++)
		(void)printf("%-12s %12.0f %10.2f %10.1f\n", others[k].name,
			     fair_median(t[k], offsetof(struct turn, rate)),
			     fair_median(t[k], offsetof(struct turn, p50_us)),
			     fair_median(t[k], offsetof(struct turn, p99_us)));
	for (unsigned i = 0; i < set.pairs; i++) {
		rate[i] = t[GOOD][i].rate / t[HOSTILE][i].rate;
		p99[i] = t[HOSTILE][i].p99_us / t[GOOD][i].p99_us;
		heavy[i] = t[HEAVY][i].p99_us / t[GOOD][i].p99_us;
		busy[i] = t[BUSY][i].p99_us / t[GOOD][i].p99_us;
		busy3[i] = t[HOSTILE][i].p99_us / t[BUSY3][i].p99_us;
	}
	(void)printf("\n%-40s %8s %8s %8s\n", "ratio", "median", "lowest", "highest");
	print_ratio("reads/s, good to hostile", rate);
	print_ratio("p99, hostile to good", p99);
	print_ratio("p99, heavy to good", heavy);
	print_ratio("p99, busy to good", busy);
	print_ratio("p99, hostile to busy3", busy3);
}

static void fair_make_file(void)
{
	char buf[4096] = "";
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	for (uint64_t off = 0; fd >= 0 && off < FILE_LEN; off += sizeof(buf))
		if (pwrite(fd, buf, sizeof(buf), (off_t)off) != sizeof(buf))
			die("%s cannot be written: %s", path, strerror(errno));
	if (fd < 0 || fchmod(fd, 0644) < 0)
		die("%s: %s", path, strerror(errno));
	(void)close(fd);
}

static void drop_file(void)
{
	(void)unlink(path);
}

int main(int argc, char **argv)
{
	pid_t victim, me = getpid();
	int c;

	while ((c = getopt(argc, argv, "n:m:d:")) != -1) {
		if (c == 'n')
			set.pairs = number(optarg, 1, PAIRS_MAX);
		else if (c == 'm')
			set.ms = number(optarg, 1, 60000);
		else if (c == 'd')
			set.depth = number(optarg, 1, DEPTH_MAX);
		else
			return 2;
	}
	if (optind + 1 != argc) {
		(void)fputs("Usage: fair [-n PAIRS] [-m MS] [-d DEPTH] MOUNT\n", stderr);
		return 2;
	}
	set.dir = argv[optind];
	(void)snprintf(path, sizeof(path), "%s/fair-bench.%d", set.dir, (int)me);
	fair_make_file();
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		die("no memory");
	(void)printf(
		"a user with %u reads of 4 KiB at a time, turns of %u ms, %u pairs, %ld CPUs\n\n",
		set.depth, set.ms, set.pairs, sysconf(_SC_NPROCESSORS_ONLN));
	(void)fflush(stdout);
	victim = fork();
	if (victim == 0)
		be_victim();
	fair_take_turn(victim);
	fair_run(victim);
	end_client(victim);
	drop_file();
	return 0;
}
