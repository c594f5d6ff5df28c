/* SPDX-License-Identifier: MIT */
/* The vendor's libraries, found at run time: the baselines call them by their ABI. */
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
 * Fill cu from libcuda, which PST_LIBCUDA may name, and cuf from that file.  0; -ENODEV when it
 * cannot be loaded, -EOPNOTSUPP when it is too old, and @why is the sentence.
 */
int vendor_cuda(char *why, size_t len);
int vendor_cufile(const char *file, char *why, size_t len);

#endif
