/* SPDX-License-Identifier: MIT */
#ifndef PST_DIO_H
#define PST_DIO_H

#include "base/base.h"

/*
 * The largest that is served.  Memory of slots and of ours begins on pages and on nothing
 * larger, and a slot, of 256 KiB or more, holds a block in front of at least one more.  The
 * kernel's own block sizes end there too; a file system tells more if its unit is an extent, or by
 * mistake.
 */
#define DIO_MEM_MAX KIB(4)
#define DIO_OFF_MAX KIB(64)

/* 0 for alignments that can be served, else -ERANGE. */
int dio_check(uint32_t mem, uint32_t off);

/*
 * The alignments that O_DIRECT asks of memory and of offsets, in bytes, powers of two.
 *
 * Return: 0; -EOPNOTSUPP when the file says that it has no O_DIRECT; -ERANGE when it asks for what
 * is no power of two or above these bounds; -ENODATA when nobody says, as before Linux 6.1.
 */
int dio_align(int fd, uint32_t *ret_mem, uint32_t *ret_off);

#endif
