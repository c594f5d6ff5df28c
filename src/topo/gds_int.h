/* SPDX-License-Identifier: MIT */
/* Between the files that make up gds_facts.h. */
#ifndef PST_GDS_INT_H
#define PST_GDS_INT_H

#include <penstock.h>

#include "topo/gds_facts.h"

/* What all facts are told of. */
struct gds_look {
	const char *root; /* stands before every path */
	int fd;
	char pci[24]; /* of the GPU, in small letters; "" where none is named */
};

/* Give a fact its sentence.  What is no printable ASCII, as names from outside may not be, comes
 * out as '?'. */
void gds_say(struct gds_fact *f, int state, int err, const char *fmt, ...) _printf_(4, 5);

#endif
