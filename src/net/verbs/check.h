/* SPDX-License-Identifier: MIT */
#ifndef PST_VERBS_CHECK_H
#define PST_VERBS_CHECK_H

#include <penstock.h>

/*
 * What RDMA needs of this machine, and what of it is here: the topic "rdma" of pst_check().
 * Devices are looked for in sysfs, also where there is no libibverbs, and by the library.  root is
 * "", or where a test keeps /sys.
 *
 * Return: how many checks were filled in, at most max.
 */
int verbs_check(const char *root, struct pst_check *ret, unsigned max);

#endif
