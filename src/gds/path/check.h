/* SPDX-License-Identifier: MIT */
/*
 * Needs of a direct path between a file and a GPU, and whether this machine meets them, as
 * sentences: facts of the machine (gds/facts/facts.h), the library, and a trial by another process.
 */
#ifndef PST_GDS_CHECK_H
#define PST_GDS_CHECK_H

#include "core/ways/path.h"

extern const struct topic gds_topic;

#endif
