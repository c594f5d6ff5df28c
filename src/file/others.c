/* SPDX-License-Identifier: MIT */
/* I/O contexts of providers, used along with the system's I/O context. */
#include "base/err.h"
#include "file/io.h"

struct io_ctx *io_others_find(const struct io_others *o, const struct io_backend *kind)
{
	for (unsigned i = 0; i < o->nr; i++)
		if (o->ctx[i]->ops == kind)
			return o->ctx[i];
	return NULL;
}

int io_others_add(struct io_others *o, const struct io_backend *kind, unsigned depth, int efd,
		  bool armed)
{
	struct io_ctx *ctx = NULL;
	int r;

	if (io_others_find(o, kind))
		return 0;
	if (o->nr == FILE_PROVIDERS_MAX)
		return err_set(ENOSPC, "there are %u kinds of I/O contexts already", o->nr);
	r = io_ctx_new(kind, depth, &ctx);
	if (r == 0) {
		r = kind->arm(ctx, efd, true); /* later arm() calls cannot fail */
		if (r == 0 && !armed)
			r = kind->arm(ctx, efd, false);
	}
	if (r < 0) {
		io_ctx_free(ctx);
		/* Callers take -EAGAIN for "reap first" or, in a worker, for "retry later". */
		return r == -EAGAIN ? -EBUSY : r;
	}
	o->ctx[o->nr++] = ctx;
	return 0;
}

void io_others_free(struct io_others *o)
{
	while (o->nr)
		io_ctx_free(o->ctx[--o->nr]);
}

int io_others_flush(struct io_others *o)
{
	int first = 0;

	for (unsigned i = 0; i < o->nr; i++) {
		int r = o->ctx[i]->nr_ops ? o->ctx[i]->ops->flush(o->ctx[i]) : 0;

		if (r < 0 && !first)
			first = r;
	}
	return first;
}

unsigned io_others_reap(struct io_others *o, struct io_op **ret, unsigned max)
{
	unsigned n = 0;

	/* Start with another context each time, so that a busy one does not starve the others. */
	for (unsigned i = 0; i < o->nr && n < max; i++) {
		struct io_ctx *ctx = o->ctx[(o->turn + i) % o->nr];

		n += ctx->ops->reap(ctx, ret + n, max - n);
	}
	o->turn++;
	return n;
}

unsigned io_others_nr_ops(const struct io_others *o)
{
	unsigned n = 0;

	for (unsigned i = 0; i < o->nr; i++)
		n += o->ctx[i]->nr_ops;
	return n;
}

void io_others_arm(struct io_others *o, int efd, bool armed)
{
	for (unsigned i = 0; i < o->nr; i++)
		(void)o->ctx[i]->ops->arm(o->ctx[i], efd, armed);
}
