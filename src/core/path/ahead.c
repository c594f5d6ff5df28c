/* SPDX-License-Identifier: MIT */
/*
 * Small reads that go through a file front to back.
 *
 * By O_DIRECT each of them would wait for the disk.  Through the page cache the kernel's
 * read-ahead brings the next ones meanwhile, so they take the hops CACHED and BUFFERED.  That
 * pays while little is under way: many O_DIRECT reads at once keep a disk busy by themselves,
 * and cost no copy.  It is the better way and no fallback: there is no reason in the completion,
 * and strict requests take it too.
 *
 * Each queue remembers where its reads ended, so threads share nothing here.  What it
 * remembers is a guess.  A wrong one costs a few pages of the page cache, because the kernel
 * looks for a pattern of its own before it reads further than it was asked to.
 */
#include "core/path/ahead.h"
#include "core/path/plan.h"
#include "core/queue/cursor.h"
#include "core/queue/queue.h"
#include "core/queue/req.h"

#define AHEAD_MIN 4        /* reads in a row that make it worth it, this one too */
#define AHEAD_MAX KIB(128) /* of one read, and of all in flight: the kernel's usual window */

/* The next pieces of a request that are adjacent in the file, as one range. */
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

static struct ahead *find(struct pst_queue *q, uint64_t key)
{
	for (unsigned i = 0; i < AHEAD_NR; i++)
		if (q->ahead[i].key == key)
			return &q->ahead[i];
	return NULL;
}

/* The place for something new: in turns, but not one that was found since the last turn. */
static struct ahead *replace(struct pst_queue *q)
{
	struct ahead *a;

	while ((a = &q->ahead[q->ahead_turn++ % AHEAD_NR])->found)
		a->found = false;
	a->nr = 0;
	return a;
}

/* A read of off..end; does it go on where enough others ended? */
static bool goes_on(const struct req *r, uint64_t off, uint64_t end)
{
	/* Only compared, and mixed up at worst: two files are guessed to be one. */
	uint64_t file = (uintptr_t)r->io.file;
	struct ahead *a = find(r->q, file + off);

	if (a)
		a->found = true;
	else
		a = replace(r->q);
	a->key = file + end;
	/* Once crowded, it is not for a moment in which few are in flight between two batches. */
	if (r->q->nr_inflight * r->total > AHEAD_MAX)
		a->nr = -(int)(AHEAD_MAX / r->total);
	else if (a->nr < AHEAD_MIN)
		a->nr++;
	return a->nr == AHEAD_MIN;
}

/* Likewise for every range of a request. */
static bool all_go_on(const struct req *r)
{
	struct cursor c = r->cur;
	uint64_t off, end;

	while (range_next(&c, &off, &end))
		if (!goes_on(r, off, end))
			return false;
	return true;
}

void ahead_choose(struct req *r)
{
	const struct pst_seg *s = r->cur.segs;
	struct plan *p = &r->plan;

	/* Three hops are CACHED, DIRECT and BUFFERED. */
	if (r->total > AHEAD_MAX || p->nr_hops < 3 || p->listed || p->gds)
		return;
	/* On a disk without a file system, what is in the page cache would hide for ever what
	 * another machine writes to it. */
	if (req_sf(r)->block_device || plan_is_warm(req_sf(r)))
		return;
	p->ahead = likely(r->one_piece) ? goes_on(r, s->file_off, s->file_off + s->len)
					: all_go_on(r);
	if (p->ahead) {
		p->hop[1] = PST_PATH_BUFFERED;
		p->nr_hops = 2;
	}
}
