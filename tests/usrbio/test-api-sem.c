/* SPDX-License-Identifier: MIT */
/*
 * Semaphores that a hostile daemon shares with its clients.  A tmpfs plays the daemon, and the test
 * itself completes requests.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "api_rig.h"
#include "own_mnt.h"
#include "usrbio/proto/ring.h"

#define FAKE "/mnt/fake"
#define SUBMIT FAKE "/3fs-virt/iovs/submit-ios"
#define ENTRIES 8
#define SOON_MS 50

static bool have_mnt;
static char sem_name[2][64];
static sem_t *sems[2]; /* semaphores of normal and high priority */
static int data;       /* a registered file on the other daemon's mount */

static void sem_path(char ret[100], unsigned i)
{
	(void)snprintf(ret, 100, "/dev/shm/sem.%s", sem_name[i] + 1);
}

static void fake_begin(void)
{
	static const char *const links[] = { SUBMIT, SUBMIT ".ph" };
	char path[100];

	if (!have_mnt)
		T_SKIP(OWN_MNT_LACKS);
	/* A real daemon provides a file with an inode number, because the tmpfs has no server. */
	api_daemon();
	mnt = api_rig.mnt;
	data = api_open("data", 4096);
	T_EQ(mkdir(FAKE, 0755), 0);
	T_EQ(mount("tmpfs", FAKE, "tmpfs", 0, NULL), 0);
	T_EQ(mkdir(FAKE "/3fs-virt", 0755), 0);
	T_EQ(mkdir(FAKE "/3fs-virt/iovs", 0777), 0);
	mnt = FAKE;
	for (unsigned i = 0; i < 2; i++) {
		(void)snprintf(sem_name[i], sizeof(sem_name[i]), "/pst-test-sem.%d.%u",
			       (int)getpid(), i);
		sems[i] = sem_open(sem_name[i], O_CREAT | O_EXCL, 0600, 0);
		T_CHECK(sems[i] != SEM_FAILED);
		sem_path(path, i);
		T_EQ(symlink(path, links[i]), 0);
	}
}

static void fake_end(void)
{
	for (unsigned i = 0; i < 2; i++) {
		T_EQ(sem_close(sems[i]), 0);
		T_EQ(sem_unlink(sem_name[i]), 0);
	}
	T_EQ(api_shm(), 0);
	T_EQ(umount2(FAKE, MNT_DETACH), 0);
	T_EQ(rmdir(FAKE), 0);
	api_close(data);
}

static struct usrbio_ring ring_at(const struct hf3fs_ior *ior)
{
	struct usrbio_ring at;

	T_EQ(usrbio_ring_at(ior->iov.base, ior->iov.size, &at), 0);
	return at;
}

/* Make a ring and initialise it as a daemon does. */
static struct hf3fs_ior ring_new(int priority)
{
	struct hf3fs_ior ior;

	T_EQ(hf3fs_iorcreate2(&ior, mnt, ENTRIES, true, 0, priority, -1), 0);
	T_EQ(sem_init(ring_at(&ior).sem, 1, 0), 0);
	return ior;
}

/* Take all entries, and complete the request of a slot. */
static void complete(const struct usrbio_ring *at, int slot)
{
	uint32_t head = (uint32_t)usrbio_marker(at->cq_head);

	usrbio_marker_set(at->sq_tail, (uint32_t)usrbio_marker(at->sq_head));
	at->cqes[head] = (struct usrbio_cqe){ .index = slot, .result = 4096 };
	usrbio_marker_set(at->cq_head, usrbio_ring_next(at, head));
}

static void forge(sem_t *sem, uint32_t value, uint32_t waiters, uint32_t private)
{
	uint32_t *word = (uint32_t *)sem;

	word[0] = value;
	word[1] = waiters;
	word[2] = private;
}

static int value_of(sem_t *sem)
{
	int value;

	T_EQ(sem_getvalue(sem, &value), 0);
	return value;
}

/* Futex flags that glibc would pass on: operations that the kernel does not know, or without
 * deadline. */
static const uint32_t privates[] = { 7, 137, 1, 6, 0x7f, 0x80, 0xff, 0x100, 0xffffffff };
#define NR_PRIVATES (sizeof(privates) / sizeof(privates[0]))

static void P10_forged_in_the_ring(void)
{
	struct timespec soon;
	struct hf3fs_iov iov;
	struct hf3fs_ior ior;
	struct hf3fs_cqe c;
	int slot;

	fake_begin();
	iov = api_iov(4096);
	for (size_t i = 0; i < NR_PRIVATES; i++) {
		struct usrbio_ring at;

		ior = ring_new(0);
		at = ring_at(&ior);
		forge(at.sem, 0, i & 1 ? 0xffffffff : 0, privates[i]);
		soon = api_in_ms(SOON_MS);
		T_EQ(hf3fs_wait_for_ios(&ior, &c, 1, 1, &soon), 0);
		/* A value above the number of completions that fit. */
		forge(at.sem, 0xffffffff, 0, privates[i]);
		soon = api_in_ms(SOON_MS);
		T_EQ(hf3fs_wait_for_ios(&ior, &c, 1, 1, &soon), 0);
		slot = hf3fs_prep_io(&ior, &iov, true, iov.base, data, 0, 4096, &c);
		T_CHECK(slot >= 0);
		T_EQ(hf3fs_submit_ios(&ior), 0);
		complete(&at, slot);
		T_EQ(hf3fs_wait_for_ios(&ior, &c, 1, 1, NULL), 1);
		T_EQ(c.result, 4096);
		hf3fs_iordestroy(&ior);
	}
	hf3fs_iovdestroy(&iov);
	fake_end();
}

static void P10_forged_in_the_daemons(void)
{
	struct hf3fs_ior ior;

	fake_begin();
	ior = ring_new(0);
	for (size_t i = 0; i < NR_PRIVATES; i++) {
		forge(sems[0], (uint32_t)i, 1, privates[i]);
		T_EQ(hf3fs_submit_ios(&ior), 0);
		T_EQ(value_of(sems[0]), (int)i + 1);
	}
	/* A full semaphore. */
	forge(sems[0], 0xffffffff, 0, 0);
	T_EQ(hf3fs_submit_ios(&ior), 0);
	hf3fs_iordestroy(&ior);
	fake_end();
}

/* If the daemon truncates a submit semaphore, its rings fail; other rings are not affected. */
static void P10_the_daemons_is_cut(void)
{
	struct hf3fs_ior ior, other;
	struct hf3fs_iov iov;
	struct usrbio_ring at;
	struct hf3fs_cqe c;
	char path[100];
	int slot;

	fake_begin();
	iov = api_iov(4096);
	ior = ring_new(0);
	other = ring_new(-1);
	T_CHECK(hf3fs_prep_io(&ior, &iov, true, iov.base, data, 0, 4096, &c) >= 0);
	T_EQ(hf3fs_submit_ios(&ior), 0);
	sem_path(path, 0);
	T_EQ(truncate(path, 0), 0);
	T_EQ(hf3fs_submit_ios(&ior), -ENOTCONN);
	T_EQ(hf3fs_submit_ios(&ior), -ENOTCONN);
	T_EQ(hf3fs_wait_for_ios(&ior, &c, 1, 1, NULL), 1);
	T_EQ(c.result, -EREMOTEIO);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base, data, 0, 4096, &c), -ENOTCONN);
	T_EQ(hf3fs_wait_for_ios(&ior, &c, 1, 1, NULL), 0);

	slot = hf3fs_prep_io(&other, &iov, true, iov.base, data, 0, 4096, &c);
	T_CHECK(slot >= 0);
	T_EQ(hf3fs_submit_ios(&other), 0);
	T_EQ(value_of(sems[1]), 1);
	at = ring_at(&other);
	complete(&at, slot);
	T_EQ(hf3fs_wait_for_ios(&other, &c, 1, 1, NULL), 1);
	T_EQ(c.result, 4096);
	hf3fs_iordestroy(&other);
	hf3fs_iordestroy(&ior);
	hf3fs_iovdestroy(&iov);
	fake_end();
}

/* The semaphore is truncated while completions are taken, which posts once more. */
static void P10_cut_before_completions(void)
{
	struct hf3fs_iov iov;
	struct hf3fs_ior ior;
	struct usrbio_ring at;
	struct hf3fs_cqe c[2];
	char path[100];
	int slot;

	fake_begin();
	iov = api_iov(8192);
	ior = ring_new(0);
	slot = hf3fs_prep_io(&ior, &iov, true, iov.base, data, 0, 4096, NULL);
	T_CHECK(slot >= 0);
	T_CHECK(hf3fs_prep_io(&ior, &iov, true, iov.base, data, 0, 4096, NULL) >= 0);
	T_EQ(hf3fs_submit_ios(&ior), 0);
	at = ring_at(&ior);
	complete(&at, slot);
	sem_path(path, 0);
	T_EQ(truncate(path, 0), 0);
	T_EQ(hf3fs_wait_for_ios(&ior, c, 2, 1, NULL), 1);
	T_EQ(c[0].result, 4096);
	T_EQ(hf3fs_wait_for_ios(&ior, c, 2, 2, NULL), 1);
	T_EQ(c[0].result, -EREMOTEIO);
	hf3fs_iordestroy(&ior);
	hf3fs_iovdestroy(&iov);
	fake_end();
}

static void P9_another_users_semaphore(void)
{
	struct hf3fs_ior ior;
	char path[100];

	if (geteuid() != 0)
		T_SKIP("root, to make a semaphore of another user");
	fake_begin();
	sem_path(path, 0);
	T_EQ(chown(path, 1234, 1234), 0);
	T_EQ(hf3fs_iorcreate(&ior, mnt, ENTRIES, true, 0, -1), -EPERM);
	T_EQ(chown(path, 0, 0), 0);
	T_EQ(hf3fs_iorcreate(&ior, mnt, ENTRIES, true, 0, -1), 0);
	hf3fs_iordestroy(&ior);
	fake_end();
}

/* ---------------------------------------------- glibc's calls on the other side */

static void *take_one(void *arg)
{
	while (sem_wait(arg) < 0)
		;
	return NULL;
}

static void await_waiter(sem_t *sem)
{
	uint64_t end = t_in_ms(API_WAIT_MS);

	while (!(__atomic_load_n((uint64_t *)sem, __ATOMIC_SEQ_CST) >> 32) && t_now() < end)
		(void)sched_yield();
	T_CHECK(__atomic_load_n((uint64_t *)sem, __ATOMIC_SEQ_CST) >> 32);
}

static void submit_wakes_who_sleeps(void)
{
	struct hf3fs_ior ior;
	pthread_t thread;

	fake_begin();
	ior = ring_new(0);
	T_EQ(pthread_create(&thread, NULL, take_one, sems[0]), 0);
	await_waiter(sems[0]);
	T_EQ(hf3fs_submit_ios(&ior), 0);
	T_EQ(pthread_join(thread, NULL), 0);
	T_EQ(value_of(sems[0]), 0);
	hf3fs_iordestroy(&ior);
	fake_end();
}

static struct usrbio_ring late_ring;
static int late_slot;

static void *complete_late(void *arg)
{
	(void)arg;
	while (!(__atomic_load_n((uint64_t *)late_ring.sem, __ATOMIC_SEQ_CST) >> 32))
		(void)sched_yield();
	complete(&late_ring, late_slot);
	(void)sem_post(late_ring.sem);
	return NULL;
}

/* With a sleep of a minute between two checks, only a wake-up lets this end in time. */
static void completions_wake_who_waits(void)
{
	struct hf3fs_iov iov;
	struct hf3fs_ior ior;
	struct hf3fs_cqe c;
	pthread_t thread;
	uint64_t began;

	fake_begin();
	iov = api_iov(4096);
	ior = ring_new(0);
	late_ring = ring_at(&ior);
	for (int i = 0; i < 20; i++) {
		late_slot = hf3fs_prep_io(&ior, &iov, true, iov.base, data, 0, 4096, &c);
		T_CHECK(late_slot >= 0);
		T_EQ(pthread_create(&thread, NULL, complete_late, NULL), 0);
		began = t_now();
		T_EQ(hf3fs_wait_for_ios(&ior, &c, 1, 1, NULL), 1);
		T_CHECK(t_now() - began < UINT64_C(50000000000));
		T_EQ(c.result, 4096);
		T_EQ(pthread_join(thread, NULL), 0);
	}
	/* No waiter is counted when nobody waits. */
	T_EQ(__atomic_load_n((uint64_t *)late_ring.sem, __ATOMIC_SEQ_CST) >> 32, 0);
	hf3fs_iordestroy(&ior);
	hf3fs_iovdestroy(&iov);
	fake_end();
}

int main(void)
{
	(void)setenv("HF3FS_USRBIO_DONT_CHECKFS_FOR_MP", "yes", 1);
	(void)setenv("HF3FS_USRBIO_WAIT_JITTER_MS", "60000", 1);
	have_mnt = own_mnt();
	api_init();
	T_RUN(P10_forged_in_the_ring);
	T_RUN(P10_forged_in_the_daemons);
	T_RUN(P10_the_daemons_is_cut);
	T_RUN(P10_cut_before_completions);
	T_RUN(P9_another_users_semaphore);
	T_RUN(submit_wakes_who_sleeps);
	T_RUN(completions_wake_who_waits);
	return api_done();
}
