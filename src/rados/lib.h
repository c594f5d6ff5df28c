/* SPDX-License-Identifier: MIT */
/*
 * librados, its connection to a cluster, and its errors.
 *
 * A process has one cluster handle.  The first use connects it, and it stays until the process
 * exits: connecting takes 15 to 40 ms, and a handle has a dozen threads.
 */
#ifndef PST_RADOS_LIB_H
#define PST_RADOS_LIB_H

#include <time.h>

#include "base/base.h"

#define LIB_FULL_TRY 64 /* flag: a write to a full pool fails instead of waiting */
#define LIB_EXCLUSIVE 1 /* argument of rados_write_op_create() */
#define LIB_EQUAL 1     /* argument of rados_write_op_cmpxattr() */

struct lib {
#define SYM(result, name, args) result(*name) args;
#include "rados/rados_syms.h"
};

/* Filled by lib_pool_get(), constant afterwards. */
extern struct lib lib;

/*
 * Load librados and connect, if needed, and open a pool.
 *
 * Blocks for at most LIB_CONNECT_S seconds.
 *
 * Return: 0; -ENODEV without librados; -EOWNERDEAD in a forked child of the process that connected,
 * where every call of librados would hang; -EACCES, -ETIMEDOUT, -ENOENT; each with a sentence.
 */
int lib_pool_get(const char *pool, void **ret_ioctx);
void lib_pool_put(void *ioctx);

/* A separate connection in which each operation ends after LIB_LIST_S seconds, for calls of
 * librados without a deadline.  Otherwise as lib_pool_get(). */
struct lib_own {
	void *cluster, *ioctx;
};
int lib_own_get(const char *pool, struct lib_own *ret);
void lib_own_put(struct lib_own *own);

/* Translate an error of an operation on an object, with a sentence.  Return -errno. */
int lib_err(int err, const char *shown);

#endif
