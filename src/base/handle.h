/* SPDX-License-Identifier: MIT */
/*
 * Handles: numbers that programs hold for objects of the library.
 *
 * A handle is an index in a table and a count of the uses of that index.  No handle is used twice,
 * and each is compared before anything is dereferenced: an old or invented one finds nothing.
 *
 * No call takes a lock.  Any thread may make each of them, in a forked child too, and, except
 * handle_new(), in a signal handler.  The owner decides how long an object lives: the table does
 * not keep it from being freed just after a lookup.
 */
#ifndef PST_HANDLE_H
#define PST_HANDLE_H

#include <stdatomic.h>

#include "base/base.h"

#define HANDLE_CHUNK 256u /* indices that are added at once */
#define HANDLE_CHUNKS_MAX 4096u
#define HANDLES_MAX (HANDLE_CHUNK * HANDLE_CHUNKS_MAX)

struct handle_slot;

/* A static table, never freed, so that lookups are always safe. */
struct handle_table {
	uint32_t max;          /* most handles at a time, a multiple of HANDLE_CHUNK */
	_Atomic uint64_t free; /* the first free index + 1, and a count of changes above it */
	atomic_uint growing;   /* threads that are making a chunk, or have made one that is not
				* listed yet */
	struct handle_slot *_Atomic chunks[HANDLE_CHUNKS_MAX];
};

/* An empty table for at most nr handles. */
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
 * Return: 0, -ENOMEM, or -EMFILE when there are as many as the table takes.
 */
int handle_new(struct handle_table *t, void *object, uintptr_t *ret_handle);

/**
 * handle_get() - the object of a handle
 * @t:      the table
 * @handle: any number
 *
 * Return: the object, or NULL when the handle is not, or no longer, valid.
 */
void *handle_get(struct handle_table *t, uintptr_t handle);

/**
 * handle_take() - end a handle
 * @t:      the table
 * @handle: any number
 *
 * Return: the object, or NULL as handle_get().  Of two threads one gets the object.
 */
void *handle_take(struct handle_table *t, uintptr_t handle);

/**
 * handle_hide() - end a handle, with a way back
 * @t:      the table
 * @handle: any number
 *
 * After it either handle_show() makes the handle valid again or handle_drop() ends it.
 *
 * Return: as handle_take().
 */
void *handle_hide(struct handle_table *t, uintptr_t handle);
void handle_show(struct handle_table *t, uintptr_t handle);
void handle_drop(struct handle_table *t, uintptr_t handle);

#endif
