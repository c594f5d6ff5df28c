/* SPDX-License-Identifier: MIT */
#include "base/err.h"
#include "file/places.h"

static uint64_t bits[STORE_NR_BUFS / 64];
static struct places places = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.nr = STORE_NR_BUFS,
	.bits = bits,
};

#define NR_MAX UINT64_C(4096) /* places for one buffer: half of them */

int store_buf_new(void *base, uint64_t len, struct store_buf **ret)
{
	uint64_t nr = len / STORE_BUF_MAX + !!(len % STORE_BUF_MAX);
	struct store_buf *b;
	uint32_t gen;

	b = malloc(sizeof(*b));
	if (!b)
		return err_set(ENOMEM, "no memory for the description of a buffer");
	*b = (struct store_buf){ .base = base, .len = len, .nr = (uint32_t)MIN(nr, NR_MAX) };
	/* Memory that finds no place works too, it is only not registered. */
	while (b->nr && (b->idx = places_get(&places, b->nr, &gen)) == STORE_NO_IDX)
		b->nr /= 2;
	*ret = b;
	return 0;
}

void store_buf_free(struct store_buf *b)
{
	if (!b)
		return;
	if (b->nr) {
		store_tables_forget_buf(b->idx, b->nr);
		places_put(&places, b->idx, b->nr);
	}
	free(b);
}
