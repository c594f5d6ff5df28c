/* SPDX-License-Identifier: MIT */
#include "base/err.h"
#include "core/queue/lower.h"
#include "core/queue/queue.h"

int lower_look(struct pst_file *f, uint32_t op, struct pst_file **ret)
{
	const struct file_ops *ops = f->file->ops;
	int err;

	*ret = f;
	if (likely(!ops->lower))
		return 0;
	err = ops->lower(f->file, op, ret);
	if (err == 0 && unlikely((*ret)->file->ops->lower)) {
		ops->lower_put(f->file, op, *ret);
		err = err_set(ELOOP, "%s: the file beneath has itself a file beneath",
			      f->file->name);
	}
	return err;
}

void lower_drop(struct pst_file *f, uint32_t op, struct pst_file *beneath)
{
	if (beneath != f)
		f->file->ops->lower_put(f->file, op, beneath);
}

int lower_begin(struct req *r)
{
	struct pst_file *upper = r->io.file, *f;
	struct pst_queue *q = r->q;
	int err = lower_look(upper, r->io.op, &f);

	if (unlikely(err < 0))
		return err;
	if (unlikely(f->file->ops->backend))
		err = io_others_add(&q->others, f->file->ops->backend, q->ctx->depth, q->efd,
				    q->armed);
	/* The queue compares file addresses to reuse a plan, so the file must not be freed. */
	if (err == 0) {
		r->lower_use = use_get(q, &f->obj, &q->last_lower);
		err = r->lower_use ? 0 : -ENOMEM;
	}
	if (unlikely(err < 0)) {
		lower_drop(upper, r->io.op, f);
		return err == -EAGAIN ? -EBUSY : err;
	}
	r->upper = upper;
	r->io.file = f;
	return 0;
}

void lower_end(struct req *r)
{
	struct pst_file *beneath = r->io.file;

	r->io.file = TAKE_PTR(r->upper);
	use_put(r->q, TAKE_PTR(r->lower_use));
	lower_drop(r->io.file, r->io.op, beneath);
}
