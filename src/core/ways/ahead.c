/* SPDX-License-Identifier: MIT */
/*
 * Small sequential reads of a file.
 *
 * With O_DIRECT every small read would wait for the disk.  Through the page cache, the kernel's
 * read-ahead fetches the next bytes in the background.  So these reads take the hops CACHED and
 * BUFFERED.
 *
 * Read-ahead is worthwhile only while few bytes are in flight.  Many O_DIRECT reads at once keep a
 * disk busy, and no CPU copies their bytes.  A disk with one hardware queue was slow with small
 * O_DIRECT reads.  So on such a disk more reads may use read-ahead: up to SMALL_ALL bytes of all
 * queues that have many reads in flight.
 *
 * The page cache is the better path here and not a fallback.  So the completion has no reason, and
 * even strict requests take the page cache.
 *
 * Each queue remembers where its last reads ended, and guesses that a read which begins there is
 * sequential.  Threads share only the sum of bytes in flight.  A wrong guess costs a few pages of
 * the page cache, because the kernel reads further than asked for.
 */
#include "core/queue/cursor.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"
#include "core/ways/ahead.h"
#include "core/ways/plan.h"
#include "core/ways/warm.h"
#include "core/ways/way.h"
#include "file/disk.h"

#define AHEAD_MIN 4 /* consecutive reads, the current one included, that use read-ahead */
/* Maximum bytes of one read, and of all reads in flight: the kernel's usual read-ahead. */
#define AHEAD_MAX KIB(128)
#define SMALL_MAX KIB(64) /* maximum bytes of one small read, for a disk with one hardware queue */
#define SMALL_ALL MIB(1)  /* maximum bytes of small reads in flight, on a disk with one queue */
#define HOLD_MAX 32u      /* maximum further reads for which a disk still counts as busy */
#define RUN_MAX (AHEAD_MIN + (int)QUEUE_DEPTH_MAX)

/* For each disk with one hardware queue: bytes of small reads in flight.  A read is added only if
 * its struct pst_queue has more than AHEAD_MAX bytes in flight, and subtracted when that pst_queue
 * completes it. */
static struct {
	_Alignas(CACHE_LINE) _Atomic uint64_t bytes;
} small[DISKS];

/* Return the next pieces of a request that are adjacent in the file, as one range. */
static bool range_next(struct cursor *c, uint64_t *ret_off, uint64_t *ret_end)
{
	struct piece p;

	if (!cursor_peek(c, &p))
		return false;
	*ret_off = *ret_end = p.file_off;
	do {
		*ret_end += p.len;
		cursor_skip(c, p.len);
	} while (cursor_peek(c, &p) && p.file_off == *ret_end);
	return true;
}

static struct run *ahead_find(struct way_queue *w, uint64_t key)
{
	for (unsigned i = 0; i < QUEUE_RUNS; i++)
		if (w->runs[i].key == key)
			return &w->runs[i];
	return NULL;
}

/* Return the entry to replace.  Entries take turns; an entry that a read has continued since its
 * last turn is skipped. */
static struct run *replace(struct way_queue *w)
{
	struct run *a;

	while ((a = &w->runs[w->run_turn++ % QUEUE_RUNS])->found)
		a->found = false;
	a->nr = 0;
	return a;
}

/* Estimate the bytes that the queue has in flight, assuming that all of its requests have this
 * size. */
static uint64_t own(const struct req *r)
{
	return r->q->nr_inflight * r->total;
}

static void small_begin(struct req *r)
{
	unsigned disk = req_file(r)->disk;

	if (own(r) <= AHEAD_MAX || r->total > SMALL_MAX || disk == DISK_NONE)
		return;
	r->tell = PST_PATH_CACHED;
	atomic_fetch_add_explicit(&small[disk].bytes, r->total, memory_order_relaxed);
}

void ahead_over(struct req *r)
{
	atomic_fetch_sub_explicit(&small[req_file(r)->disk].bytes, r->total, memory_order_relaxed);
}

/* Return true if O_DIRECT keeps the disk busy with the bytes in flight.  Bytes of other queues
 * count only if this queue has many itself, because other queues may not have noticed the end of
 * their reads. */
static bool ahead_is_busy(const struct req *r)
{
	if (own(r) <= AHEAD_MAX)
		return false;
	return !r->tell || own(r) > SMALL_ALL ||
	       atomic_load_explicit(&small[req_file(r)->disk].bytes, memory_order_relaxed) >
		       SMALL_ALL;
}

/* Few reads are in flight between two batches.  Return for how many more reads the disk counts as
 * busy all the same. */
static int ahead_hold(const struct req *r)
{
	return (int)(r->tell ? MIN(SMALL_ALL / r->total, HOLD_MAX) : AHEAD_MAX / r->total);
}

/* Return how many consecutive reads, this one included, are needed to use read-ahead.  If many
 * reads are in flight, require more, because these may be one growing batch. */
static int long_enough(const struct req *r)
{
	return AHEAD_MIN + (own(r) > AHEAD_MAX ? (int)r->q->nr_inflight : 0);
}

/* Return true if the read of off..end is sequential: enough consecutive reads end at off. */
static bool goes_on(const struct req *r, uint64_t off, uint64_t end)
{
	/* The address is only a hash key: a collision causes a wrong guess and no other harm. */
	uint64_t file = (uintptr_t)r->io.file;
	struct run *a = ahead_find(queue_way(r->q), file + off);

	if (a)
		a->found = true;
	else
		a = replace(queue_way(r->q));
	a->key = file + end;
	if (ahead_is_busy(r))
		a->nr = -ahead_hold(r);
	else if (a->nr < RUN_MAX)
		a->nr++;
	return a->nr >= long_enough(r);
}

/* Return true if every range of the request is sequential. */
static bool all_go_on(const struct req *r)
{
	struct cursor c = r->cur;
	uint64_t off, end;

	while (range_next(&c, &off, &end))
		if (!goes_on(r, off, end))
			return false;
	return true;
}

static _noinline_ int ways_ahead_choose(struct req *r)
{
	const struct pst_seg *s = r->cur.segs;
	struct plan *p = req_plan(r);

	/* The usual hops are CACHED, DIRECT and BUFFERED.  For peer-to-peer memory, the second hop
	 * is not DIRECT, and read-ahead does not replace it. */
	if (r->total > AHEAD_MAX || p->nr_hops < 3 || p->hop[1] != PST_PATH_DIRECT || p->listed ||
	    p->pieces)
		return 0;
	small_begin(r);
	p->ahead = likely(r->one_piece) ? goes_on(r, s->file_off, s->file_off + s->len)
					: all_go_on(r);
	if (p->ahead) {
		p->hop[1] = PST_PATH_BUFFERED;
		p->nr_hops = 2;
	}
	return 0;
}

int ahead_choose(struct req *r)
{
	const struct file *file = req_file(r);

	return cached_is_warm(file) || !(file->caps & FILE_AHEAD) ? 0 : ways_ahead_choose(r);
}
