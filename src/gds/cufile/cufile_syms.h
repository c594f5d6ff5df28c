/* SPDX-License-Identifier: MIT */
/*
 * List every function of libcufile.so.0 that Penstock calls, under its exact ABI name.  Define
 * SYM(type, name, args) for required functions and OPT(type, name, args) for optional ones, then
 * include this file; see base/dl.h.  Required functions exist since 1.7 (CUDA 12.2); comments give
 * the first version of the optional ones.
 *
 * The formatter is off because it takes "type *" for a multiplication.
 */
/* clang-format off */
SYM(struct cuf_error, cuFileGetVersion, (int *ret))
SYM(struct cuf_error, cuFileDriverOpen, (void))
SYM(struct cuf_error, cuFileDriverClose_v2, (void))
SYM(long, cuFileUseCount, (void))
SYM(struct cuf_error, cuFileDriverGetProperties, (struct cuf_props *ret))

SYM(struct cuf_error, cuFileHandleRegister, (cuf_handle *ret, struct cuf_descr *descr))
SYM(void, cuFileHandleDeregister, (cuf_handle file))
SYM(struct cuf_error, cuFileBufRegister, (const void *base, size_t len, int flags))
SYM(struct cuf_error, cuFileBufDeregister, (const void *base))

SYM(ssize_t, cuFileRead, (cuf_handle file, void *base, size_t len, off_t file_off, off_t base_off))
SYM(ssize_t, cuFileWrite,
    (cuf_handle file, const void *base, size_t len, off_t file_off, off_t base_off))

/* since 1.14 */
OPT(struct cuf_error, cuFileSetParameterBool, (int param, bool value))

/* since 1.15 */
OPT(struct cuf_error, cuFileSetStatsLevel, (int level))
OPT(struct cuf_error, cuFileGetStatsLevel, (int *ret))
OPT(struct cuf_error, cuFileStatsStart, (void))
OPT(struct cuf_error, cuFileStatsStop, (void))
OPT(struct cuf_error, cuFileGetStatsL3, (void *ret))

/* since 1.16 */
OPT(struct cuf_error, cuFileDriverGetP2PFlags, (int type, int *ret))

#undef SYM
#undef OPT
