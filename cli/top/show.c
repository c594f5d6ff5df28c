/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <pwd.h>

#include "cli/top/view.h"
#include "tools/common/shown.h"
#include "tools/common/util.h"

#define USER_WIDTH 10
#define EXACT 18446744073709549568.0 /* largest double that a uint64_t can hold */

/* A user's current and earlier metrics (or zeros), and the rates between them. */
struct row {
	const struct user *now;
	struct user none;
	double requests, errors, read, written; /* per second; read and written in bytes */
	struct times times;
	char path[24];
};

/* ------------------------------------------------------------------ numbers */

/* Write a number in at most 5 characters: 0, 12, 3.4k, 56k, 7.8M. */
static struct text short_text(double n, const char *const units[], unsigned nr, double step)
{
	struct text t;
	unsigned u = 0;

	if (!(n >= 0))
		n = 0;
	while (n >= step * 0.9995 && u + 1 < nr) {
		n /= step;
		u++;
	}
	(void)snprintf(t.s, sizeof(t.s), n < 9.95 && n > 0 && (u || n < 0.95) ? "%.1f%s" : "%.0f%s",
		       n, units[u]);
	return t;
}

static struct text count_text(double n)
{
	static const char *const units[] = { "", "k", "M", "G", "T" };

	return short_text(n, units, ARRAY_SIZE(units), 1000);
}

/* Write bytes of memory, in units that are powers of two. */
static struct text bytes_text(double n)
{
	static const char *const units[] = { "", "K", "M", "G", "T" };

	return short_text(n, units, ARRAY_SIZE(units), 1024);
}

/* Write a rate, in units that are powers of ten, as in GB/s. */
static struct text show_rate(double n)
{
	static const char *const units[] = { " B/s", " kB/s", " MB/s", " GB/s", " TB/s" };

	return short_text(n, units, ARRAY_SIZE(units), 1000);
}

static struct text latency(double ns)
{
	static const char *const units[] = { " ns", " us", " ms", " s" };
	struct text t = { "-" };

	return ns > 0 ? short_text(ns, units, ARRAY_SIZE(units), 1000) : t;
}

/* Write a duration such as "3 days", "4 h 12 min", "8 min", "9 s". */
static struct text span_text(double s)
{
	struct text t;

	if (s >= 2 * 86400)
		(void)snprintf(t.s, sizeof(t.s), "%.0f days", floor(s / 86400));
	else if (s >= 3600)
		(void)snprintf(t.s, sizeof(t.s), "%.0f h %.0f min", floor(s / 3600),
			       floor(fmod(s, 3600) / 60));
	else if (s >= 60)
		(void)snprintf(t.s, sizeof(t.s), "%.0f min", floor(s / 60));
	else
		(void)snprintf(t.s, sizeof(t.s), "%.0f s", s);
	return t;
}

static struct times times_since(const struct times *before, const struct times *now)
{
	struct times ret;

	for (unsigned i = 0; i < LATENCY_BUCKETS; i++)
		ret.bucket[i] = MAX(now->bucket[i] - before->bucket[i], 0.0);
	return ret;
}

/* Return the latency in ns that this part of the requests does not exceed, interpolated within a
 * bucket; 0 without requests. */
static double show_quantile(const struct times *t, double part)
{
	double sum = 0, seen = 0, from, to;
	unsigned i;

	for (i = 0; i < LATENCY_BUCKETS; i++)
		sum += t->bucket[i];
	if (!(sum > 0))
		return 0;
	for (i = 0; i + 1 < LATENCY_BUCKETS && seen + t->bucket[i] < part * sum; i++)
		seen += t->bucket[i];
	from = i ? (double)latency_end(i - 1) : 0;
	to = (double)latency_end(i);
	/* The last bucket has no upper end. */
	if (i + 1 == LATENCY_BUCKETS || !(t->bucket[i] > 0))
		return from;
	return from + (to - from) * (part * sum - seen) / t->bucket[i];
}

/* --------------------------------------------------------------------- rows */

static double per_second(double before, double now, double s)
{
	/* If the server was restarted, its counters began again at 0. */
	return now >= before ? (now - before) / s : now / s;
}

static struct text show_name_of(uid_t uid)
{
	const struct passwd *pw = getpwuid(uid);
	struct text t;

	if (pw)
		shown(t.s, sizeof(t.s), pw->pw_name);
	else
		(void)snprintf(t.s, sizeof(t.s), "%u", uid);
	return t;
}

/* Write the path of most requests, followed by + if other requests took another path. */
static void name_path(struct row *r, const struct user *before)
{
	double most = 0;
	unsigned nr = 0;
	const char *name = "-";

	for (unsigned i = 0; i < VIEW_PATHS && r->now->path[i].name[0]; i++) {
		double n = r->now->path[i].nr;

		for (unsigned j = 0; j < VIEW_PATHS; j++)
			if (!strcmp(before->path[j].name, r->now->path[i].name))
				n -= before->path[j].nr;
		nr += n > 0;
		if (n > most) {
			most = n;
			name = r->now->path[i].name;
		}
	}
	(void)snprintf(r->path, sizeof(r->path), "%.20s%s", name, nr > 1 ? "+" : "");
}

static const struct user *show_find(const struct view *v, uid_t uid)
{
	for (unsigned i = 0; i < v->nr_users; i++)
		if (v->users[i].uid == uid)
			return &v->users[i];
	return NULL;
}

static void show_fill(struct row *r, const struct view *before, const struct user *now, double s)
{
	const struct user *was = show_find(before, now->uid);

	*r = (struct row){ .now = now };
	if (!was)
		was = &r->none;
	r->requests = per_second(was->requests, now->requests, s);
	r->errors = per_second(was->errors, now->errors, s);
	r->read = per_second(was->read, now->read, s);
	r->written = per_second(was->written, now->written, s);
	r->times = times_since(&was->times, &now->times);
	name_path(r, was);
}

/* Sort users by bytes, then by requests, then by number. */
static int order(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	double dx = x->read + x->written, dy = y->read + y->written;

	if (dx != dy)
		return dx < dy ? 1 : -1;
	if (x->requests != y->requests)
		return x->requests < y->requests ? 1 : -1;
	return x->now->uid < y->now->uid ? -1 : x->now->uid > y->now->uid;
}

/* Return true if the user has used rings. */
static bool has_rings(const struct user *u)
{
	return u->pid || u->requests > 0 || u->failures > 0 || u->rings + u->iovs > 0;
}

/* Make the rows of users with rings.  The caller frees them; NULL if there are none. */
static struct row *show_rows_of(const struct view *before, const struct view *now, unsigned *ret_nr)
{
	struct row *rows = calloc(now->nr_users + 1, sizeof(*rows));

	*ret_nr = 0;
	for (unsigned i = 0; rows && i < now->nr_users; i++)
		if (has_rings(&now->users[i]))
			show_fill(&rows[(*ret_nr)++], before, &now->users[i],
				  MAX(now->at - before->at, 0.001));
	if (*ret_nr)
		qsort(rows, *ret_nr, sizeof(*rows), order);
	return rows;
}

/* -------------------------------------------------------------------- print */

static void show_put(FILE *f, const char *text, unsigned columns)
{
	shown_wrapped(f, text, 0, 2, columns);
}

static void print_mount(const struct view *before, const struct view *now, unsigned columns,
			FILE *f)
{
	double s = MAX(now->at - before->at, 0.001), cached = 0, most = 0;
	struct times t = times_since(&before->op_times, &now->op_times);
	char line[9 * PATH_MAX];
	const char *why = "";
	int n;

	(void)snprintf(line, sizeof(line), "%s  from %s", now->dir, now->source);
	show_put(f, line, columns);
	n = snprintf(line, sizeof(line), "up %s, penstock %s", span_text(now->uptime).s,
		     now->version);
	if (isfinite(now->bytes_limit))
		(void)snprintf(line + n, sizeof(line) - (size_t)n,
			       ", each user may publish %sB of memory",
			       bytes_text(now->bytes_limit).s);
	show_put(f, line, columns);
	for (unsigned i = 0; i < VIEW_CAUSES; i++) {
		cached += now->cached[i].nr;
		if (now->cached[i].nr > most) {
			most = now->cached[i].nr;
			why = now->cached[i].name;
		}
	}
	(void)snprintf(line, sizeof(line), "files  %s operations/s, %s errors/s, p50 %s, p99 %s",
		       count_text(per_second(before->ops, now->ops, s)).s,
		       count_text(per_second(before->op_errors, now->op_errors, s)).s,
		       latency(show_quantile(&t, 0.5)).s, latency(show_quantile(&t, 0.99)).s);
	show_put(f, line, columns);
	n = snprintf(line, sizeof(line),
		     "opens  %s with passthrough by the kernel, %s through its cache",
		     count_text(now->passed).s, count_text(cached).s);
	if (cached > 0)
		(void)snprintf(line + n, sizeof(line) - (size_t)n, " (%s)", why);
	show_put(f, line, columns);
}

static void show_print_row(const struct row *r, unsigned columns, FILE *f)
{
	char line[256], name[USER_WIDTH + 1];

	shown(name, sizeof(name), show_name_of(r->now->uid).s);
	(void)snprintf(line, sizeof(line), "%-*s %7s %9s %9s %7s %7s %6s %6s  %s", USER_WIDTH, name,
		       count_text(r->requests).s, show_rate(r->read).s, show_rate(r->written).s,
		       latency(show_quantile(&r->times, 0.5)).s,
		       latency(show_quantile(&r->times, 0.99)).s, count_text(r->errors).s,
		       bytes_text(r->now->bytes_used).s, r->path);
	show_put(f, line, columns);
}

/* Print what may need attention. */
static void print_trouble(const struct row *r, unsigned columns, FILE *f)
{
	const struct user *u = r->now;
	char line[512];
	int n = snprintf(line, sizeof(line), "! %s:", show_name_of(u->uid).s), from = n;

	if (u->pid && strcmp(u->state, "running") != 0)
		n += snprintf(line + n, sizeof(line) - (size_t)n, " worker %ld is %s;", u->pid,
			      u->state);
	if (u->failures > 0)
		n += snprintf(line + n, sizeof(line) - (size_t)n,
			      " %s not started, the log says why;",
			      u->failures > 1 ? "workers were" : "a worker was");
	if (u->restarts > 0)
		n += snprintf(line + n, sizeof(line) - (size_t)n, " %s new worker%s;",
			      count_text(u->restarts).s, u->restarts > 1 ? "s" : "");
	if (u->lies > 0)
		n += snprintf(line + n, sizeof(line) - (size_t)n, " its worker counts nonsense;");
	if (n == from)
		return;
	line[n - 1] = '\0';
	show_put(f, line, columns);
}

void view_print(const struct view *before, const struct view *now, unsigned rows, unsigned columns,
		FILE *f)
{
	unsigned nr, shows;
	_cleanup_(freep) struct row *r = show_rows_of(before, now, &nr);

	print_mount(before, now, columns, f);
	(void)fputc('\n', f);
	if (!nr) {
		(void)fprintf(f, "Nobody has rings here.\n");
		return;
	}
	(void)fprintf(f, "%-*s %7s %9s %9s %7s %7s %6s %6s  %s\n", USER_WIDTH, "USER", "REQ/S",
		      "READ", "WRITTEN", "P50", "P99", "ERR/S", "MEM", "PATH");
	shows = MIN(nr, rows);
	for (unsigned i = 0; i < shows; i++)
		show_print_row(&r[i], columns, f);
	if (nr + now->hidden > shows)
		(void)fprintf(f, "and %u more\n", nr + now->hidden - shows);
	for (unsigned i = 0; i < shows; i++)
		print_trouble(&r[i], columns, f);
}

/* --------------------------------------------------------------------- JSON */

/* Convert another process's number, which may be NaN or too large. */
static uint64_t show_whole(double n)
{
	return n >= 0 ? (uint64_t)MIN(n, EXACT) : 0;
}

static void json_latency(struct json_object *to, const struct times *t)
{
	static const struct {
		const char *key;
		double part;
	} parts[] = { { "p50_us", 0.5 }, { "p99_us", 0.99 } };

	for (unsigned i = 0; i < ARRAY_SIZE(parts); i++) {
		double ns = show_quantile(t, parts[i].part);

		json_num(to, parts[i].key, ns > 0 ? ns / 1000 : NAN);
	}
}

static void json_named(struct json_object *to, const char *key, const struct named *v, unsigned nr)
{
	struct json_object *o = json_object_new_object();

	for (unsigned i = 0; i < nr && v[i].name[0]; i++)
		json_u64(o, v[i].name, show_whole(v[i].nr));
	json_add(to, key, o);
}

static struct json_object *json_worker(const struct user *u)
{
	struct json_object *o = json_object_new_object();

	json_int(o, "pid", u->pid);
	json_text(o, "state", u->state);
	json_u64(o, "restarts", show_whole(u->restarts));
	json_u64(o, "start_failures", show_whole(u->failures));
	return o;
}

static struct json_object *json_user(const struct row *r)
{
	struct json_object *o = json_object_new_object();

	json_u64(o, "uid", r->now->uid);
	json_text(o, "user", show_name_of(r->now->uid).s);
	json_add(o, "worker", json_worker(r->now));
	json_u64(o, "rings", show_whole(r->now->rings));
	json_u64(o, "iovs", show_whole(r->now->iovs));
	json_u64(o, "bytes_used", show_whole(r->now->bytes_used));
	json_u64(o, "requests", show_whole(r->now->requests));
	json_u64(o, "errors", show_whole(r->now->errors));
	json_u64(o, "read_bytes", show_whole(r->now->read));
	json_u64(o, "written_bytes", show_whole(r->now->written));
	json_num(o, "requests_per_s", r->requests);
	json_num(o, "errors_per_s", r->errors);
	json_num(o, "read_bytes_per_s", r->read);
	json_num(o, "written_bytes_per_s", r->written);
	json_latency(o, &r->times);
	json_named(o, "paths", r->now->path, VIEW_PATHS);
	return o;
}

struct json_object *view_json(const struct view *before, const struct view *now)
{
	struct json_object *o = json_object_new_object(), *files = json_object_new_object();
	struct json_object *users = json_object_new_array();
	struct times t = times_since(&before->op_times, &now->op_times);
	double s = MAX(now->at - before->at, 0.001);
	unsigned nr;
	_cleanup_(freep) struct row *r = show_rows_of(before, now, &nr);

	json_text(o, "dir", now->dir);
	json_text(o, "source", now->source);
	json_text(o, "version", now->version);
	json_num(o, "uptime_s", now->uptime);
	json_num(o, "interval_s", s);
	if (now->bytes_limit >= 0 && now->bytes_limit < EXACT)
		json_u64(o, "bytes_limit", show_whole(now->bytes_limit));
	else
		json_num(o, "bytes_limit", NAN);
	json_num(files, "operations_per_s", per_second(before->ops, now->ops, s));
	json_num(files, "errors_per_s", per_second(before->op_errors, now->op_errors, s));
	json_latency(files, &t);
	json_u64(files, "opens_passed_on", show_whole(now->passed));
	json_named(files, "opens_cached", now->cached, VIEW_CAUSES);
	json_add(o, "files", files);
	for (unsigned i = 0; i < nr; i++)
		json_add(users, NULL, json_user(&r[i]));
	json_add(o, "users", users);
	json_u64(o, "users_hidden", now->hidden);
	return o;
}
