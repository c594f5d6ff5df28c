/* SPDX-License-Identifier: MIT */
/*
 * Handles: none is used twice, an old or invented one finds nothing, only one of several threads
 * takes an object, and a full table or missing memory is reported.
 */
#include <pthread.h>

#include "base/handle.h"

#include "t.h"

static atomic_uint nth, seen; /* calloc() fails at its nth call; 0: never */

void *__real_calloc(size_t nr, size_t len);
void *__wrap_calloc(size_t nr, size_t len);
void *__wrap_calloc(size_t nr, size_t len)
{
	return nth && ++seen == nth ? NULL : __real_calloc(nr, len);
}

/* -------------------------------------------------------------------- one */

static struct handle_table table = HANDLE_TABLE(2 * HANDLE_CHUNK);

static void a_handle_finds_its_object(void)
{
	uintptr_t a, b;
	int x, y;

	T_EQ(handle_new(&table, &x, &a), 0);
	T_EQ(handle_new(&table, &y, &b), 0);
	T_CHECK(a && b && a != b);
	T_CHECK(handle_get(&table, a) == &x && handle_get(&table, b) == &y);
	T_CHECK(handle_take(&table, a) == &x);
	T_CHECK(!handle_get(&table, a) && !handle_take(&table, a) && !handle_hide(&table, a));
	T_CHECK(handle_get(&table, b) == &y);
	T_CHECK(handle_take(&table, b) == &y);
}

static void invented_ones_find_nothing(void)
{
	static struct handle_table empty = HANDLE_TABLE(HANDLE_CHUNK);
	const uintptr_t odd[] = { 0,
				  1,
				  77,
				  HANDLES_MAX,
				  HANDLES_MAX - 1,
				  HANDLES_MAX + 1,
				  UINTPTR_MAX,
				  UINTPTR_MAX / 2,
				  (uintptr_t)&table };
	uintptr_t a;
	int x;

	T_EQ(handle_new(&table, &x, &a), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(odd); i++) {
		T_CHECK(odd[i] == a || !handle_get(&table, odd[i]));
		T_CHECK(odd[i] == a || !handle_take(&table, odd[i]));
		T_CHECK(!handle_get(&empty, odd[i]) && !handle_take(&empty, odd[i]));
	}
	T_CHECK(!handle_get(&table, a + HANDLES_MAX) && !handle_get(&table, a - HANDLES_MAX));
	T_CHECK(!handle_get(&empty, a));
	T_CHECK(handle_take(&table, a) == &x);
}

/* The index is reused at once, the handle never. */
static void old_ones_find_nothing(void)
{
	uintptr_t first, now = 0, before;
	int x;

	T_EQ(handle_new(&table, &x, &first), 0);
	before = first;
	T_CHECK(handle_take(&table, first) == &x);
	for (unsigned i = 0; i < 1000; i++) {
		T_EQ(handle_new(&table, &x, &now), 0);
		T_EQ(now % HANDLES_MAX, first % HANDLES_MAX);
		T_CHECK(now > before);
		T_CHECK(!handle_get(&table, before) && !handle_get(&table, first));
		before = now;
		T_CHECK(handle_take(&table, now) == &x);
	}
}

static void a_hidden_one_comes_back(void)
{
	uintptr_t a, b;
	int x, y;

	T_EQ(handle_new(&table, &x, &a), 0);
	T_CHECK(handle_hide(&table, a) == &x);
	T_CHECK(!handle_get(&table, a) && !handle_hide(&table, a) && !handle_take(&table, a));
	T_EQ(handle_new(&table, &y, &b), 0);
	T_CHECK(b % HANDLES_MAX != a % HANDLES_MAX); /* a hidden index is not reused */
	handle_show(&table, a);
	T_CHECK(handle_get(&table, a) == &x && handle_get(&table, b) == &y);
	T_CHECK(handle_hide(&table, a) == &x);
	handle_drop(&table, a);
	T_CHECK(!handle_get(&table, a));
	T_CHECK(handle_take(&table, b) == &y);
}

/* -------------------------------------------------------------- all of them */

static void full(void)
{
	static struct handle_table small = HANDLE_TABLE(2 * HANDLE_CHUNK);
	static uintptr_t v[2 * HANDLE_CHUNK];
	uintptr_t more = 5;
	int x;

	for (unsigned i = 0; i < ARRAY_SIZE(v); i++)
		T_EQ(handle_new(&small, &v[i], &v[i]), 0);
	T_EQ(handle_new(&small, &x, &more), -EMFILE);
	T_EQ(more, 5);
	for (unsigned i = 0; i < ARRAY_SIZE(v); i++)
		T_CHECK(handle_get(&small, v[i]) == &v[i]);
	T_CHECK(handle_take(&small, v[7]) == &v[7]);
	T_EQ(handle_new(&small, &x, &more), 0);
	T_CHECK(handle_get(&small, more) == &x && !handle_get(&small, v[7]));
	T_EQ(handle_new(&small, &x, &v[7]), -EMFILE);
}

/* Fail the first, second, ... allocation: nothing changes, and a later call may succeed. */
static void out_of_memory(void)
{
	static struct handle_table t = HANDLE_TABLE(3 * HANDLE_CHUNK);
	unsigned given = 0, failed = 0;
	uintptr_t h;
	int x, r;

	for (nth = 1; given < 3 * HANDLE_CHUNK && failed < 10; nth++) {
		seen = 0;
		while ((r = handle_new(&t, &x, &h)) == 0)
			given++;
		failed += r == -ENOMEM;
		T_EQ(r, given == 3 * HANDLE_CHUNK ? -EMFILE : -ENOMEM);
		/* Each round has one more chunk: the calls before the failing one succeeded. */
		T_EQ(given % HANDLE_CHUNK, 0);
	}
	nth = 0;
	T_EQ(given, 3 * HANDLE_CHUNK);
	T_CHECK(failed >= 2);
}

/* ------------------------------------------------------------------ threads */

#define THREADS 4u
#define TURNS 20000u
#define SHARED 16u

static struct handle_table busy = HANDLE_TABLE(4 * HANDLE_CHUNK);
static _Atomic uintptr_t shared[SHARED]; /* handles that all threads take from */
static atomic_uint made, taken, wrong;

/* An object that holds its own handle, to check that a lookup finds the right object. */
struct thing {
	_Atomic uintptr_t handle;
};

static struct thing things[THREADS][TURNS];

static void *race(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg, seed = me + 1;

	for (unsigned i = 0; i < TURNS; i++) {
		struct thing *mine = &things[me][i], *found;
		uintptr_t h, other;

		if (handle_new(&busy, mine, &h) < 0) {
			wrong++;
			return NULL;
		}
		mine->handle = h;
		made++;
		seed = seed * 1103515245u + 12345u;
		other = atomic_exchange(&shared[seed / 65536 % SHARED], h);
		/* another thread may look it up at the same time */
		found = handle_take(&busy, other);
		if (found) {
			taken++;
			wrong += found->handle != other;
		}
		wrong += other && handle_get(&busy, other) != NULL;
		seed = seed * 1103515245u + 12345u;
		other = shared[seed / 65536 % SHARED];
		found = handle_get(&busy, other);
		wrong += found && found->handle != other;
		if (i % 8 == 0 && (found = handle_take(&busy, other)) != NULL) {
			taken++;
			wrong += found->handle != other;
		}
	}
	return NULL;
}

static void each_is_taken_once(void)
{
	pthread_t t[THREADS];
	unsigned left = 0;

	for (unsigned i = 0; i < THREADS; i++)
		T_EQ(pthread_create(&t[i], NULL, race, (void *)(uintptr_t)i), 0);
	for (unsigned i = 0; i < THREADS; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	T_EQ(wrong, 0);
	T_EQ(made, THREADS * TURNS);
	for (unsigned i = 0; i < SHARED; i++)
		left += handle_take(&busy, shared[i]) != NULL;
	T_EQ(taken + left, made);
}

/* Threads take and return all handles at once: none is lost, and none is used twice. */
static atomic_uint held[4 * HANDLE_CHUNK];

static void *use_up(void *arg)
{
	static uintptr_t mine[THREADS][4 * HANDLE_CHUNK];
	uintptr_t *v = mine[(uintptr_t)arg];

	for (unsigned turn = 0; turn < 50; turn++) {
		unsigned nr = 0;

		while (nr < ARRAY_SIZE(held) && handle_new(&busy, &held, &v[nr]) == 0)
			wrong += atomic_fetch_add(&held[v[nr++] % HANDLES_MAX], 1) != 0;
		while (nr-- > 0) {
			(void)atomic_fetch_sub(&held[v[nr] % HANDLES_MAX], 1);
			wrong += handle_take(&busy, v[nr]) != &held;
		}
	}
	return NULL;
}

static void none_is_lost(void)
{
	static uintptr_t v[4 * HANDLE_CHUNK];
	pthread_t t[THREADS];
	uintptr_t more;

	wrong = 0;
	for (unsigned i = 0; i < THREADS; i++)
		T_EQ(pthread_create(&t[i], NULL, use_up, (void *)(uintptr_t)i), 0);
	for (unsigned i = 0; i < THREADS; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	T_EQ(wrong, 0);
	for (unsigned i = 0; i < ARRAY_SIZE(v); i++)
		T_EQ(handle_new(&busy, &busy, &v[i]), 0);
	T_EQ(handle_new(&busy, &busy, &more), -EMFILE);
	for (unsigned i = 0; i < ARRAY_SIZE(v); i++)
		T_CHECK(handle_take(&busy, v[i]) == &busy);
}

int main(void)
{
	T_RUN(a_handle_finds_its_object);
	T_RUN(invented_ones_find_nothing);
	T_RUN(old_ones_find_nothing);
	T_RUN(a_hidden_one_comes_back);
	T_RUN(full);
	T_RUN(out_of_memory);
	T_RUN(each_is_taken_once);
	T_RUN(none_is_lost);
	return t_done();
}
