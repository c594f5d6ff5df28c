/* SPDX-License-Identifier: MIT */
#ifndef USRBIO_KEEP_H
#define USRBIO_KEEP_H

#include "base/base.h"

static inline void keep_restore(const int *saved)
{
	errno = *saved;
}

/* At the top of a public call: at its end, errno has its old value again. */
#define KEEP_ERRNO _cleanup_(keep_restore) const int kept_errno = errno

#endif
