/* SPDX-License-Identifier: MIT */
#ifndef STREAMER_LIST_H
#define STREAMER_LIST_H

#include "code.h"

/* Arguments of runai_file_streamer_list_files(). */
struct listing {
	const char *const *allow;
	unsigned nr_allow;
	const char *const *ignore;
	unsigned nr_ignore;
	int recursive;
	runai_list_fn fn;
	void *user_data;
};

/* List files.  Prefix and patterns are in the program's memory. */
int list_files(const struct listing *l, const char *prefix);

#endif
