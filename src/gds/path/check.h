/* SPDX-License-Identifier: MIT */
/*
 * What a direct path between a file and a GPU needs, and what of it this machine has, as sentences
 * for people: facts of the machine (gds/facts/facts.h), the library, and a trial by another
 * process.
 */
#ifndef PST_GDS_CHECK_H
#define PST_GDS_CHECK_H

#include "core/path/path.h"

extern const struct topic gds_topic;

#endif
