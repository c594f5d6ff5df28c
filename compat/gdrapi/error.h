/* SPDX-License-Identifier: MIT */
#ifndef GDRAPI_ERROR_H
#define GDRAPI_ERROR_H

#include <errno.h>

/* libpenstock's result as gdrcopy's clients know it: a positive errno or 0. */
static inline int to_errno(int r)
{
	switch (r) {
	case -EFAULT:
	case -ERANGE:
	case -ENOTUNIQ:
		return EINVAL;
	case -EOWNERDEAD:
		return EACCES;
	default:
		return r < 0 ? -r : 0;
	}
}

#endif
