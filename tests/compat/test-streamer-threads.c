/* SPDX-License-Identifier: MIT */
/* Many threads request and take responses on one streamer, and it ends while they do. */
#include <stdatomic.h>

#include "streamer_rig.h"

#define ASKERS 4
#define TAKERS 4
#define ROUNDS (T_TSAN ? 40 : 200)
#define RANGES 8
#define LEN 9000

static void *s;
static const char *path;
static char *memory;
static atomic_uint taken[ASKERS * 200][RANGES], answers, done, wrong, refused;
static atomic_int base; /* number of accepted requests */
static atomic_bool finishing;

static void *ask(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;

	for (unsigned i = 0; i < (unsigned)ROUNDS; i++) {
		size_t offs[RANGES], sizes[RANGES];
		void *dsts[RANGES];
		uint64_t id = 0;
		int code;

		for (unsigned k = 0; k < RANGES; k++) {
			offs[k] = (i * 31 + k * 977) % 50000;
			sizes[k] = k == 3 ? 0 : LEN;
			dsts[k] = memory + ((size_t)me * RANGES + k) * LEN;
		}
		code = rig_request(s, path, RANGES, offs, sizes, dsts, &id);
		if (code == RUNAI_SUCCESS)
			base++;
		else
			refused++;
		if (!code && (id < 1 || id > ASKERS * 200))
			wrong++;
	}
	return NULL;
}

static void *take(void *arg)
{
	(void)arg;
	for (;;) {
		struct response r;

		r.code = runai_file_streamer_response(s, &r.id, &r.file, &r.range, &r.done,
						      finishing ? 1000 : 0);
		if (r.code == RUNAI_FINISHED || r.code == RUNAI_INVALID ||
		    r.code == RUNAI_TIMED_OUT)
			return NULL;
		wrong += r.code != 0 || r.file != 0 || r.range >= RANGES ||
			 taken[r.id - 1][r.range]++ != 0;
		done += r.done != 0;
		answers++;
	}
}

static void start_all(pthread_t *t)
{
	answers = done = wrong = refused = 0;
	base = 0;
	memset((void *)taken, 0, sizeof(taken));
	path = rig_file("threads", 60000);
	s = rig_start();
	for (uintptr_t i = 0; i < ASKERS + TAKERS; i++)
		T_EQ(pthread_create(&t[i], NULL, i < ASKERS ? ask : take, (void *)i), 0);
}

static void every_range_has_one_response(void)
{
	pthread_t t[ASKERS + TAKERS];

	finishing = true;
	start_all(t);
	for (int i = 0; i < ASKERS + TAKERS; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	T_EQ(wrong, 0);
	T_EQ(refused, 0);
	T_EQ(answers, ASKERS * ROUNDS * RANGES);
	T_EQ(done, ASKERS * ROUNDS);
	runai_file_streamer_end(s);
}

static void ends_under_its_callers(void)
{
	pthread_t t[ASKERS + TAKERS];

	finishing = false;
	for (int round = 0; round < (T_TSAN ? 3 : 10); round++) {
		start_all(t);
		while (answers < 50u * (unsigned)round)
			(void)sched_yield();
		runai_file_streamer_end(s);
		for (int i = 0; i < ASKERS + TAKERS; i++)
			T_EQ(pthread_join(t[i], NULL), 0);
		T_EQ(wrong, 0);
		/* No read is in progress any more. */
		memset(memory, round, (size_t)ASKERS * RANGES * LEN);
	}
}

static void *start_and_end(void *arg)
{
	char *to = memory + (uintptr_t)arg * LEN;

	for (int i = 0; i < 30; i++) {
		void *mine = NULL;

		wrong += runai_file_streamer_start(&mine) != 0;
		wrong += rig_read(mine, path, 100, LEN, to) != 0;
		if (i % 3)
			wrong += rig_response(mine).code != 0 ||
				 t_differs(to, SEED, 100, LEN) != LEN;
		runai_file_streamer_end(mine);
	}
	return NULL;
}

static void many_streamers(void)
{
	pthread_t t[8];

	path = rig_file("threads", 60000);
	wrong = 0;
	for (uintptr_t i = 0; i < 8; i++)
		T_EQ(pthread_create(&t[i], NULL, start_and_end, (void *)i), 0);
	for (int i = 0; i < 8; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	T_EQ(wrong, 0);
}

/* ------------------------------------------------- links that change meanwhile */

static atomic_bool turning;

static void point_to(const char *name)
{
	T_EQ(symlink(name, in_dir("turn")), 0);
	T_EQ(rename(in_dir("turn"), in_dir("link")), 0);
}

static void *turn(void *arg)
{
	(void)arg;
	for (unsigned i = 0; turning; i++)
		point_to(i % 2 ? "seven" : "xs");
	return NULL;
}

/* A link is replaced while files are opened through it: a later request must read the file that
 * the link then names. */
static void links_that_turn(void)
{
	char xs[64], link[PATH_MAX];
	int fd;

	rig_file("seven", sizeof(xs));
	memset(xs, 'x', sizeof(xs));
	fd = open(in_dir("xs"), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	T_EQ(write(fd, xs, sizeof(xs)), (ssize_t)sizeof(xs));
	T_EQ(close(fd), 0);
	point_to("xs");
	(void)snprintf(link, sizeof(link), "%s/link", dir);
	for (int round = 0; round < (T_TSAN ? 20 : 200); round++) {
		pthread_t t;

		s = rig_start();
		turning = true;
		T_EQ(pthread_create(&t, NULL, turn, NULL), 0);
		for (int i = 0; i < 20; i++)
			T_EQ(rig_only(s, link, 0, sizeof(xs), memory), 0);
		turning = false;
		T_EQ(pthread_join(t, NULL), 0);
		point_to("seven");
		T_EQ(rig_only(s, link, 0, sizeof(xs), memory), 0);
		T_EQ(t_differs(memory, SEED, 0, sizeof(xs)), sizeof(xs));
		point_to("xs");
		T_EQ(rig_only(s, link, 0, sizeof(xs), memory), 0);
		T_EQ(memcmp(memory, xs, sizeof(xs)), 0);
		runai_file_streamer_end(s);
	}
}

/* --------------------------------------------------------- 0.15 and 0.16 */

static pthread_barrier_t together;
static atomic_uint accepted, busy, finished;

static void *ask_old(void *arg)
{
	static const size_t off = 100, size = 500, parts[] = { 500 };
	static const size_t *const all = parts;
	static const uint32_t nr = 1;
	void *dst = memory + (uintptr_t)arg * LEN;
	int code;

	(void)pthread_barrier_wait(&together);
	code = runai_request(s, 1, &path, &off, &size, &dst, &nr, &all, NULL, NULL, NULL, NULL,
			     NULL);
	accepted += code == RUNAI_SUCCESS;
	busy += code == RUNAI_BUSY;
	return NULL;
}

static void *take_old(void *arg)
{
	uint32_t file, part;
	int code;

	(void)arg;
	(void)pthread_barrier_wait(&together);
	while ((code = runai_response(s, &file, &part)) == RUNAI_SUCCESS)
		answers++;
	finished += code == RUNAI_FINISHED;
	return NULL;
}

static void four_at_once(void *(*fn)(void *))
{
	pthread_t t[4];

	for (uintptr_t i = 0; i < 4; i++)
		T_EQ(pthread_create(&t[i], NULL, fn, (void *)i), 0);
	for (int i = 0; i < 4; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
}

/* Of simultaneous requests only one must be accepted; a thread that has no response left must
 * get RUNAI_FINISHED. */
static void old_calls_at_once(void)
{
	path = rig_file("threads", 60000);
	T_EQ(pthread_barrier_init(&together, NULL, 4), 0);
	for (unsigned round = 0; round < (T_TSAN ? 50 : 500); round++) {
		s = rig_start();
		accepted = busy = finished = answers = 0;
		four_at_once(ask_old);
		T_EQ(accepted, 1);
		T_EQ(busy, 3);
		four_at_once(take_old);
		T_EQ(answers, 1);
		T_EQ(finished, 4);
		runai_end(s);
	}
	T_EQ(pthread_barrier_destroy(&together), 0);
}

int main(void)
{
	memory = malloc((size_t)ASKERS * RANGES * LEN);
	if (!memory || scratch_new(NULL, dir, sizeof(dir)) < 0)
		return 1;
	T_RUN(every_range_has_one_response);
	T_RUN(ends_under_its_callers);
	T_RUN(many_streamers);
	T_RUN(links_that_turn);
	T_RUN(old_calls_at_once);
	(void)scratch_remove(dir);
	free(memory);
	return t_done();
}
