/* SPDX-License-Identifier: MIT */
/*
 * The batch functions of libcufile.so.0, in the form of gds/cufile/cufile_syms.h.  The library
 * itself does not use them (docs/GDS.md says why): they are only measured.
 *
 * The formatter is off because it takes "type *" for a multiplication.
 */
/* clang-format off */
/* Since 1.7; missing in some builds. */
OPT(struct cuf_error, cuFileBatchIOSetUp, (cuf_batch *ret, unsigned nr))
OPT(struct cuf_error, cuFileBatchIOSubmit,
    (cuf_batch batch, unsigned nr, struct cuf_io_params *v, unsigned flags))
OPT(struct cuf_error, cuFileBatchIOGetStatus,
    (cuf_batch batch, unsigned min, unsigned *nr, struct cuf_io_event *ret,
     struct timespec *timeout))
OPT(void, cuFileBatchIODestroy, (cuf_batch batch))

#undef SYM
#undef OPT
