/* SPDX-License-Identifier: MIT */
/* Blocking operations: facts, truncate, remove. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rados/lib.h"
#include "rados/rados.h"

#define ASKS_MAX 16u /* objects being removed at once */

static const struct {
	const char *name;
	size_t off;
} attributes[] = {
	{ "striper.layout.object_size", offsetof(struct layout, object_size) },
	{ "striper.layout.stripe_unit", offsetof(struct layout, unit) },
	{ "striper.layout.stripe_count", offsetof(struct layout, count) },
};

/* --------------------------------------------------------------------- one */

static void rados_ask_done(void *completion, void *arg)
{
	struct ask *a = arg;

	(void)completion;
	(void)pthread_mutex_lock(&a->lock);
	a->ended = true;
	(void)pthread_cond_signal(&a->cond);
	(void)pthread_mutex_unlock(&a->lock);
}

static void rados_ask_free(struct ask *a)
{
	if (a->completion)
		lib.rados_aio_release(a->completion);
	if (a->read)
		lib.rados_release_read_op(a->read);
	if (a->write)
		lib.rados_release_write_op(a->write);
	(void)pthread_cond_destroy(&a->cond);
	(void)pthread_mutex_destroy(&a->lock);
}

int rados_ask_begin(struct ask *a, void *io, bool write)
{
	pthread_condattr_t attr;

	*a = (struct ask){ .io = io };
	(void)pthread_mutex_init(&a->lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&a->cond, &attr);
	(void)pthread_condattr_destroy(&attr);
	a->read = write ? NULL : lib.rados_create_read_op();
	a->write = write ? lib.rados_create_write_op() : NULL;
	if ((!a->read && !a->write) ||
	    lib.rados_aio_create_completion2(a, rados_ask_done, &a->completion) < 0) {
		a->completion = NULL;
		rados_ask_free(a);
		return err_set(ENOMEM, "out of memory");
	}
	return 0;
}

void rados_ask_start(struct ask *a, const char *object)
{
	int r;

	a->until = now_ns() + ASK_NS;
	if (a->read)
		r = lib.rados_aio_read_op_operate(a->read, a->io, a->completion, object, 0);
	else
		r = lib.rados_aio_write_op_operate(a->write, a->io, a->completion, object, NULL,
						   LIB_FULL_TRY);
	if (r < 0) {
		a->result = r;
		a->ended = true; /* rados_ask_done() will not be called */
	}
}

int rados_ask_wait(struct ask *a)
{
	struct timespec at = { .tv_sec = (time_t)(a->until / NSEC_PER_SEC),
			       .tv_nsec = (long)(a->until % NSEC_PER_SEC) };
	bool late = false;
	int r = a->result;

	if (r == 0) {
		(void)pthread_mutex_lock(&a->lock);
		while (!a->ended && !late)
			late = pthread_cond_timedwait(&a->cond, &a->lock, &at) == ETIMEDOUT;
		late = !a->ended;
		(void)pthread_mutex_unlock(&a->lock);
		if (late) /* calls rados_ask_done() at once, even if no OSD answers */
			(void)lib.rados_aio_cancel(a->io, a->completion);
		(void)pthread_mutex_lock(&a->lock);
		while (!a->ended)
			(void)pthread_cond_wait(&a->cond, &a->lock);
		(void)pthread_mutex_unlock(&a->lock);
		r = lib.rados_aio_get_return_value(a->completion);
		if (late && r == -ECANCELED)
			r = -ETIMEDOUT;
	}
	return r;
}

int rados_ask_run(struct ask *a, const char *object)
{
	int r;

	rados_ask_start(a, object);
	r = rados_ask_wait(a);
	rados_ask_free(a);
	return r;
}

/* ------------------------------------------------------------------- facts */

static bool facts_number(const char *text, size_t len, char kept[24], uint64_t *ret)
{
	char *end;

	if (!len || len >= 24 || *text < '0' || *text > '9')
		return false;
	memcpy(kept, text, len);
	kept[len] = '\0';
	errno = 0;
	*ret = strtoull(kept, &end, 10);
	return !*end && errno == 0;
}

bool facts_parse(void *iter, struct facts *ret)
{
	const char *name, *value;
	unsigned found = 0;
	char text[24];
	size_t len;

	while (lib.rados_getxattrs_next(iter, &name, &value, &len) == 0 && name) {
		for (size_t i = 0; i < ARRAY_SIZE(attributes); i++)
			if (strcmp(name, attributes[i].name) == 0 &&
			    facts_number(value, len, text,
					 (uint64_t *)(void *)((char *)&ret->layout +
							      attributes[i].off))) {
				found++;
				if (i == 0)
					memcpy(ret->object_size_text, text, sizeof(text));
			}
		if (strcmp(name, "striper.size") == 0 &&
		    facts_number(value, len, ret->size_text, &ret->size))
			found++;
	}
	return found == ARRAY_SIZE(attributes) + 1 && layout_is_sane(&ret->layout) &&
	       ret->size <= layout_size_max(&ret->layout);
}

static int facts_get(void *io, const char *object, bool striped, struct facts *ret)
{
	int stat_result = 0, attr_result = 0;
	struct ask a;
	int r = rados_ask_begin(&a, io, false);

	*ret = (struct facts){ 0 };
	if (r < 0)
		return r;
	lib.rados_read_op_stat(a.read, &ret->size, &ret->mtime, &stat_result);
	if (striped)
		lib.rados_read_op_getxattrs(a.read, &a.iter, &attr_result);
	rados_ask_start(&a, object);
	r = rados_ask_wait(&a);
	ret->version = r < 0 ? 0 : lib.rados_aio_get_version(a.completion);
	if (r >= 0)
		r = MIN(stat_result, 0);
	if (r == 0)
		r = MIN(attr_result, 0);
	if (a.iter) {
		if (r == 0 && !facts_parse(a.iter, ret))
			r = -ENOENT; /* an unstriped object whose name ends like a first object's */
		lib.rados_getxattrs_end(a.iter);
	}
	rados_ask_free(&a);
	return r;
}

int rados_ask_facts(void *io, const char *object, const char *shown, struct facts *ret)
{
	static const struct layout any = { 1, 1, 1 };
	char first[LAYOUT_NAME_MAX + LAYOUT_SUFFIX + 1];
	int r;

	layout_name(&any, object, 0, first);
	r = facts_get(io, first, true, ret);
	if (r == -ENOENT)
		r = facts_get(io, object, false, ret);
	return r < 0 ? lib_err(r, shown) : 0;
}

/* --------------------------------------------------------- truncate, remove */

/* Return true if another writer changed what the operation demanded. */
static bool ask_was_late(int r)
{
	return r == -ECANCELED || r == -ERANGE || r == -EOVERFLOW;
}

/* Make the operation fail with -ECANCELED if the attribute has another value. */
static void demand_attr(struct ask *a, const char *name, const char *text)
{
	lib.rados_write_op_cmpxattr(a->write, name, LIB_EQUAL, text, strlen(text));
}

/*
 * Change the version of the first object, before changing others.  For a striped file, rewrite an
 * attribute that never changes, so that no write or new size is lost.  For a single object,
 * truncate it to its size, if the version is still the same.
 */
static int bump(void *io, const char *first, const struct facts *facts)
{
	const char *name = attributes[0].name, *text = facts->object_size_text;
	struct ask a;
	int r = rados_ask_begin(&a, io, true);

	if (r < 0)
		return r;
	if (facts->layout.unit) {
		demand_attr(&a, name, text);
		lib.rados_write_op_setxattr(a.write, name, text, strlen(text));
	} else {
		lib.rados_write_op_assert_version(a.write, facts->version);
		lib.rados_write_op_truncate(a.write, facts->size);
	}
	return rados_ask_run(&a, first);
}

static int cut_start(struct ask *a, void *io, const char *name, uint64_t kept)
{
	int r = rados_ask_begin(a, io, true);

	if (r < 0)
		return r;
	if (kept)
		lib.rados_write_op_truncate(a->write, kept);
	else
		lib.rados_write_op_remove(a->write);
	rados_ask_start(a, name);
	return 0;
}

static int cut_wait(struct ask *a)
{
	int r = rados_ask_wait(a);

	rados_ask_free(a);
	return r == -ENOENT ? 0 : r;
}

/* Cut all objects except the first to their part of the new size, from the last one to the
 * second. */
static int cut_objects(void *io, const char *object, const struct facts *facts, uint64_t size)
{
	char name[LAYOUT_NAME_MAX + LAYOUT_SUFFIX + 1];
	uint64_t left = layout_objects(&facts->layout, facts->size), nr = 0, waited = 0;
	struct ask asks[ASKS_MAX];
	int r = 0;

	while (left > 1 && r >= 0) {
		uint64_t kept = layout_kept(&facts->layout, --left, size);

		if (kept == layout_kept(&facts->layout, left, facts->size))
			continue;
		if (nr - waited == ASKS_MAX)
			r = cut_wait(&asks[waited++ % ASKS_MAX]);
		if (r < 0)
			break;
		layout_name(&facts->layout, object, left, name);
		r = cut_start(&asks[nr % ASKS_MAX], io, name, kept);
		nr += r == 0;
	}
	while (waited < nr) {
		int one = cut_wait(&asks[waited++ % ASKS_MAX]);

		if (r >= 0)
			r = one;
	}
	return MIN(r, 0);
}

static int cut_once(void *io, const char *object, const struct facts *facts, uint64_t size)
{
	char first[LAYOUT_NAME_MAX + LAYOUT_SUFFIX + 1], text[24];
	struct ask a;
	int r = 0;

	if (size > layout_size_max(&facts->layout))
		return -EFBIG;
	layout_name(&facts->layout, object, 0, first);
	if (facts->layout.unit && size < facts->size) {
		r = bump(io, first, facts);
		if (r >= 0)
			r = cut_objects(io, object, facts, size);
	}
	if (r >= 0)
		r = rados_ask_begin(&a, io, true);
	if (r < 0)
		return r;
	/* Fail if another writer has made the file larger: its new objects were not cut. */
	if (facts->layout.unit)
		demand_attr(&a, "striper.size", facts->size_text);
	if (!facts->layout.unit || size < facts->size)
		lib.rados_write_op_truncate(a.write, layout_kept(&facts->layout, 0, size));
	if (facts->layout.unit) {
		(void)snprintf(text, sizeof(text), "%" PRIu64, size);
		lib.rados_write_op_setxattr(a.write, "striper.size", text, strlen(text));
	}
	return rados_ask_run(&a, first);
}

static int remove_once(void *io, const char *object, const struct facts *facts, uint64_t size)
{
	char first[LAYOUT_NAME_MAX + LAYOUT_SUFFIX + 1];
	struct ask a;
	int r = 0;

	(void)size;
	layout_name(&facts->layout, object, 0, first);
	if (facts->layout.unit) {
		r = bump(io, first, facts);
		if (r >= 0)
			r = cut_objects(io, object, facts, 0);
	}
	if (r >= 0)
		r = rados_ask_begin(&a, io, true);
	if (r < 0)
		return r;
	if (facts->layout.unit)
		demand_attr(&a, "striper.size", facts->size_text);
	lib.rados_write_op_remove(a.write);
	return rados_ask_run(&a, first);
}

static int touch_once(void *io, const char *object, const struct facts *facts, uint64_t size)
{
	char first[LAYOUT_NAME_MAX + LAYOUT_SUFFIX + 1];

	(void)size;
	layout_name(&facts->layout, object, 0, first);
	return bump(io, first, facts);
}

static int ask_again(int (*once)(void *, const char *, const struct facts *, uint64_t), void *io,
		     const char *object, const char *shown, struct facts *facts, uint64_t size)
{
	int r = once(io, object, facts, size);

	for (unsigned tries = 1; ask_was_late(r); tries++) {
		if (tries == ASK_TRIES_MAX)
			return lib_err(-EBUSY, shown);
		r = rados_ask_facts(io, object, shown, facts);
		if (r < 0)
			return r;
		r = once(io, object, facts, size);
	}
	return r < 0 ? lib_err(r, shown) : 0;
}

int rados_ask_touch(void *io, const char *object, const char *shown, struct facts *facts)
{
	return ask_again(touch_once, io, object, shown, facts, 0);
}

int rados_ask_truncate(void *io, const char *object, const char *shown, struct facts *facts,
		       uint64_t size)
{
	return ask_again(cut_once, io, object, shown, facts, size);
}

int rados_ask_remove(void *io, const char *object, const char *shown, struct facts *facts)
{
	return ask_again(remove_once, io, object, shown, facts, 0);
}
