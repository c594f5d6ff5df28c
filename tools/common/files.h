/* SPDX-License-Identifier: MIT */
/* Whole files: scratch files, and the part of a file that the page cache holds. */
#ifndef CLI_FILES_H
#define CLI_FILES_H

#include "base/base.h"

/* Make a private directory under dir; NULL: in the default place for scratch files. */
int scratch_dir(const char *dir, char **ret_path);

/* Remove a directory made by scratch_dir(), and the plain files in it. */
void scratch_remove(const char *path);

/* Return true for scheme://rest, which the library does not take for a path. */
bool names_service(const char *name);

/* Return true for names of objects: s3://, https:// and http://. */
bool names_object(const char *name);

/* Return a copy of a name for sentences: without a URL's query and password.  NULL if out of
 * memory. */
char *shown_name(const char *name);

/* Return 0 for a path; -EPROTONOSUPPORT with a sentence for scheme://rest, which calls on
 * descriptors cannot open. */
int check_path(const char *name);

/* Set the sentence for a path that open(2) has just failed to open, naming the target of a dangling
 * link.  Return -errno. */
int fail_open(const char *path);

/* Write all bytes.  Return 0, or -errno with a sentence that contains name. */
int write_all(int fd, const void *buf, size_t len, const char *name);
int pread_all(int fd, void *buf, size_t len, uint64_t off, const char *name);
int pwrite_all(int fd, const void *buf, size_t len, uint64_t off, const char *name);

/* Drop a file's clean pages from the page cache, as far as the kernel complies. */
void drop_clean(int fd);

/* Write a file's dirty pages to the disk, then call drop_clean(). */
void make_cold(int fd);

/* Read a file once, so that the page cache holds it.  Return 0 or -errno. */
int make_warm(int fd, const char *name);

/*
 * Return the part of a file that is in the page cache, 0.0 to 1.0; negative if the kernel does not
 * tell (for files that are neither owned nor writable).
 */
double resident_part(int fd);

#endif
