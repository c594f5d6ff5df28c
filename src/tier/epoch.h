/* SPDX-License-Identifier: MIT */
/*
 * Tell every process with open files of a set that one of them has moved.
 *
 * <state>/epochs is mapped by all of them: a counter for each of many hashes of names.  The mover
 * adds 1 after the copy has become the file and before it removes the source.  A process with the
 * file open compares one number for each request.  Two names with the same hash cost a lookup in
 * the catalogue.
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
