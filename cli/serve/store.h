/* SPDX-License-Identifier: MIT */
/* A store of blocks that is served. */
#ifndef CLI_SERVE_STORE_H
#define CLI_SERVE_STORE_H

#include <penstock_kv.h>

#include "serve/serve.h"

struct served_store {
	const char *dirs[PST_KV_DIRS_MAX];
	unsigned nr;
	struct pst_kv_opts opts;
	uint64_t quota; /* of each space; 0: that of the disk, none for new ones */
	struct pst_kv *kv;
	struct serve_store ops;
};

/* Open the store and fill in ops.  Return 0, or -errno after a line that says why. */
int store_begin(struct served_store *s);
/* Say whether it could be opened, and change nothing.  Return as store_begin() does. */
int store_check(const struct served_store *s);
void store_end(struct served_store *s);

#endif
