/* SPDX-License-Identifier: MIT */
/*
 * Numbers that programs hold for objects of ours.
 *
 * A handle is an index in a table and how often that index was used.  None is given out twice,
 * and nothing is followed before it was compared: one that is old, or made up, finds nothing.
 *
 * No call takes a lock.  Each may be made by any thread, in a forked child and, handle_new()
 * apart, in a signal handler.  How long an object lives is its owner's to say: the table
 * does not keep one from being freed while somebody has just found it.
 */
#ifndef PST_HANDLE_H
#define PST_HANDLE_H

#include <stdatomic.h>

#include "base/base.h"

#define HANDLE_CHUNK 256u /* indices that are made at once */
#define HANDLE_CHUNKS_MAX 4096u
#define HANDLES_MAX (HANDLE_CHUNK * HANDLE_CHUNKS_MAX)

struct handle_slot;

/* Static, and not freed: looking for a handle must be safe for ever. */
struct handle_table {
	uint32_t max;          /* handles at a time: a multiple of HANDLE_CHUNK */
	_Atomic uint64_t free; /* the first free index + 1, and a count of changes above it */
	atomic_uint growing;   /* threads that make a chunk, or have made one that is not listed */
	struct handle_slot *_Atomic chunks[HANDLE_CHUNKS_MAX];
};

/* An empty table for at most so many handles. */
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
