/* SPDX-License-Identifier: MIT */
/* The metrics of a mount at two times, and the rates between them. */
#ifndef CLI_TOP_VIEW_H
#define CLI_TOP_VIEW_H

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "tools/common/json.h"
#include "usrbio/proto/latency.h"

#define VIEW_PATHS 16u
#define VIEW_CAUSES 8u

/* A histogram: how many were in each bucket, not yet added up. */
struct times {
	double bucket[LATENCY_BUCKETS];
};

struct named {
	char name[24];
	double nr;
};

struct user {
	uid_t uid;
	long pid; /* of the worker, or 0 */
	char state[16];
	double rings, iovs, bytes_used;
	double restarts, failures, lies;
	double requests, errors, read, written;
	struct named path[VIEW_PATHS]; /* requests by paths, those that there are first */
	struct times times;
};

struct view {
	double at; /* seconds, as the reader's clock has them */
	char dir[4 * PATH_MAX], source[4 * PATH_MAX], version[32];
	double uptime, bytes_limit; /* of memory that a user may publish; infinite: any */
	double ops, op_errors;
	struct times op_times;
	double passed;
	struct named cached[VIEW_CAUSES]; /* opens through the kernel's cache, by reason */
	struct user *users;
	unsigned nr_users, hidden;
	unsigned latest; /* the user whose number came last */
};

/* Parse the server's text, which is changed.  Return 0, or -errno with a sentence. */
int view_read(char *text, size_t len, double at, struct view *ret);
void view_done(struct view *v);

/* Print the rates between two views, with at most that many users (rows) and characters a line
 * (columns). */
void view_print(const struct view *before, const struct view *now, unsigned rows, unsigned columns,
		FILE *f);
struct json_object *view_json(const struct view *before, const struct view *now);

#endif
