/* SPDX-License-Identifier: MIT */
/*
 * These functions tell what a request's next jobs are like (job_size.c).  Callers hold the engine's
 * lock.
 */
#ifndef PST_JOB_SIZE_H
#define PST_JOB_SIZE_H

#include "core/engine/engine.h"

/* Are small pieces next, and many of them? */
bool req_is_scattered(const struct req *r);
/* Can the device copy the next piece from where it is? */
bool req_is_ready(const struct req *r);
/*
 * Is a long piece next that needs no slot?  Copying it costs the CPU nothing, and the device the
 * least if it goes together with others.  So one worker takes them for all.
 */
bool req_is_long(const struct req *r);

#endif
