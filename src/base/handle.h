/* SPDX-License-Identifier: MIT */
/*
 * Handles: numbers that programs hold for objects of the library.
 *
 * A handle consists of an index in a table and a count of the uses of that index.  No handle is
 * reused, and each is compared before a pointer is dereferenced, so an old or invented handle finds
 * nothing.
 *
 * No call takes a lock.  Any thread may make each call, even in a forked child, and, except
 * handle_new(), in a signal handler.  The owner decides how long an object lives: the table does
 * not prevent freeing it just after a lookup.
 */
#ifndef PST_HANDLE_H
#define PST_HANDLE_H

#include <stdatomic.h>

#include "base/base.h"

#define HANDLE_CHUNK 256u /* indices that are added at a time */
#define HANDLE_CHUNKS_MAX 4096u
#define HANDLES_MAX (HANDLE_CHUNK * HANDLE_CHUNKS_MAX)

struct handle_slot;

/* A static table, never freed, so that lookups are always safe. */
struct handle_table {
	uint32_t max;          /* maximum handles at a time, a multiple of HANDLE_CHUNK */
	_Atomic uint64_t free; /* index + 1 of the first free slot in the lower half, a count of
			        * changes in the upper half */
	atomic_uint growing;   /* threads that are adding a chunk whose slots are not on the free
			        * list yet */
	struct handle_slot *_Atomic chunks[HANDLE_CHUNKS_MAX];
};

/* Initializer of an empty table for at most nr handles. */
#define HANDLE_TABLE(nr)    \
	{                   \
		.max = (nr) \
	}

/**
 * handle_new() - give an object a handle
 * @t:          the table
 * @object:     not NULL
 * @ret_handle: the handle, never 0
 *
 * Return: 0, -ENOMEM, or -EMFILE if the table is full.
 */
int handle_new(struct handle_table *t, void *object, uintptr_t *ret_handle);

/**
 * handle_get() - return the object of a handle
 * @t:      the table
 * @handle: any number
 *
 * Return: the object, or NULL if the handle is not valid, or not any more.
 */
void *handle_get(struct handle_table *t, uintptr_t handle);

/**
 * handle_take() - end a handle
 * @t:      the table
 * @handle: any number
 *
 * Return: the object, or NULL as handle_get().  If two threads call this, only one gets the object.
 */
void *handle_take(struct handle_table *t, uintptr_t handle);

/**
 * handle_hide() - make a handle invalid for a while
 * @t:      the table
 * @handle: any number
 *
 * Then call handle_show() to make the handle valid again, or handle_drop() to end it.
 *
 * Return: as handle_take().
 */
void *handle_hide(struct handle_table *t, uintptr_t handle);
void handle_show(struct handle_table *t, uintptr_t handle);
void handle_drop(struct handle_table *t, uintptr_t handle);

#endif
