/* SPDX-License-Identifier: MIT */
/*
 * Find files and buffers by the number or UUID in an entry.
 *
 * Each thread that looks up has a cache, so that a look-up takes neither a lock nor an atomic
 * read-modify-write.  Cached results are valid while the table's version is unchanged, so after
 * table_*_del() no look-up finds the object.  Before freeing it, the caller waits until each of
 * these threads was seen outside of a look-up (server.c does so by the executors' locks).
 */
#ifndef SERVER_TABLE_H
#define SERVER_TABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include <penstock.h>

#include "base/base.h"
#include "usrbio/proto/id.h"

struct import;
struct named;

struct server_file {
	struct server_file *next; /* next file in its hash bucket */
	uint64_t number;
	struct pst_file *_Atomic file; /* NULL: named is not open yet */
	struct named *named;           /* a file that is opened by its name; or NULL */
	/* Never seek this descriptor: it shares its position with the caller's.  -1 if named is
	 * set. */
	int fd;
	/* descriptor with a position of its own, opened at the first use; -1: not yet */
	_Atomic int seek_fd;
	bool read, write;
	bool told; /* server_opts.writes is called for writes to this file */
	dev_t dev;
	ino_t ino;
};

struct server_buffer {
	struct server_buffer *next; /* next buffer in its hash bucket */
	uint8_t id[USRBIO_ID_LEN];
	struct pst_mem *mem;   /* the caller's memory; NULL: memory of another process */
	struct import *import; /* memory of another process; else NULL */
	uint64_t len, block_size;
	bool view; /* a mapping of memory that may have other, longer mappings under this UUID */
	uint64_t device; /* hash that identifies the device; 0: host memory */
};

#define TABLE_BUCKETS 8192u

/* All zero except version, which is at least 1. */
struct table {
	pthread_mutex_t lock;
	_Atomic uint64_t version;
	struct server_file *files[TABLE_BUCKETS];
	struct server_buffer *buffers[TABLE_BUCKETS];
};

#define TABLE_CACHE 64u

struct table_cache {
	uint64_t version;         /* version for which the cache is valid; 0: empty */
	struct server_file *file; /* last results, or NULL */
	struct server_buffer *buffer;
	struct server_file *files[TABLE_CACHE];
	struct server_buffer *buffers[TABLE_CACHE];
};

void table_file_add(struct table *t, struct server_file *f);
void table_file_del(struct table *t, struct server_file *f);
void table_buffer_add(struct table *t, struct server_buffer *b);
void table_buffer_del(struct table *t, struct server_buffer *b);

/*
 * Find the file with that number that is open for the direction.
 *
 * Return: NULL with -EBADF in *ret_err if no file has the number, with -EACCES if none of them is
 * open for the direction.
 */
struct server_file *table_file(struct table *t, struct table_cache *c, uint64_t number, bool write,
			       int *ret_err);

/*
 * Find the latest buffer with that UUID, or NULL.  Views are searched after buffers that are
 * at least as long.
 */
struct server_buffer *table_buffer(struct table *t, struct table_cache *c,
				   const uint8_t id[USRBIO_ID_LEN]);

#endif
