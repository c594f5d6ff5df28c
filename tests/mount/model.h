/* SPDX-License-Identifier: MIT */
/* Shared by the parts of the random checker: its random numbers, open files and verdicts. */
#ifndef PST_TESTS_MOUNT_MODEL_H
#define PST_TESTS_MOUNT_MODEL_H

#include <sys/stat.h>

#include "tree.h"

#define MODEL_HANDLES 12u

/* Kinds of operations: those of a burst through the source are of one kind. */
enum { DEED_NAMES = 1, DEED_BYTES = 2, DEED_ATTRS = 4, DEED_LOOKS = 8 };

enum view { VIEW_MOUNT, VIEW_SOURCE };

struct handle {
	int fd; /* -1: unused */
	int flags;
	struct node *node;
	uint8_t *map; /* TREE_FILE bytes of it, or NULL */
};

struct model {
	const char *base[2]; /* the tree's root through mount and source; the same without source */
	bool has_source;
	enum view view; /* what operations go through */
	unsigned burst; /* DEED_*, or 0: operations go through the mount */
	bool has_xattrs, has_zero_range, has_punch;
	bool tiers; /* the directory is a set of tiers: see refuses() in model_names.c */
	struct handle handles[MODEL_HANDLES];
};

extern struct model model;

/* ------------------------------------------------------------------- dice */

uint64_t dice(void);
/* 0 .. n - 1 */
unsigned below(size_t n);
bool one_in(unsigned n);

/* --------------------------------------------------------------- verdicts */

/* The operation under way, for the report. */
void deed_is(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Something is not as it should be: report and end. */
_Noreturn void differs(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Did it succeed?  It must have ended with that errno, or 0. */
bool ended(long result, int should);
/* Check the result, where the order of the kernel's checks decides between two errors. */
bool ended_either(long result, int should, int or_else);

/* ------------------------------------------------------------------ paths */

/* The path in a view; good until the third call after it. */
const char *full(enum view view, const char *path);
/* Some path: mostly of something that is there. */
void some_path(bool there, char ret[TREE_PATH]);
/* The path of some file that has a name; false if there is none. */
bool some_file(char ret[TREE_PATH]);

/* ------------------------------------------------------------------ files */

struct range {
	size_t off, len;
};

/* Around what is there, most of them short; off + len <= TREE_FILE. */
struct range some_range(const struct node *node);
/* So much of it is there. */
size_t range_have(const struct node *node, struct range r);

/* The bytes that were read must be those of the model, from off on. */
void compare(const struct node *node, size_t off, const uint8_t *got, size_t len);
/* These bytes are in the file now. */
void written(struct node *node, struct range r, const uint8_t *bytes, struct timespec before);

/* Return an open file; open one if none is open.  Return NULL if there is no file. */
struct handle *some_handle(void);
bool handle_reads(const struct handle *h);
bool handle_writes(const struct handle *h);
/* An operation on an open file, with what led to the model's expectation. */
void deed_on(const char *verb, const struct handle *h, struct range r);

struct handle *handle_add(int fd, int flags, struct node *node);
void handle_close(struct handle *h);
void handles_close(void);

/* ------------------------------------------------------------------ times */

/* From now on; before the operation. */
struct timespec time_before(void);
void time_since(struct node *node, struct timespec before);

/* ----------------------------------------------------------------- checks */

void check_stat(const struct stat *st, struct node *node, enum view view);
/* Check all bytes of a file, from its beginning to past its end. */
void check_bytes(int fd, const struct node *node);
/* Names, attributes and bytes of the whole tree. */
void check_all(enum view view);
/* Open each file again and check its bytes. */
void check_files(enum view view);
void check_names(const struct node *dir, const char *path, enum view view);

/* ------------------------------------------------------------- operations */

void deed_open(void);
void deed_mkdir(void);
void deed_rmdir(void);
void deed_unlink(void);
void deed_rename(void);
void deed_link(void);
void deed_symlink(void);

void deed_reopen(void);
void deed_close(void);
void deed_pread(void);
void deed_pwrite(void);
void deed_append(void);
void deed_ftruncate(void);
void deed_truncate(void);
void deed_fallocate(void);
void deed_copy(void);
void deed_seek(void);
void deed_map(void);
void deed_map_write(void);
void deed_map_read(void);
void deed_direct(void);
void deed_source_read(void);

/* Rings of the mount that dir lies on, if it has some. */
bool rings_begin(const char *dir);
void rings_end(void);
void deed_ring_read(void);
void deed_ring_write(void);

void deed_chmod(void);
void deed_utimens(void);
void deed_setxattr(void);
void deed_removexattr(void);
void deed_getxattr(void);
void deed_stat(void);
void deed_fstat(void);
void deed_readlink(void);
void deed_readdir(void);

const char *xattr_name(unsigned which);

#endif
