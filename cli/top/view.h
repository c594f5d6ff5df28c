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

/* A histogram with separate counts per bucket, not cumulative ones. */
struct times {
	double bucket[LATENCY_BUCKETS];
};

struct named {
	char name[24];
	double nr;
};

struct user {
	uid_t uid;
	long pid; /* the worker's process id, or 0 */
	char state[16];
	double rings, iovs, bytes_used;
	double restarts, failures, lies;
	double requests, errors, read, written;
	struct named path[VIEW_PATHS]; /* requests by path; unused entries come last */
	struct times times;
};

struct view {
	double at; /* seconds on the reader's clock */
	char dir[4 * PATH_MAX], source[4 * PATH_MAX], version[32];
	/* uptime: seconds; the others: maximum bytes of memory that a user may publish, INFINITY:
	 * unlimited */
	double uptime, bytes_limit;
	double ops, op_errors;
	struct times op_times;
	double passed;
	struct named cached[VIEW_CAUSES]; /* files opened with the kernel's cache instead of
					   * passthrough, by reason */
	struct user *users;
	unsigned nr_users, hidden;
	unsigned latest; /* index of the user in the last sample */
};

/* Parse the server's text, which is changed.  Return 0, or -errno with a sentence. */
int view_read(char *text, size_t len, double at, struct view *ret);
void view_done(struct view *v);

/* Print the rates between two views, with at most rows users and columns characters per line. */
void view_print(const struct view *before, const struct view *now, unsigned rows, unsigned columns,
		FILE *f);
struct json_object *view_json(const struct view *before, const struct view *now);

#endif
