/* SPDX-License-Identifier: MIT */
#include "tools/common/json.h"

#include <math.h>

#include "tools/common/shown.h"
#include "tools/common/util.h"

void json_add(struct json_object *to, const char *key, struct json_object *value)
{
	if (key)
		(void)json_object_object_add(to, key, value);
	else
		(void)json_object_array_add(to, value);
}

void json_text(struct json_object *to, const char *key, const char *value)
{
	/* Replace C1 control characters, and bytes that are not UTF-8: JSON forbids the latter. */
	size_t len = 4 * strlen(value) + 5;
	_cleanup_(freep) char *safe = malloc(len);

	if (safe)
		shown(safe, len, value);
	json_add(to, key, safe ? json_object_new_string(safe) : NULL);
}

void json_u64(struct json_object *to, const char *key, uint64_t value)
{
	json_add(to, key, json_object_new_uint64(value));
}

void json_int(struct json_object *to, const char *key, int64_t value)
{
	json_add(to, key, json_object_new_int64(value));
}

void json_flag(struct json_object *to, const char *key, bool value)
{
	json_add(to, key, json_object_new_boolean(value));
}

void json_num(struct json_object *to, const char *key, double value)
{
	char text[64];

	/* json-c would print 17 digits, and NaN is not allowed in JSON. */
	if (!isfinite(value)) {
		json_add(to, key, NULL);
		return;
	}
	(void)snprintf(text, sizeof(text), "%.6g", value);
	json_add(to, key, json_object_new_double_s(value, text));
}

void json_paths(struct json_object *to, const char *key, uint32_t paths)
{
	struct json_object *a = json_object_new_array();

	for (uint32_t p = 1; p < PST_PATH_MAX; p++)
		if (paths & PST_PATH_BIT(p))
			json_text(a, NULL, pst_path_name(p));
	json_add(to, key, a);
}

void json_whys(struct json_object *to, const char *key, const struct whys *w)
{
	struct json_object *a = json_object_new_array();

	for (uint32_t i = PST_WHY_NONE + 1; i <= PST_WHY_MAX; i++) {
		struct json_object *o;

		if (!w->nr[i])
			continue;
		o = json_object_new_object();
		json_text(o, "name", pst_why_name(i));
		json_u64(o, "requests", w->nr[i]);
		json_int(o, "detail", w->detail[i]);
		json_text(o, "text", why_text(i, w->detail[i]).s);
		json_add(a, NULL, o);
	}
	json_add(to, key, a);
}

void json_machine(struct json_object *to, const struct machine *m)
{
	struct json_object *o = json_object_new_object();

	json_text(to, "penstock", pst_version());
	json_text(o, "processor", m->cpu);
	json_u64(o, "cpus", m->cpus);
	json_u64(o, "cpus_online", m->online);
	json_text(o, "kernel", m->kernel);
	json_u64(o, "memory_bytes", m->memory);
	json_u64(o, "available_bytes", m->available);
	json_add(to, "machine", o);
}

void json_print(struct json_object *obj)
{
	(void)printf("%s\n",
		     json_object_to_json_string_ext(obj, JSON_C_TO_STRING_PRETTY |
								 JSON_C_TO_STRING_NOSLASHESCAPE));
}
