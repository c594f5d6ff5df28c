/* SPDX-License-Identifier: MIT */
/*
 * Places in the tables of lanes (lane.c), for file.c and buf.c.
 */
#ifndef PST_STORE_PLACES_H
#define PST_STORE_PLACES_H

#include <pthread.h>

#include "file/store.h"

struct places {
	pthread_mutex_t lock;
	uint32_t nr;
	uint32_t gen;   /* of the last one given out; never 0 */
	uint64_t *bits; /* 1: taken */
};

/* nr places in a row; STORE_NO_IDX when there are none. */
uint32_t places_get(struct places *p, unsigned nr, uint32_t *ret_gen);
void places_put(struct places *p, uint32_t idx, unsigned nr);

/* Take a file or nr buffers out of every lane's table. */
void store_tables_forget_file(uint32_t idx);
void store_tables_forget_buf(uint32_t idx, unsigned nr);

#endif
