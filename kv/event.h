/* SPDX-License-Identifier: MIT */
/* Tell the readers of a store's events what changes. */
#ifndef KV_EVENT_H
#define KV_EVENT_H

#include "kv/store.h"

/* Called with the lock: append an event to each queue of that space.  id names the block, or is
 * NULL for an event of the space.  If the key is not known, the queues count a lost event. */
void event_add(struct pst_kv *kv, uint32_t type, uint32_t space, const struct block_id *id,
	       uint64_t len);

/* Read the key of a block from its file into tail, for an event.  id->key stays NULL if the file
 * cannot be read or is wrong. */
void event_read_key(const struct pst_kv *kv, const char *path, struct block_id *id,
		    char tail[TAIL_MAX]);

#endif
