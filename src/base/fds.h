/* SPDX-License-Identifier: MIT */
#ifndef PST_FDS_H
#define PST_FDS_H

/*
 * Have room in the process' table of descriptors for those of the library.
 *
 * The kernel lets the table of a process with threads grow no sooner than every CPU has forgotten
 * the old one: that took 8 to 24 ms where it was measured, and who needs a descriptor waits.  So
 * this has it grow once, ahead of need, and where there are threads, in the background.  It opens
 * nothing that stays, and gives up without a word.
 */
void fds_grow(void);

#endif
