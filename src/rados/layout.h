/* SPDX-License-Identifier: MIT */
/*
 * Map a file's bytes to objects: one object, or stripes over many.
 *
 * A striped file has the format of libradosstriper.  The objects are NAME.%016x, counted from 0.
 * The first one has the attributes of the layout and of the size, as decimal text:
 *
 *	striper.layout.object_size, striper.layout.stripe_unit, striper.layout.stripe_count,
 *	striper.size
 *
 * Units of stripe_unit bytes are spread round robin over stripe_count objects, until each of them
 * has object_size bytes; then the next stripe_count objects follow.  Missing objects, and missing
 * ends of objects, read as zeros.
 */
#ifndef PST_RADOS_LAYOUT_H
#define PST_RADOS_LAYOUT_H

#include "base/base.h"

#define LAYOUT_OBJECT MIB(4) /* object size and stripe unit, in bytes, of files that we create */
#define LAYOUT_NAME_MAX 2048u
#define LAYOUT_SUFFIX 17u /* characters added to a striped file's name */

/* All zero means: one object, named without a suffix. */
struct layout {
	uint64_t object_size, unit, count;
};

/* Consecutive bytes of a file in one object. */
struct extent {
	uint64_t object; /* number of the object */
	uint64_t off;    /* bytes; offset in the object */
	uint64_t len;
};

/* Return true if a file can have this layout. */
bool layout_is_sane(const struct layout *l);
/* Return the extent that begins at off, of at most max bytes. */
struct extent layout_at(const struct layout *l, uint64_t off, uint64_t max);
/* Return the number of objects that a file of that size may have. */
uint64_t layout_objects(const struct layout *l, uint64_t size);
/* Return the bytes of an object that belong to a file of that size. */
uint64_t layout_kept(const struct layout *l, uint64_t object, uint64_t size);
/* Return the largest size of a file. */
uint64_t layout_size_max(const struct layout *l);

/* Write the name of one of the file's objects. */
void layout_name(const struct layout *l, const char *file, uint64_t object,
		 char ret[LAYOUT_NAME_MAX + LAYOUT_SUFFIX + 1]);
/* Return true if the name ends in a striped object's suffix. */
bool layout_suffix(const char *name, uint64_t *ret_object);

#endif
