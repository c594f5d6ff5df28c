/* SPDX-License-Identifier: MIT */
/*
 * The first object of a striped file.  One operation on it serves all requests that waited when the
 * operation began.
 *
 * Reading: files are guarded.  The operation demands the version seen at open.  The operation
 * starts after the bytes of its requests have arrived, so it fails if a writer may have changed
 * them.
 *
 * Writing: the operation compares striper.size with its last known value, and in the same step sets
 * it to the larger of that value and the sizes that its requests reached.  If another writer was
 * faster, the size is read, and the operation is repeated.  Sizes reached by earlier requests are
 * not used again, because another program may have truncated the file since.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/op.h"
#include "rados/lib.h"
#include "rados/rados.h"

static void head_ran(void *completion, void *arg);

void head_init(struct rados_file *f, const struct facts *facts)
{
	struct head *h = &f->head;

	(void)pthread_mutex_init(&h->lock, NULL);
	(void)pthread_cond_init(&h->idle, NULL);
	h->there = facts->size;
	(void)snprintf(h->text, sizeof(h->text), "%s", facts->size_text);
}

/* Free the objects of the last operation.  The lock is held; nothing is in flight. */
static void head_clean(struct head *h)
{
	if (h->completion)
		lib.rados_aio_release(h->completion);
	if (h->read)
		lib.rados_release_read_op(h->read);
	if (h->write)
		lib.rados_release_write_op(h->write);
	h->completion = h->read = h->write = NULL;
}

/* Start an operation that demands the version.  The lock is held. */
static int head_check(struct rados_file *f, const char *first)
{
	struct head *h = &f->head;

	h->read = lib.rados_create_read_op();
	if (!h->read)
		return -ENOMEM;
	lib.rados_read_op_assert_version(h->read, f->version);
	lib.rados_read_op_stat(h->read, &h->size, &h->mtime, &h->result);
	return lib.rados_aio_read_op_operate(h->read, f->io, h->completion, first, 0);
}

static int head_read_size(struct rados_file *f, const char *first)
{
	struct head *h = &f->head;

	h->read = lib.rados_create_read_op();
	if (!h->read)
		return -ENOMEM;
	lib.rados_read_op_getxattrs(h->read, &h->iter, &h->result);
	return lib.rados_aio_read_op_operate(h->read, f->io, h->completion, first, 0);
}

static int head_write_size(struct rados_file *f, const char *first)
{
	struct head *h = &f->head;
	char text[24];

	h->write = lib.rados_create_write_op();
	if (!h->write)
		return -ENOMEM;
	h->made = MAX(h->want, h->there);
	(void)snprintf(text, sizeof(text), "%" PRIu64, h->made);
	lib.rados_write_op_cmpxattr(h->write, "striper.size", LIB_EQUAL, h->text, strlen(h->text));
	lib.rados_write_op_setxattr(h->write, "striper.size", text, strlen(text));
	return lib.rados_aio_write_op_operate(h->write, f->io, h->completion, first, NULL,
					      LIB_FULL_TRY);
}

enum step {
	STEP_FIRST,
	STEP_READ_SIZE,
};

/* Start an operation.  Return 0, and head_ran() will be called; or -errno.  The lock is held. */
static int head_start(struct rados_file *f, enum step step)
{
	struct head *h = &f->head;
	char first[LAYOUT_NAME_MAX + LAYOUT_SUFFIX + 1];
	int r;

	head_clean(h);
	h->result = 0;
	layout_name(&f->layout, f->object, 0, first);
	r = lib.rados_aio_create_completion2(f, head_ran, &h->completion);
	if (r < 0) {
		h->completion = NULL;
		return -ENOMEM;
	}
	if (f->guard)
		return head_check(f, first);
	return step == STEP_READ_SIZE ? head_read_size(f, first) : head_write_size(f, first);
}

static void head_end_tasks(struct task *list, int err)
{
	while (list) {
		struct task *t = list;

		list = t->next;
		task_head_done(t, err);
	}
}

/*
 * Start an operation for the waiting tasks, if none is in flight.  Return the tasks that cannot be
 * served, with the reason in *ret.  The lock is held.
 */
static struct task *head_next(struct rados_file *f, int *ret)
{
	struct head *h = &f->head;
	struct task *failed = NULL;

	*ret = 0;
	if (!h->busy && h->waiting) {
		h->covered = h->waiting;
		h->waiting = NULL;
		h->want = 0;
		for (const struct task *t = h->covered; t; t = t->next)
			h->want = MAX(h->want, t->reach);
		h->busy = true;
		h->tries = 0;
		*ret = head_start(f, STEP_FIRST);
		if (*ret < 0) {
			failed = h->covered;
			h->covered = NULL;
			h->busy = false;
		}
	}
	if (!h->busy)
		(void)pthread_cond_broadcast(&h->idle);
	return failed;
}

/* Learn the size that another writer has set.  The lock is held. */
static int head_learn(struct head *h, void *iter)
{
	struct facts facts = { 0 };

	if (h->result < 0)
		return h->result;
	if (!iter || !facts_parse(iter, &facts))
		return -ESTALE;
	h->there = facts.size;
	(void)snprintf(h->text, sizeof(h->text), "%s", facts.size_text);
	return 0;
}

/* Return true if another operation was started for the same tasks. */
static bool head_goes_on(struct rados_file *f, void *iter, int *r)
{
	struct head *h = &f->head;

	if (f->guard)
		return false;
	if (*r == -ECANCELED && h->write && !h->closing && ++h->tries < HEAD_TRIES_MAX)
		*r = head_start(f, STEP_READ_SIZE);
	else if (*r == 0 && h->read && !h->closing && (*r = head_learn(h, iter)) == 0)
		*r = head_start(f, STEP_FIRST);
	else {
		if (*r == 0 && h->write) {
			h->there = h->made;
			(void)snprintf(h->text, sizeof(h->text), "%" PRIu64, h->there);
		}
		/* Other writers kept changing the size. */
		if (*r == -ECANCELED)
			*r = -EBUSY;
		return false;
	}
	return *r == 0;
}

/* Completion callback, on a thread of librados. */
static void head_ran(void *completion, void *arg)
{
	struct rados_file *f = arg;
	struct head *h = &f->head;
	struct task *covered, *failed;
	void *iter;
	int r = MIN(lib.rados_aio_get_return_value(completion), 0), next;

	(void)pthread_mutex_lock(&h->lock);
	iter = h->iter;
	h->iter = NULL;
	if (head_goes_on(f, iter, &r)) {
		(void)pthread_mutex_unlock(&h->lock);
		if (iter)
			lib.rados_getxattrs_end(iter);
		return;
	}
	covered = h->covered;
	h->covered = NULL;
	h->busy = false;
	if (f->guard && r == -ENOENT)
		r = -ESTALE;
	failed = head_next(f, &next);
	(void)pthread_mutex_unlock(&h->lock);
	/* Do not touch the file from here on: it may be closed once its tasks end. */
	if (iter)
		lib.rados_getxattrs_end(iter);
	head_end_tasks(covered, r);
	head_end_tasks(failed, next);
}

void head_add(struct rados_file *f, struct task *t)
{
	struct head *h = &f->head;
	struct task *failed = NULL;
	bool canceled;
	int r = 0;

	(void)pthread_mutex_lock(&h->lock);
	/* Check here: head_remove() could not find the task before. */
	canceled = io_op_canceled(t->op);
	if (!canceled) {
		t->next = h->waiting;
		h->waiting = t;
		failed = head_next(f, &r);
	}
	(void)pthread_mutex_unlock(&h->lock);
	if (canceled)
		task_head_done(t, -ECANCELED);
	head_end_tasks(failed, r);
}

static bool head_take_out(struct task **list, const struct task *t)
{
	for (; *list; list = &(*list)->next)
		if (*list == t) {
			*list = t->next;
			return true;
		}
	return false;
}

bool head_remove(struct rados_file *f, struct task *t)
{
	struct head *h = &f->head;
	bool found;

	(void)pthread_mutex_lock(&h->lock);
	found = head_take_out(&h->waiting, t) || head_take_out(&h->covered, t);
	(void)pthread_mutex_unlock(&h->lock);
	return found;
}

void head_done(struct rados_file *f)
{
	struct head *h = &f->head;

	(void)pthread_mutex_lock(&h->lock);
	h->closing = true;
	if (h->busy) {
		void *c = h->completion;

		/* head_ran() is called at once, even if no OSD answers */
		(void)pthread_mutex_unlock(&h->lock);
		(void)lib.rados_aio_cancel(f->io, c);
		(void)pthread_mutex_lock(&h->lock);
	}
	while (h->busy)
		(void)pthread_cond_wait(&h->idle, &h->lock);
	(void)pthread_mutex_unlock(&h->lock);
	head_clean(h);
	(void)pthread_cond_destroy(&h->idle);
	(void)pthread_mutex_destroy(&h->lock);
}
