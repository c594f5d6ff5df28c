/* SPDX-License-Identifier: MIT */
/* Allocate indices in the tables of I/O contexts (ctx.c), for own.c, local.c and buf.c. */
#ifndef PST_FILE_INDEX_H
#define PST_FILE_INDEX_H

#include <pthread.h>

#include "file/io.h"

struct index_table {
	pthread_mutex_t lock;
	uint32_t nr;
	uint32_t gen;   /* generation of the last allocation; never 0 */
	uint64_t *bits; /* one bit per index; 1: in use */
};

/* Allocate nr consecutive indices; return IO_NO_IDX if there are none. */
uint32_t index_get(struct index_table *p, unsigned nr, uint32_t *ret_gen);
void index_put(struct index_table *p, uint32_t idx, unsigned nr);

/* Remove a file or nr buffers from the tables of every I/O context. */
void ctx_tables_forget_file(uint32_t idx);
void ctx_tables_forget_buf(uint32_t idx, unsigned nr);

#endif
