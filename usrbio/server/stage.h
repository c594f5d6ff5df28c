/* SPDX-License-Identifier: MIT */
/*
 * Host memory for small requests to device memory, between the file and the window.
 *
 * Each runner has a stage, allocated at its first use.  Only the thread that has taken the runner
 * uses it.
 */
#ifndef SERVER_STAGE_H
#define SERVER_STAGE_H

#include <penstock.h>

#include "base/base.h"

struct stage;

/* A piece of a stage: IMPORT_PIECE bytes. */
struct slot {
	struct stage *stage; /* NULL: no slot */
	unsigned idx;
};

/*
 * Take a free slot of *stage; allocate the stage if it is NULL.
 *
 * Return: 0; -EAGAIN: all slots are in use; -ENOMEM.
 */
int stage_take(struct stage **stage, struct slot *ret);

/*
 * Free a slot.  busy: the kernel may still write to it; then *stage is abandoned, and the next
 * stage_take() allocates another.
 */
void stage_put(struct stage **stage, struct slot *slot, bool busy);

struct pst_mem *slot_mem(const struct slot *slot);
uint64_t slot_off(const struct slot *slot);
char *slot_ptr(const struct slot *slot);

/* Free a stage; slots in use delay this until the last one is freed.  NULL is accepted.  Return
 * NULL. */
struct stage *stage_free(struct stage *stage);

#endif
