/* SPDX-License-Identifier: MIT */
/* Subcommands of penstock tier: each gets the arguments after the set's name, and returns an exit
 * status or -errno. */
#ifndef CLI_TIER_H
#define CLI_TIER_H

#include "tier/move.h"
#include "tier/scan.h"
#include "tier/set.h"

struct tier_opts {
	bool json, rebuild, same_fs;
	const char *policy; /* NULL: the default policy */
	const char *svg;    /* status: file for a drawing, or NULL */
	unsigned every_s;   /* run: seconds between two rounds; 0: not given */
	enum tier_class to;
	bool has_to;
	struct tier_set *init; /* settings for init */
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

/* Keep the sentence of a failure in src/tier for the command.  Return -|err|. */
int fail_tier(int err);

/*
 * Open and lock a set, end moves that a crash interrupted, and scan the roots into the
 * catalogue.
 */
int tier_open_locked(const char *name, struct tier_set **ret);

/* Facts about a set, for printing. */
struct tier_look {
	bool busy; /* another process moves files, so nothing was recovered or scanned */
	struct recover_counts recovered;
	struct scan_counts scan;
};

/* Open as tier_open_locked() does, but do not wait for another mover: use the catalogue as it
 * is. */
int tier_open_look(const char *name, struct tier_set **ret, struct tier_look *look);

/* Unlock the set briefly, so that other commands can lock it.  Return false, with the set unlocked,
 * after a signal. */
bool tier_let_others(struct tier_set *set);

/*
 * Make all moves that policy and watermarks demand, in the background, with the set locked.  A file
 * that cannot be moved is reported and skipped.  Return 0 or -errno; *ret_moved and *ret_failed
 * count files.
 */
int tier_move_planned(struct tier_set *set, unsigned *ret_moved, unsigned *ret_failed);

/* Return the class of a root, by the root's index. */
const char *tier_root_class(const struct tier_set *set, unsigned root);

/* Draw bars of the rates measured on each root.  Return 0, or -errno with a sentence in
 * fail_text(). */
int tier_svg(const struct tier_set *set, const char *path);

#endif
