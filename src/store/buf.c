/* SPDX-License-Identifier: MIT */
#include "base/err.h"
#include "store/places.h"

static uint64_t bits[STORE_NR_BUFS / 64];
static struct places places = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.nr = STORE_NR_BUFS,
	.bits = bits,
};

static uint64_t nr_pieces(uint64_t len)
{
	return len / STORE_BUF_MAX + !!(len % STORE_BUF_MAX);
}

int store_buf_new(void *base, uint64_t len, struct store_buf **ret)
{
	uint64_t nr = nr_pieces(len);
	struct store_buf *b;

	b = malloc(sizeof(*b));
	if (!b)
		return err_set(ENOMEM, "no memory for the description of a buffer");
	*b = (struct store_buf){ .base = base, .len = len };
	/* Memory that finds no place works too, it is only not registered. */
	b->idx = places_get(&places, nr <= STORE_NR_BUFS ? (unsigned)nr : 0, &b->gen);
	*ret = b;
	return 0;
}

void store_buf_free(struct store_buf *b)
{
	unsigned nr;

	if (!b)
		return;
	if (b->idx != STORE_NO_IDX) {
		nr = (unsigned)nr_pieces(b->len);
		store_tables_forget_buf(b->idx, nr);
		places_put(&places, b->idx, nr);
	}
	free(b);
}
