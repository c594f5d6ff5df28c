/* SPDX-License-Identifier: MIT */
#include "cli/doctor/rdma.h"

#include "tools/common/json.h"
#include "tools/common/shown.h"
#include "tools/common/util.h"

#define CHECKS_MAX 160
#define TEXT_COL 26

static const char *const states[] = {
	[PST_CHECK_MISSING] = "missing",
	[PST_CHECK_UNKNOWN] = "unknown",
	[PST_CHECK_OK] = "ok",
	[PST_CHECK_UNNEEDED] = "not needed",
};

struct rdma_report {
	struct pst_check of[CHECKS_MAX];
	int nr;
	unsigned ready, missing; /* usable ports; missing checks */
	bool ok;
	char verdict[3][800];
};

static const char *rdma_state_name(uint32_t state)
{
	return state < ARRAY_SIZE(states) ? states[state] : "unknown";
}

/* Return the cure in a missing need's text: the part after the last "; ". */
static const char *rdma_cure_of(const struct pst_check *c)
{
	const char *at = NULL;

	if (c->state == PST_CHECK_MISSING)
		for (const char *p = c->text; (p = strstr(p, "; ")); p += 2)
			at = p + 2;
	return at;
}

static int rdma_finding_len(const struct pst_check *c)
{
	const char *cure = rdma_cure_of(c);

	return cure ? (int)(cure - 2 - c->text) : (int)strlen(c->text);
}

/* Return true if a check with that name has a text with that word and is fine. */
static bool rdma_is_ok(const struct rdma_report *rep, const char *name, const char *word)
{
	for (int i = 0; i < rep->nr; i++)
		if (rep->of[i].state == PST_CHECK_OK && !strcmp(rep->of[i].name, name) &&
		    strstr(rep->of[i].text, word))
			return true;
	return false;
}

static void rdma_judge(struct rdma_report *rep)
{
	const struct pst_check *first_port = NULL, *first = NULL;
	size_t len = sizeof(rep->verdict[0]);
	char names[400] = "";

	for (int i = 0; i < rep->nr; i++) {
		const struct pst_check *c = &rep->of[i];
		size_t n = strlen(names);

		if (c->state == PST_CHECK_OK && !strcmp(c->name, "port") && !rep->ready++)
			first_port = c;
		if (c->state != PST_CHECK_MISSING)
			continue;
		if (!rep->missing++)
			first = c;
		(void)snprintf(names + n, sizeof(names) - n, "%s%s",
			       n ? ", " : "missing: ", c->name);
	}
	rep->ok = rep->ready && rdma_is_ok(rep, "library", "") && rdma_is_ok(rep, "kernel", "") &&
		  rdma_is_ok(rep, "loop-back", " of host,");
	if (rep->ok)
		(void)snprintf(rep->verdict[0], len, "OK: %u port%s ready for RDMA: %s", rep->ready,
			       rep->ready == 1 ? " is" : "s are", first_port->text);
	else
		(void)snprintf(rep->verdict[0], len, "NO: no port is ready for RDMA here");
	(void)snprintf(rep->verdict[1], len, "LIMITS: %s", *names ? names : "none found");
	if (first && rdma_cure_of(first))
		(void)snprintf(rep->verdict[2], len, "NEXT: %s: %s", first->name,
			       rdma_cure_of(first));
	else
		(void)snprintf(rep->verdict[2], len, "NEXT: %s",
			       rep->ok ? "nothing is missing" : "see the list");
}

static void rdma_print(const struct rdma_report *rep)
{
	for (size_t i = 0; i < ARRAY_SIZE(rep->verdict); i++)
		shown_printf(2, "%s", rep->verdict[i]);
	(void)putchar('\n');
	for (int i = 0; i < rep->nr; i++) {
		const struct pst_check *c = &rep->of[i];

		shown_printf(TEXT_COL, "  %-11s %-10s  %.*s", c->name, rdma_state_name(c->state),
			     rdma_finding_len(c), c->text);
		if (rdma_cure_of(c))
			shown_printf(TEXT_COL + 3, "%*s-> %s", TEXT_COL, "", rdma_cure_of(c));
	}
}

static void rdma_print_json(const struct rdma_report *rep)
{
	_cleanup_(json_putp) struct json_object *root = json_object_new_object();
	struct json_object *verdict = json_object_new_array(), *checks = json_object_new_array();
	struct machine m;

	for (size_t i = 0; i < ARRAY_SIZE(rep->verdict); i++)
		json_text(verdict, NULL, rep->verdict[i]);
	for (int i = 0; i < rep->nr; i++) {
		const struct pst_check *c = &rep->of[i];
		struct json_object *o = json_object_new_object();
		char finding[sizeof(c->text)];

		(void)snprintf(finding, sizeof(finding), "%.*s", rdma_finding_len(c), c->text);
		json_text(o, "check", c->name);
		json_text(o, "state", rdma_state_name(c->state));
		json_int(o, "errno", c->err);
		json_text(o, "text", finding);
		json_text(o, "cure", rdma_cure_of(c) ? rdma_cure_of(c) : "");
		json_add(checks, NULL, o);
	}
	json_flag(root, "ok", rep->ok);
	json_add(root, "verdict", verdict);
	json_add(root, "checks", checks);
	machine_facts(&m);
	json_machine(root, &m);
	json_print(root);
}

int doctor_rdma(bool json)
{
	static struct rdma_report rep;

	for (size_t i = 0; i < CHECKS_MAX; i++)
		rep.of[i].sz = sizeof(rep.of[i]);
	rep.nr = pst_check("rdma", NULL, rep.of, CHECKS_MAX);
	if (rep.nr < 0)
		return exit_status(fail_pst(rep.nr, NULL));
	rep.nr = MIN(rep.nr, CHECKS_MAX);
	rdma_judge(&rep);
	if (json)
		rdma_print_json(&rep);
	else
		rdma_print(&rep);
	return 0;
}
