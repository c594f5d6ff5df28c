/* SPDX-License-Identifier: MIT */
/*
 * Batches.  Entries are executed in cuFileBatchIOGetStatus(); the first entry completes last, as
 * if it took longest.
 */
#include <string.h>

#include "cufile_stub_int.h"

#define BATCH_MAX 128u
#define SLABS 64u /* entries in flight in the compat mode; a submit waits for room */

struct entry {
	struct cuf_io_params p;
	bool lost; /* the library will lose the batch at this entry */
};

struct batch {
	struct list link;
	unsigned room, nr;
	struct entry v[BATCH_MAX];
};

static pthread_cond_t room = PTHREAD_COND_INITIALIZER;

static struct batch *find(cuf_batch handle)
{
	struct list *e;

	list_for_each (e, &cf.batches)
		if (list_entry(e, struct batch, link) == handle)
			return list_entry(e, struct batch, link);
	return NULL;
}

struct cuf_error cuFileBatchIOSetUp(cuf_batch *ret, unsigned nr)
{
	int code = CALL();
	struct batch *b;

	if (!code && (!nr || nr > BATCH_MAX))
		code = CUF_INVALID_VALUE;
	if (code)
		return stub_error(code);
	b = calloc(1, sizeof(*b));
	if (!b)
		return stub_error(CUF_NOMEM_ERROR);
	b->room = nr;
	(void)pthread_mutex_lock(&cf.lock);
	list_add_tail(&cf.batches, &b->link);
	(void)pthread_mutex_unlock(&cf.lock);
	*ret = b;
	return stub_error(0);
}

/* Add @step to the counts of transfers in progress.  Call it with the lock held. */
static void move(const struct cuf_io_params *p, int step)
{
	struct buf *b = stub_buf((uintptr_t)p->batch.base);
	struct file *f = stub_file(p->file);

	if (b)
		b->moving += (unsigned)step;
	if (f)
		f->moving += (unsigned)step;
	cf.state.moving += (unsigned)step;
}

/* Return the code that the real library's submit gives for this entry, or 0.  Call it with the
 * lock held. */
static int check_entry(const struct cuf_io_params *p)
{
	struct buf *b = stub_buf((uintptr_t)p->batch.base);

	if (p->mode != CUF_BATCH || !stub_file(p->file) || p->batch.file_off < 0 ||
	    p->batch.base_off < 0)
		return CUF_INTERNAL_BATCH_SUBMIT_ERROR;
	if (b && b->moving && cf.mode == MODE_NVFS)
		return CUF_INTERNAL_BATCH_SUBMIT_ERROR;
	return 0;
}

/* Return true if the real library detects the error only later and then loses the other entries. */
static bool is_lost(const struct cuf_io_params *p)
{
	struct buf *b = stub_buf((uintptr_t)p->batch.base);

	return !b || (uint64_t)p->batch.base_off + p->batch.len > b->len;
}

struct cuf_error cuFileBatchIOSubmit(cuf_batch handle, unsigned nr, struct cuf_io_params *v,
				     unsigned flags)
{
	int code = CALL();
	struct batch *b;

	(void)pthread_mutex_lock(&cf.lock);
	b = find(handle);
	if (!code && (!b || nr > b->room - b->nr || flags))
		code = CUF_INTERNAL_BATCH_SUBMIT_ERROR;
	for (unsigned i = 0; !code && i < nr; i++)
		code = check_entry(&v[i]);
	/* This waits forever if no other thread reaps entries. */
	while (!code && cf.mode == MODE_COMPAT && cf.state.moving + nr > SLABS)
		(void)pthread_cond_wait(&room, &cf.lock);
	for (unsigned i = 0; !code && i < nr; i++) {
		b->v[b->nr++] = (struct entry){ v[i], is_lost(&v[i]) };
		move(&v[i], 1);
	}
	(void)pthread_mutex_unlock(&cf.lock);
	return stub_error(code);
}

/* Execute an entry.  Call it with the lock held; it drops the lock while bytes move. */
static void run_entry(const struct cuf_io_params *p, struct cuf_io_event *ret)
{
	struct move m = { p->file,           (uintptr_t)p->batch.base,
			  p->batch.file_off, p->batch.base_off,
			  p->batch.len,      p->opcode == CUF_WRITE };
	ssize_t n;
	int code;

	move(p, -1);
	(void)pthread_cond_broadcast(&room);
	(void)pthread_mutex_unlock(&cf.lock);
	code = stub_call("entry");
	n = code ? -code : stub_move(&m);
	(void)pthread_mutex_lock(&cf.lock);
	*ret = (struct cuf_io_event){ .cookie = p->cookie,
				      .status = n < 0 ? CUF_FAILED : CUF_COMPLETE,
				      .ret = (size_t)n };
}

/* Return the index of an entry to complete, or -1; a transfer of 0 bytes never completes. */
static int next_entry(const struct batch *b)
{
	for (unsigned i = 1; i <= b->nr; i++)
		if (b->v[i % b->nr].p.batch.len)
			return (int)(i % b->nr);
	return -1;
}

struct cuf_error cuFileBatchIOGetStatus(cuf_batch handle, unsigned min, unsigned *nr,
					struct cuf_io_event *ret, struct timespec *timeout)
{
	unsigned max = *nr, got = 0;
	int code = CALL(), i;
	struct batch *b;

	(void)timeout; /* entries complete at once */
	(void)pthread_mutex_lock(&cf.lock);
	b = find(handle);
	if (!code && !b)
		code = CUF_INTERNAL_BATCH_GETSTATUS_ERROR;
	if (!code && min > max)
		code = CUF_INVALID_VALUE;
	while (!code && got < max && (i = next_entry(b)) >= 0) {
		struct entry e = b->v[i];

		b->v[i] = b->v[--b->nr];
		if (e.lost) {
			/* *nr keeps its value, and the remaining entries are never reported. */
			move(&e.p, -1);
			while (b->nr)
				move(&b->v[--b->nr].p, -1);
			code = CUF_IO_ERROR;
		} else {
			run_entry(&e.p, &ret[got++]);
		}
	}
	(void)pthread_mutex_unlock(&cf.lock);
	if (!code)
		*nr = got;
	return stub_error(code);
}

void cuFileBatchIODestroy(cuf_batch handle)
{
	struct batch *b;

	(void)CALL();
	(void)pthread_mutex_lock(&cf.lock);
	b = find(handle);
	if (!b)
		stub_cufile_abort("a batch is destroyed that was never set up");
	if (b->nr)
		stub_cufile_abort("a batch is destroyed under %u transfers", b->nr);
	list_del(&b->link);
	(void)pthread_mutex_unlock(&cf.lock);
	free(b);
}

void stub_batches_end(void)
{
	struct list *e, *n;

	list_for_each_safe (e, n, &cf.batches) {
		struct batch *b = list_entry(e, struct batch, link);

		while (b->nr)
			move(&b->v[--b->nr].p, -1);
		list_del(&b->link);
		free(b);
	}
	(void)pthread_cond_broadcast(&room);
}
