/* SPDX-License-Identifier: MIT */
/*
 * Every function of libscal.so that Penstock calls, in the form of hlthunk_syms.h.  All return 0 on
 * success.
 *
 * The formatter is off because it would format `type *` as a product.
 */
/* clang-format off */
SYM(int, scal_get_handle_from_fd, (int fd, void **ret))
SYM(int, scal_get_pool_handle_by_name, (void *scal, const char *name, void **ret))
SYM(int, scal_pool_get_infoV2, (void *pool, struct scal_pool_info *ret))

#undef SYM
#undef OPT
