/* SPDX-License-Identifier: MIT */
#ifndef PST_DIO_H
#define PST_DIO_H

#include "base/base.h"

/*
 * The largest supported alignments, bytes.  Slots and other memory of the library are aligned to
 * pages only, and a slot of 256 KiB or more must have room for at least two blocks.  The kernel
 * supports no larger block sizes; a file system reports more if its unit is an extent, or by
 * mistake.
 */
#define DIO_MEM_MAX KIB(4)
#define DIO_OFF_MAX KIB(64)

/* Return 0 if the alignments are supported, else -ERANGE. */
int dio_check(uint32_t mem, uint32_t off);

/*
 * Return the alignments of memory and of offsets that O_DIRECT needs, in bytes, powers of two.
 * Return: 0; -EOPNOTSUPP if the file has no O_DIRECT; -ERANGE if an alignment is no power of two or
 * too large; -ENODATA if the kernel does not report it, as before Linux 6.1.
 */
int dio_align(int fd, uint32_t *ret_mem, uint32_t *ret_off);

#endif
