/* SPDX-License-Identifier: MIT */
/*
 * I/O contexts and their tables.
 *
 * Files and buffers have entries in the tables of all I/O contexts; this file allocates the
 * indices.  When a file or buffer is freed, every I/O context clears its entry before the index is
 * reused.  So no thread clears an entry that another thread has already given to a new owner.
 */
#include <assert.h>
#include <pthread.h>

#include "base/err.h"
#include "base/fault.h"
#include "file/index.h"

#define DEPTH_MAX 8192

int io_ctx_new(const struct io_backend *ops, unsigned depth, struct io_ctx **ret)
{
	int err = fault_hit(FAULT_IO_CTX);

	if (err)
		return err_set(err, "file.context: an injected fault made it fail (PST_FAULT)");
	if (depth < 1 || depth > DEPTH_MAX)
		return err_set(EINVAL, "an I/O context holds 1 to %d operations, not %u", DEPTH_MAX,
			       depth);
	return ops->ctx_new(depth, ret);
}

void io_ctx_free(struct io_ctx *ctx)
{
	if (!ctx)
		return;
	assert(!ctx->nr_ops);
	ctx->ops->ctx_free(ctx);
}

/* Covers the list of I/O contexts.  Held while they clear entries, so that none of them is freed at
 * that time. */
static pthread_mutex_t tables_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ctx_tables *tables;

void ctx_tables_add(struct ctx_tables *t)
{
	(void)pthread_mutex_lock(&tables_lock);
	t->next = tables;
	tables = t;
	(void)pthread_mutex_unlock(&tables_lock);
}

void ctx_tables_del(struct ctx_tables *t)
{
	(void)pthread_mutex_lock(&tables_lock);
	for (struct ctx_tables **p = &tables; *p; p = &(*p)->next) {
		if (*p == t) {
			*p = t->next;
			break;
		}
	}
	(void)pthread_mutex_unlock(&tables_lock);
}

void ctx_tables_forget_file(uint32_t idx)
{
	(void)pthread_mutex_lock(&tables_lock);
	for (struct ctx_tables *t = tables; t; t = t->next)
		t->forget_file(t, idx);
	(void)pthread_mutex_unlock(&tables_lock);
}

void ctx_tables_forget_buf(uint32_t idx, unsigned nr)
{
	(void)pthread_mutex_lock(&tables_lock);
	for (struct ctx_tables *t = tables; t; t = t->next)
		t->forget_buf(t, idx, nr);
	(void)pthread_mutex_unlock(&tables_lock);
}

static bool taken(const struct index_table *p, uint32_t i)
{
	return p->bits[i / 64] >> (i % 64) & 1;
}

static void ctx_mark(struct index_table *p, uint32_t idx, unsigned nr, bool on)
{
	for (uint32_t i = idx; i < idx + nr; i++) {
		uint64_t bit = UINT64_C(1) << (i % 64);

		if (on)
			p->bits[i / 64] |= bit;
		else
			p->bits[i / 64] &= ~bit;
	}
}

/* Find the lowest free indices: tables of I/O contexts may be shorter, see uring.c. */
static uint32_t find_free(const struct index_table *p, unsigned nr)
{
	unsigned nr_free = 0;

	for (uint32_t i = 0; i < p->nr; i++) {
		nr_free = taken(p, i) ? 0 : nr_free + 1;
		if (nr_free == nr)
			return i + 1 - nr;
	}
	return IO_NO_IDX;
}

uint32_t index_get(struct index_table *p, unsigned nr, uint32_t *ret_gen)
{
	uint32_t idx;

	(void)pthread_mutex_lock(&p->lock);
	idx = nr ? find_free(p, nr) : IO_NO_IDX;
	if (idx != IO_NO_IDX)
		ctx_mark(p, idx, nr, true);
	/* Skip 0, which means "nothing registered" in the tables. */
	if (!++p->gen)
		p->gen = 1;
	*ret_gen = p->gen;
	(void)pthread_mutex_unlock(&p->lock);
	return idx;
}

void index_put(struct index_table *p, uint32_t idx, unsigned nr)
{
	(void)pthread_mutex_lock(&p->lock);
	ctx_mark(p, idx, nr, false);
	(void)pthread_mutex_unlock(&p->lock);
}
