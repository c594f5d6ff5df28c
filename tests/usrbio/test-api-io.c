/* SPDX-License-Identifier: MIT */
/* U11, U12, U13, U14, P6, P7, P8: requests from preparation to completion. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "api_rig.h"

#define KIB 1024u
#define SIZE (256 * KIB)

static struct hf3fs_iov iov;
static int fd;

static void open_memory(void)
{
	iov = api_iov(SIZE);
	fd = api_open("data", SIZE);
}

static void close_memory(void)
{
	api_close(fd);
	hf3fs_iovdestroy(&iov);
}

/* Take this many completions, which must arrive. */
static void take(const struct hf3fs_ior *ior, struct hf3fs_cqe *cqes, int nr)
{
	struct timespec until = api_in_ms(API_WAIT_MS);

	T_EQ(hf3fs_wait_for_ios(ior, cqes, nr, nr, &until), nr);
}

/* ---------------------------------------------------------------------- U11 */

static void U11_ranges_that_overflow(void)
{
	static const uint64_t lens[] = { UINT64_MAX, UINT64_MAX - 1, (uint64_t)1 << 63,
					 UINT64_MAX - SIZE, SIZE + 1 };
	struct hf3fs_ior ior = api_ior(2, true);
	struct hf3fs_iov copy;

	open_memory();
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, lens[i], NULL), -EINVAL);
		T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base + SIZE, fd, 0, lens[i], NULL),
		     -EINVAL);
		T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base + 1, fd, 0, lens[i], NULL), -EINVAL);
	}
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base - 1, fd, 0, 1, NULL), -EINVAL);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base + SIZE, fd, 0, 1, NULL), -EINVAL);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base + SIZE - 1, fd, 0, 2, NULL), -EINVAL);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, (void *)UINTPTR_MAX, fd, 0, 2, NULL), -EINVAL);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, (void *)1, fd, 0, 2, NULL), -EINVAL);
	/* Use an offset beyond the largest file. */
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, SIZE_MAX, 1, NULL), -EINVAL);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, (size_t)INT64_MAX, 1, NULL), -EINVAL);
	/* The structure claims a larger size than the server knows. */
	copy = iov;
	copy.size = SIZE_MAX;
	T_EQ(api_io(&ior, &copy, SIZE - 4, fd, 0, 8), -EINVAL);
	T_EQ(api_io(&ior, &copy, 0, fd, 0, SIZE + 1), -EINVAL);
	/* Read the last byte. */
	T_EQ(api_io(&ior, &iov, SIZE - 1, fd, SIZE - 1, 1), 1);
	T_EQ(iov.base[SIZE - 1], t_byte(API_SEED, SIZE - 1));
	hf3fs_iordestroy(&ior);
	close_memory();
}

/* ---------------------------------------------------------------------- U12 */

static void U12_full_rings(void)
{
	struct hf3fs_ior ior = api_ior(5, true);
	struct hf3fs_cqe c[5];
	bool seen[5] = { false };

	open_memory();
	for (int round = 0; round < 3; round++) {
		memset(seen, 0, sizeof(seen));
		for (int i = 0; i < 5; i++) {
			int slot = hf3fs_prep_io(&ior, &iov, true, iov.base + i * 4096, fd,
						 (size_t)i * 4096, 4096, NULL);

			T_CHECK(slot >= 0 && slot < 5 && !seen[slot]);
			seen[slot] = true;
		}
		T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, 4096, NULL), -EAGAIN);
		T_EQ(hf3fs_submit_ios(&ior), 0);
		take(&ior, c, 5);
		for (int i = 0; i < 5; i++) {
			T_EQ(c[i].result, 4096);
			T_CHECK(seen[c[i].index]);
			seen[c[i].index] = false;
		}
	}
	T_EQ(t_differs(iov.base, API_SEED, 0, 5 * 4096), 5 * 4096);
	hf3fs_iordestroy(&ior);
	close_memory();
}

/* Slots are neither lost nor used twice. */
static void U12_slots_after_many(void)
{
	const unsigned total = getenv("PST_SOAK") ? 1000000 : API_TSAN ? 5000 : 50000;
	struct hf3fs_ior ior = api_ior(7, true);
	struct hf3fs_cqe c[7];
	unsigned done = 0, held = 0;
	uint64_t busy = 0;

	open_memory();
	while (done < total) {
		unsigned want = 1 + done % 7;

		while (held < want) {
			int s = hf3fs_prep_io(&ior, &iov, true, iov.base + held * 64, fd, 0, 64,
					      (void *)(uintptr_t)(done + held));

			T_CHECK(s >= 0 && s < 7 && !(busy & 1u << s));
			busy |= 1u << s;
			held++;
		}
		T_EQ(hf3fs_submit_ios(&ior), 0);
		take(&ior, c, (int)held);
		for (unsigned i = 0; i < held; i++) {
			T_EQ(c[i].result, 64);
			T_CHECK(busy & 1u << c[i].index);
			busy &= ~((uint64_t)1 << c[i].index);
		}
		done += held;
		held = 0;
	}
	T_EQ(busy, 0);
	for (int i = 0; i < 7; i++)
		T_CHECK(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, 64, NULL) >= 0);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, 64, NULL), -EAGAIN);
	T_EQ(hf3fs_submit_ios(&ior), 0);
	take(&ior, c, 7);
	hf3fs_iordestroy(&ior);
	close_memory();
}

/* ---------------------------------------------------------------------- U13 */

static uint64_t since_ms(uint64_t begin_ns)
{
	return (t_now() - begin_ns) / 1000000;
}

static void U13_nothing_to_wait_for(void)
{
	struct hf3fs_ior ior = api_ior(4, true);
	struct timespec past = api_in_ms(-10), soon, bent;
	struct hf3fs_cqe c[4];
	uint64_t began;

	began = t_now();
	T_EQ(hf3fs_wait_for_ios(&ior, c, 4, 0, NULL), 0);
	T_EQ(hf3fs_wait_for_ios(&ior, c, 4, -5, NULL), 0);
	T_EQ(hf3fs_wait_for_ios(&ior, c, 4, 1, &past), 0);
	T_EQ(hf3fs_wait_for_ios(&ior, c, 4, 4, &(struct timespec){ 0 }), 0);
	T_EQ(hf3fs_wait_for_ios(&ior, c, 4, 4, &(struct timespec){ .tv_sec = -5 }), 0);
	T_CHECK(since_ms(began) < 1000);
	/* A deadline of CLOCK_MONOTONIC by mistake: long past. */
	(void)clock_gettime(CLOCK_MONOTONIC, &soon);
	soon.tv_sec += 3;
	T_EQ(hf3fs_wait_for_ios(&ior, c, 4, 1, &soon), 0);
	T_CHECK(since_ms(began) < 2000);
	/* Return at the deadline, not before. */
	began = t_now();
	soon = api_in_ms(120);
	T_EQ(hf3fs_wait_for_ios(&ior, c, 4, 1, &soon), 0);
	T_CHECK(since_ms(began) >= 119 && since_ms(began) < 10000);
	/* Give more nanoseconds than a second has. */
	began = t_now();
	bent = api_in_ms(0);
	bent.tv_sec -= 1;
	bent.tv_nsec += 1000000000 + 50000000;
	T_EQ(hf3fs_wait_for_ios(&ior, c, 4, 1, &bent), 0);
	T_CHECK(since_ms(began) >= 49 && since_ms(began) < 10000);
	hf3fs_iordestroy(&ior);
}

static void U13_an_expired_deadline_still_harvests(void)
{
	struct hf3fs_ior ior = api_ior(4, true);
	struct timespec past = api_in_ms(-1000), mono, until;
	struct hf3fs_cqe c[4];
	int n = 0;

	open_memory();
	for (int i = 0; i < 3; i++)
		T_CHECK(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, 512, NULL) >= 0);
	T_EQ(hf3fs_submit_ios(&ior), 0);
	/* A waiter with the wrong clock effectively polls. */
	until = api_in_ms(API_WAIT_MS);
	while (n < 3) {
		struct timespec now;
		int got;

		(void)clock_gettime(CLOCK_MONOTONIC, &mono);
		mono.tv_nsec += 10000000;
		got = hf3fs_wait_for_ios(&ior, c + n, 4 - n, 1, n % 2 ? &mono : &past);
		T_CHECK(got >= 0);
		n += got;
		(void)clock_gettime(CLOCK_REALTIME, &now);
		T_CHECK(now.tv_sec < until.tv_sec);
	}
	T_EQ(n, 3);
	hf3fs_iordestroy(&ior);
	close_memory();
}

static void U13_min_and_max(void)
{
	struct hf3fs_ior ior = api_ior(8, true);
	struct timespec until = api_in_ms(API_WAIT_MS), soon;
	struct hf3fs_cqe c[8];
	int n;

	open_memory();
	for (int i = 0; i < 6; i++)
		T_CHECK(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, 512, NULL) >= 0);
	T_EQ(hf3fs_submit_ios(&ior), 0);
	/* A min_results above the array's length means that length. */
	T_EQ(hf3fs_wait_for_ios(&ior, c, 2, 100, &until), 2);
	n = hf3fs_wait_for_ios(&ior, c, 8, 1, &until);
	T_CHECK(n >= 1 && n <= 4);
	/* Return fewer than requested at the deadline. */
	soon = api_in_ms(300);
	n += hf3fs_wait_for_ios(&ior, c, 8, 8, &soon);
	T_EQ(n, 4);
	T_EQ(hf3fs_wait_for_ios(&ior, c, 8, 0, NULL), 0);
	hf3fs_iordestroy(&ior);
	close_memory();
}

static _Atomic unsigned signals;
static _Atomic bool enough;

static void on_signal(int sig)
{
	(void)sig;
	signals++;
}

static void *sends_signals(void *arg)
{
	pthread_t *to = arg;

	while (!enough) {
		(void)pthread_kill(*to, SIGUSR1);
		(void)usleep(4000);
	}
	return NULL;
}

static void U13_signals_do_not_end_it(void)
{
	struct sigaction act = { .sa_handler = on_signal }, old;
	struct hf3fs_ior ior = api_ior(2, true);
	pthread_t me = pthread_self(), t;
	struct timespec soon;
	struct hf3fs_cqe c;
	unsigned before = 0;

	T_EQ(sigaction(SIGUSR1, &act, &old), 0);
	enough = false;
	T_EQ(pthread_create(&t, NULL, sends_signals, &me), 0);
	/* On a busy machine, a wait may pass without a signal: retry. */
	for (unsigned tries = 0; signals == before; tries++) {
		uint64_t began = t_now();

		T_CHECK(tries < 100);
		before = signals;
		soon = api_in_ms(150);
		T_EQ(hf3fs_wait_for_ios(&ior, &c, 1, 1, &soon), 0);
		T_CHECK(since_ms(began) >= 149);
	}
	enough = true;
	T_EQ(pthread_join(t, NULL), 0);
	T_EQ(sigaction(SIGUSR1, &old, NULL), 0);
	hf3fs_iordestroy(&ior);
}

/* Another thread submits while this one waits without a deadline. */
static struct hf3fs_ior late_ring;

static void *submits_late(void *arg)
{
	(void)arg;
	(void)usleep(30000); /* let the other thread wait first; the test is valid without that */
	(void)hf3fs_prep_io(&late_ring, &iov, true, iov.base, fd, 0, 4096, NULL);
	(void)hf3fs_submit_ios(&late_ring);
	return NULL;
}

static void U13_no_deadline(void)
{
	struct hf3fs_cqe c;
	pthread_t t;

	open_memory();
	late_ring = api_ior(2, true);
	T_EQ(pthread_create(&t, NULL, submits_late, NULL), 0);
	T_EQ(hf3fs_wait_for_ios(&late_ring, &c, 1, 1, NULL), 1);
	T_EQ(c.result, 4096);
	T_EQ(pthread_join(t, NULL), 0);
	hf3fs_iordestroy(&late_ring);
	close_memory();
}

/* hf3fs_submit_ios() is allowed in signal handlers. */
static void submit_in_handler(int sig)
{
	(void)sig;
	(void)hf3fs_submit_ios(&late_ring);
}

static void U13_submit_in_a_signal_handler(void)
{
	struct sigaction act = { .sa_handler = submit_in_handler }, old;

	open_memory();
	late_ring = api_ior(2, true);
	T_EQ(sigaction(SIGUSR1, &act, &old), 0);
	for (int i = 0; i < 20; i++) {
		T_CHECK(hf3fs_prep_io(&late_ring, &iov, true, iov.base, fd, 0, 4096, NULL) >= 0);
		T_EQ(raise(SIGUSR1), 0);
		T_EQ(api_wait(&late_ring).result, 4096);
	}
	T_EQ(sigaction(SIGUSR1, &old, NULL), 0);
	hf3fs_iordestroy(&late_ring);
	close_memory();
}

/* ---------------------------------------------------------------------- U14 */

#define STRESS_ENTRIES 64
#define PIECE 512u

static struct {
	struct hf3fs_ior ior;
	unsigned total;
	_Atomic unsigned wrong, prepared;
} stress;

static void *prepares(void *arg)
{
	unsigned made = 0;

	(void)arg;
	while (made < stress.total) {
		uint64_t k = made % (SIZE / PIECE);
		int slot = hf3fs_prep_io(&stress.ior, &iov, true, iov.base + k * PIECE, fd,
					 k * PIECE, PIECE, (void *)(uintptr_t)(made + 1));

		if (slot == -EAGAIN) {
			(void)hf3fs_submit_ios(&stress.ior);
			(void)sched_yield();
			continue;
		}
		if (slot < 0 || slot >= STRESS_ENTRIES)
			stress.wrong++;
		stress.prepared = ++made;
		if (made % 7 == 0 || made == stress.total)
			(void)hf3fs_submit_ios(&stress.ior);
	}
	return NULL;
}

static void U14_one_prepares_and_one_waits(void)
{
	static uint8_t seen[1u << 17];
	struct hf3fs_cqe c[STRESS_ENTRIES];
	unsigned got = 0;
	pthread_t t;

	open_memory();
	memset(&stress, 0, sizeof(stress));
	memset(seen, 0, sizeof(seen));
	memset(iov.base, 0, SIZE);
	stress.total = API_TSAN ? 8000 : 60000;
	stress.ior = api_ior(STRESS_ENTRIES, true);
	T_EQ(pthread_create(&t, NULL, prepares, NULL), 0);
	while (got < stress.total) {
		struct timespec until = api_in_ms(API_WAIT_MS);
		int n = hf3fs_wait_for_ios(&stress.ior, c, 1 + (int)(got % STRESS_ENTRIES), 1,
					   &until);

		if (n <= 0)
			T_FAIL("%d after %u of %u", n, got, (unsigned)stress.prepared);
		for (int i = 0; i < n; i++) {
			uintptr_t mark = (uintptr_t)c[i].userdata;

			T_EQ(c[i].result, PIECE);
			T_CHECK(mark >= 1 && mark <= stress.total && !seen[mark]);
			seen[mark] = 1;
		}
		got += (unsigned)n;
	}
	T_EQ(pthread_join(t, NULL), 0);
	T_EQ(stress.wrong, 0);
	T_EQ(hf3fs_wait_for_ios(&stress.ior, c, 4, 0, NULL), 0);
	T_EQ(t_differs(iov.base, API_SEED, 0, SIZE), SIZE);
	hf3fs_iordestroy(&stress.ior);
	close_memory();
}

/* Rings of several threads share memory and file. */
#define RINGS 4

static _Atomic unsigned ring_wrong;

static void *uses_a_ring(void *arg)
{
	size_t at = (size_t)(uintptr_t)arg * (SIZE / RINGS);
	int rounds = API_TSAN ? 100 : 1000;
	struct hf3fs_ior ior;
	struct hf3fs_cqe c;

	if (hf3fs_iorcreate4(&ior, mnt, 16, true, 0, 0, -1, 0) != 0) {
		ring_wrong++;
		return NULL;
	}
	for (int i = 0; i < rounds; i++) {
		if (hf3fs_prep_io(&ior, &iov, true, iov.base + at, fd, at, 4096, NULL) < 0 ||
		    hf3fs_submit_ios(&ior) != 0 || hf3fs_wait_for_ios(&ior, &c, 1, 1, NULL) != 1 ||
		    c.result != 4096 || t_differs(iov.base + at, API_SEED, at, 4096) != 4096)
			ring_wrong++;
		memset(iov.base + at, 0, 4096);
	}
	hf3fs_iordestroy(&ior);
	return NULL;
}

static void U14_many_rings_share_memory(void)
{
	pthread_t t[RINGS];

	open_memory();
	ring_wrong = 0;
	for (uintptr_t i = 0; i < RINGS; i++)
		T_EQ(pthread_create(&t[i], NULL, uses_a_ring, (void *)i), 0);
	for (int i = 0; i < RINGS; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	T_EQ(ring_wrong, 0);
	close_memory();
}

/* ------------------------------------------------------------- results */

static void P6_results(void)
{
	struct hf3fs_ior reads = api_ior(4, true), writes = api_ior(4, false);
	struct hf3fs_iov gone;

	open_memory();
	T_EQ(api_io(&reads, &iov, 0, fd, 0, SIZE), SIZE);
	T_EQ(t_differs(iov.base, API_SEED, 0, SIZE), SIZE);
	/* Memory and offset of any alignment. */
	T_EQ(api_io(&reads, &iov, 13, fd, 7777, 10001), 10001);
	T_EQ(t_differs(iov.base + 13, API_SEED, 7777, 10001), 10001);
	/* Read at and beyond the end of the file. */
	T_EQ(api_io(&reads, &iov, 0, fd, SIZE - 100, 4096), 100);
	T_EQ(api_io(&reads, &iov, 0, fd, SIZE, 4096), 0);
	T_EQ(api_io(&reads, &iov, 0, fd, (size_t)SIZE * 10, 4096), 0);
	/* Memory with an unknown UUID. */
	gone = iov;
	gone.id[0] ^= 1;
	T_EQ(api_io(&reads, &gone, 0, fd, 0, 10), -EINVAL);
	/* Write, also beyond the end of the file. */
	t_fill(iov.base, 5, 0, 5000);
	T_EQ(api_io(&writes, &iov, 0, fd, SIZE + 3, 5000), 5000);
	memset(iov.base, 0, 5000);
	T_EQ(api_io(&reads, &iov, 0, fd, SIZE + 3, 5000), 5000);
	T_EQ(t_differs(iov.base, 5, 0, 5000), 5000);
	hf3fs_iordestroy(&reads);
	hf3fs_iordestroy(&writes);
	close_memory();
}

static void P7_holes(void)
{
	const size_t chunk = API_CHUNK;
	struct hf3fs_ior plain = api_ior(2, true), strict;
	int sparse;

	open_memory();
	T_EQ(hf3fs_iorcreate4(&strict, mnt, 2, true, 0, 0, -1, HF3FS_IOR_FORBID_READ_HOLES), 0);
	sparse = api_open("sparse", 0);
	T_EQ(pwrite(sparse, "first", 5, 0), 5);
	T_EQ(pwrite(sparse, "last", 4, (off_t)(chunk * 3)), 4);
	T_EQ(fsync(sparse), 0);
	memset(iov.base, 1, SIZE);
	T_EQ(api_io(&plain, &iov, 0, sparse, 0, SIZE), chunk * 3 + 4);
	T_CHECK(!memcmp(iov.base, "first\0", 6) && !memcmp(iov.base + chunk * 3, "last", 4));
	for (size_t i = chunk; i < chunk * 3; i++)
		T_CHECK(!iov.base[i]);
	T_EQ(api_io(&strict, &iov, 0, sparse, 0, SIZE), -ENODATA);
	/* A refused read does not affect the next one. */
	T_EQ(api_io(&strict, &iov, 0, sparse, 0, 5), 5);
	T_EQ(api_io(&strict, &iov, 0, sparse, chunk * 3, 4), 4);
	T_EQ(api_io(&strict, &iov, 0, fd, 0, SIZE), SIZE);
	api_close(sparse);
	hf3fs_iordestroy(&plain);
	hf3fs_iordestroy(&strict);
	close_memory();
}

static void P8_blocks(void)
{
	struct hf3fs_ior ior = api_ior(2, true);
	struct hf3fs_iov blocks;

	open_memory();
	T_EQ(hf3fs_iovcreate(&blocks, mnt, SIZE, 4096, -1), 0);
	T_EQ(api_io(&ior, &blocks, 4096, fd, 0, 4096), 4096);
	T_EQ(api_io(&ior, &blocks, 8191, fd, 0, 1), 1);
	T_EQ(api_io(&ior, &blocks, 8191, fd, 0, 2), -EINVAL);
	T_EQ(api_io(&ior, &blocks, 0, fd, 0, 4097), -EINVAL);
	hf3fs_iovdestroy(&blocks);
	hf3fs_iordestroy(&ior);
	close_memory();
}

/* P4: batches. */
static void P4_io_depth(void)
{
	struct hf3fs_ior exact, timed, at_most;
	struct timespec soon, until;
	struct hf3fs_cqe c[8];

	open_memory();
	/* Depth above 0: a batch waits until that many requests are prepared. */
	T_EQ(hf3fs_iorcreate(&exact, mnt, 8, true, 3, -1), 0);
	for (int i = 0; i < 2; i++)
		T_CHECK(hf3fs_prep_io(&exact, &iov, true, iov.base, fd, 0, 64, NULL) >= 0);
	T_EQ(hf3fs_submit_ios(&exact), 0);
	soon = api_in_ms(100);
	T_EQ(hf3fs_wait_for_ios(&exact, c, 8, 1, &soon), 0);
	T_CHECK(hf3fs_prep_io(&exact, &iov, true, iov.base, fd, 0, 64, NULL) >= 0);
	T_EQ(hf3fs_submit_ios(&exact), 0);
	take(&exact, c, 3);
	hf3fs_iordestroy(&exact);
	/* Negative depth with a timeout: a partial batch starts after the timeout, without
	 * another submit. */
	T_EQ(hf3fs_iorcreate3(&timed, mnt, 8, true, -4, 0, 60, -1), 0);
	T_CHECK(hf3fs_prep_io(&timed, &iov, true, iov.base, fd, 0, 64, NULL) >= 0);
	T_EQ(hf3fs_submit_ios(&timed), 0);
	until = api_in_ms(API_WAIT_MS);
	T_EQ(hf3fs_wait_for_ios(&timed, c, 8, 1, &until), 1);
	hf3fs_iordestroy(&timed);
	/* Negative depth without a timeout: batches start at once. */
	T_EQ(hf3fs_iorcreate3(&at_most, mnt, 8, true, -4, 0, 0, -1), 0);
	for (int i = 0; i < 6; i++)
		T_CHECK(hf3fs_prep_io(&at_most, &iov, true, iov.base, fd, 0, 64, NULL) >= 0);
	T_EQ(hf3fs_submit_ios(&at_most), 0);
	take(&at_most, c, 6);
	hf3fs_iordestroy(&at_most);
	close_memory();
}

static void P5_priorities(void)
{
	struct hf3fs_ior ior;

	open_memory();
	for (int p = -1; p <= 1; p++) {
		T_EQ(hf3fs_iorcreate2(&ior, mnt, 4, true, 0, p, -1), 0);
		T_EQ(api_io(&ior, &iov, 0, fd, 0, 4096), 4096);
		hf3fs_iordestroy(&ior);
	}
	close_memory();
}

/* A ring in memory that the program allocated. */
static void a_wrapped_ring(void)
{
	size_t size = hf3fs_ior_size(8);
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct hf3fs_ior ior;

	open_memory();
	T_CHECK(p != MAP_FAILED);
	T_EQ(hf3fs_iorwrap(&ior, p, mnt, size, true, 0, 0, 0, 0), 0);
	T_EQ(hf3fs_io_entries(&ior), 8);
	for (int i = 0; i < 20; i++)
		T_EQ(api_io(&ior, &iov, 0, fd, 0, 4096), 4096);
	hf3fs_iordestroy(&ior);
	/* A new ring in the same memory. */
	T_EQ(hf3fs_iorwrap(&ior, p, mnt, size, true, 0, 0, 0, 0), 0);
	T_EQ(api_io(&ior, &iov, 0, fd, 0, 4096), 4096);
	hf3fs_iordestroy(&ior);
	T_EQ(munmap(p, size), 0);
	close_memory();
}

/* Destroy a ring with requests in flight, and deregister its file. */
static void destroyed_with_requests_in_flight(void)
{
	struct hf3fs_ior ior = api_ior(16, true);

	open_memory();
	for (int i = 0; i < 16; i++)
		T_CHECK(hf3fs_prep_io(&ior, &iov, true, iov.base + i * 4096, fd, 0, 4096, NULL) >=
			0);
	T_EQ(hf3fs_submit_ios(&ior), 0);
	hf3fs_iordestroy(&ior);
	close_memory();
}

int main(void)
{
	api_init();
	API_RUN(U11_ranges_that_overflow);
	API_RUN(U12_full_rings);
	API_RUN(U12_slots_after_many);
	API_RUN(U13_nothing_to_wait_for);
	API_RUN(U13_an_expired_deadline_still_harvests);
	API_RUN(U13_min_and_max);
	API_RUN(U13_signals_do_not_end_it);
	API_RUN(U13_no_deadline);
	API_RUN(U13_submit_in_a_signal_handler);
	API_RUN(U14_one_prepares_and_one_waits);
	API_RUN(U14_many_rings_share_memory);
	API_RUN(P4_io_depth);
	API_RUN(P5_priorities);
	API_RUN(P6_results);
	API_RUN(P7_holes);
	API_RUN(P8_blocks);
	API_PLAIN(a_wrapped_ring);
	API_RUN(destroyed_with_requests_in_flight);
	return api_done();
}
