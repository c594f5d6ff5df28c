/* SPDX-License-Identifier: MIT */
/*
 * Tell every process that has files of a set open that one of them lies elsewhere now.
 *
 * <state>/epochs is mapped by all of them: a counter for each of many hashes of names.  The mover
 * adds 1 once the copy is the file and before the source goes.  Whoever has the file open compares
 * one number for each request.  Two names with the same hash cost a look at the catalogue.
 */
#ifndef PST_TIER_EPOCH_H
#define PST_TIER_EPOCH_H

#include <stdatomic.h>

#include "base/base.h"

#define EPOCHS 4096u

struct epochs;

/* state is the set's directory of state.  0, or -errno with a sentence. */
int epochs_open(const char *state, struct epochs **ret);
struct epochs *epochs_close(struct epochs *e);

/* The counter of a name, which stays until epochs_close(). */
_Atomic uint64_t *epochs_of(struct epochs *e, const char *name);

#endif
