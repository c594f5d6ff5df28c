/* SPDX-License-Identifier: MIT */
/* Short names for the json-c calls that --json needs. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include <json-c/json.h>

/* Add a member to an object; with key NULL, an element to an array. */
void json_add(struct json_object *to, const char *key, struct json_object *value);
void json_text(struct json_object *to, const char *key, const char *value);
void json_u64(struct json_object *to, const char *key, uint64_t value);
void json_int(struct json_object *to, const char *key, int64_t value);
void json_flag(struct json_object *to, const char *key, bool value);
/* Add a number with 6 significant digits, or null if the value is not finite. */
void json_num(struct json_object *to, const char *key, double value);

/* Add the names of a set of paths as an array. */
void json_paths(struct json_object *to, const char *key, uint32_t paths);

struct whys;

/* Add an array of {name, requests, detail, text}; empty if all requests went as wanted. */
void json_whys(struct json_object *to, const char *key, const struct whys *w);

struct machine;

/* Add facts about this library and this machine, as "penstock" and "machine". */
void json_machine(struct json_object *to, const struct machine *m);

/* Print to standard output, with a newline. */
void json_print(struct json_object *obj);

static inline void json_putp(struct json_object **obj)
{
	(void)json_object_put(*obj);
}

#endif
