/* SPDX-License-Identifier: MIT */
/* O_DIRECT writes and page cache writes of one file take turns. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/err.h"
#define T_ERROR_TEXT() err_text()
#include "t.h"

#include "file/io.h"

#define RW (PST_FILE_READ | PST_FILE_WRITE)

static char path[64], other[64];
static struct file *f, *g, *h; /* f and g are the same file, h is another */

static struct io_op op_on(struct file *file, uint8_t flags)
{
	return (struct io_op){ .file = file, .kind = IO_WRITE, .flags = flags };
}

static void open_files(void)
{
	T_OK(file_open(path, RW | PST_FILE_CREATE, 0600, &f));
	T_OK(file_open(path, RW | PST_FILE_PLAIN, 0, &g));
	T_OK(file_open(other, RW | PST_FILE_CREATE, 0600, &h));
}

static void close_files(void)
{
	file_free(f);
	file_free(g);
	file_free(h);
}

static void each_kind_beside_itself(void)
{
	struct io_op a, b;

	open_files();
	for (unsigned kind = 0; kind < 2; kind++) {
		a = op_on(f, kind ? IO_OP_DIRECT : 0);
		b = op_on(g, kind ? IO_OP_DIRECT : 0);
		T_CHECK(writers_begin(&a));
		T_CHECK(writers_begin(&b));
		T_CHECK(writers_begin(&a)); /* a repeated begin counts once */
		writers_end(&a);
		writers_end(&b);
		writers_end(&b);
	}
	close_files();
}

/* A page cache write waits for O_DIRECT writes, and no new one may start before it. */
static void plain_waits_for_direct(void)
{
	struct io_op d, p, late;

	open_files();
	d = op_on(f, IO_OP_DIRECT);
	p = op_on(g, 0);
	late = op_on(f, IO_OP_DIRECT);
	T_CHECK(writers_begin(&d));
	T_CHECK(!writers_begin(&p));
	T_CHECK(!writers_begin(&late));
	writers_end(&late); /* this write was not begun */
	T_CHECK(!writers_begin(&p));
	writers_end(&d);
	T_CHECK(writers_begin(&p));
	T_CHECK(!writers_begin(&late));
	writers_end(&p);
	T_CHECK(writers_begin(&late));
	writers_end(&late);
	close_files();
}

static void direct_joins_plain(void)
{
	struct io_op d, p;

	open_files();
	p = op_on(g, 0);
	d = op_on(f, IO_OP_DIRECT);
	T_CHECK(writers_begin(&p));
	T_CHECK(!writers_begin(&d));
	T_CHECK(!writers_direct(f->writers));
	d.flags = 0;
	T_CHECK(writers_begin(&d));
	writers_end(&p);
	T_CHECK(!writers_direct(f->writers));
	writers_end(&d);
	T_CHECK(writers_direct(f->writers));
	p = op_on(g, 0);
	T_CHECK(!writers_begin(&p));
	writers_direct_done(f->writers);
	T_CHECK(writers_begin(&p));
	writers_end(&p);
	close_files();
}

/* An O_DIRECT write gets its turn, however many writers use the page cache. */
static void direct_gets_its_turn(void)
{
	struct io_op d, first, late;

	open_files();
	d = op_on(f, IO_OP_DIRECT);
	first = op_on(g, 0);
	late = op_on(g, 0);
	T_CHECK(writers_begin(&first));
	T_CHECK(!writers_begin(&d));
	writers_wait(&d);
	writers_wait(&d); /* a repeated wait counts once */
	T_CHECK(writers_begin(&first));
	T_CHECK(!writers_begin(&late));
	writers_end(&first);
	T_CHECK(!writers_begin(&late));
	T_CHECK(writers_begin(&d));
	T_CHECK(!writers_begin(&late));
	writers_end(&d);
	T_CHECK(writers_begin(&late));
	/* A write that is given up does not hold back others. */
	T_CHECK(!writers_begin(&d));
	writers_wait(&d);
	T_CHECK(!writers_begin(&first));
	writers_end(&d);
	T_CHECK(writers_begin(&first));
	writers_wait(&first); /* no effect on a write that has begun */
	writers_end(&first);
	writers_end(&late);
	T_CHECK(writers_direct(f->writers));
	writers_direct_done(f->writers);
	close_files();
}

/* A writer that waited and gave up leaves nothing. */
static void given_up(void)
{
	struct io_op d, p;

	open_files();
	d = op_on(f, IO_OP_DIRECT);
	p = op_on(g, 0);
	T_CHECK(writers_begin(&d));
	T_CHECK(!writers_begin(&p));
	writers_end(&p);
	writers_end(&d);
	T_CHECK(writers_begin(&d));
	writers_end(&d);
	close_files();
}

static void other_files_do_not_matter(void)
{
	struct io_op d, p;

	open_files();
	d = op_on(f, IO_OP_DIRECT);
	p = op_on(h, 0);
	T_CHECK(f->writers == g->writers && f->writers != h->writers);
	T_CHECK(writers_begin(&d));
	T_CHECK(writers_begin(&p));
	writers_end(&d);
	writers_end(&p);
	close_files();
}

/* ------------------------------------------------------------------ threads */

static atomic_uint now[2], bad; /* writes in flight: page cache, O_DIRECT */

static void *writer(void *arg)
{
	uint8_t flags = arg ? IO_OP_DIRECT : 0;

	for (unsigned i = 0; i < 20000; i++) {
		struct io_op op = op_on(i & 1 ? f : g, flags);

		if (!writers_begin(&op)) {
			if (flags) {
				op.flags = 0;
			}
			while (!writers_begin(&op))
				sched_yield();
		}
		atomic_fetch_add(&now[op.flags != 0], 1);
		if (atomic_load(&now[op.flags == 0]))
			atomic_fetch_add(&bad, 1);
		atomic_fetch_sub(&now[op.flags != 0], 1);
		writers_end(&op);
	}
	return NULL;
}

static void never_both(void)
{
	pthread_t t[4];

	open_files();
	for (unsigned i = 0; i < 4; i++)
		T_EQ(pthread_create(&t[i], NULL, writer, i < 3 ? &now : NULL), 0);
	for (unsigned i = 0; i < 4; i++)
		(void)pthread_join(t[i], NULL);
	T_EQ(atomic_load(&bad), 0);
	close_files();
}

int main(void)
{
	(void)snprintf(path, sizeof(path), "/tmp/pst-writers-%d", (int)getpid());
	(void)snprintf(other, sizeof(other), "%s-other", path);
	T_RUN(each_kind_beside_itself);
	T_RUN(plain_waits_for_direct);
	T_RUN(direct_joins_plain);
	T_RUN(direct_gets_its_turn);
	T_RUN(given_up);
	T_RUN(other_files_do_not_matter);
	T_RUN(never_both);
	(void)unlink(path);
	(void)unlink(other);
	return t_done();
}
