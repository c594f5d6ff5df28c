/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/metrics.h"

#include <inttypes.h>
#include <linux/fuse.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <penstock.h>

#include "base/shown.h"
#include "usrbio/mount/log.h"

#define SECONDS(ns) ((double)(ns) / 1e9)

/* A snapshot of the users, and the text being written. */
struct page {
	FILE *f;
	struct fs *fs;
	struct broker_user *users;
	size_t nr_users, nr_hidden;
	const char *name; /* name of the current family */
};

/* Begin a family: numbers of one name. */
static void mount_metrics_family(struct page *p, const char *name, const char *type,
				 const char *help)
{
	p->name = name;
	(void)fprintf(p->f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void counter(struct page *p, const char *name, const char *help)
{
	mount_metrics_family(p, name, "counter", help);
}

static void metrics_gauge(struct page *p, const char *name, const char *help)
{
	mount_metrics_family(p, name, "gauge", help);
}

/* Write a number.  labels: NULL, or a format such as "uid=\"%u\"". */
static void metrics_put(struct page *p, uint64_t value, const char *labels, ...) _printf_(3, 4);
static void metrics_put(struct page *p, uint64_t value, const char *labels, ...)
{
	va_list ap;

	(void)fputs(p->name, p->f);
	if (labels) {
		(void)fputc('{', p->f);
		va_start(ap, labels);
		(void)vfprintf(p->f, labels, ap);
		va_end(ap);
		(void)fputc('}', p->f);
	}
	(void)fprintf(p->f, " %" PRIu64 "\n", value);
}

struct label {
	char s[8192];
};

/* Escape a text as the value of a label. */
static struct label metrics_label(const char *text)
{
	char safe[sizeof(struct label) / 2];
	struct label ret;
	char *to = ret.s;

	shown(safe, sizeof(safe), text);
	for (const char *s = safe; *s; s++) {
		if (*s == '"' || *s == '\\')
			*to++ = '\\';
		*to++ = *s;
	}
	*to = '\0';
	return ret;
}

/* Write a histogram in seconds.  Prometheus' buckets are cumulative; the counters are not. */
static void histogram(struct page *p, const char *key, const char *value,
		      const uint64_t bucket[LATENCY_BUCKETS], uint64_t ns)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i + 1 < LATENCY_BUCKETS; i++) {
		sum += bucket[i];
		(void)fprintf(p->f, "%s_bucket{%s=\"%s\",le=\"%.9g\"} %" PRIu64 "\n", p->name, key,
			      value, SECONDS(latency_end(i)), sum);
	}
	sum += bucket[LATENCY_BUCKETS - 1];
	(void)fprintf(p->f, "%s_bucket{%s=\"%s\",le=\"+Inf\"} %" PRIu64 "\n", p->name, key, value,
		      sum);
	(void)fprintf(p->f, "%s_sum{%s=\"%s\"} %.9f\n", p->name, key, value, SECONDS(ns));
	(void)fprintf(p->f, "%s_count{%s=\"%s\"} %" PRIu64 "\n", p->name, key, value, sum);
}

/* ---------------------------------------------------------------- the mount */

static void mount_numbers(struct page *p)
{
	const struct fs_opts *o = p->fs->opts;
	struct nodes *ns = &p->fs->nodes;
	uint64_t nr, fds;

	(void)pthread_mutex_lock(&ns->lock);
	nr = ns->nr;
	fds = ns->nr_fds;
	(void)pthread_mutex_unlock(&ns->lock);
	metrics_gauge(p, "penstock_mount_info",
		      "The mount, its source, and the version that serves it.");
	metrics_put(p, 1, "dir=\"%s\",source=\"%s\",version=\"%u.%u.%u\"", metrics_label(o->dir).s,
		    metrics_label(o->source).s, PST_VERSION_MAJOR, PST_VERSION_MINOR,
		    PST_VERSION_PATCH);
	metrics_gauge(p, "penstock_uptime_seconds", "Time for which it has been served.");
	metrics_put(p, (now_ns() - p->fs->since) / NSEC_PER_SEC, NULL);
	metrics_gauge(p, "penstock_passthrough",
		      "Does the kernel pass bytes of files on by itself?");
	metrics_put(p, p->fs->passes, NULL);
	metrics_gauge(p, "penstock_inodes", "Inodes that the kernel knows.");
	metrics_put(p, nr, NULL);
	metrics_gauge(p, "penstock_inode_descriptors", "Of these, inodes that are kept open.");
	metrics_put(p, fds, NULL);
}

static void op_numbers(struct page *p)
{
	static const unsigned moves[] = { FUSE_READ, FUSE_WRITE, FUSE_COPY_FILE_RANGE };

	counter(p, "penstock_fuse_operations_total", "Operations that the kernel asked for.");
	for (unsigned i = 0; i < COUNTS_OPS; i++)
		if (count_get(&counts.op[i].nr))
			metrics_put(p, count_get(&counts.op[i].nr), "op=\"%s\"", counts_op_name(i));
	counter(p, "penstock_fuse_errors_total",
		"Operations by the error that they ended with; many are no fault of anybody.");
	for (unsigned i = 0; i < COUNTS_OPS; i++)
		for (int e = 0; e < (int)COUNTS_ERRNOS; e++)
			if (count_get(&counts.op[i].error[e]))
				metrics_put(p, count_get(&counts.op[i].error[e]),
					    "op=\"%s\",error=\"%s\"", counts_op_name(i),
					    e ? log_errno(e) : "other");
	counter(p, "penstock_fuse_bytes_total",
		"Bytes of files that went through the server, and not by the kernel or by rings.");
	for (unsigned i = 0; i < ARRAY_SIZE(moves); i++)
		metrics_put(p, count_get(&counts.op[moves[i]].bytes), "op=\"%s\"",
			    counts_op_name(moves[i]));
	mount_metrics_family(p, "penstock_fuse_operation_seconds", "histogram",
			     "Time from taking an operation to having answered it.");
	for (unsigned i = 0; i < COUNTS_OPS; i++) {
		struct counts_op *o = &counts.op[i];
		uint64_t bucket[LATENCY_BUCKETS];

		for (unsigned b = 0; b < LATENCY_BUCKETS; b++)
			bucket[b] = count_get(&o->bucket[b]);
		if (count_get(&o->nr))
			histogram(p, "op", counts_op_name(i), bucket, count_get(&o->ns));
	}
}

static void open_numbers(struct page *p)
{
	counter(p, "penstock_opens_total",
		"Opened files, by the way that their bytes go and the reason for it.");
	metrics_put(p, count_get(&counts.passed), "way=\"passthrough\",reason=\"\"");
	for (unsigned i = 0; i < NR_CAUSES; i++)
		metrics_put(p, count_get(&counts.cached[i]), "way=\"cache\",reason=\"%s\"",
			    counts_cause_name((enum counts_cause)i));
	counter(p, "penstock_passthrough_refusals_total",
		"Files that the kernel refused to pass through, by its error.");
	for (int e = 0; e < (int)COUNTS_ERRNOS; e++)
		if (count_get(&counts.refused[e]))
			metrics_put(p, count_get(&counts.refused[e]), "error=\"%s\"",
				    e ? log_errno(e) : "other");
}

static void broker_numbers(struct page *p)
{
	static const struct {
		const char *name, *help;
		_Atomic uint64_t *of;
	} all[] = {
		{ "penstock_broker_messages_total", "Messages to workers.", counts.asked },
		{ "penstock_broker_message_errors_total", "Of these, answered with an error.",
		  counts.failed },
		{ "penstock_broker_unanswered_total",
		  "Of these, not answered: the worker is ended then.", counts.unanswered },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(all); i++) {
		counter(p, all[i].name, all[i].help);
		for (unsigned op = LINK_FILE_ADD; op < LINK_OPS; op++)
			metrics_put(p, count_get(&all[i].of[op]), "op=\"%s\"",
				    counts_link_name((enum link_op)op));
	}
	counter(p, "penstock_log_suppressed_total",
		"Lines of the log that were not written: too many of a kind, or nobody took them.");
	metrics_put(p, log_suppressed(), NULL);
	counter(p, "penstock_metrics_clients_total", "Clients that came for these numbers.");
	metrics_put(p, count_get(&counts.clients), NULL);
	counter(p, "penstock_metrics_clients_cut_off_total",
		"Of these, too slow to ask or to take the answer.");
	metrics_put(p, count_get(&counts.cut_off), NULL);
	counter(p, "penstock_metrics_clients_turned_away_total",
		"Of these, sent away because too many came after them.");
	metrics_put(p, count_get(&counts.turned_away), NULL);
}

/* -------------------------------------------------------------------- users */

/* Write the limits of each user.  "+Inf" is Prometheus' value for no limit. */
static void quota_numbers(struct page *p)
{
	const struct broker_quota *q = &p->fs->opts->quota;

	metrics_gauge(p, "penstock_quota_links_limit",
		      "Buffers and rings that a user may publish.");
	metrics_put(p, q->links, NULL);
	metrics_gauge(p, "penstock_quota_rings_limit", "Rings that a user may publish.");
	metrics_put(p, q->rings, NULL);
	metrics_gauge(p, "penstock_quota_bytes_limit", "Bytes of memory that a user may publish.");
	if (q->bytes)
		metrics_put(p, q->bytes, NULL);
	else
		(void)fprintf(p->f, "%s +Inf\n", p->name);
}

static uint64_t restarts(const struct broker_user *u)
{
	return u->nr_starts ? u->nr_starts - 1 : 0;
}

static void worker_numbers(struct page *p)
{
	static const struct {
		const char *name, *help;
		size_t at; /* offset in struct broker_user */
		bool wide, counts;
	} all[] = {
		{ "penstock_rings", "Rings that the user has published.",
		  offsetof(struct broker_user, nr_rings), false, false },
		{ "penstock_iovs", "Buffers that the user has published.",
		  offsetof(struct broker_user, nr_buffers), false, false },
		{ "penstock_quota_bytes_used", "Bytes of memory that the user has published.",
		  offsetof(struct broker_user, bytes), true, false },
		{ "penstock_worker_starts_total", "Workers of the user that were started.",
		  offsetof(struct broker_user, nr_starts), true, true },
		{ "penstock_worker_start_failures_total",
		  "Workers of the user that could not be started; the log says why.",
		  offsetof(struct broker_user, nr_failures), true, true },
		{ "penstock_worker_lies_total",
		  "Looks at what the user's worker counts that made no sense.",
		  offsetof(struct broker_user, nr_lies), true, true },
	};

	metrics_gauge(p, "penstock_worker_info",
		      "The user's worker: its process, and what it does.");
	for (size_t i = 0; i < p->nr_users; i++)
		metrics_put(p, p->users[i].pid != 0, "uid=\"%u\",pid=\"%d\",state=\"%s\"",
			    p->users[i].uid, p->users[i].pid, p->users[i].state);
	for (unsigned a = 0; a < ARRAY_SIZE(all); a++) {
		mount_metrics_family(p, all[a].name, all[a].counts ? "counter" : "gauge",
				     all[a].help);
		for (size_t i = 0; i < p->nr_users; i++) {
			const void *at = (const char *)&p->users[i] + all[a].at;

			metrics_put(p, all[a].wide ? *(const uint64_t *)at : *(const unsigned *)at,
				    "uid=\"%u\"", p->users[i].uid);
		}
	}
	counter(p, "penstock_worker_restarts_total", "Workers that followed one that had ended.");
	for (size_t i = 0; i < p->nr_users; i++)
		metrics_put(p, restarts(&p->users[i]), "uid=\"%u\"", p->users[i].uid);
}

static void ring_numbers(struct page *p)
{
	static const struct {
		const char *name, *help;
		enum tally what;
	} all[] = {
		{ "penstock_ring_requests_total", "Requests of the user's rings that completed.",
		  TALLY_REQUESTS },
		{ "penstock_ring_errors_total", "Of these, completed with an error.",
		  TALLY_ERRORS },
		{ "penstock_ring_read_bytes_total", "Bytes that these read.", TALLY_READ },
		{ "penstock_ring_written_bytes_total", "Bytes that these wrote.", TALLY_WRITTEN },
	};

	for (unsigned a = 0; a < ARRAY_SIZE(all); a++) {
		counter(p, all[a].name, all[a].help);
		for (size_t i = 0; i < p->nr_users; i++)
			metrics_put(p, p->users[i].sum.v[all[a].what], "uid=\"%u\"",
				    p->users[i].uid);
	}
	counter(p, "penstock_ring_paths_total", "Requests by the paths that their bytes took.");
	for (size_t i = 0; i < p->nr_users; i++)
		for (unsigned path = 0; path < TALLY_PATHS; path++)
			if (p->users[i].sum.v[TALLY_PATH + path])
				metrics_put(p, p->users[i].sum.v[TALLY_PATH + path],
					    "uid=\"%u\",path=\"%s\"", p->users[i].uid,
					    pst_path_name(path));
	mount_metrics_family(p, "penstock_ring_request_seconds", "histogram",
			     "Time from taking a request from its ring to completing it.");
	for (size_t i = 0; i < p->nr_users; i++) {
		const struct usrbio_sum *s = &p->users[i].sum;
		char uid[16];

		(void)snprintf(uid, sizeof(uid), "%u", p->users[i].uid);
		if (usrbio_sum_timed(s))
			histogram(p, "uid", uid, &s->v[TALLY_BUCKET], s->v[TALLY_NS]);
	}
}

static void user_numbers(struct page *p)
{
	metrics_gauge(p, "penstock_users", "Users who have used the mount.");
	metrics_put(p, p->nr_users + p->nr_hidden, NULL);
	metrics_gauge(p, "penstock_users_hidden",
		      "Of these, users without numbers of their own here.");
	metrics_put(p, p->nr_hidden, NULL);
	quota_numbers(p);
	worker_numbers(p);
	ring_numbers(p);
}

int metrics_text(struct fs *fs, char **ret, size_t *ret_len)
{
	struct page p = { .fs = fs };
	int err = broker_look(fs->broker, &p.users, &p.nr_users, &p.nr_hidden);
	bool bad;

	if (err < 0)
		return err;
	p.f = open_memstream(ret, ret_len);
	if (!p.f) {
		free(p.users);
		return -ENOMEM;
	}
	mount_numbers(&p);
	op_numbers(&p);
	open_numbers(&p);
	broker_numbers(&p);
	user_numbers(&p);
	bad = ferror(p.f);
	bad |= fclose(p.f) != 0;
	free(p.users);
	if (bad)
		free(TAKE_PTR(*ret));
	return bad ? -ENOMEM : 0;
}
