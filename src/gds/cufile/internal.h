/* SPDX-License-Identifier: MIT */
/* Declarations that the files of cuFile share; cufile.h lists the files. */
#ifndef PST_GDS_CUFILE_INTERNAL_H
#define PST_GDS_CUFILE_INTERNAL_H

#include "gds/cufile/cufile_types.h"
#include "gds/cufile/cufile.h"

struct cufile_api {
#define SYM(type, name, args) type(*name) args;
#define OPT SYM
#include "gds/cufile/cufile_syms.h"
};

/* Filled by cufile_check(), constant afterwards. */
extern struct cufile_api cuf;

/* CUFILE_OPEN_MS; tests set less. */
extern unsigned cufile_open_ms;

/* Keep the open driver from being closed, because an object of this process uses it. */
int cufile_hold(void);
void cufile_drop(void);

/* Return the KiB that the library allows to be registered on a device; 0 while the driver is
 * closed. */
uint64_t cufile_pinnable_kib(void);

/* ------------------------------------------------------------------ errors */

/* Set the sentence "cuFile could not WHAT: why" with the cure, and return -errno. */
int cufile_err(struct cuf_error e, const char *fmt, ...) _printf_(2, 3);

/*
 * Return the result of a transfer of @asked bytes: bytes, or -errno with a sentence. @err is errno
 * right after the call, 0 if it was not set.
 */
int64_t cufile_result(int64_t ret, int err, uint64_t asked, bool write);

/* ------------------------------------------------------------------ places */

#define CUFILE_SONAME "libcufile.so.0"
#define CUFILE_PLACES 64u

/*
 * Files that may be the library, best first: beside what the process has loaded, then below
 * cuda ("/usr/local").  How many were written.
 */
unsigned cufile_places(const char *cuda, char (*ret)[PATH_MAX], unsigned max);

/* Find the file of that name ("/libcufile.so.0") in a cache of the loader; false if no readable
 * file is there. */
bool cufile_cached(const char *cache, const char *name, char ret[PATH_MAX]);

/* Set the sentence that the library is missing, and return -ENODEV. */
int cufile_absent(void);

/* --------------------------------------------------------------- transfers */

/* What one transfer uses: the file and its registered slice, both held. */
struct cufile_taken {
	struct cufile_file *file;
	struct cufile_mem *mem;
	cuf_handle handle;
	uint64_t base;     /* address as it was registered */
	uint64_t base_off; /* offset of the first byte from base */
	unsigned slice;
};

/* Hold the file for a transfer; -EBADF if it is not open for that direction. */
int cufile_file_take(struct cufile_file *cf, bool write, cuf_handle *ret);
void cufile_file_untake(struct cufile_file *cf);
int cufile_mem_take(struct cufile_mem *m, uint64_t off, bool share, struct cufile_taken *ret);
void cufile_mem_untake(struct cufile_mem *m, unsigned slice);

/* [hangs] Stop counting, if this process started it. */
void cufile_counts_end(void);

#endif
