/* SPDX-License-Identifier: MIT */
/*
 * The needs of a direct path between a file and a GPU, and which of them this machine meets, as
 * sentences for people: facts of the machine (gds/facts/facts.h), the library, and a trial by
 * another process.
 */
#ifndef PST_GDS_CHECK_H
#define PST_GDS_CHECK_H

#include "core/ways/path.h"

extern const struct topic gds_topic;

#endif
