/* SPDX-License-Identifier: MIT */
/* P12: a daemon ends while clients use it, and is started again. */
#include <semaphore.h>
#include <signal.h>

#include "api_rig.h"
#include "usrbio/proto/ring.h"

static struct mount_rig rig;
static struct hf3fs_iov iov;
static struct hf3fs_ior ior;
static int fd;

static void mount_daemon(const char *option, const char *value)
{
	const char *options[] = { option, value, NULL };

	if (mount_rig_start(&rig, API_DAEMON, options) < 0)
		T_SKIP("%s", rig.why);
	mnt = rig.mnt;
	iov = api_iov(65536);
	ior = api_ior(4, true);
	fd = api_open("data", 65536);
}

static void unmount_daemon(void)
{
	hf3fs_iordestroy(&ior);
	hf3fs_iovdestroy(&iov);
	hf3fs_dereg_fd(fd);
	(void)close(fd);
	T_EQ(api_shm(), 0);
	(void)mount_rig_stop(&rig);
}

/* Kill the daemon, and remove the semaphores that it can no longer remove. */
static void kill_it(void)
{
	static const char *const links[] = { "submit-ios.ph", "submit-ios", "submit-ios.pl" };
	char link[PATH_MAX], sem[3][PATH_MAX];

	for (int i = 0; i < 3; i++) {
		ssize_t n;

		(void)snprintf(link, sizeof(link), "%s/" USRBIO_IOVS "/%s", rig.mnt, links[i]);
		n = readlink(link, sem[i], sizeof(sem[i]) - 1);
		T_CHECK(n > 0);
		sem[i][n] = '\0';
	}
	T_EQ(kill(rig.pid, SIGKILL), 0);
	(void)mount_rig_wait(&rig);
	for (int i = 0; i < 3; i++)
		T_EQ(unlink(sem[i]), 0);
}

/* Start another daemon on the same directory. */
static void start_again(void)
{
	char path[600];
	int out[2];

	T_EQ(mount_rig_beside(API_DAEMON, path, sizeof(path)), 0);
	T_EQ(pipe2(out, O_CLOEXEC), 0);
	(void)fflush(stdout);
	rig.pid = fork();
	if (rig.pid == 0)
		mount_rig_exec(path, &rig, NULL, out[1]);
	(void)close(out[1]);
	T_EQ(mount_rig_ready(&rig, out[0]), 0);
	(void)close(out[0]);
}

static void prepare(int nr)
{
	for (int i = 0; i < nr; i++)
		T_CHECK(hf3fs_prep_io(&ior, &iov, true, iov.base + (size_t)i * 4096, fd, 0, 4096,
				      (void *)(uintptr_t)(i + 1)) >= 0);
	T_EQ(hf3fs_submit_ios(&ior), 0);
}

/* Check that all requests in flight end with EREMOTEIO, each once. */
static void all_end(int nr, const struct timespec *until)
{
	unsigned seen = 0;
	struct hf3fs_cqe c[4];
	int got = 0;

	while (got < nr) {
		int n = hf3fs_wait_for_ios(&ior, c, 4, 1, until);

		T_CHECK(n > 0);
		for (int i = 0; i < n; i++) {
			T_EQ(c[i].result, -EREMOTEIO);
			seen |= 1u << (uintptr_t)c[i].userdata;
		}
		got += n;
	}
	T_EQ(got, nr);
	T_EQ(seen, (1u << (nr + 1)) - 2);
}

static void P12_killed_while_somebody_waits(void)
{
	struct timespec soon;
	struct hf3fs_cqe c;
	uint64_t began;

	mount_daemon("--slow", "30000");
	prepare(3);
	kill_it();
	began = t_now();
	all_end(3, NULL);
	/* The death is noticed long before the daemon would have answered. */
	T_CHECK(t_now() - began < 25000000000u);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, 1, NULL), -ENOTCONN);
	T_EQ(hf3fs_submit_ios(&ior), 0);
	/* No completion can arrive, so waiting without a deadline would never end. */
	T_EQ(hf3fs_wait_for_ios(&ior, &c, 1, 1, NULL), 0);
	soon = api_in_ms(10);
	T_EQ(hf3fs_wait_for_ios(&ior, &c, 1, 1, &soon), 0);
	unmount_daemon();
}

/* Poll with a deadline in the past. */
static void P12_killed_while_somebody_polls(void)
{
	struct timespec past = { 0 };
	struct hf3fs_cqe c;
	uint64_t began;
	int n = 0;

	mount_daemon("--slow", "30000");
	prepare(1);
	kill_it();
	began = t_now();
	while (!n) {
		n = hf3fs_wait_for_ios(&ior, &c, 1, 1, &past);
		T_CHECK(t_now() - began < 25000000000u);
		(void)usleep(1000);
	}
	T_EQ(n, 1);
	T_EQ(c.result, -EREMOTEIO);
	unmount_daemon();
}

/* Wait until this many completions are in the ring, without taking one. */
static void wait_completed(int nr)
{
	uint64_t end = t_hang();
	struct usrbio_ring at;

	T_EQ(usrbio_ring_at(ior.iov.base, ior.iov.size, &at), 0);
	while (usrbio_marker(at.cq_head) != nr && t_now() < end)
		(void)usleep(1000);
	T_EQ(usrbio_marker(at.cq_head), nr);
}

/* A request that completed before the daemon's end is delivered with its own result. */
static void P12_completions_from_before_count(void)
{
	struct timespec until = api_in_ms(API_WAIT_MS);
	struct hf3fs_cqe c[4];

	mount_daemon(NULL, NULL);
	prepare(2);
	wait_completed(2);
	kill_it();
	T_EQ(hf3fs_wait_for_ios(&ior, c, 4, 2, &until), 2);
	T_EQ(c[0].result, 4096);
	T_EQ(c[1].result, 4096);
	unmount_daemon();
}

static void P12_started_anew_on_the_same_directory(void)
{
	struct hf3fs_ior ring2;
	struct hf3fs_iov iov2;
	int fd2;

	mount_daemon("--slow", "30000");
	prepare(1);
	kill_it();
	T_EQ(umount2(rig.mnt, MNT_DETACH), 0);
	start_again();
	/* Make new objects before the library knows that the old daemon is dead. */
	iov2 = api_iov(65536);
	ring2 = api_ior(4, true);
	fd2 = api_open("data2", 65536);
	T_EQ(api_io(&ring2, &iov2, 0, fd2, 0, 65536), 65536);
	T_EQ(t_differs(iov2.base, API_SEED, 0, 65536), 65536);
	all_end(1, NULL);
	T_EQ(api_io(&ring2, &iov2, 0, fd2, 0, 65536), 65536);
	hf3fs_iordestroy(&ring2);
	hf3fs_iovdestroy(&iov2);
	api_close(fd2);
	unmount_daemon();
}

/* A hanging daemon is not dead, and does not delay a caller that waits with a deadline. */
static void P12_a_daemon_that_hangs(void)
{
	struct timespec until;
	struct hf3fs_cqe c;
	uint64_t began;
	int status;

	mount_daemon(NULL, NULL);
	T_EQ(kill(rig.pid, SIGSTOP), 0);
	/* kill() returns before the process stops. */
	T_EQ(waitpid(rig.pid, &status, WUNTRACED), rig.pid);
	T_CHECK(WIFSTOPPED(status));
	prepare(1);
	began = t_now();
	until = api_in_ms(2500);
	T_EQ(hf3fs_wait_for_ios(&ior, &c, 1, 1, &until), 0);
	T_CHECK(t_now() - began < T_HANG_NS);
	T_EQ(kill(rig.pid, SIGCONT), 0);
	T_EQ(api_wait(&ior).result, 4096);
	T_EQ(api_io(&ior, &iov, 0, fd, 0, 4096), 4096);
	unmount_daemon();
}

/* ------------------------------------------------ what a daemon may write */

/* The ring's markers, as the daemon accesses them. */
static int32_t *markers(void)
{
	return (int32_t *)(void *)ior.iov.base;
}

static void a_daemon_that_writes_nonsense(void)
{
	struct hf3fs_cqe c;

	mount_daemon("--slow", "30000");
	prepare(2);
	__atomic_store_n(&markers()[2], 1000, __ATOMIC_SEQ_CST);
	all_end(2, NULL);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, 1, NULL), -ENOTCONN);
	T_EQ(hf3fs_wait_for_ios(&ior, &c, 1, 1, NULL), 0);
	kill_it();
	unmount_daemon();
}

static void a_daemon_that_completes_what_was_not_asked(void)
{
	static const int32_t slots[] = { -1, 4, 1 << 30, INT32_MIN, 3 };
	size_t at = 16 + 56 * 5;
	struct timespec soon;
	struct hf3fs_cqe c[4], forged;

	mount_daemon("--slow", "30000");
	prepare(1);
	for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
		forged = (struct hf3fs_cqe){ .index = slots[i], .result = 1, .userdata = &forged };
		memcpy(ior.iov.base + at + i % 5 * 24, &forged, sizeof(forged));
		__atomic_store_n(&markers()[2], (int32_t)(i + 1) % 5, __ATOMIC_SEQ_CST);
		soon = api_in_ms(5);
		T_EQ(hf3fs_wait_for_ios(&ior, c, 4, 1, &soon), 0);
		T_CHECK(!c[0].userdata);
	}
	/* A completion of a real request, but with more bytes and another userdata. */
	forged = (struct hf3fs_cqe){ .index = 0, .result = 4097, .userdata = &forged };
	memcpy(ior.iov.base + at, &forged, sizeof(forged));
	__atomic_store_n(&markers()[2], 1, __ATOMIC_SEQ_CST);
	T_EQ(hf3fs_wait_for_ios(&ior, c, 4, 1, NULL), 1);
	T_CHECK(c[0].index == 0 && c[0].result == -EIO && c[0].userdata == (void *)1);
	kill_it();
	unmount_daemon();
}

int main(void)
{
	api_init();
	T_RUN(P12_killed_while_somebody_waits);
	T_RUN(P12_killed_while_somebody_polls);
	T_RUN(P12_completions_from_before_count);
	T_RUN(P12_started_anew_on_the_same_directory);
	T_RUN(P12_a_daemon_that_hangs);
	T_RUN(a_daemon_that_writes_nonsense);
	T_RUN(a_daemon_that_completes_what_was_not_asked);
	return api_done();
}
