/* SPDX-License-Identifier: MIT */
/* Declarations shared by the files of gds/cufile; cufile.h lists the files. */
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

/* CUFILE_OPEN_MS, in milliseconds; tests set less. */
extern unsigned cufile_open_ms;

/* Keep the driver open, because an object of this process uses it. */
int cufile_hold(void);
void cufile_drop(void);

/* Return the KiB per device that libcufile allows to be registered; 0 if the driver is closed. */
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
 * Write paths of files that may be the library, best first: near libraries that the process has
 * loaded, then below cuda ("/usr/local").  Return the number written.
 */
unsigned cufile_places(const char *cuda, char (*ret)[PATH_MAX], unsigned max);

/* Find a file by name ("/libcufile.so.0") in a loader cache; return false if it has no readable
 * file of that name. */
bool cufile_cached(const char *cache, const char *name, char ret[PATH_MAX]);

/* Set the sentence that the library is missing.  Return -ENODEV. */
int cufile_absent(void);

/* --------------------------------------------------------------- transfers */

/* References of one transfer: the file and its registered slice. */
struct cufile_taken {
	struct cufile_file *file;
	struct cufile_mem *mem;
	cuf_handle handle;
	uint64_t base;     /* device address that was registered */
	uint64_t base_off; /* bytes from base to the first byte of the transfer */
	unsigned slice;
};

/* Hold the file for a transfer; return -EBADF if it is not open for this direction. */
int cufile_file_take(struct cufile_file *cf, bool write, cuf_handle *ret);
void cufile_file_untake(struct cufile_file *cf);
int cufile_mem_take(struct cufile_mem *m, uint64_t off, bool share, struct cufile_taken *ret);
void cufile_mem_untake(struct cufile_mem *m, unsigned slice);

/* [hangs] Stop libcufile from counting, if this process had it count. */
void cufile_counts_end(void);

#endif
