/* SPDX-License-Identifier: MIT */
/* A set of three directories with one file on hdd, for tests of the mover. */
#ifndef PST_TESTS_TIER_MOVE_RIG_H
#define PST_TESTS_TIER_MOVE_RIG_H

#include "t.h"
#undef T_ERROR_TEXT
#define T_ERROR_TEXT() err_text()

#include "tier/move.h"

#define SIZE 5000u
#define NAME "d/file"

extern char base[256];   /* directory of all files of the test */
extern uint64_t jump_ns; /* ns by which each reading advances the monotonic clock */
extern bool no_lease;    /* leases are refused */
extern bool no_watch;    /* fanotify is refused */
extern bool young;       /* new files are younger than a second */
/* Not NULL: set_up() calls it, and gives the set the root s3://bucket/cold. */
extern void (*object_begin)(void);
extern bool wrote; /* another process appended a byte to the file, successfully */

/* Return the path of a name on the class' root; valid until the next call. */
const char *path_of(enum tier_class class, const char *name);
void put(const char *path, size_t size);

void set_up(void);
void tear_down(void);

/* Open, lock, recover and scan the set. */
struct tier_set *open_set(struct recover_counts *counts);
unsigned files_in(const char *dir);

/* Check that the set has the file once, whole, and nothing else of the move.  result: of
 * move_file(). */
void check_set(int result);

/* Cases of checks.c. */
void copies_are_even(void);
void copy_is_read_back(void);
void room_is_reserved_first(void);
void roots_are_checked(void);
void keeps_attributes(void);
void refuses(void);
void stays_beneath(void);
void wrong_bytes(void);

#endif
