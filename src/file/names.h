/* SPDX-License-Identifier: MIT */
/*
 * Calls on files by name.
 *
 * A provider may have these calls (file_ops.names). names.c finds the provider of a name, and
 * handles NULL members.
 */
#ifndef PST_FILE_NAMES_H
#define PST_FILE_NAMES_H

#include <penstock.h>

#include "base/base.h"

#define NAMES_LEVELS_MAX 128u /* directory levels of a tree that is listed */

/**
 * struct names_ops - what a provider does with names
 *
 * Calls come from any thread, several at once, and may block as file_ops.open().  Names include
 * scheme://; only their length was checked.  Each -errno has a sentence.  A NULL member means
 * "cannot".  The rules of each call, and its errors, are those of penstock/name.h.
 */
struct names_ops {
	/** @stat: @ret is zero except for sz */
	int (*stat)(const char *name, struct pst_name_info *ret);
	/** @list: @flags is 0 or PST_NAME_FACTS, and PST_NAME_TREE only with @lists_trees */
	int (*list)(const char *name, uint32_t flags, pst_name_fn fn, void *arg);
	/** @lists_trees: @list accepts PST_NAME_TREE; else names.c lists each directory */
	bool lists_trees;
	int (*unlink)(const char *name);
	/** @rename: @to has the same scheme */
	int (*rename)(const char *name, const char *to);
	/** @truncate: @size is at most INT64_MAX */
	int (*truncate)(const char *name, uint64_t size);
};

extern const struct names_ops local_names_ops;

int names_stat(const char *name, struct pst_name_info *ret);
int names_list(const char *name, uint32_t flags, pst_name_fn fn, void *arg);
int names_unlink(const char *name);
int names_rename(const char *name, const char *to);
int names_truncate(const char *name, uint64_t size);

#endif
