/* SPDX-License-Identifier: MIT */
/*
 * The limits that the program sets (base/limit.h).
 */
#ifndef PST_LIMITS_H
#define PST_LIMITS_H

#include <penstock.h>

int limits_set(const struct pst_limits *l);
/* Return the limits that the program set. */
void limits_get(struct pst_limits *ret);

#endif
