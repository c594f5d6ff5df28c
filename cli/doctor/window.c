/* SPDX-License-Identifier: MIT */
#include "cli/doctor/window.h"

#include "tools/common/json.h"
#include "tools/common/shown.h"

#define BACKENDS_MAX 8

struct found {
	struct pst_window_backend of[BACKENDS_MAX];
	int nr;          /* number of backends, or -errno */
	char error[256]; /* error text if nr is negative, else "" */
};

static void find_window(const struct pst_device *dev, struct found *f)
{
	*f = (struct found){ .nr = 0 };
	for (size_t i = 0; i < BACKENDS_MAX; i++)
		f->of[i].sz = sizeof(f->of[i]);
	if (dev->kind == PST_KIND_HOST)
		return;
	f->nr = MIN(pst_window_backends(dev->name, f->of, BACKENDS_MAX), BACKENDS_MAX);
	if (f->nr < 0)
		(void)snprintf(f->error, sizeof(f->error), "%.250s", pst_error_text());
}

static const char *state_of(const struct pst_window_backend *b)
{
	switch (b->state) {
	case PST_STATE_PROVEN:
		return "proven";
	case PST_STATE_POSSIBLE:
		return "possible";
	default:
		return "impossible";
	}
}

void doctor_window_print(const struct pst_device *dev)
{
	struct found f;

	find_window(dev, &f);
	if (*f.error)
		shown_printf(11, "  %-8s not tried: %s", dev->name, f.error);
	for (int i = 0; i < f.nr; i++)
		shown_printf(32, "  %-8s %-8s %-10s  %s", i ? "" : dev->name, f.of[i].name,
			     state_of(&f.of[i]), f.of[i].text);
}

struct json_object *doctor_window_json(const struct pst_device *dev)
{
	struct json_object *root = json_object_new_object(), *a = json_object_new_array();
	struct found f;

	find_window(dev, &f);
	for (int i = 0; i < f.nr; i++) {
		struct json_object *o = json_object_new_object();

		json_text(o, "backend", f.of[i].name);
		json_text(o, "state", state_of(&f.of[i]));
		json_int(o, "errno", f.of[i].err);
		json_text(o, "text", f.of[i].text);
		json_add(a, NULL, o);
	}
	json_text(root, "error", f.error);
	json_add(root, "backends", a);
	return root;
}
