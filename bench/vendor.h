/* SPDX-License-Identifier: MIT */
/* The vendor's libraries, loaded at run time: baselines call them by their ABI. */
#ifndef BENCH_VENDOR_H
#define BENCH_VENDOR_H

#include <stddef.h>

#include "bench/cufile/batch_types.h"
#include "mem/cuda/cuda_types.h"

extern struct cuda_api {
#define SYM(name, args) cu_result(*name) args;
#define OPT SYM
#include "mem/cuda/cuda_syms.h"
} cu;

extern struct cufile_api {
#define SYM(type, name, args) type(*name) args;
#define OPT SYM
#include "gds/cufile/cufile_syms.h"
#define SYM(type, name, args) type(*name) args;
#define OPT SYM
#include "bench/cufile/batch_syms.h"
} cuf;

/*
 * Fill cu from libcuda (or the file PST_LIBCUDA), and cuf from the given file.  Return 0; -ENODEV
 * if it cannot be loaded; -EOPNOTSUPP if it is too old; *why is the sentence.
 */
int vendor_cuda(char *why, size_t len);
int vendor_cufile(const char *file, char *why, size_t len);

#endif
