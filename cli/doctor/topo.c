/* SPDX-License-Identifier: MIT */
#include "cli/doctor/topo.h"

#include <stdarg.h>

#include "tools/common/json.h"
#include "tools/common/shown.h"
#include "tools/common/table.h"
#include "tools/common/util.h"

#define CELL 5u /* columns of one distance, including a blank */

static const char letters[] = { [TOPO_ACCEL] = 'A', [TOPO_NIC] = 'N', [TOPO_DISK] = 'D' };

/* Return the short name of a device in the table, such as "A0". */
static struct text topo_id(const struct topo_dev *d)
{
	struct text t;

	(void)snprintf(t.s, sizeof(t.s), "%c%u", letters[d->kind], d->num);
	return t;
}

struct topo_report {
	struct topo t;
	bool ok;
	char verdict[3][800];
};

/* Append to the verdict, truncated to fit. */
static void topo_say(char verdict[800], const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void topo_say(char verdict[800], const char *fmt, ...)
{
	size_t n = strlen(verdict);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(verdict + n, 800 - n, fmt, ap);
	va_end(ap);
}

static void topo_count(char verdict[800], unsigned n, const char *one, const char *many)
{
	topo_say(verdict, "%u %s", n, n == 1 ? one : many);
}

/* Report the accelerators whose nearest device of a kind is beyond the host bridge. */
static unsigned topo_far(struct topo_report *rep, enum topo_kind kind, const char *what)
{
	const struct topo *t = &rep->t;
	unsigned far = 0;

	for (unsigned i = 0; i < t->of_kind[TOPO_ACCEL]; i++) {
		enum topo_distance d = topo_nearest(t, &t->devs[i], kind);

		if (d != TOPO_DISTANCES && d >= TOPO_PHB)
			topo_say(rep->verdict[1], "%s%s",
				 far++                ? ", "
				 : rep->verdict[1][8] ? "; "
						      : "",
				 topo_name(&t->devs[i]));
	}
	if (far)
		topo_say(rep->verdict[1], " %s no %s without the CPU's host bridge",
			 far == 1 ? "reaches" : "reach", what);
	return far;
}

static void topo_judge(struct topo_report *rep)
{
	const struct topo_dev *narrow = NULL;
	const struct topo *t = &rep->t;
	unsigned far;

	rep->ok = t->of_kind[TOPO_ACCEL] && t->nr > t->of_kind[TOPO_ACCEL];
	topo_say(rep->verdict[0], rep->ok ? "OK: " : "NO: ");
	topo_count(rep->verdict[0], t->of_kind[TOPO_ACCEL], "accelerator, ", "accelerators, ");
	topo_count(rep->verdict[0], t->of_kind[TOPO_NIC], "NIC, ", "NICs, ");
	topo_count(rep->verdict[0], t->of_kind[TOPO_DISK], "disk controller on ",
		   "disk controllers on ");
	topo_count(rep->verdict[0], t->nodes, "NUMA node", "NUMA nodes");

	topo_say(rep->verdict[1], "LIMITS: ");
	far = topo_far(rep, TOPO_NIC, "NIC");
	far += topo_far(rep, TOPO_DISK, "disk");
	for (unsigned i = 0; i < t->nr && !narrow; i++)
		if (t->devs[i].width && t->devs[i].width < t->devs[i].width_max)
			narrow = &t->devs[i];
	if (narrow)
		topo_say(rep->verdict[1], "%s%s has %u of its %u PCIe lanes", far ? "; " : "",
			 topo_name(narrow), narrow->width, narrow->width_max);
	else if (!far)
		topo_say(rep->verdict[1], "none found");

	topo_say(rep->verdict[2], "NEXT: ");
	if (!rep->ok)
		topo_say(rep->verdict[2], "see lspci -tv for what is on the PCI bus");
	else if (narrow)
		topo_say(rep->verdict[2], "see whether the slot of %s (%s) has all lanes",
			 topo_name(narrow), narrow->pci);
	else
		topo_say(rep->verdict[2],
			 "use the nearest of each accelerator, which the last table has");
}

/* -------------------------------------------------------------------- print */

static void topo_print_devs(const struct topo *t)
{
	static const char *const heads[] = { "<",    "<names",       "<PCI address",
					     "node", "<host bridge", "bridges",
					     "<link" };
	_cleanup_(table_freep) struct table *table = table_new(heads, ARRAY_SIZE(heads));

	for (unsigned i = 0; i < t->nr; i++) {
		const struct topo_dev *d = &t->devs[i];
		char names[TOPO_NAMES_MAX * (TOPO_NAME_MAX + 1) + 16] = "", node[16] = "?",
								  link[64];
		size_t n = 0;

		for (unsigned k = 0; k < MIN(d->nr_names, TOPO_NAMES_MAX); k++)
			n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", k ? " " : "",
					      d->names[k]);
		if (d->nr_names > TOPO_NAMES_MAX)
			(void)snprintf(names + n, sizeof(names) - n, " +%u",
				       d->nr_names - TOPO_NAMES_MAX);
		if (d->node >= 0)
			(void)snprintf(node, sizeof(node), "%d", d->node);
		(void)snprintf(link, sizeof(link), "%s%s", d->speed, *d->speed ? " " : "");
		n = strlen(link);
		if (d->width && d->width < d->width_max)
			(void)snprintf(link + n, sizeof(link) - n, "x%u of x%u", d->width,
				       d->width_max);
		else if (d->width)
			(void)snprintf(link + n, sizeof(link) - n, "x%u", d->width);
		table_add(table, "%s", topo_id(d).s);
		table_add(table, "%s", *names ? names : "-");
		table_add(table, "%s", d->pci);
		table_add(table, "%s", node);
		table_add(table, "%s", *d->host ? d->host : "?");
		table_add(table, "%u", d->nr_bridges);
		table_add(table, "%s", *link ? link : "?");
	}
	table_print(table, stdout, shown_width(stdout));
}

/* Print all distances, in blocks of columns that fit the terminal. */
static void topo_print_matrix(const struct topo *t)
{
	unsigned cols = MAX((shown_width(stdout) - CELL) / CELL, 1u);

	for (unsigned from = 0; from < t->nr; from += cols) {
		unsigned to = MIN(from + cols, t->nr);

		(void)printf("%-*s", (int)CELL - 1, "");
		for (unsigned k = from; k < to; k++)
			(void)printf(" %*s", (int)CELL - 1, topo_id(&t->devs[k]).s);
		(void)putchar('\n');
		for (unsigned i = 0; i < t->nr; i++) {
			(void)printf("%-*s", (int)CELL - 1, topo_id(&t->devs[i]).s);
			for (unsigned k = from; k < to; k++)
				(void)printf(" %*s", (int)CELL - 1,
					     i == k ? "-"
						    : topo_distance_name(topo_distance(
							      t, &t->devs[i], &t->devs[k])));
			(void)putchar('\n');
		}
		(void)putchar('\n');
	}
}

/* Add the nearest devices of a kind as one cell. */
static void topo_add_nearest(struct table *table, const struct topo *t, const struct topo_dev *d,
			     enum topo_kind kind)
{
	enum topo_distance best = topo_nearest(t, d, kind);
	char text[400];
	size_t n;

	(void)snprintf(text, sizeof(text), "%s%s", topo_distance_name(best),
		       best == TOPO_DISTANCES ? "" : ":");
	for (unsigned i = 0; i < t->nr; i++) {
		n = strlen(text);
		if (t->devs[i].kind == kind && topo_distance(t, d, &t->devs[i]) == best)
			(void)snprintf(text + n, sizeof(text) - n, " %s", topo_name(&t->devs[i]));
	}
	table_add(table, "%s", text);
}

static void topo_print_nearest(const struct topo *t)
{
	static const char *const heads[] = { "<accelerator", "<nearest NICs", "<nearest disks" };
	_cleanup_(table_freep) struct table *table = table_new(heads, ARRAY_SIZE(heads));

	for (unsigned i = 0; i < t->of_kind[TOPO_ACCEL]; i++) {
		table_add(table, "%s %s", topo_id(&t->devs[i]).s, topo_name(&t->devs[i]));
		topo_add_nearest(table, t, &t->devs[i], TOPO_NIC);
		topo_add_nearest(table, t, &t->devs[i], TOPO_DISK);
	}
	table_print(table, stdout, shown_width(stdout));
}

static void topo_print(const struct topo_report *rep)
{
	for (size_t i = 0; i < ARRAY_SIZE(rep->verdict); i++)
		shown_printf(2, "%s", rep->verdict[i]);
	if (!rep->t.nr)
		return;
	(void)putchar('\n');
	topo_print_devs(&rep->t);
	(void)putchar('\n');
	topo_print_matrix(&rep->t);
	(void)printf("A     accelerator\n"
		     "N     network card (NIC)\n"
		     "D     disk controller\n"
		     "PIX   at most one PCIe switch between them\n"
		     "PXB   several PCIe switches, no host bridge\n"
		     "PHB   a host bridge of a CPU\n"
		     "NODE  two host bridges of one NUMA node\n"
		     "SYS   the link between NUMA nodes\n");
	if (rep->t.of_kind[TOPO_ACCEL]) {
		(void)putchar('\n');
		topo_print_nearest(&rep->t);
	}
}

/* --------------------------------------------------------------------- JSON */

static struct json_object *topo_dev_json(const struct topo_dev *d)
{
	struct json_object *o = json_object_new_object(), *names = json_object_new_array(),
			   *bridges = json_object_new_array();

	for (unsigned i = 0; i < MIN(d->nr_names, TOPO_NAMES_MAX); i++)
		json_text(names, NULL, d->names[i]);
	for (unsigned i = 0; i < d->nr_bridges; i++)
		json_text(bridges, NULL, d->bridges[i]);
	json_text(o, "id", topo_id(d).s);
	json_text(o, "kind", topo_kind_name(d->kind));
	json_add(o, "names", names);
	json_text(o, "pci", d->pci);
	json_int(o, "vendor", d->vendor);
	json_int(o, "device", d->device);
	json_int(o, "class", d->class);
	json_int(o, "numa_node", d->node);
	json_text(o, "host_bridge", d->host);
	json_add(o, "bridges", bridges);
	json_text(o, "link_speed_max", d->speed);
	json_int(o, "link_width", d->width);
	json_int(o, "link_width_max", d->width_max);
	return o;
}

/* Return the ids of the nearest devices of a kind, and their distance. */
static struct json_object *topo_nearest_json(const struct topo *t, const struct topo_dev *d,
					     enum topo_kind kind)
{
	enum topo_distance best = topo_nearest(t, d, kind);
	struct json_object *o = json_object_new_object(), *ids = json_object_new_array();

	for (unsigned i = 0; i < t->nr; i++)
		if (t->devs[i].kind == kind && &t->devs[i] != d &&
		    topo_distance(t, d, &t->devs[i]) == best)
			json_text(ids, NULL, topo_id(&t->devs[i]).s);
	json_text(o, "distance", topo_distance_name(best));
	json_add(o, "ids", ids);
	return o;
}

static void topo_print_json(const struct topo_report *rep)
{
	_cleanup_(json_putp) struct json_object *root = json_object_new_object();
	struct json_object *verdict = json_object_new_array(), *devs = json_object_new_array(),
			   *rows = json_object_new_array(), *nearest = json_object_new_array();
	const struct topo *t = &rep->t;
	struct machine m;

	for (size_t i = 0; i < ARRAY_SIZE(rep->verdict); i++)
		json_text(verdict, NULL, rep->verdict[i]);
	for (unsigned i = 0; i < t->nr; i++) {
		struct json_object *row = json_object_new_array();

		json_add(devs, NULL, topo_dev_json(&t->devs[i]));
		for (unsigned k = 0; k < t->nr; k++)
			json_text(row, NULL,
				  topo_distance_name(topo_distance(t, &t->devs[i], &t->devs[k])));
		json_add(rows, NULL, row);
	}
	for (unsigned i = 0; i < t->of_kind[TOPO_ACCEL]; i++) {
		struct json_object *o = json_object_new_object();

		json_text(o, "id", topo_id(&t->devs[i]).s);
		json_add(o, "nic", topo_nearest_json(t, &t->devs[i], TOPO_NIC));
		json_add(o, "disk", topo_nearest_json(t, &t->devs[i], TOPO_DISK));
		json_add(nearest, NULL, o);
	}
	json_flag(root, "ok", rep->ok);
	json_add(root, "verdict", verdict);
	json_int(root, "numa_nodes", t->nodes);
	json_add(root, "devices", devs);
	json_add(root, "distances", rows);
	json_add(root, "nearest", nearest);
	machine_facts(&m);
	json_machine(root, &m);
	json_print(root);
}

static void topo_reportp(struct topo_report **rep)
{
	free(*rep);
}

int doctor_topo(const char *sys, const char *svg, bool json)
{
	_cleanup_(topo_reportp) struct topo_report *rep = calloc(1, sizeof(*rep));
	int r = rep ? topo_find(sys, &rep->t) : fail(ENOMEM, "out of memory");

	if (r == 0 && svg)
		r = topo_svg(&rep->t, svg);
	if (r < 0)
		return exit_status(r);
	topo_judge(rep);
	if (json)
		topo_print_json(rep);
	else
		topo_print(rep);
	return 0;
}
