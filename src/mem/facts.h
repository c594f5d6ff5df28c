/* SPDX-License-Identifier: MIT */
/*
 * Facts about a device for people: lines "name: value".  An unknown fact is "unknown", and never a
 * guess.
 */
#ifndef PST_MEM_FACTS_H
#define PST_MEM_FACTS_H

#include "base/base.h"

struct facts {
	char *buf;
	size_t len;  /* bytes of buf */
	size_t used; /* bytes that all lines need, which may exceed len */
};

void facts_add(struct facts *f, const char *name, const char *fmt, ...) _printf_(3, 4);

#endif
