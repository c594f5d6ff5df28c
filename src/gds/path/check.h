/* SPDX-License-Identifier: MIT */
/*
 * What a direct path between a file and a GPU needs, and what of it this machine has, as sentences
 * for people: facts of the machine (gds/facts/facts.h), the library, and a trial by another
 * process.
 */
#ifndef PST_GDS_CHECK_H
#define PST_GDS_CHECK_H

#include <penstock.h>

#include "gds/facts/facts.h"

#define GDS_CHECKS_MAX (GDS_FACTS_MAX + 2u)

/*
 * fd: a file, or without a trial a directory.  dev: an NVIDIA GPU, or NULL for only the file's
 * side.  trial_deadline_ns: when the trial is given up; 0: there is none.
 *
 * Return: how many checks; -EINVAL for a trial of what has no bytes, or without a device; -errno
 * when fd cannot be looked at.
 */
int gds_check(int fd, const struct pst_device *dev, uint64_t trial_deadline_ns,
	      struct gds_fact ret[GDS_CHECKS_MAX]);

#endif
