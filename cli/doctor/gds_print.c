/* SPDX-License-Identifier: MIT */
/* The verdict on a direct path, and the report as a table and as JSON. */
#include "cli/doctor/gds.h"

#include "tools/common/json.h"
#include "tools/common/shown.h"

#define SHOWN_MAX 4096

static const char *const states[] = {
	[PST_CHECK_MISSING] = "missing",
	[PST_CHECK_UNKNOWN] = "unknown",
	[PST_CHECK_OK] = "ok",
	[PST_CHECK_UNNEEDED] = "not needed",
};

static const char *check_state_name(uint32_t state)
{
	return state < ARRAY_SIZE(states) ? states[state] : "unknown";
}

static const char *path_state_name(uint32_t state)
{
	return state == PST_STATE_PROVEN     ? "proven"
	       : state == PST_STATE_POSSIBLE ? "possible"
					     : "impossible";
}

/* Return the cure if a need is not met: the text after the first "; ". */
static const char *cure_of(const struct pst_check *c)
{
	const char *at = c->state == PST_CHECK_MISSING ? strstr(c->text, "; ") : NULL;

	return at ? at + 2 : NULL;
}

static int finding_len(const struct pst_check *c)
{
	const char *cure = cure_of(c);

	return cure ? (int)(cure - 2 - c->text) : (int)strlen(c->text);
}

/* ----------------------------------------------------------------- verdict */

static bool is_direct(const struct gds_side *s)
{
	const struct pst_check *trial = gds_checks_find(&s->checks, "trial");

	return trial && trial->state == PST_CHECK_OK && s->request.why == PST_WHY_NONE &&
	       !*s->request.error;
}

/* Add the names of the checks in a state. */
static void add_names(char *buf, size_t len, const struct gds_checks *c, uint32_t state,
		      const char *before)
{
	for (int i = 0; i < c->nr; i++) {
		size_t n = strlen(buf);

		if (c->of[i].state != state || !strcmp(c->of[i].name, "trial"))
			continue;
		(void)snprintf(buf + n, len - n, "%s%s", before, c->of[i].name);
		before = ", ";
	}
}

/* Return the check whose cure the user should follow first: checks on which others depend come
 * first, the trial last. */
static const struct pst_check *first_cure(const struct gds_checks *c)
{
	static const char *const names[] = { "gpu", "library", "disk", "filesystem", "direct-io" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const struct pst_check *k = gds_checks_find(c, names[i]);

		if (k && cure_of(k))
			return k;
	}
	for (int i = 0; i < c->nr; i++)
		if (cure_of(&c->of[i]))
			return &c->of[i];
	return NULL;
}

static void judge_checks(struct gds_report *rep, const struct gds_checks *c)
{
	char *limits = rep->verdict[1], *next = rep->verdict[2];
	size_t len = sizeof(rep->verdict[0]);
	const struct pst_check *first = first_cure(c), *trial = gds_checks_find(c, "trial");
	char names[400] = "";

	add_names(names, sizeof(names), c, PST_CHECK_MISSING, "missing: ");
	add_names(names, sizeof(names), c, PST_CHECK_UNKNOWN, *names ? "; unknown: " : "unknown: ");
	(void)snprintf(limits, len, "LIMITS: %s", *names ? names : "none found");
	if (trial && trial->state != PST_CHECK_OK)
		(void)snprintf(limits + strlen(limits), len - strlen(limits), "; trial: %.*s",
			       finding_len(trial), trial->text);
	if (first)
		(void)snprintf(next, len, "NEXT: %s: %s", first->name, cure_of(first));
	else
		(void)snprintf(next, len, "NEXT: nothing is known that would help");
}

static void judge_side(struct gds_report *rep, const struct gds_side *s, unsigned nr_bad)
{
	const struct pst_check *trial = gds_checks_find(&s->checks, "trial");
	char *line = rep->verdict[0], more[40] = "";
	size_t len = sizeof(rep->verdict[0]);
	const char *go = *s->request.error ? "do not come through" : "go";

	if (nr_bad > 1)
		(void)snprintf(more, sizeof(more), " and %u more", nr_bad - 1);
	if (trial && trial->state == PST_CHECK_OK && !*s->request.error) {
		(void)snprintf(line, len,
			       "NO: cuFile has a direct way to %s%s, but requests %s %s: %s",
			       s->dev.name, more, go, paths_text(s->request.paths).s,
			       why_text(s->request.why, s->request.detail).s);
		return;
	}
	(void)snprintf(line, len,
		       "NO: cuFile has no direct way from %.300s to %s%s; requests %s %s",
		       rep->what, s->dev.name, more, go,
		       *s->request.error ? "" : paths_text(s->request.paths).s);
}

static void judge_good(struct gds_report *rep)
{
	const struct gds_side *s = &rep->sides[0];
	size_t len = sizeof(rep->verdict[0]);
	bool cached = !(s->request.paths & PST_PATH_BIT(PST_PATH_GDS));

	rep->ok = true;
	(void)snprintf(rep->verdict[0], len,
		       "OK: %.300s has a direct way to %s%s, and requests take it%s", rep->what,
		       s->dev.name, rep->nr_sides > 1 ? " and every other GPU" : "",
		       cached ? ", but for bytes that the page cache holds" : "");
	(void)snprintf(rep->verdict[1], len, "LIMITS: none found");
	(void)snprintf(rep->verdict[2], len, "NEXT: penstock bench -m %s measures it", s->dev.name);
}

void doctor_gds_judge(struct gds_report *rep)
{
	size_t len = sizeof(rep->verdict[0]);
	const struct gds_side *first = NULL;
	unsigned nr_bad = 0;

	for (unsigned i = 0; i < rep->nr_sides; i++)
		if (!is_direct(&rep->sides[i]) && !nr_bad++)
			first = &rep->sides[i];
	if (*rep->file_error) {
		(void)snprintf(rep->verdict[0], len, "BAD: no file to try with: %s",
			       rep->file_error);
		(void)snprintf(rep->verdict[1], len, "LIMITS: nothing was tried");
		(void)snprintf(rep->verdict[2], len,
			       "NEXT: name a directory that you may write to, or a file: penstock "
			       "doctor --gds --file FILE");
	} else if (!rep->nr_sides) {
		judge_checks(rep, &rep->alone);
		(void)snprintf(rep->verdict[0], len, "NO: there is no NVIDIA GPU to read to: %s",
			       rep->no_gpu);
		(void)snprintf(rep->verdict[2], len,
			       "NEXT: penstock doctor tells what is known of GPUs here");
	} else if (first) {
		judge_checks(rep, &first->checks);
		judge_side(rep, first, nr_bad);
	} else {
		judge_good(rep);
	}
}

/* ------------------------------------------------------------------- table */

#define NAME_WIDTH 12
#define STATE_WIDTH 12
#define TEXT_COL (2 + NAME_WIDTH + STATE_WIDTH)

static void print_text(const char *text, int len, unsigned indent)
{
	char cut[1024], safe[SHOWN_MAX];

	(void)snprintf(cut, sizeof(cut), "%.*s", len, text);
	shown(safe, sizeof(safe), cut);
	shown_wrapped(stdout, safe, indent, indent, shown_width(stdout));
}

static void print_row(const char *name, const char *state, const char *text, int len)
{
	(void)printf("  %-*s%-*s", NAME_WIDTH, name, STATE_WIDTH, state);
	print_text(text, len, TEXT_COL);
}

static void print_check(const struct pst_check *c)
{
	const char *cure = cure_of(c);

	print_row(c->name, check_state_name(c->state), c->text, finding_len(c));
	if (cure) {
		(void)printf("%*s-> ", TEXT_COL, "");
		print_text(cure, (int)strlen(cure), TEXT_COL + 3);
	}
}

static bool is_same_check(const struct pst_check *c, const struct gds_checks *other)
{
	const struct pst_check *o = other ? gds_checks_find(other, c->name) : NULL;

	return o && o->state == c->state && !strcmp(o->text, c->text);
}

/* Print the checks, except those that an earlier part of the report (other) has with the same
 * result. */
static void print_checks(const struct gds_checks *c, const struct gds_checks *other,
			 const char *other_name)
{
	int same = 0;

	if (*c->error)
		print_row("-", "not tried", c->error, (int)strlen(c->error));
	for (int i = 0; i < c->nr; i++) {
		if (is_same_check(&c->of[i], other))
			same++;
		else
			print_check(&c->of[i]);
	}
	if (same)
		(void)printf("  %s as for %s\n", same == c->nr ? "all" : "the rest", other_name);
}

/* Print a request in the words of its completion. */
static void print_request(const struct gds_request *r)
{
	char text[600];

	if (*r->error)
		(void)snprintf(text, sizeof(text), "a read failed: %s", r->error);
	else
		(void)snprintf(text, sizeof(text), "a read went %s%s%s", paths_text(r->paths).s,
			       r->why ? "; the path gds was not taken: " : "",
			       r->why ? why_text(r->why, r->detail).s : "");
	print_row("requests", path_state_name(r->state), text, (int)strlen(text));
}

static void print_sides(const struct gds_report *rep)
{
	const struct gds_side *first = &rep->sides[0];

	for (unsigned i = 0; i < rep->nr_sides; i++) {
		const struct gds_side *s = &rep->sides[i];

		(void)putchar('\n');
		shown_printf(2, "%s with %s", rep->what, device_text(&s->dev).s);
		print_checks(&s->checks, i ? &first->checks : NULL, first->dev.name);
		print_request(&s->request);
	}
	if (!rep->nr_sides && !*rep->file_error) {
		(void)putchar('\n');
		shown_printf(2, "%s", rep->what);
		print_checks(&rep->alone, NULL, NULL);
	}
}

static void print_mounts(const struct gds_report *rep)
{
	const struct gds_checks *first = rep->nr_sides ? &rep->sides[0].checks : &rep->alone;

	if (rep->nr_mounts || *rep->mounts_error)
		(void)puts("\nother mounts, not tried");
	if (*rep->mounts_error)
		shown_printf(2, "  %s", rep->mounts_error);
	for (int i = 0; i < rep->nr_mounts; i++) {
		const struct gds_mount *m = &rep->mounts[i];

		if (i)
			(void)putchar('\n');
		shown_printf(2, "%s (%s, %u:%u, %s)", m->at.path, m->at.type, m->at.major,
			     m->at.minor, m->at.source);
		print_checks(&m->checks, first, "the file above");
	}
	if (rep->more_mounts)
		(void)printf("\nand %u more mounts\n", rep->more_mounts);
}

void doctor_gds_print(const struct gds_report *rep)
{
	for (size_t i = 0; i < ARRAY_SIZE(rep->verdict); i++)
		shown_printf(2, "%s", rep->verdict[i]);
	print_sides(rep);
	print_mounts(rep);
}

/* -------------------------------------------------------------------- json */

static struct json_object *checks_json(const struct gds_checks *c)
{
	struct json_object *a = json_object_new_array();

	for (int i = 0; i < c->nr; i++) {
		struct json_object *o = json_object_new_object();
		const struct pst_check *k = &c->of[i];
		char finding[sizeof(k->text)];

		(void)snprintf(finding, sizeof(finding), "%.*s", finding_len(k), k->text);
		json_text(o, "check", k->name);
		json_text(o, "state", check_state_name(k->state));
		json_int(o, "errno", k->err);
		json_text(o, "text", finding);
		json_text(o, "cure", cure_of(k) ? cure_of(k) : "");
		json_add(a, NULL, o);
	}
	return a;
}

static struct json_object *side_json(const struct gds_side *s)
{
	struct json_object *o = json_object_new_object(), *r = json_object_new_object();

	json_text(o, "device", s->dev.name);
	json_text(o, "model", s->dev.model);
	json_text(o, "pci", s->dev.pci);
	json_flag(o, "direct", is_direct(s));
	json_text(o, "error", s->checks.error);
	json_add(o, "checks", checks_json(&s->checks));
	json_text(r, "gds", path_state_name(s->request.state));
	json_text(r, "why", pst_why_name(s->request.why));
	json_int(r, "detail", s->request.detail);
	json_text(r, "text", s->request.why ? why_text(s->request.why, s->request.detail).s : "");
	json_paths(r, "paths", s->request.paths);
	json_text(r, "error", s->request.error);
	json_add(o, "requests", r);
	return o;
}

static struct json_object *mount_json(const struct gds_mount *m)
{
	struct json_object *o = json_object_new_object();
	char number[32];

	(void)snprintf(number, sizeof(number), "%u:%u", m->at.major, m->at.minor);
	json_text(o, "mount", m->at.path);
	json_text(o, "type", m->at.type);
	json_text(o, "device", number);
	json_text(o, "source", m->at.source);
	json_text(o, "error", m->checks.error);
	json_add(o, "checks", checks_json(&m->checks));
	return o;
}

void doctor_gds_print_json(const struct gds_report *rep)
{
	_cleanup_(json_putp) struct json_object *root = json_object_new_object();
	struct json_object *a = json_object_new_array();
	struct machine m;

	machine_facts(&m);
	json_machine(root, &m);
	json_flag(root, "ok", rep->ok);
	for (size_t i = 0; i < ARRAY_SIZE(rep->verdict); i++)
		json_text(a, NULL, rep->verdict[i]);
	json_add(root, "verdict", a);
	json_text(root, "file", rep->file);
	json_text(root, "dir", rep->dir);
	json_text(root, "file_error", rep->file_error);
	json_text(root, "no_gpu", rep->no_gpu);
	a = json_object_new_array();
	for (unsigned i = 0; i < rep->nr_sides; i++)
		json_add(a, NULL, side_json(&rep->sides[i]));
	json_add(root, "gpus", a);
	json_add(root, "checks", checks_json(&rep->alone));
	a = json_object_new_array();
	for (int i = 0; i < rep->nr_mounts; i++)
		json_add(a, NULL, mount_json(&rep->mounts[i]));
	json_add(root, "mounts", a);
	json_text(root, "mounts_error", rep->mounts_error);
	json_u64(root, "more_mounts", rep->more_mounts);
	json_print(root);
}
