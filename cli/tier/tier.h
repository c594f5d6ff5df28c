/* SPDX-License-Identifier: MIT */
/* Subcommands of penstock tier: arguments behind the set's name, an exit status or -errno. */
#ifndef CLI_TIER_H
#define CLI_TIER_H

#include "tier/move.h"
#include "tier/scan.h"
#include "tier/set.h"

struct tier_opts {
	bool json, rebuild, same_fs;
	const char *policy; /* NULL: the default */
	const char *svg;    /* status: also to this file */
	unsigned every_s;   /* run: from the end of one round to the next; 0: not given */
	enum tier_class to;
	bool has_to;
	struct tier_set *init; /* what init is told */
};

int tier_init(const char *name, const struct tier_opts *o);
int tier_status(const char *name, const struct tier_opts *o);
int tier_ls(const char *name, const struct tier_opts *o);
int tier_df(const char *name, const struct tier_opts *o);
int tier_pin(const char *name, bool pinned, char *files[], int nr);
int tier_migrate(const char *name, const struct tier_opts *o, char *files[], int nr);
int tier_scrub(const char *name, const struct tier_opts *o);

int tier_run(const char *name, const struct tier_opts *o);
int tier_watch(const char *name, const struct tier_opts *o);

/* The sentence of src/tier for a failure. */
int fail_tier(int err);

/*
 * Open a set, be its only mover, end moves that a crash interrupted, and bring the catalogue up to
 * what the roots hold.
 */
int tier_open_locked(const char *name, struct tier_set **ret);

/* The facts of a set that a command prints. */
struct tier_look {
	bool busy; /* another process moves files: nothing was recovered and scanned */
	struct recover_counts recovered;
	struct scan_counts scan;
};

/* As tier_open_locked(), but without waiting for another mover: the catalogue is shown as it is. */
int tier_open_look(const char *name, struct tier_set **ret, struct tier_look *look);

/* Let other commands have the set for a moment.  False: a signal came; the set is not locked. */
bool tier_let_others(struct tier_set *set);

/*
 * Move what policy and watermarks say, in the background, with the set locked.  A file that cannot
 * be moved is said, and the others are moved.  0 or -errno; *ret_moved and *ret_failed count files.
 */
int tier_move_planned(struct tier_set *set, unsigned *ret_moved, unsigned *ret_failed);

/* The class of a root, by number. */
const char *tier_root_class(const struct tier_set *set, unsigned root);

/* Bars of what moves measured on each root; 0 or -errno with a sentence in fail_text(). */
int tier_svg(const struct tier_set *set, const char *path);

#endif
