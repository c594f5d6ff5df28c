/* SPDX-License-Identifier: MIT */
#ifndef PST_FDS_H
#define PST_FDS_H

/*
 * Grow the process' table of descriptors ahead of need.
 *
 * In a process with threads the kernel grows the table only after every CPU has forgotten the old
 * one.  This took 8 to 24 ms, during which a thread that needs a descriptor waits.  So the table
 * grows once, in the background if there are threads.  The call leaves no descriptor open, and
 * ignores failures.
 */
void fds_grow(void);

#endif
