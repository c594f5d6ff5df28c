/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rados/layout.h"

#define OBJECT_MAX GIB(4)
#define COUNT_MAX 65536u
#define OBJECTS_MAX (UINT64_C(1) << 24) /* per file; removing takes one request for each */

bool layout_is_sane(const struct layout *l)
{
	return l->unit && l->count && l->count <= COUNT_MAX && l->object_size >= l->unit &&
	       l->object_size <= OBJECT_MAX && l->object_size % l->unit == 0;
}

struct extent layout_at(const struct layout *l, uint64_t off, uint64_t max)
{
	uint64_t block, stripe, per_object, set;

	if (!l->unit)
		return (struct extent){ .off = off, .len = max };
	block = off / l->unit;
	stripe = block / l->count;
	per_object = l->object_size / l->unit;
	set = stripe / per_object;
	/* With a stripe count of 1, each object is one extent. */
	if (l->count == 1)
		return (struct extent){
			.object = off / l->object_size,
			.off = off % l->object_size,
			.len = MIN(max, l->object_size - off % l->object_size),
		};
	return (struct extent){
		.object = set * l->count + block % l->count,
		.off = stripe % per_object * l->unit + off % l->unit,
		.len = MIN(max, l->unit - off % l->unit),
	};
}

uint64_t layout_objects(const struct layout *l, uint64_t size)
{
	uint64_t set_bytes = l->object_size * l->count, full, rest;

	if (!l->unit)
		return 1;
	full = size / set_bytes;
	rest = size % set_bytes;
	/* The first object exists even if the file is empty. */
	return MAX(full * l->count + MIN((rest + l->unit - 1) / l->unit, l->count), 1ul);
}

uint64_t layout_kept(const struct layout *l, uint64_t object, uint64_t size)
{
	uint64_t set_bytes = l->object_size * l->count, set, in_set, rows, rest, nth;

	if (!l->unit)
		return size;
	set = object / l->count;
	nth = object % l->count;
	if (size <= set * set_bytes)
		return 0;
	in_set = MIN(size - set * set_bytes, set_bytes);
	rows = in_set / (l->unit * l->count);
	rest = in_set % (l->unit * l->count);
	if (rest <= nth * l->unit)
		return rows * l->unit;
	return rows * l->unit + MIN(rest - nth * l->unit, l->unit);
}

uint64_t layout_size_max(const struct layout *l)
{
	return l->unit ? l->object_size * OBJECTS_MAX : INT64_MAX;
}

void layout_name(const struct layout *l, const char *file, uint64_t object,
		 char ret[LAYOUT_NAME_MAX + LAYOUT_SUFFIX + 1])
{
	if (l->unit)
		(void)snprintf(ret, LAYOUT_NAME_MAX + LAYOUT_SUFFIX + 1, "%s.%016" PRIx64, file,
			       object);
	else
		(void)snprintf(ret, LAYOUT_NAME_MAX + LAYOUT_SUFFIX + 1, "%s", file);
}

bool layout_suffix(const char *name, uint64_t *ret_object)
{
	size_t len = strlen(name);

	if (len <= LAYOUT_SUFFIX || name[len - LAYOUT_SUFFIX] != '.' ||
	    strspn(name + len - 16, "0123456789abcdef") != 16)
		return false;
	*ret_object = strtoull(name + len - 16, NULL, 16);
	return true;
}
