/* SPDX-License-Identifier: MIT */
/*
 * What programs hold in hf3fs_iov.iovh and hf3fs_ior.iorh.
 *
 * A handle is a number in the shape of a pointer: a place in a table and how often that place was
 * used.  None is given out twice and nothing is followed before it was compared, so a copy of a
 * structure that was destroyed, or one that was never filled in, finds nothing.
 */
#ifndef USRBIO_HANDLE_H
#define USRBIO_HANDLE_H

enum handle_kind { HANDLE_IOV, HANDLE_RING, HANDLE_KINDS };

/* 0; -ENOMEM; -EMFILE when there are 2^20 already. */
int handle_new(enum handle_kind kind, void *object, void **ret_handle);

/* The object, or NULL.  Without a lock: any thread, and signal handlers. */
void *handle_get(enum handle_kind kind, const void *handle);

/* As handle_get(), and the handle is void from now on: of two threads one gets the object. */
void *handle_take(enum handle_kind kind, const void *handle);

/*
 * As handle_take(), for who may change his mind: handle_show() makes it valid again, handle_drop()
 * ends it.
 */
void *handle_hide(enum handle_kind kind, const void *handle);
void handle_show(enum handle_kind kind, const void *handle);
void handle_drop(enum handle_kind kind, const void *handle);

#endif
