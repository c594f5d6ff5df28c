/* SPDX-License-Identifier: MIT */
#include "base/err.h"
#include "file/index.h"

static uint64_t bits[IO_NR_BUFS / 64];
static struct index_table index_table = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.nr = IO_NR_BUFS,
	.bits = bits,
};

#define NR_MAX UINT64_C(4096) /* maximum table entries of one buffer: half of the table */

int io_buf_new(void *base, uint64_t len, struct io_buf **ret)
{
	uint64_t nr = len / IO_BUF_MAX + !!(len % IO_BUF_MAX);
	struct io_buf *b;
	uint32_t gen;

	b = malloc(sizeof(*b));
	if (!b)
		return err_set(ENOMEM, "no memory for the description of a buffer");
	*b = (struct io_buf){ .base = base, .len = len, .nr = (uint32_t)MIN(nr, NR_MAX) };
	/* Settle for fewer entries: memory without an entry is used unregistered. */
	while (b->nr && (b->idx = index_get(&index_table, b->nr, &gen)) == IO_NO_IDX)
		b->nr /= 2;
	*ret = b;
	return 0;
}

void io_buf_free(struct io_buf *b)
{
	if (!b)
		return;
	if (b->nr) {
		ctx_tables_forget_buf(b->idx, b->nr);
		index_put(&index_table, b->idx, b->nr);
	}
	free(b);
}
