/* SPDX-License-Identifier: MIT */
/*
 * Facts of a device for people: lines "name: value".  A fact that cannot be known is "unknown";
 * nobody fills in a likely value.
 */
#ifndef PST_MEM_FACTS_H
#define PST_MEM_FACTS_H

#include "base/base.h"

struct facts {
	char *buf;
	size_t len;  /* of buf */
	size_t used; /* bytes that all lines take, which may be more than fit */
};

void facts_add(struct facts *f, const char *name, const char *fmt, ...) _printf_(3, 4);

#endif
