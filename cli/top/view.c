/* SPDX-License-Identifier: MIT */
#include "cli/top/view.h"

#include <math.h>

#include "cli/top/samples.h"
#include "tools/common/shown.h"
#include "tools/common/util.h"

#define USERS_MAX 65536u

/* Return the user with the sample's number, adding one if needed; NULL if there is no room. */
static struct user *view_user_of(struct view *v, const struct sample *s)
{
	unsigned long uid = strtoul(sample_label(s, "uid"), NULL, 10);
	struct user *more;

	/* The server writes each metric for all users in the same order, so begin the search at the
	 * user of the last sample. */
	for (unsigned i = 0; i < v->nr_users; i++) {
		unsigned at = (v->latest + i) % v->nr_users;

		if (v->users[at].uid == uid) {
			v->latest = at;
			return &v->users[at];
		}
	}
	if (v->nr_users == USERS_MAX)
		return NULL;
	if (is_pow2(v->nr_users) || !v->nr_users) {
		more = realloc(v->users, MAX(2 * v->nr_users, 1u) * sizeof(*more));
		if (!more)
			return NULL;
		v->users = more;
	}
	more = &v->users[v->nr_users++];
	*more = (struct user){ .uid = (uid_t)uid };
	return more;
}

/* Add a bucket's count, which in Prometheus' format includes all shorter latencies; apart()
 * subtracts them. */
static void add_bucket(struct times *t, const struct sample *s)
{
	double le = strtod(sample_label(s, "le"), NULL) * 1e9;
	unsigned i = 0;

	while (i + 1 < LATENCY_BUCKETS && le > (double)latency_end(i) * 1.0001)
		i++;
	t->bucket[i] += s->value;
}

/* Turn cumulative counts into the count of each bucket. */
static void apart(struct times *t)
{
	for (unsigned i = LATENCY_BUCKETS - 1; i > 0; i--)
		t->bucket[i] = MAX(t->bucket[i] - t->bucket[i - 1], 0.0);
}

static void set_named(struct named *to, unsigned nr, const char *name, double value)
{
	for (unsigned i = 0; i < nr; i++) {
		if (to[i].name[0] && strcmp(to[i].name, name) != 0)
			continue;
		shown(to[i].name, sizeof(to[i].name), name);
		to[i].nr += value;
		return;
	}
}

/* Metrics that each user has exactly once. */
static const struct {
	const char *name;
	size_t at; /* offset in struct user */
} plain[] = {
	{ "penstock_rings", offsetof(struct user, rings) },
	{ "penstock_iovs", offsetof(struct user, iovs) },
	{ "penstock_quota_bytes_used", offsetof(struct user, bytes_used) },
	{ "penstock_worker_restarts_total", offsetof(struct user, restarts) },
	{ "penstock_worker_start_failures_total", offsetof(struct user, failures) },
	{ "penstock_worker_lies_total", offsetof(struct user, lies) },
	{ "penstock_ring_requests_total", offsetof(struct user, requests) },
	{ "penstock_ring_errors_total", offsetof(struct user, errors) },
	{ "penstock_ring_read_bytes_total", offsetof(struct user, read) },
	{ "penstock_ring_written_bytes_total", offsetof(struct user, written) },
};

static void take_user(struct user *u, const struct sample *s)
{
	for (unsigned i = 0; i < ARRAY_SIZE(plain); i++)
		if (!strcmp(s->name, plain[i].name))
			*(double *)(void *)((char *)u + plain[i].at) = s->value;
	if (!strcmp(s->name, "penstock_worker_info")) {
		u->pid = strtol(sample_label(s, "pid"), NULL, 10);
		shown(u->state, sizeof(u->state), sample_label(s, "state"));
	} else if (!strcmp(s->name, "penstock_ring_paths_total")) {
		set_named(u->path, VIEW_PATHS, sample_label(s, "path"), s->value);
	} else if (!strcmp(s->name, "penstock_ring_request_seconds_bucket")) {
		add_bucket(&u->times, s);
	}
}

static void take_mount(struct view *v, const struct sample *s)
{
	if (!strcmp(s->name, "penstock_mount_info")) {
		shown(v->dir, sizeof(v->dir), sample_label(s, "dir"));
		shown(v->source, sizeof(v->source), sample_label(s, "source"));
		shown(v->version, sizeof(v->version), sample_label(s, "version"));
	} else if (!strcmp(s->name, "penstock_uptime_seconds")) {
		v->uptime = s->value;
	} else if (!strcmp(s->name, "penstock_quota_bytes_limit")) {
		v->bytes_limit = s->value;
	} else if (!strcmp(s->name, "penstock_users_hidden")) {
		v->hidden = (unsigned)MIN(MAX(s->value, 0.0), 1e9);
	} else if (!strcmp(s->name, "penstock_fuse_operations_total")) {
		v->ops += s->value;
	} else if (!strcmp(s->name, "penstock_fuse_errors_total")) {
		v->op_errors += s->value;
	} else if (!strcmp(s->name, "penstock_fuse_operation_seconds_bucket")) {
		add_bucket(&v->op_times, s);
	} else if (!strcmp(s->name, "penstock_opens_total")) {
		if (!strcmp(sample_label(s, "way"), "passthrough"))
			v->passed = s->value;
		else
			set_named(v->cached, VIEW_CAUSES, sample_label(s, "reason"), s->value);
	}
}

static int view_take(void *arg, const struct sample *s)
{
	struct view *v = arg;
	struct user *u;

	if (!*sample_label(s, "uid")) {
		take_mount(v, s);
		return 0;
	}
	u = view_user_of(v, s);
	if (!u)
		return -ENOMEM;
	take_user(u, s);
	return 0;
}

int view_read(char *text, size_t len, double at, struct view *ret)
{
	unsigned line;
	int r;

	*ret = (struct view){ .at = at, .bytes_limit = INFINITY };
	r = samples_read(text, len, view_take, ret, &line);
	if (r < 0) {
		view_done(ret);
		return r == -EPROTO ? fail(EPROTO, "line %u of the server's numbers makes no sense",
					   line)
				    : fail(-r, "the server's numbers: %s", strerror(-r));
	}
	apart(&ret->op_times);
	for (unsigned i = 0; i < ret->nr_users; i++)
		apart(&ret->users[i].times);
	return 0;
}

void view_done(struct view *v)
{
	free(v->users);
	*v = (struct view){ 0 };
}
