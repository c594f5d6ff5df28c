/* SPDX-License-Identifier: MIT */
#ifndef USRBIO_KEEP_H
#define USRBIO_KEEP_H

#include "base/base.h"

static inline void keep_restore(const int *saved)
{
	errno = *saved;
}

/* Restore errno at the end of a public call.  To be used among the first declarations of the
 * call. */
#define KEEP_ERRNO _cleanup_(keep_restore) const int kept_errno = errno

#endif
