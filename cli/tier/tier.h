/* SPDX-License-Identifier: MIT */
/* Subcommands of penstock tier: arguments behind the set's name, an exit status or -errno. */
#ifndef CLI_TIER_H
#define CLI_TIER_H

#include "tier/set.h"

struct tier_opts {
	bool json, rebuild, same_fs;
	const char *policy; /* NULL: the default */
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

/* The sentence of src/tier for a failure. */
int fail_tier(int err);

/*
 * Open a set, be its only mover, end moves that a crash interrupted, and bring the catalogue up to
 * what the roots hold.
 */
int tier_open_locked(const char *name, struct tier_set **ret);

#endif
