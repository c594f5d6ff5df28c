/* SPDX-License-Identifier: MIT */
/* Shared by the parts of the random checker: its random numbers, open files and verdicts. */
#ifndef PST_TESTS_MOUNT_MODEL_H
#define PST_TESTS_MOUNT_MODEL_H

#include <sys/stat.h>

#include "tree.h"

#define MODEL_HANDLES 12u

/* Kinds of operations.  A burst through the source has only one kind. */
enum { DEED_NAMES = 1, DEED_BYTES = 2, DEED_ATTRS = 4, DEED_LOOKS = 8 };

enum view { VIEW_MOUNT, VIEW_SOURCE };

struct handle {
	int fd; /* -1: unused */
	int flags;
	struct node *node;
	uint8_t *map; /* a mapping of TREE_FILE bytes, or NULL */
};

struct model {
	const char *base[2]; /* the tree's root through mount and source; equal without a source */
	bool has_source;
	enum view view; /* view through which operations go */
	unsigned burst; /* DEED_* during a burst through the source; else 0 */
	bool has_xattrs, has_zero_range, has_punch;
	bool tiers; /* the directory is a set of tiers: see refuses() in model_names.c */
	struct handle handles[MODEL_HANDLES];
};

extern struct model model;

/* ------------------------------------------------------------------- dice */

uint64_t dice(void);
/* Return a random number from 0 to n - 1. */
unsigned below(size_t n);
bool one_in(unsigned n);

/* --------------------------------------------------------------- verdicts */

/* Note the current operation for the report. */
void deed_is(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Report a difference and end. */
_Noreturn void differs(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Check that a call failed with the errno @should, or succeeded if @should is 0. Return true if it
 * succeeded. */
bool ended(long result, int should);
/* Like ended(), with two possible errors: the order of the kernel's checks may differ. */
bool ended_either(long result, int should, int or_else);

/* ------------------------------------------------------------------ paths */

/* Return the path in a view; valid until three more calls. */
const char *full(enum view view, const char *path);
/* Pick a path, usually of something that exists. */
void some_path(bool there, char ret[TREE_PATH]);
/* Pick the path of a file that has a name.  Return false if there is none. */
bool some_file(char ret[TREE_PATH]);

/* ------------------------------------------------------------------ files */

struct range {
	size_t off, len;
};

/* Pick a range in or around the file's bytes, usually a short one; off + len <= TREE_FILE. */
struct range some_range(const struct node *node);
/* Return how many bytes of the range the file has. */
size_t range_have(const struct node *node, struct range r);

/* Compare bytes that were read at off with the model. */
void compare(const struct node *node, size_t off, const uint8_t *got, size_t len);
/* Put written bytes into the model. */
void written(struct node *node, struct range r, const uint8_t *bytes, struct timespec before);

/* Pick an open file; open one if none is open.  Return NULL if there is no file. */
struct handle *some_handle(void);
bool handle_reads(const struct handle *h);
bool handle_writes(const struct handle *h);
/* Note an operation on an open file for the report, with the model's state of the file. */
void deed_on(const char *verb, const struct handle *h, struct range r);

struct handle *handle_add(int fd, int flags, struct node *node);
void handle_close(struct handle *h);
void handles_close(void);

/* ------------------------------------------------------------------ times */

/* Return the earliest modification time of an operation; call this before it. */
struct timespec time_before(void);
void time_since(struct node *node, struct timespec before);

/* ----------------------------------------------------------------- checks */

void check_stat(const struct stat *st, struct node *node, enum view view);
/* Check all bytes of a file, from its beginning to past its end. */
void check_bytes(int fd, const struct node *node);
/* Check names, attributes and bytes of the whole tree. */
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

/* Set up rings of the mount on which dir lies.  Return false if it has none. */
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
