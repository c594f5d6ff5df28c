/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/dio.h"

/* linux/stat.h of kernels before 6.1 lacks these members; struct statx has had room for them since
 * 4.11. */
#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x00002000U
#endif
/* Offset of the uint32_t memory alignment in struct statx; the offset alignment follows. */
#define STATX_DIO_MEM_ALIGN_AT 0x98

int dio_check(uint32_t mem, uint32_t off)
{
	return is_pow2(mem) && is_pow2(off) && mem <= DIO_MEM_MAX && off <= DIO_OFF_MAX ? 0
											: -ERANGE;
}

int dio_align(int fd, uint32_t *ret_mem, uint32_t *ret_off)
{
	uint32_t told[2];
	struct statx stx;

	(void)memset(&stx, 0, sizeof(stx));
	/* If a seccomp filter forbids statx(2), report unknown alignments, as a kernel before 6.1
	 * does. */
	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) < 0 ||
	    !(stx.stx_mask & STATX_DIOALIGN))
		return -ENODATA;
	(void)memcpy(told, (const char *)&stx + STATX_DIO_MEM_ALIGN_AT, sizeof(told));
	if (!told[0] && !told[1])
		return -EOPNOTSUPP;
	if (dio_check(told[0], told[1]) < 0)
		return -ERANGE;
	*ret_mem = told[0];
	*ret_off = told[1];
	return 0;
}
