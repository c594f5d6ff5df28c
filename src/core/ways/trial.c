/* SPDX-License-Identifier: MIT */
/*
 * A trial repeats an O_DIRECT operation and a plain read three times.
 *
 * The file is changing if two plain reads differ, or if its size or change time differs.  The time
 * alone is not enough: it advances only every few milliseconds, and a write sets it before it
 * copies.
 *
 * A trial of a write writes the request's bytes again.  If another process wrote there after the
 * first write, that process' bytes are lost.  These bytes would be lost anyway, because the request
 * is repeated through the page cache.
 */
#include <string.h>

#include "base/uaccess.h"
#include "core/queue/req.h"
#include "core/ways/plan.h"
#include "core/ways/trial.h"

struct trial {
	struct file *file, *reader;
	uint64_t off, len;
	uint64_t room; /* bytes: len rounded up to whole blocks */
	bool write;
	bool look; /* the next operation is a plain read */
	unsigned nr;
	struct file_stamp stamp;
	const char *seen;
	struct mem_alloc *peer; /* memory of the same kind as the request's, which holds direct; or
				 * NULL */
	char *direct;           /* bytes that O_DIRECT moved; in peer, or from aligned_alloc() */
	char *plain;
};

void trial_free(struct trial *t)
{
	if (!t)
		return;
	if (t->peer)
		mem_free(t->peer);
	else
		free(t->direct);
	free(t->plain);
	free(t);
}

/* Allocate the buffers.  @direct is memory of the request's kind: a disk that reaches host memory
 * may fail to reach the memory of another device. */
static bool buffers_new(struct trial *t, const struct mem_alloc *like, uint64_t align)
{
	t->plain = malloc(t->room);
	if (!(like->ops->caps & MEM_CAP_PEER))
		t->direct = aligned_alloc(align, align_up(t->room, align));
	else if (mem_alloc_like(like, t->room, &t->peer) == 0)
		t->direct = t->peer->host;
	return t->plain && t->direct;
}

struct trial *trial_new(const struct req *r, uint64_t off, uint64_t len, const void *data,
			bool stays, const void *seen)
{
	struct file *file = req_file(r);
	bool write = r->io.op == PST_OP_WRITE;
	uint64_t unit = MAX((uint64_t)PAGE, (uint64_t)file->off_align), room = align_up(len, unit);
	uint64_t align = MAX(unit, (uint64_t)file->mem_align);
	struct trial *t;

	/* A difference proves nothing if bytes that another machine wrote may be on the disk and
	 * not in the page cache. */
	if (!r->can_judge || file->caps & FILE_STALE || (write && room != len) ||
	    off + room > INT64_MAX)
		return NULL;
	t = malloc(sizeof(*t));
	if (!t)
		return NULL;
	*t = (struct trial){ .file = file,
			     .reader = plan_reader(r->io.file),
			     .off = off,
			     .len = len,
			     .room = room,
			     .write = write,
			     .seen = seen };
	if (!buffers_new(t, req_mem(r)->region->alloc, align) || file_stamp(file, &t->stamp) < 0)
		goto fail;
	if (write && stays)
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
	op->file = t->look ? t->reader : t->file;
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
		return TRIAL_OPEN; /* the operation failed, or the file shrank */
	t->look = !t->look;
	if (t->look) {
		/* Take the stamp again: a change by the trial's own write must not count. */
		if (t->write && file_stamp(t->file, &t->stamp) < 0)
			return TRIAL_OPEN;
		return TRIAL_ON;
	}
	if (memcmp(t->plain, t->direct, t->len) == 0 || memcmp(t->plain, t->seen, t->len) != 0 ||
	    !file_still(t->file, &t->stamp))
		return TRIAL_OPEN;
	return ++t->nr < TRIALS ? TRIAL_ON : TRIAL_LIE;
}
