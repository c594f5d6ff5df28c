/* SPDX-License-Identifier: MIT */
#include <inttypes.h>

#include "tools/common/json.h"
#include "tools/common/shown.h"
#include "cli/window/window.h"

/* The result of one check, for printing. */
struct result {
	char text[128];
	uint64_t bytes, copies;
	struct win_diff diff;
};

#define RESULTS (WIN_CHECKS + 1) /* one result for each check, and one for the random copies */

static int validate_run_all(const struct win_set *set, struct win_checker *k, struct result *res)
{
	int r = 0;

	for (unsigned i = 0; i < RESULTS && r == 0; i++) {
		uint64_t bytes = k->bytes, copies = k->copies;
		bool random = i == WIN_CHECKS;

		if (random)
			(void)snprintf(res[i].text, sizeof(res[i].text),
				       "copies of random places, lengths and alignments, seed "
				       "%" PRIu64,
				       set->seed);
		else
			(void)snprintf(res[i].text, sizeof(res[i].text), "%s",
				       win_check_text(i + 1));
		r = random ? win_check_random(k, set->random, set->seed, &res[i].diff)
			   : win_check(k, i + 1, &res[i].diff);
		res[i].bytes = k->bytes - bytes;
		res[i].copies = k->copies - copies;
	}
	return r;
}

static void validate_print_text(const struct win *win, const struct machine *m,
				const struct result *res)
{
	win_print_head(win, m);
	shown_printf(9, "buffer   %s at device address 0x%" PRIx64, size_text(win->len).s,
		     win->mem_info.addr);
	(void)putchar('\n');
	for (unsigned i = 0; i < RESULTS; i++) {
		const struct win_diff *d = &res[i].diff;

		shown_printf(4, "check %u: %s: %s, %" PRIu64 " copies, %" PRIu64 " bytes compared",
			     i + 1, res[i].text, d->nr ? "FAILED" : "ok", res[i].copies,
			     res[i].bytes);
		if (d->nr)
			shown_printf(4,
				     "  %s: byte %" PRIu64 " is 0x%02x and should be 0x%02x; "
				     "%" PRIu64 " bytes differ in this check",
				     d->where, d->at, d->is, d->should, d->nr);
	}
}

static struct json_object *result_json(unsigned nr, const struct result *res)
{
	struct json_object *o = json_object_new_object();

	json_u64(o, "check", nr);
	json_text(o, "text", res->text);
	json_flag(o, "ok", !res->diff.nr);
	json_u64(o, "copies", res->copies);
	json_u64(o, "bytes_compared", res->bytes);
	json_u64(o, "bytes_wrong", res->diff.nr);
	if (res->diff.nr) {
		json_text(o, "where", res->diff.where);
		json_u64(o, "first_wrong", res->diff.at);
		json_u64(o, "is", res->diff.is);
		json_u64(o, "should", res->diff.should);
	}
	return o;
}

static void validate_print_json(const struct win_set *set, const struct win *win,
				const struct machine *m, const struct result *res)
{
	_cleanup_(json_putp) struct json_object *root = json_object_new_object();
	struct json_object *a = json_object_new_array();

	win_json_head(root, win, m);
	json_u64(root, "size", win->len);
	json_u64(root, "seed", set->seed);
	for (unsigned i = 0; i < RESULTS; i++)
		json_add(a, NULL, result_json(i + 1, &res[i]));
	json_add(root, "checks", a);
	json_print(root);
}

int win_validate(const struct win_set *set)
{
	_cleanup_(win_checker_done) struct win_checker k = { 0 };
	_cleanup_(win_close) struct win win = { 0 };
	struct result res[RESULTS] = { 0 };
	unsigned failed = 0;
	struct machine m;
	int r;

	machine_facts(&m);
	r = win_open(&win, set, set->size, 1);
	if (r == 0)
		r = win_checker_init(&k, &win);
	if (r == 0)
		r = validate_run_all(set, &k, res);
	if (r < 0)
		return r;
	if (set->json)
		validate_print_json(set, &win, &m, res);
	else
		validate_print_text(&win, &m, res);
	for (unsigned i = 0; i < RESULTS; i++)
		failed += res[i].diff.nr != 0;
	if (failed)
		return fail(EIO, "%u of %u checks found wrong bytes", failed, RESULTS);
	if (!set->json)
		(void)printf("all %u checks are right\n", RESULTS);
	return 0;
}
