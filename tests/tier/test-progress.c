/* SPDX-License-Identifier: MIT */
/* A mover's progress file, and when the mover yields to other I/O. */
#include "scratch.h"
#include "t.h"
#undef T_ERROR_TEXT
#define T_ERROR_TEXT() err_text()

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/err.h"
#include "tier/progress.h"
#include "tier/yield.h"

static char base[256];

static void tells_another_mapping(void)
{
	struct progress *mover, *other;
	struct progress_move m;

	T_EQ(scratch_new(NULL, base, sizeof(base)), 0);
	T_OK(progress_open(base, &mover));
	T_OK(progress_open(base, &other));
	progress_now(other, &m);
	T_EQ(m.running, 0);
	progress_begin(mover, "d/file", 2, 0, 100);
	progress_step(mover, 40, 7);
	progress_now(other, &m);
	T_CHECK(!strcmp(m.name, "d/file"));
	T_CHECK(m.running && m.done == 40 && m.bytes == 100 && m.waited_ns == 7);
	T_CHECK(m.src == 2 && m.dst == 0);
	T_EQ(progress_count(other), 0);
	T_CHECK(!progress_ended(other, 0, &m));
	progress_end(mover, err_set(EBUSY, "somebody writes"));
	T_EQ(progress_count(other), 1);
	T_CHECK(progress_ended(other, 0, &m));
	T_EQ(m.err, -EBUSY);
	T_CHECK(!strcmp(m.why, "somebody writes") && !m.running);
	progress_now(other, &m);
	T_EQ(m.running, 0);
	T_CHECK(!progress_close(mover));
	T_CHECK(!progress_close(other));
	T_EQ(scratch_remove(base), 0);
}

static void keeps_the_last_moves(void)
{
	struct progress *p;
	struct progress_move m;

	T_EQ(scratch_new(NULL, base, sizeof(base)), 0);
	T_OK(progress_open(base, &p));
	for (unsigned i = 0; i < 3 * PROGRESS_ENDED; i++) {
		progress_begin(p, "f", 0, 1, i);
		progress_end(p, 0);
	}
	T_EQ(progress_count(p), 3 * PROGRESS_ENDED);
	T_CHECK(!progress_ended(p, 2 * PROGRESS_ENDED - 1, &m));
	for (unsigned i = 2 * PROGRESS_ENDED + 1; i < 3 * PROGRESS_ENDED; i++) {
		T_CHECK(progress_ended(p, i, &m));
		T_EQ(m.bytes, i);
	}
	T_CHECK(!progress_ended(p, 3 * PROGRESS_ENDED, &m));
	T_CHECK(!progress_close(p));
	T_EQ(scratch_remove(base), 0);
}

static atomic_bool ends;

/* Thread: publish moves whose names and numbers belong together. */
static void *moves(void *arg)
{
	struct progress *p = arg;
	char name[TIER_NAME_SIZE];

	for (uint64_t i = 0; !atomic_load(&ends); i++) {
		memset(name, 'a' + (int)(i % 26), sizeof(name) - 1);
		name[sizeof(name) - 1] = '\0';
		progress_begin(p, name, (unsigned)(i % 26), (unsigned)(i % 26), i % 26);
		progress_end(p, 0);
	}
	return NULL;
}

static void reader_sees_whole_moves(void)
{
	struct progress *p;
	struct progress_move m;
	pthread_t thread;

	T_EQ(scratch_new(NULL, base, sizeof(base)), 0);
	T_OK(progress_open(base, &p));
	T_EQ(pthread_create(&thread, NULL, moves, p), 0);
	for (unsigned seen = 0; seen < 1000;) {
		progress_now(p, &m);
		if (!m.nr)
			continue;
		T_EQ(m.name[0], 'a' + (int)m.bytes);
		T_EQ(m.name[TIER_NAME_SIZE - 2], 'a' + (int)m.bytes);
		T_EQ(m.src, m.bytes);
		seen++;
	}
	atomic_store(&ends, true);
	(void)pthread_join(thread, NULL);
	T_CHECK(!progress_close(p));
	T_EQ(scratch_remove(base), 0);
}

static void put_count(const char *disk, const char *text)
{
	char path[512];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/%s", base, disk);
	(void)mkdir(path, 0755);
	(void)snprintf(path, sizeof(path), "%s/%s/inflight", base, disk);
	f = fopen(path, "we");
	T_CHECK(f);
	(void)fputs(text, f);
	(void)fclose(f);
}

static void sees_io_of_others(void)
{
	struct yield y;

	T_EQ(scratch_new(NULL, base, sizeof(base)), 0);
	put_count("8:1", "       0        0\n");
	put_count("8:2", "       0        0\n");
	yield_begin(&y, base, makedev(8, 1), makedev(8, 2));
	T_CHECK(!yield_busy(&y));
	T_EQ(yield_chunk(&y), YIELD_CHUNK);
	put_count("8:1", "       3        0\n");
	T_CHECK(yield_busy(&y));
	T_EQ(yield_chunk(&y), YIELD_CHUNK_BUSY);
	put_count("8:1", "       0        0\n");
	put_count("8:2", "       0        1\n");
	T_CHECK(yield_busy(&y));
	yield_end(&y);
	/* A file system without a disk is never busy. */
	yield_begin(&y, base, makedev(0, 40), makedev(0, 40));
	T_CHECK(!yield_busy(&y));
	yield_end(&y);
	T_EQ(scratch_remove(base), 0);
}

int main(void)
{
	T_RUN(tells_another_mapping);
	T_RUN(keeps_the_last_moves);
	T_RUN(reader_sees_whole_moves);
	T_RUN(sees_io_of_others);
	return t_done();
}
