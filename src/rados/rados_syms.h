/* SPDX-License-Identifier: MIT */
/*
 * List every function of librados.so.2 that Penstock calls, with its signature.  Define SYM(result,
 * name, args), then include this file; see base/dl.h.  Handles are void *, as in
 * <rados/librados.h>; check.c compares both if that header is installed.
 *
 * The formatter is off because it takes "type *" for a multiplication.
 */
/* clang-format off */
SYM(void, rados_version, (int *major, int *minor, int *extra))
SYM(int, rados_create2, (void **cluster, const char *name, const char *user, uint64_t flags))
SYM(int, rados_conf_read_file, (void *cluster, const char *path))
SYM(int, rados_conf_parse_env, (void *cluster, const char *variable))
SYM(int, rados_conf_set, (void *cluster, const char *option, const char *value))
SYM(int, rados_connect, (void *cluster))
SYM(void, rados_shutdown, (void *cluster))
SYM(int, rados_ioctx_create, (void *cluster, const char *pool, void **ioctx))
SYM(void, rados_ioctx_destroy, (void *ioctx))

SYM(int, rados_aio_create_completion2,
    (void *arg, void (*done)(void *completion, void *arg), void **completion))
SYM(int, rados_aio_get_return_value, (void *completion))
SYM(uint64_t, rados_aio_get_version, (void *completion))
SYM(void, rados_aio_release, (void *completion))
SYM(int, rados_aio_cancel, (void *ioctx, void *completion))

SYM(void *, rados_create_read_op, (void))
SYM(void, rados_release_read_op, (void *op))
SYM(void, rados_read_op_assert_version, (void *op, uint64_t version))
SYM(void, rados_read_op_stat, (void *op, uint64_t *size, time_t *mtime, int *result))
SYM(void, rados_read_op_getxattrs, (void *op, void **iter, int *result))
SYM(void, rados_read_op_read,
    (void *op, uint64_t off, size_t len, char *buf, size_t *got, int *result))
SYM(int, rados_aio_read_op_operate,
    (void *op, void *ioctx, void *completion, const char *object, int flags))
SYM(int, rados_getxattrs_next, (void *iter, const char **name, const char **value, size_t *len))
SYM(void, rados_getxattrs_end, (void *iter))

SYM(void *, rados_create_write_op, (void))
SYM(void, rados_release_write_op, (void *op))
SYM(void, rados_write_op_assert_version, (void *op, uint64_t version))
SYM(void, rados_write_op_create, (void *op, int exclusive, const char *category))
SYM(void, rados_write_op_write, (void *op, const char *buf, size_t len, uint64_t off))
SYM(void, rados_write_op_setxattr, (void *op, const char *name, const char *value, size_t len))
SYM(void, rados_write_op_cmpxattr,
    (void *op, const char *name, uint8_t compare, const char *value, size_t len))
SYM(void, rados_write_op_truncate, (void *op, uint64_t size))
SYM(void, rados_write_op_remove, (void *op))
SYM(int, rados_aio_write_op_operate,
    (void *op, void *ioctx, void *completion, const char *object, time_t *mtime, int flags))

SYM(int, rados_nobjects_list_open, (void *ioctx, void **list))
SYM(int, rados_nobjects_list_next,
    (void *list, const char **object, const char **key, const char **space))
SYM(void, rados_nobjects_list_close, (void *list))

#undef SYM
