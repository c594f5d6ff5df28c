/* SPDX-License-Identifier: MIT */
/*
 * Trials: an operation by O_DIRECT, then a plain read, and that three times.
 *
 * A file changes where two plain reads differ, or its size or change time does.  Looking only at
 * the time is not enough: it moves on every few milliseconds only, and a write sets it before it
 * copies.  A trial of a write is the write again, with the request's bytes: what another
 * wrote after the first is gone then, and the request is written again anyway.
 */
#include <fcntl.h>
#include <string.h>

#include "base/uaccess.h"
#include "core/path/plan.h"
#include "core/path/trial.h"
#include "core/queue/req.h"

struct trial {
	struct local_file *lf, *reader;
	uint64_t off, len;
	uint64_t room; /* len in whole blocks */
	bool write;
	bool look; /* the next operation is the plain read */
	unsigned nr;
	struct stamp stamp;
	const char *seen;
	char *direct, *plain; /* one allocation */
};

int stamp_take(const struct local_file *lf, struct stamp *ret)
{
	const int flags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
	struct statx st;

	if (statx(lf->fd, "", flags, STATX_CTIME | STATX_SIZE, &st) < 0)
		return -errno;
	*ret = (struct stamp){ .size = st.stx_size, .ctime = st.stx_ctime };
	return 0;
}

bool stamp_is(const struct local_file *lf, const struct stamp *stamp)
{
	struct stamp now;

	return stamp_take(lf, &now) == 0 && now.size == stamp->size &&
	       now.ctime.tv_sec == stamp->ctime.tv_sec && now.ctime.tv_nsec == stamp->ctime.tv_nsec;
}

void trial_free(struct trial *t)
{
	if (!t)
		return;
	free(t->direct);
	free(t);
}

struct trial *trial_new(const struct req *r, uint64_t off, uint64_t len, const void *data,
			const void *seen)
{
	struct local_file *lf = req_local(r);
	bool write = r->io.op == PST_OP_WRITE;
	uint64_t unit = MAX((uint64_t)PAGE, (uint64_t)lf->off_align), room = align_up(len, unit);
	uint64_t align = MAX(unit, (uint64_t)lf->mem_align);
	struct trial *t;

	/* Bytes of another machine may be on the disk and not in the page cache: no lie. */
	if (!r->can_judge || lf->stale || (write && room != len) || off + room > INT64_MAX)
		return NULL;
	t = malloc(sizeof(*t));
	if (!t)
		return NULL;
	*t = (struct trial){ .lf = lf,
			     .reader = plan_reader(r->io.file),
			     .off = off,
			     .len = len,
			     .room = room,
			     .write = write,
			     .seen = seen,
			     .direct = aligned_alloc(align, align_up(2 * room, align)) };
	if (!t->direct || stamp_take(lf, &t->stamp) < 0)
		goto fail;
	t->plain = t->direct + room;
	if (write && req_stays(r))
		memcpy(t->direct, data, len);
	else if (write && uaccess_read(t->direct, data, len) < 0)
		goto fail;
	return t;
fail:
	trial_free(t);
	return NULL;
}

void trial_op(const struct trial *t, struct io_op *op)
{
	op->file = t->look ? t->reader : t->lf;
	op->reg = NULL;
	op->kind = t->write && !t->look ? IO_WRITE : IO_READ;
	op->flags = t->look ? 0 : IO_OP_DIRECT;
	op->off = t->off;
	op->len = t->look ? t->len : t->room;
	op->buf = t->look ? t->plain : t->direct;
}

enum trial_end trial_step(struct trial *t, int64_t res)
{
	if (res < (int64_t)t->len)
		return TRIAL_OPEN; /* it failed, or the file shrank */
	t->look = !t->look;
	if (t->look) {
		/* Our own write is no change. */
		if (t->write && stamp_take(t->lf, &t->stamp) < 0)
			return TRIAL_OPEN;
		return TRIAL_ON;
	}
	if (memcmp(t->plain, t->direct, t->len) == 0 || memcmp(t->plain, t->seen, t->len) != 0 ||
	    !stamp_is(t->lf, &t->stamp))
		return TRIAL_OPEN;
	return ++t->nr < TRIALS ? TRIAL_ON : TRIAL_LIE;
}
