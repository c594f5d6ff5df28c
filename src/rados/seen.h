/* SPDX-License-Identifier: MIT */
/*
 * The versions of a striped file's objects, but the first, as a reader saw them first.  An object
 * that has another version later was written meanwhile, although nothing has changed the first
 * object yet.  librados gives the version with each read: no operation is added.
 */
#ifndef PST_RADOS_SEEN_H
#define PST_RADOS_SEEN_H

#include <stdatomic.h>

#include "base/base.h"

#define SEEN_CHUNK 4096u /* objects of one allocation */
#define SEEN_HOLE UINT64_MAX

struct seen {
	_Atomic(_Atomic uint64_t *) *chunks;
	uint64_t nr; /* of chunks */
};

/* Make room for that many objects.  0 or -ENOMEM, without a sentence. */
int seen_init(struct seen *s, uint64_t objects);
void seen_done(struct seen *s);
/* Compare the version of an object, or SEEN_HOLE, with what was seen before.  Any thread.  0;
 * -ESTALE; -ENOMEM. */
int seen_check(struct seen *s, uint64_t object, uint64_t version);

#endif
