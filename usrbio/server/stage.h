/* SPDX-License-Identifier: MIT */
/*
 * Host memory in which small requests to device memory stay between the file and the window.
 *
 * Each runner has one, made when it is first needed.  It is the runner's: under nobody's lock while
 * the runner is taken.
 */
#ifndef SERVER_STAGE_H
#define SERVER_STAGE_H

#include <penstock.h>

#include "base/base.h"

struct stage;

/* One piece of it. */
struct slot {
	struct stage *stage; /* NULL: there is none */
	unsigned idx;
};

/*
 * A free slot of *stage, which is made if it is NULL.
 *
 * Return: 0; -EAGAIN: all are in use; -ENOMEM.
 */
int stage_take(struct stage **stage, struct slot *ret);

/*
 * It is free again.  busy: the kernel may still write there, so that all of *stage is given up
 * and another is made for what comes.
 */
void stage_put(struct stage **stage, struct slot *slot, bool busy);

struct pst_mem *slot_mem(const struct slot *slot);
uint64_t slot_off(const struct slot *slot);
char *slot_ptr(const struct slot *slot);

/* Its last slot ends it, if there are some in use.  NULL is accepted.  Returns NULL. */
struct stage *stage_free(struct stage *stage);

#endif
