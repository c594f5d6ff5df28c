/* SPDX-License-Identifier: MIT */
/* A served store of blocks. */
#ifndef CLI_SERVE_STORE_H
#define CLI_SERVE_STORE_H

#include <penstock_kv.h>

#include "serve/serve.h"

struct served_store {
	const char *dirs[PST_KV_DIRS_MAX];
	unsigned nr;
	struct pst_kv_opts opts;
	uint64_t quota; /* bytes per space; 0: keep the quotas on disk, and give new spaces none */
	struct pst_kv *kv;
	struct serve_store ops;
};

/* Open the store and fill in ops.  Return 0, or -errno after printing why. */
int store_begin(struct served_store *s);
/* Check whether the store can be opened, without changing it.  Return the same as store_begin(). */
int store_check(const struct served_store *s);
void store_end(struct served_store *s);

#endif
