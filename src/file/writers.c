/* SPDX-License-Identifier: MIT */
/*
 * Writes of one file that are under way in this process.
 *
 * O_DIRECT writes and writes through the page cache of one file are never under way at the
 * same time.  Bytes that do not overlap are no excuse, and neither is a distance between them:
 *
 *   - Behind an O_DIRECT write the kernel takes its range out of the page cache once more
 *     (mm/filemap.c, kiocb_invalidate_post_direct_write()).  It takes whole folios, and a folio
 *     that is dirty stays (mm/truncate.c, folio_unmap_invalidate()).  Then the write has
 *     succeeded, later readers see old bytes, and the next fsync(2) gives EIO
 *     (mm/filemap.c, dio_warn_stale_pagecache()).
 *   - A folio may be larger than a page, up to some MiB, and any reader of the file, in any
 *     process, can have one made over the range while the write is under way (mm/readahead.c,
 *     page_cache_ra_order()).  A write through the page cache that ends somewhere in this folio
 *     makes it dirty.
 *   - A page that was dirty before an O_DIRECT write does no harm: the kernel first writes the
 *     range back and takes it out (mm/filemap.c, kiocb_invalidate_pages(), which fs/iomap/
 *     direct-io.c, __iomap_dio_rw(), answers with a buffered write where it fails), and where
 *     one page of a range is in the page cache, no larger folio is put over it (mm/filemap.c,
 *     __filemap_add_folio()).
 *
 * So a write that wants O_DIRECT takes it only where none is under way through the page cache;
 * else it goes through the page cache too, and says so (`mixed`).  One that needs the page
 * cache waits for the O_DIRECT ones.  While it waits, no new O_DIRECT write begins.  One that lists
 * nothing but O_DIRECT, or is strict, waits too, and meanwhile no new ones begin through the page
 * cache: else they could follow each other for ever.
 *
 * Files are told apart by device and inode.  Writes by other processes, writes by the program's
 * own calls and stores into mappings of the file are out of reach here; pst_io(3) says what the
 * caller has to see to.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/err.h"
#include "file/io.h"

#define BUCKETS 256u
#define DIRECT UINT64_C(1)        /* one O_DIRECT write under way */
#define PLAIN (UINT64_C(1) << 32) /* one through the page cache, under way or waiting */

struct writers {
	struct writers *next;
	dev_t dev;
	ino_t ino;
	unsigned refs; /* open files; under the lock */
	_Atomic uint64_t nr;
	atomic_uint waiting; /* O_DIRECT writes; too many or too few for a moment do no harm */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct writers *buckets[BUCKETS];

static struct writers **writers_bucket(dev_t dev, ino_t ino)
{
	return &buckets[(dev * 31 + ino) % BUCKETS];
}

int writers_get(dev_t dev, ino_t ino, struct writers **ret)
{
	struct writers **head = writers_bucket(dev, ino), *w;

	(void)pthread_mutex_lock(&lock);
	for (w = *head; w; w = w->next)
		if (w->dev == dev && w->ino == ino)
			break;
	if (!w) {
		w = malloc(sizeof(*w));
		if (w) {
			*w = (struct writers){ .next = *head, .dev = dev, .ino = ino };
			*head = w;
		}
	}
	if (w)
		w->refs++;
	(void)pthread_mutex_unlock(&lock);
	*ret = w;
	return w ? 0 : err_set(ENOMEM, "no memory for the description of a file");
}

void writers_put(struct writers *w)
{
	struct writers **p;

	if (!w)
		return;
	(void)pthread_mutex_lock(&lock);
	if (--w->refs == 0) {
		for (p = writers_bucket(w->dev, w->ino); *p != w; p = &(*p)->next)
			;
		*p = w->next;
		free(w);
	}
	(void)pthread_mutex_unlock(&lock);
}

bool writers_direct(struct writers *w)
{
	uint64_t nr = atomic_load_explicit(&w->nr, memory_order_relaxed);

	do
		if (nr >= PLAIN)
			return false;
	while (!atomic_compare_exchange_weak(&w->nr, &nr, nr + DIRECT));
	return true;
}

void writers_direct_done(struct writers *w)
{
	(void)atomic_fetch_sub(&w->nr, DIRECT);
}

bool writers_begin(struct io_op *op)
{
	struct writers *w = op->file->writers;

	if (!w)
		return true;
	if (op->flags & IO_OP_DIRECT) {
		if (op->claim != WRITERS_DIRECT && writers_direct(w)) {
			writers_end(op);
			op->claim = WRITERS_DIRECT;
		}
		return op->claim == WRITERS_DIRECT;
	}
	if (op->claim == WRITERS_NONE) {
		if (unlikely(atomic_load(&w->waiting)))
			return false;
		(void)atomic_fetch_add(&w->nr, PLAIN);
		op->claim = WRITERS_PLAIN;
	}
	return atomic_load(&w->nr) % PLAIN == 0;
}

void writers_wait(struct io_op *op)
{
	if (!(op->flags & IO_OP_DIRECT) || op->claim != WRITERS_NONE)
		return;
	(void)atomic_fetch_add(&op->file->writers->waiting, 1);
	op->claim = WRITERS_WAIT;
}

void writers_unclaim(struct io_op *op)
{
	struct writers *w = op->file->writers;

	if (op->claim == WRITERS_WAIT)
		(void)atomic_fetch_sub(&w->waiting, 1);
	else if (op->claim != WRITERS_NONE)
		(void)atomic_fetch_sub(&w->nr, op->claim == WRITERS_DIRECT ? DIRECT : PLAIN);
	op->claim = WRITERS_NONE;
}
