/* SPDX-License-Identifier: MIT */
/*
 * Where the bytes of a file are: in one object, or striped over many.
 *
 * A striped file has the format of libradosstriper.  Its objects are NAME.%016x, counted from 0.
 * The first one has the attributes of the layout and of the size, as decimal text:
 *
 *	striper.layout.object_size, striper.layout.stripe_unit, striper.layout.stripe_count,
 *	striper.size
 *
 * Bytes go around stripe_count objects by stripe_unit each, until all of them have object_size
 * bytes; then the next stripe_count objects follow.  An object that is missing, or shorter than
 * the size says, reads as zeros.
 */
#ifndef PST_RADOS_LAYOUT_H
#define PST_RADOS_LAYOUT_H

#include "base/base.h"

#define LAYOUT_OBJECT MIB(4) /* object size and stripe unit of files that we make */
#define LAYOUT_NAME_MAX 2048u
#define LAYOUT_SUFFIX 17u /* characters that a striped file's name grows by */

/* All zero: one object, without a suffix. */
struct layout {
	uint64_t object_size, unit, count;
};

/* Bytes of a file that are together in one object. */
struct extent {
	uint64_t object; /* its number */
	uint64_t off;    /* in the object */
	uint64_t len;
};

/* Return false if no file can have such a layout. */
bool layout_is_sane(const struct layout *l);
/* The extent that begins at off, of at most max bytes. */
struct extent layout_at(const struct layout *l, uint64_t off, uint64_t max);
/* The number of objects that a file of that size may have. */
uint64_t layout_objects(const struct layout *l, uint64_t size);
/* The bytes of an object that belong to a file of that size. */
uint64_t layout_kept(const struct layout *l, uint64_t object, uint64_t size);
/* Largest size of a file. */
uint64_t layout_size_max(const struct layout *l);

/* The name of an object of the file. */
void layout_name(const struct layout *l, const char *file, uint64_t object,
		 char ret[LAYOUT_NAME_MAX + LAYOUT_SUFFIX + 1]);
/* Return true if the name ends with the suffix of a striped file's object. */
bool layout_suffix(const char *name, uint64_t *ret_object);

#endif
