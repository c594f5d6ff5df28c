/* SPDX-License-Identifier: MIT */
/*
 * Report each kind of memory and each device in one row, as ucx_info does: can the memory be
 * exported as a dma-buf, through which other devices access it?  Then report what the machine
 * offers.
 */
#include "cli/doctor/accel.h"

#include "cli/doctor/doctor.h"
#include "tools/common/json.h"
#include "tools/common/shown.h"

#define CHECKS_MAX 24

struct row {
	struct pst_device dev;
	struct pst_check export;
	char domain[PST_DEVICE_NAME_MAX];
};

struct accel_report {
	struct row rows[DOCTOR_DEVICES_MAX + 1];
	unsigned nr_rows;
	struct pst_check checks[CHECKS_MAX];
	int nr_checks;
};

static const char *accel_state_name(uint32_t state)
{
	static const char *const names[] = { "missing", "unknown", "ok", "unneeded" };

	return state < ARRAY_SIZE(names) ? names[state] : "other";
}

static const char *exports(const struct pst_check *c)
{
	return c->state == PST_CHECK_OK ? "yes" : "no";
}

static int add_row(struct accel_report *rep, const struct pst_device *dev)
{
	const struct pst_check_opts o = { .sz = sizeof(o), .device = dev->name };
	struct row *row = &rep->rows[rep->nr_rows++];
	int r;

	row->dev = *dev;
	row->export.sz = sizeof(row->export);
	(void)snprintf(row->domain, sizeof(row->domain), "%.*s", (int)strcspn(dev->name, ":"),
		       dev->name);
	r = pst_check("accel", &o, &row->export, 1);
	return r < 0 ? fail_pst(r, dev->name) : 0;
}

static int accel_look(struct accel_report *rep)
{
	struct pst_device devs[DOCTOR_DEVICES_MAX], any = { .sz = sizeof(any) };
	int n, r = 0;

	for (unsigned i = 0; i < DOCTOR_DEVICES_MAX; i++)
		devs[i] = (struct pst_device){ .sz = sizeof(devs[i]) };
	n = MIN(pst_device_list(devs, DOCTOR_DEVICES_MAX), DOCTOR_DEVICES_MAX);
	for (int i = 0; r == 0 && i < n; i++)
		r = add_row(rep, &devs[i]);
	if (r == 0 && pst_device_find("dmabuf", &any) == 0)
		r = add_row(rep, &any);
	for (unsigned i = 0; i < CHECKS_MAX; i++)
		rep->checks[i].sz = sizeof(rep->checks[i]);
	if (r == 0) {
		rep->nr_checks = MIN(pst_check("accel", NULL, rep->checks, CHECKS_MAX), CHECKS_MAX);
		if (rep->nr_checks < 0)
			r = fail_pst(rep->nr_checks, NULL);
	}
	return r;
}

static void accel_print(const struct accel_report *rep)
{
	for (unsigned i = 0; i < rep->nr_rows; i++) {
		const struct row *row = &rep->rows[i];

		(void)printf("# Memory domain: %s\n", row->domain);
		(void)printf("#     Component: %s\n", row->dev.model);
		(void)printf("#        Device: %s%s%s\n", row->dev.name, *row->dev.pci ? ", " : "",
			     row->dev.pci);
		shown_printf(17, "#        dmabuf: %s: %s", exports(&row->export),
			     row->export.text);
	}
	(void)printf("\nThe machine\n");
	for (int i = 0; i < rep->nr_checks; i++)
		shown_printf(24, "  %-11s %-9s %s", rep->checks[i].name,
			     accel_state_name(rep->checks[i].state), rep->checks[i].text);
}

static void accel_print_json(const struct accel_report *rep)
{
	_cleanup_(json_putp) struct json_object *root = json_object_new_object();
	struct json_object *rows = json_object_new_array(), *checks = json_object_new_array();

	for (unsigned i = 0; i < rep->nr_rows; i++) {
		const struct row *row = &rep->rows[i];
		struct json_object *o = json_object_new_object();

		json_text(o, "domain", row->domain);
		json_text(o, "component", row->dev.model);
		json_text(o, "device", row->dev.name);
		json_text(o, "pci", row->dev.pci);
		json_flag(o, "dmabuf", row->export.state == PST_CHECK_OK);
		json_int(o, "errno", row->export.err);
		json_text(o, "text", row->export.text);
		json_add(rows, NULL, o);
	}
	for (int i = 0; i < rep->nr_checks; i++) {
		struct json_object *o = json_object_new_object();

		json_text(o, "check", rep->checks[i].name);
		json_text(o, "state", accel_state_name(rep->checks[i].state));
		json_int(o, "errno", rep->checks[i].err);
		json_text(o, "text", rep->checks[i].text);
		json_add(checks, NULL, o);
	}
	json_add(root, "domains", rows);
	json_add(root, "machine", checks);
	json_print(root);
}

static void accel_reportp(struct accel_report **rep)
{
	free(*rep);
}

int doctor_accel(bool json)
{
	_cleanup_(accel_reportp) struct accel_report *rep = calloc(1, sizeof(*rep));
	int r = rep ? accel_look(rep) : fail(ENOMEM, "out of memory");

	if (r < 0)
		return exit_status(r);
	if (json)
		accel_print_json(rep);
	else
		accel_print(rep);
	return 0;
}
