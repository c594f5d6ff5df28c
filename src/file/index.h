/* SPDX-License-Identifier: MIT */
/*
 * Places in the tables of I/O contexts (ctx.c), for file.c and buf.c.
 */
#ifndef PST_FILE_INDEX_H
#define PST_FILE_INDEX_H

#include <pthread.h>

#include "file/io.h"

struct index_table {
	pthread_mutex_t lock;
	uint32_t nr;
	uint32_t gen;   /* of the last one given out; never 0 */
	uint64_t *bits; /* 1: taken */
};

/* nr places in a row; IO_NO_IDX when there are none. */
uint32_t index_get(struct index_table *p, unsigned nr, uint32_t *ret_gen);
void index_put(struct index_table *p, uint32_t idx, unsigned nr);

/* Take a file or nr buffers out of every I/O context's table. */
void ctx_tables_forget_file(uint32_t idx);
void ctx_tables_forget_buf(uint32_t idx, unsigned nr);

#endif
