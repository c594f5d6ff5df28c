/* SPDX-License-Identifier: MIT */
/*
 * The bounds that the program sets (base/limit.h).
 */
#ifndef PST_LIMITS_H
#define PST_LIMITS_H

#include <penstock.h>

int limits_set(const struct pst_limits *l);
/* As the program set them. */
void limits_get(struct pst_limits *ret);

#endif
