/* SPDX-License-Identifier: MIT */
#ifndef PST_VERBS_CHECK_H
#define PST_VERBS_CHECK_H

#include <penstock.h>

/*
 * Check what this machine needs for RDMA: the topic "rdma" of pst_check().  Devices are searched in
 * sysfs, even without libibverbs, and through the library.  root is "" normally; tests give a
 * folder that contains sys/.
 *
 * Return: how many checks were filled in, at most max.
 */
int verbs_check(const char *root, struct pst_check *ret, unsigned max);

#endif
