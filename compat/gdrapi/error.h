/* SPDX-License-Identifier: MIT */
#ifndef GDRAPI_ERROR_H
#define GDRAPI_ERROR_H

#include <errno.h>

/* Convert libpenstock's result into gdrcopy's form: 0 or a positive errno. */
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
