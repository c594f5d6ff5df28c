/* SPDX-License-Identifier: MIT */
#include "cli/bench/turns.h"
#include "cli/bench/walk.h"

#include "t.h"

#define PIECES_MAX 20000

static unsigned seen[2][PIECES_MAX]; /* times that each side took a piece */

static struct bench_job job(uint64_t pieces, unsigned threads, unsigned turns, bool random)
{
	return (struct bench_job){
		.file_size = pieces * 4096 + 1000,
		.random = random,
		.size = 4096,
		.pieces = 1,
		.threads = threads,
		.turns = turns,
	};
}

/* Mark the pieces that a side takes in one turn.  Return their number. */
static uint64_t take(const struct bench_job *j, unsigned turn, bool other, bool once)
{
	uint64_t off, nr = 0;

	for (unsigned i = 0; i < j->threads; i++) {
		struct walk w;

		walk_init(&w, j, i, turn, other, once);
		while (walk_next(&w, j->size, &off)) {
			T_EQ(off % j->size, 0);
			T_CHECK(off + j->size <= j->file_size);
			seen[other][off / j->size]++;
			nr++;
		}
	}
	return nr;
}

/* Each side takes each piece once, for sizes that divide evenly and others. */
static void once_each(bool random)
{
	static const unsigned pieces[] = { 7, 100, 101, 1024, 19997 };

	for (unsigned p = 0; p < 5; p++)
		for (unsigned threads = 1; threads <= 4; threads += 3)
			for (unsigned turns = 1; turns <= 7; turns++) {
				struct bench_job j = job(pieces[p], threads, turns, random);
				uint64_t nr[2] = { 0 };

				memset(seen, 0, sizeof(seen));
				for (unsigned t = 0; t < turns; t++)
					for (unsigned other = 0; other < 2; other++)
						nr[other] += take(&j, t, other, true);
				T_EQ(nr[0], pieces[p]);
				T_EQ(nr[1], pieces[p]);
				for (unsigned i = 0; i < pieces[p]; i++)
					T_CHECK(seen[0][i] == 1 && seen[1][i] == 1);
			}
}

static void in_order_once_each(void)
{
	once_each(false);
}

static void at_random_once_each(void)
{
	once_each(true);
}

/* In the first half of the turns, no byte is read twice, not even by different sides. */
static void sides_read_different_bytes(void)
{
	for (unsigned random = 0; random < 2; random++) {
		struct bench_job j = job(1000, 3, 6, random);

		memset(seen, 0, sizeof(seen));
		for (unsigned t = 0; t < 3; t++)
			T_CHECK(take(&j, t, false, true) && take(&j, t, true, true));
		for (unsigned i = 0; i < 1000; i++)
			T_EQ(seen[0][i] + seen[1][i], 1);
	}
}

/* Return the part of the file that a side reads in a turn. */
static unsigned part(unsigned turns, unsigned turn, bool other)
{
	struct bench_job j = job(turns * 100, 1, turns, false);
	struct walk w;
	uint64_t off;

	walk_init(&w, &j, 0, turn, other, true);
	T_CHECK(walk_next(&w, 4096, &off));
	T_EQ(off % (100 * 4096), 0);
	return (unsigned)(off / (100 * 4096));
}

/* No turn reads the part after its predecessor's, which the kernel may have read ahead. */
static void no_turn_follows_the_part_before_it(void)
{
	static const unsigned ours[] = { 5, 4, 3, 2, 1, 0 }, other[] = { 2, 1, 0, 5, 4, 3 };

	for (unsigned t = 0; t < 6; t++)
		T_CHECK(part(6, t, false) == ours[t] && part(6, t, true) == other[t]);
	for (unsigned turns = TURNS_MIN; turns <= TURNS_MAX; turns++)
		for (unsigned first = 0; first < 2; first++) {
			unsigned last = turns;

			for (unsigned i = 0; i < 2 * turns; i++) {
				/* The sides take turns in the order A, B, B, A, A, B, B and so
				 * on. */
				bool second = first ^ (i % 4 == 1 || i % 4 == 2);
				unsigned now = part(turns, i / 2, second);

				T_CHECK(now != last + 1);
				last = now;
			}
		}
}

/* --bytes limits all turns of a side together, and may exceed the file. */
static void bytes_are_of_all_turns(void)
{
	static const uint64_t bytes[] = { 1, 5, 24, 333, 5000 };

	for (unsigned b = 0; b < 5; b++) {
		struct bench_job j = job(100, 1, 1, false);
		uint64_t nr = 0;

		j.bytes = bytes[b] * 4096;
		j.turns = walk_turns(&j, false, 6);
		for (unsigned t = 0; t < j.turns; t++)
			nr += take(&j, t, false, false);
		T_EQ(nr, bytes[b]);
	}
}

/* Ten requests of 7 pieces in 4 turns: the turns get 2, 3, 2 and 3 requests, in reverse order.
 * The last request of the file has only 2 pieces. */
static void requests_stay_whole(void)
{
	struct bench_job j = job(65, 1, 4, false);
	static const uint64_t want[] = { 16, 14, 21, 14 };

	j.pieces = 7;
	for (unsigned t = 0; t < 4; t++)
		T_EQ(take(&j, t, false, true), want[t]);
}

/* If only the time ends a turn, its pieces wrap around at the end of the file.  Each turn begins at
 * another place. */
static void time_alone(void)
{
	struct bench_job j = job(600, 1, 6, false);
	struct walk w;
	uint64_t off;

	for (unsigned t = 0; t < 6; t++) {
		walk_init(&w, &j, 0, t, false, false);
		for (unsigned i = 0; i < 5000; i++)
			T_CHECK(walk_next(&w, 4096, &off));
	}
	/* The last turn: 5000 pieces from 0 on, in a file of 600. */
	T_EQ(off, 4999 % 600 * 4096);
}

/* The number of turns leaves 16 requests for each turn, and one for each thread. */
static void as_many_turns_as_there_is_work_for(void)
{
	struct bench_job j = job(1000, 1, 1, false);

	T_EQ(walk_turns(&j, false, 6), 6);
	T_EQ(walk_turns(&j, true, 6), 6);
	T_EQ(walk_turns(&j, true, 100), 62);
	j.pieces = 10;
	T_EQ(walk_turns(&j, true, 100), 6);
	j.pieces = 1000;
	T_EQ(walk_turns(&j, true, 6), 1);
	j = job(1000, 200, 1, false);
	T_EQ(walk_turns(&j, true, 100), 5);
	j.bytes = 6 * 4096;
	T_EQ(walk_turns(&j, false, 6), 1);
	j = job(1000, 1, 1, false);
	j.bytes = 6 * 4096;
	T_EQ(walk_turns(&j, false, 6), 1);
	j.bytes = 48 * 4096;
	T_EQ(walk_turns(&j, false, 6), 3);
	j.bytes = UINT64_MAX;
	T_EQ(walk_turns(&j, false, 6), 6);
}

/* Sizes at which careless multiplication of offsets would overflow 64 bits. */
static void huge_files(void)
{
	struct bench_job j = job(0, 3, 7, true);

	j.file_size = INT64_MAX;
	j.size = 1;
	for (unsigned t = 0; t < 7; t++) {
		struct walk w;
		uint64_t off;

		walk_init(&w, &j, 2, t, true, true);
		T_CHECK(w.first + w.nr == (uint64_t)INT64_MAX && w.at < w.nr && w.left <= w.nr);
		T_CHECK(walk_next(&w, 1, &off) && off < (uint64_t)INT64_MAX);
	}
}

int main(void)
{
	T_RUN(in_order_once_each);
	T_RUN(at_random_once_each);
	T_RUN(sides_read_different_bytes);
	T_RUN(no_turn_follows_the_part_before_it);
	T_RUN(bytes_are_of_all_turns);
	T_RUN(requests_stay_whole);
	T_RUN(time_alone);
	T_RUN(as_many_turns_as_there_is_work_for);
	T_RUN(huge_files);
	return t_done();
}
