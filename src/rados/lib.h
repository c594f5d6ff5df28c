/* SPDX-License-Identifier: MIT */
/*
 * librados, the cluster that it is connected to, and its errors in words.
 *
 * A process has one cluster handle.  The first use connects it, and it stays until the process
 * exits: connecting takes 15 to 40 ms, and a handle has a dozen threads.
 */
#ifndef PST_RADOS_LIB_H
#define PST_RADOS_LIB_H

#include <time.h>

#include "base/base.h"

#define LIB_FULL_TRY 64 /* a write to a full pool fails, and does not wait for room */
#define LIB_EXCLUSIVE 1 /* of rados_write_op_create() */
#define LIB_EQUAL 1     /* of rados_write_op_cmpxattr() */

struct lib {
#define SYM(result, name, args) result(*name) args;
#include "rados/rados_syms.h"
};

/* Filled by lib_pool_get(), constant afterwards. */
extern struct lib lib;

/*
 * Load librados and connect, if that has not been done, and open a pool.
 *
 * Blocks for at most LIB_CONNECT_S.
 *
 * Return: 0; -ENODEV without librados; -EOWNERDEAD in a forked child of the process that connected,
 * where every call of librados hangs; -EACCES, -ETIMEDOUT, -ENOENT.  With a sentence.
 */
int lib_pool_get(const char *pool, void **ret_ioctx);
void lib_pool_put(void *ioctx);

/* As lib_pool_get(), with a connection of its own in which each operation ends after LIB_LIST_S
 * seconds: for calls of librados that take no deadline. */
struct lib_own {
	void *cluster, *ioctx;
};
int lib_own_get(const char *pool, struct lib_own *ret);
void lib_own_put(struct lib_own *own);

/* Turn an error of an operation on an object into ours, with a sentence.  Return -errno. */
int lib_err(int err, const char *shown);

#endif
