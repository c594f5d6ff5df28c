/* SPDX-License-Identifier: MIT */
/*
 * Requests on memory that the CPU reaches, moved by the caller's thread (caller.c).
 */
#ifndef PST_CALLER_H
#define PST_CALLER_H

#include "core/queue/req.h"

#define PART_MAX MIB(4)        /* bytes of one part */
#define SUBMIT_COPY_MAX MIB(1) /* out of the page cache within pst_queue_submit() */

#endif
