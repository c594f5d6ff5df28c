/* SPDX-License-Identifier: MIT */
/*
 * Tell every process with open files of a set that one of them has moved.
 *
 * All of them map <state>/epochs: an array of counters, indexed by a hash of the name.  The mover
 * adds 1 after the copy has become the file and before it removes the source.  A process with the
 * file open compares one counter per request.  Two names with the same hash only cost an extra
 * lookup in the catalogue.
 */
#ifndef PST_TIER_EPOCH_H
#define PST_TIER_EPOCH_H

#include <stdatomic.h>

#include "base/base.h"

#define EPOCHS 4096u

struct epochs;

/* Map the counters; state is the set's state directory.  Return 0, or -errno with a sentence. */
int epochs_open(const char *state, struct epochs **ret);
struct epochs *epochs_close(struct epochs *e);

/* Return the counter of a name; valid until epochs_close(). */
_Atomic uint64_t *epochs_of(struct epochs *e, const char *name);

#endif
