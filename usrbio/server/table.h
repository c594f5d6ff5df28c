/* SPDX-License-Identifier: MIT */
/*
 * Files and buffers by the names that entries give them.
 *
 * Each thread that looks things up keeps its results in a cache of its own, so that a look-up
 * takes neither lock nor atomic operation.  An entry of it is good as long as the table's
 * version stays; so after table_*_del() no look-up finds the thing any more.  Before it is
 * freed, the caller waits until each of those threads was seen outside of its look-ups (server.c
 * does, by the executors' locks).
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
	struct server_file *next; /* in its bucket */
	uint64_t number;
	struct pst_file *_Atomic file; /* NULL: named is not open yet */
	struct named *named;           /* the file is opened by its name; or NULL */
	/* The file.  Its position is shared with the caller's descriptor, so nobody seeks it.  -1:
	 * the file is opened by its name. */
	int fd;
	/* A descriptor of its own position, made when it is needed; -1: not yet. */
	_Atomic int seek_fd;
	bool read, write;
	bool told; /* server_opts.writes is told of writes */
	dev_t dev;
	ino_t ino;
};

struct server_buffer {
	struct server_buffer *next; /* in its bucket */
	uint8_t id[USRBIO_ID_LEN];
	struct pst_mem *mem;   /* the caller's; NULL: another process' */
	struct import *import; /* that is it then, ours; else NULL */
	uint64_t len, block_size;
	bool view; /* of memory that others may have under the same UUID, perhaps more of it */
	uint64_t device; /* a number for each of them; 0: host memory */
};

#define TABLE_BUCKETS 8192u

/* Zeroed but for the version, which is at least 1. */
struct table {
	pthread_mutex_t lock;
	_Atomic uint64_t version;
	struct server_file *files[TABLE_BUCKETS];
	struct server_buffer *buffers[TABLE_BUCKETS];
};

#define TABLE_CACHE 64u

struct table_cache {
	uint64_t version;         /* that the rest is of; 0: none */
	struct server_file *file; /* the last ones, or NULL */
	struct server_buffer *buffer;
	struct server_file *files[TABLE_CACHE];
	struct server_buffer *buffers[TABLE_CACHE];
};

void table_file_add(struct table *t, struct server_file *f);
void table_file_del(struct table *t, struct server_file *f);
void table_buffer_add(struct table *t, struct server_buffer *b);
void table_buffer_del(struct table *t, struct server_buffer *b);

/*
 * The file with that number that is open for the direction.
 *
 * Return: NULL, with -EBADF in *ret_err when there is none of that number, -EACCES when none
 * of them is open for it.
 */
struct server_file *table_file(struct table *t, struct table_cache *c, uint64_t number, bool write,
			       int *ret_err);

/*
 * The latest buffer with that UUID, or NULL; but a view comes after buffers that are as long or
 * longer.
 */
struct server_buffer *table_buffer(struct table *t, struct table_cache *c,
				   const uint8_t id[USRBIO_ID_LEN]);

#endif
