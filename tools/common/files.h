/* SPDX-License-Identifier: MIT */
/* Files as a whole: scratch ones, and the part of one that the page cache holds. */
#ifndef CLI_FILES_H
#define CLI_FILES_H

#include "base/base.h"

/* Make a private directory under dir, or where scratch files belong when it is NULL. */
int scratch_dir(const char *dir, char **ret_path);

/* Remove a directory of scratch_dir() and the plain files in it. */
void scratch_remove(const char *path);

/* Is it a name like scheme://rest, which the library takes for no path? */
bool names_service(const char *name);

/* Is it one of an object: s3://, https:// or http://? */
bool names_object(const char *name);

/* A copy of what sentences show of a name: without the query of a URL, and without a password.
 * NULL: no memory. */
char *shown_name(const char *name);

/* 0; -EPROTONOSUPPORT with a sentence for a name like scheme://rest, which the library takes for no
 * path: calls on descriptors do not work with it either. */
int check_path(const char *name);

/* -errno with a sentence for a path that open(2) failed for just now; says where a dead symbolic
 * link leads. */
int fail_open(const char *path);

/* All of it or -errno with a sentence; name is for the sentence. */
int write_all(int fd, const void *buf, size_t len, const char *name);
int pread_all(int fd, void *buf, size_t len, uint64_t off, const char *name);
int pwrite_all(int fd, const void *buf, size_t len, uint64_t off, const char *name);

/* Take the clean pages of a file out of the page cache, as far as the kernel obeys. */
void drop_clean(int fd);

/* Write the dirty pages of a file to its disk, then drop_clean(). */
void make_cold(int fd);

/* Read all of a file once, so that the page cache holds it; 0 or -errno. */
int make_warm(int fd, const char *name);

/*
 * The part of a file that is in the page cache, 0.0 to 1.0; negative where the kernel
 * does not say (a file that is neither owned nor writable).
 */
double resident_part(int fd);

#endif
