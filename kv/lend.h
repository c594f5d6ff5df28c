/* SPDX-License-Identifier: MIT */
/*
 * Files of blocks for the server of a store.  Its clients may be hostile: they cannot make the
 * store exceed its budget or wait.
 *
 *   - A file that is lent for reading is cut to 0 bytes when its block is evicted, deleted, dropped
 *     or set again.  So its room is free at once, however long a client keeps it open.
 *   - A file that is lent for writing has its bytes reserved before.  Writes beyond them fail.
 *     Files that are being written have at most half of the budget and of the number of blocks.
 *     Files of one client have at most half of what the other clients leave of that half.  If
 *     another client needs room, a file is aborted after the store's time limit.
 *   - A published file is closed: no client writes to it.
 *
 * Names are those of docs/PROTOCOL.md.  Any thread may make any call, but no other call for a file
 * may run while that file is being closed.  A process that lends files should not get blocks
 * itself: a get may read a file that is being truncated, and is then a miss.
 */
#ifndef KV_LEND_H
#define KV_LEND_H

#include <penstock_kv.h>

#include "base/base.h"

/* Maximum spaces that clients may create for one tenant. */
#define LEND_SPACES_MAX 64u

struct lend;

struct lend_client {
	const char *who;    /* identifies the client: its shares are counted together */
	const char *tenant; /* the only tenant that the client may name; NULL: any */
};

/**
 * lend_open() - lend the file of a block
 * @kv:      the store, not a reader
 * @name:    name of the block; for a new block with its length
 * @client:  the client that asks
 * @quota:   quota of a space that is created for a new block, bytes
 * @write:   true: create a new block; false: read
 * @ret:     closed with lend_close()
 * @ret_fd:  for reading: descriptor of the file, closed by lend_close(); else -1
 * @ret_len: for reading: length of the file, bytes
 *
 * Return: 0; -ENOENT; -EACCES for another tenant; -ENOSPC; -errno of the file system; -ENOMEM.
 */
int lend_open(struct pst_kv *kv, const char *name, const struct lend_client *client, uint64_t quota,
	      bool write, struct lend **ret, int *ret_fd, uint64_t *ret_len);

/* Write to a new block.  Return 0; -EFBIG beyond its length; -ESTALE if it was published or its
 * time limit has passed; or -errno. */
int lend_write(struct lend *l, const void *buf, size_t len, uint64_t off);

/* Publish a new block.  Return 0; -EBADMSG if key and foot do not match its name and length;
 * -ESTALE; or -errno. */
int lend_publish(struct lend *l);

void lend_close(struct lend *l);

/* Look a block up, or delete it.  Return 0; -ENOENT; -EACCES; or -errno. */
int lend_find(struct pst_kv *kv, const char *name, const char *tenant, uint64_t *ret_len);
int lend_delete(struct pst_kv *kv, const char *name, const char *tenant);

/* Truncate files that are lent for reading.  The store calls this without its lock, after it has
 * removed or replaced their names.  hash: one block; NULL: all blocks of the space. */
void lend_revoke(struct pst_kv *kv, uint64_t space, const uint64_t *hash);

#endif
