/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "tools/common/json.h"
#include "tools/common/shown.h"
#include "cli/window/window.h"

static const char *proof(const struct win *win)
{
	return win->info.state == PST_STATE_PROVEN ? "proven" : "not proven";
}

void win_print_head(const struct win *win, const struct machine *m)
{
	shown_printf(9, "machine  %s, %u processors, %s", m->cpu, m->cpus, m->kernel);
	shown_printf(9, "device   %s", device_text(&win->dev).s);
	device_print_emulated(&win->dev, 9);
	shown_printf(9, "window   by %s, %s, %s; long stores by %s, long loads by %s",
		     win->info.backend, win_caching_name(win->info.caching), proof(win),
		     win->info.store, win->info.load);
}

void win_json_head(struct json_object *to, const struct win *win, const struct machine *m)
{
	json_machine(to, m);
	json_text(to, "device", win->dev.name);
	json_text(to, "model", win->dev.model);
	json_text(to, "backend", win->info.backend);
	json_text(to, "caching", win_caching_name(win->info.caching));
	json_flag(to, "proven", win->info.state == PST_STATE_PROVEN);
	json_text(to, "store_kernel", win->info.store);
	json_text(to, "load_kernel", win->info.load);
}

struct text win_us_text(double ns)
{
	struct text t = { "-" };

	if (isfinite(ns))
		(void)snprintf(t.s, sizeof(t.s), "%.*f", ns < 1e4 ? 3 : ns < 1e6 ? 1 : 0, ns / 1e3);
	return t;
}

void win_json_sum(struct json_object *to, const char *key, const struct bucket_sum *s)
{
	struct json_object *o = json_object_new_object();

	json_num(o, "median_us", s->median / 1e3);
	json_num(o, "min_us", s->min / 1e3);
	json_num(o, "p99_us", s->p99 / 1e3);
	json_u64(o, "buckets", s->nr);
	json_u64(o, "ops_in_bucket", s->ops);
	json_add(to, key, o);
}
