/* SPDX-License-Identifier: MIT */
/* Compare rados_syms.h with the real header, if it is installed (librados-dev). */
#include "rados/lib.h"

#if __has_include(<rados/librados.h>)
#include <rados/librados.h>

#define SYM(result, name, args)                                                           \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&name),                    \
						    __typeof__(((struct lib *)0)->name)), \
		       #name " differs from <rados/librados.h>");
#include "rados/rados_syms.h"

_Static_assert(LIB_FULL_TRY == LIBRADOS_OPERATION_FULL_TRY, "a flag differs");
_Static_assert(LIB_EXCLUSIVE == LIBRADOS_CREATE_EXCLUSIVE, "a flag differs");
_Static_assert(LIB_EQUAL == LIBRADOS_CMPXATTR_OP_EQ, "a number differs");
#endif
