/* SPDX-License-Identifier: MIT */
/*
 * The versions of a striped file's objects, except the first object, as a reader first saw them.
 * If an object has another version later, it was written in between, even if nothing has changed
 * the first object yet.  librados returns the version with each read, so no operation is added.
 */
#ifndef PST_RADOS_SEEN_H
#define PST_RADOS_SEEN_H

#include <stdatomic.h>

#include "base/base.h"

#define SEEN_CHUNK 4096u /* objects of one allocation */
#define SEEN_HOLE UINT64_MAX

struct seen {
	_Atomic(_Atomic uint64_t *) *chunks;
	uint64_t nr; /* number of chunks */
};

/* Make room for that many objects. Return 0, or -ENOMEM without a sentence. */
int seen_init(struct seen *s, uint64_t objects);
void seen_done(struct seen *s);
/* Compare the version of an object, or SEEN_HOLE for a missing object, with what was seen first.
 * Any thread may call this.  Return 0, -ESTALE or -ENOMEM. */
int seen_check(struct seen *s, uint64_t object, uint64_t version);

#endif
