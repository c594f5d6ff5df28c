/* SPDX-License-Identifier: MIT */
/*
 * Serialize direct and cached writes to one file within this process.
 *
 * O_DIRECT writes and page cache writes of one file are never in flight at the same time, not even
 * if their ranges are disjoint or far apart:
 *
 *   - After an O_DIRECT write the kernel invalidates its range of the page cache once more
 *     (mm/filemap.c, kiocb_invalidate_post_direct_write()).  The kernel drops whole folios, and a
 *     dirty folio stays (mm/truncate.c, folio_unmap_invalidate()).  Then the write has succeeded,
 *     but later readers see old bytes, and the next fsync(2) gives EIO (mm/filemap.c,
 *     dio_warn_stale_pagecache()).
 *   - A folio may be larger than a page, up to some MiB.  A reader in any process can create one
 *     over the range while the write is in flight (mm/readahead.c, page_cache_ra_order()).  A
 *     page cache write that ends anywhere in this folio makes it dirty.
 *   - A page that was dirty before an O_DIRECT write does no harm: the kernel first writes the
 *     range back and drops it (mm/filemap.c, kiocb_invalidate_pages(); if that fails,
 *     fs/iomap/direct-io.c, __iomap_dio_rw() makes a buffered write).  And if the page cache
 *     has one page of a range, no larger folio is added over it (mm/filemap.c,
 *     __filemap_add_folio()).
 *
 * So a write uses O_DIRECT only if no page cache write is in flight; else it goes through the page
 * cache too, and its completion reports that (`mixed`).  A page cache write waits for O_DIRECT
 * writes in flight, and no new O_DIRECT write begins while it waits.  A write that is strict or
 * lists only O_DIRECT waits as well, and no new page cache writes begin while it waits: otherwise
 * an endless succession of them could starve it.
 *
 * Device and inode identify a file.  Writes by other processes, by the program's own system calls
 * and by stores into mappings are not covered; pst_io(3) says what the caller must ensure.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/err.h"
#include "file/io.h"

#define BUCKETS 256u
#define DIRECT UINT64_C(1)        /* added to nr for an O_DIRECT write in flight */
#define PLAIN (UINT64_C(1) << 32) /* added to nr for a page cache write, in flight or waiting */

struct writers {
	struct writers *next;
	dev_t dev;
	ino_t ino;
	unsigned refs; /* open files; under the lock */
	_Atomic uint64_t nr;
	atomic_uint waiting; /* waiting O_DIRECT writes; a brief miscount is harmless */
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
