/* SPDX-License-Identifier: MIT */
#ifndef PST_DIO_H
#define PST_DIO_H

#include "base/base.h"

/*
 * What O_DIRECT asks of memory and of offsets, in bytes, powers of two.
 *
 * Return: 0; -EOPNOTSUPP when the file says that it has no O_DIRECT; -ENODATA when nobody says,
 * as before Linux 6.1.
 */
int dio_align(int fd, uint32_t *ret_mem, uint32_t *ret_off);

#endif
