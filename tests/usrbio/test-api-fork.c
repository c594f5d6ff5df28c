/* SPDX-License-Identifier: MIT */
/* U15: what a child may do with its parent's objects. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "api_rig.h"

/*
 * getpid() for all libraries of the program: a child in another PID namespace may have its parent's
 * number.
 */
static pid_t same_pid;

__attribute__((visibility("default"))) pid_t getpid(void)
{
	return same_pid ? same_pid : (pid_t)syscall(SYS_getpid);
}

static struct hf3fs_iov iov, wrapped;
static struct hf3fs_ior ior;
static int fd;

static void make_ring(void)
{
	iov = api_iov(8192);
	ior = api_ior(4, true);
	fd = api_open("data", 8192);
	memset(iov.base, 0, 8192);
}

static void destroy_ring(void)
{
	hf3fs_iordestroy(&ior);
	hf3fs_iovdestroy(&iov);
	api_close(fd);
}

#define FAIL_UNLESS(cond)                      \
	do {                                   \
		if (!(cond))                   \
			return __LINE__ % 255; \
	} while (0)

/* Return an error instead of using T_CHECK(): a child has no case to end. */
static int one_read(void)
{
	struct timespec until = api_in_ms(API_WAIT_MS);
	struct hf3fs_cqe c;

	FAIL_UNLESS(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, 8192, &c) >= 0);
	FAIL_UNLESS(hf3fs_submit_ios(&ior) == 0);
	FAIL_UNLESS(hf3fs_wait_for_ios(&ior, &c, 1, 1, &until) == 1);
	if (c.result != 8192)
		(void)fprintf(stderr, "# a read gave %" PRId64 "\n", c.result);
	FAIL_UNLESS(c.result == 8192 && c.userdata == &c);
	FAIL_UNLESS(t_differs(iov.base, API_SEED, 0, 8192) == 8192);
	return 0;
}

static int child_is_refused(void)
{
	struct timespec until = api_in_ms(100);
	struct hf3fs_iov mine;
	struct hf3fs_ior ring;
	struct hf3fs_cqe c;
	static const uint8_t id[16] = { 1 };

	FAIL_UNLESS(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, 1, NULL) == -EOWNERDEAD);
	FAIL_UNLESS(hf3fs_submit_ios(&ior) == -EOWNERDEAD);
	FAIL_UNLESS(hf3fs_wait_for_ios(&ior, &c, 1, 1, &until) == -EOWNERDEAD);
	FAIL_UNLESS(hf3fs_iovcreate(&mine, mnt, 4096, 0, -1) == -EOWNERDEAD);
	FAIL_UNLESS(hf3fs_iovwrap(&mine, &c, id, mnt, 8, 0, -1) == -EOWNERDEAD);
	FAIL_UNLESS(hf3fs_iorcreate(&ring, mnt, 4, true, 0, -1) == -EOWNERDEAD);
	FAIL_UNLESS(hf3fs_reg_fd(dup(fd), 0) == EOWNERDEAD);
	FAIL_UNLESS(hf3fs_is_hf3fs(fd));
	/* In a child, these calls only free the child's copies of the objects. */
	hf3fs_iovunlink(&iov);
	hf3fs_iordestroy(&ior);
	hf3fs_iovdestroy(&iov);
	hf3fs_dereg_fd(fd);
	return 0;
}

static void U15_plain_rings_stay_the_parents(void)
{
	make_ring();
	T_EQ(api_child(child_is_refused), 0);
	T_EQ(api_links(""), 2);
	T_EQ(api_shm(), 1);
	T_EQ(api_io(&ior, &iov, 0, fd, 0, 8192), 8192);
	T_EQ(t_differs(iov.base, API_SEED, 0, 8192), 8192);
	destroy_ring();
}

/*
 * Make, use and destroy the child's own ring and memory, then destroy the inherited ones.  The
 * caller checks that the parent's ring still works.
 */
static int child_makes_its_own(void)
{
	struct hf3fs_iov mine;
	struct hf3fs_ior ring = ior;
	int r;

	FAIL_UNLESS(hf3fs_iovcreate(&mine, mnt, 8192, 0, -1) == 0);
	FAIL_UNLESS(hf3fs_iorcreate(&ior, mnt, 4, true, 0, -1) == 0);
	r = one_read();
	if (r)
		return r;
	hf3fs_iordestroy(&ior);
	hf3fs_iovdestroy(&mine);
	/* Destroy inherited objects. */
	hf3fs_iordestroy(&ring);
	hf3fs_iovdestroy(&iov);
	return 0;
}

static void U15_a_daemons_child_makes_its_own(void)
{
	make_ring();
	T_EQ(api_child(child_makes_its_own), 0);
	T_EQ(api_shm(), 1);
	T_EQ(one_read(), 0);
	destroy_ring();
}

/* The parent's wrap must not be found again. */
static int ends_what_it_inherited(void)
{
	struct hf3fs_iov mine = { 0 };
	int r = hf3fs_iovwrap(&mine, iov.base, (uint8_t *)iov.id, mnt, 8192, 0, -1);

	FAIL_UNLESS(r == (on_daemon ? 0 : -EOWNERDEAD) && mine.iovh != wrapped.iovh);
	hf3fs_iovdestroy(&mine);
	hf3fs_iovdestroy(&wrapped);
	hf3fs_iovunlink(&iov);
	hf3fs_iordestroy(&ior);
	hf3fs_iovdestroy(&iov);
	return 0;
}

static void U15_a_child_of_the_same_pid(void)
{
	make_ring();
	T_EQ(hf3fs_iovwrap(&wrapped, iov.base, (uint8_t *)iov.id, mnt, 8192, 0, -1), 0);
	same_pid = getpid();
	T_EQ(api_child(ends_what_it_inherited), 0);
	same_pid = 0;
	if (!on_daemon)
		T_EQ(api_links(""), 2);
	T_EQ(api_shm(), 1);
	T_EQ(one_read(), 0);
	hf3fs_iovdestroy(&wrapped);
	destroy_ring();
}

/* The parent does not use the ring any more. */
static void U15_a_daemons_child_uses_the_ring(void)
{
	make_ring();
	T_EQ(api_child(one_read), 0);
	T_EQ(t_differs(iov.base, API_SEED, 0, 8192), 8192);
	destroy_ring();
}

/* Threads make and end objects while this one forks: no lock may stay taken in a child. */
static _Atomic bool stop;

static void *busy(void *arg)
{
	int n = 0;

	(void)arg;
	while (!stop) {
		struct hf3fs_iov mem;
		int h;

		if (hf3fs_iovcreate(&mem, mnt, 4096, 0, -1) == 0)
			hf3fs_iovdestroy(&mem);
		h = open(api_plain, O_RDONLY | O_CLOEXEC);
		(void)hf3fs_reg_fd(h, 0);
		hf3fs_dereg_fd(h);
		(void)close(h);
		n++;
	}
	return NULL;
}

static int locks_are_free(void)
{
	int h;

	/*
	 * Each call takes its lock.  If one stays locked, the call hangs until alarm() ends the
	 * child.
	 */
	(void)alarm(20);
	hf3fs_dereg_fd(fd);
	h = hf3fs_reg_fd(fd, 0);
	FAIL_UNLESS(on_daemon ? h <= 0 : h == EOWNERDEAD);
	hf3fs_iordestroy(&ior);
	hf3fs_iovdestroy(&iov);
	return 0;
}

static void U15_fork_while_threads_are_busy(void)
{
	pthread_t t;

	make_ring();
	stop = false;
	T_EQ(pthread_create(&t, NULL, busy, NULL), 0);
	for (int i = 0; i < 20; i++)
		T_EQ(api_child(locks_are_free), 0);
	stop = true;
	T_EQ(pthread_join(t, NULL), 0);
	destroy_ring();
}

/* A child of a process that has not used a plain directory can use one. */
static int uses_plain(void)
{
	int r;

	mnt = api_plain;
	on_daemon = false;
	make_ring();
	r = one_read();
	destroy_ring();
	return r;
}

static void U15_a_child_of_one_that_used_nothing(void)
{
	T_EQ(api_child(uses_plain), 0);
}

int main(void)
{
	api_init();
	T_RUN(U15_a_child_of_one_that_used_nothing);
	API_ON_DAEMON(U15_a_daemons_child_makes_its_own);
	API_ON_DAEMON(U15_a_daemons_child_uses_the_ring);
	API_RUN(U15_fork_while_threads_are_busy);
	API_RUN(U15_a_child_of_the_same_pid);
	API_PLAIN(U15_plain_rings_stay_the_parents);
	return api_done();
}
