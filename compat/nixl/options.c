/* SPDX-License-Identifier: MIT */
/* The plug-in's options: parameters of the program, and the environment variable PST_NIXL. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "plug_int.h"

#define PATHS_MAX 8 /* that a policy can list */

const struct plug_param plug_defaults[] = {
	{ "policy", "auto" }, { "strict", "false" }, { "threads", "0" },
	{ "depth", "128" },   { "timeout_ms", "0" }, { "backend", "auto" },
	{ "sync", "false" },  { "stable", "false" }, { NULL, NULL },
};

/* Parse "auto", or names of paths like "staged+direct". */
static int policy_parse(const char *text, uint64_t *ret_policy)
{
	uint64_t policy = 0;
	unsigned nr = 0;

	if (!strcmp(text, "auto")) {
		*ret_policy = PST_POLICY_AUTO;
		return 0;
	}
	for (;;) {
		size_t len = strcspn(text, "+");
		uint32_t path;

		for (path = 1; path <= PST_PATH_MAX; path++) {
			const char *name = pst_path_name(path);

			if (strlen(name) == len && !memcmp(name, text, len) &&
			    strcmp(name, "unknown") != 0)
				break;
		}
		if (path > PST_PATH_MAX || nr == PATHS_MAX)
			return -EINVAL;
		policy |= (uint64_t)path << (4 * nr++);
		if (!text[len])
			break;
		text += len + 1;
	}
	*ret_policy = policy;
	return 0;
}

static int bool_parse(const char *text, uint32_t *ret)
{
	if (!strcmp(text, "true") || !strcmp(text, "1"))
		*ret = 1;
	else if (!strcmp(text, "false") || !strcmp(text, "0"))
		*ret = 0;
	else
		return -EINVAL;
	return 0;
}

static int number_parse(const char *text, uint32_t max, uint32_t *ret)
{
	char *end;
	unsigned long n;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	n = strtoul(text, &end, 10);
	if (errno || *end || n > max)
		return -EINVAL;
	*ret = (uint32_t)n;
	return 0;
}

static int backend_parse(const char *text, uint32_t *ret)
{
	if (!strcmp(text, "auto"))
		*ret = PST_BACKEND_AUTO;
	else if (!strcmp(text, "uring"))
		*ret = PST_BACKEND_URING;
	else if (!strcmp(text, "threads"))
		*ret = PST_BACKEND_THREADS;
	else
		return -EINVAL;
	return 0;
}

static int one_parse(const char *name, const char *value, struct plug_opts *o,
		     const char **ret_wants)
{
	if (!strcmp(name, "policy")) {
		*ret_wants = "auto, or names of paths such as staged+direct";
		return policy_parse(value, &o->policy);
	}
	if (!strcmp(name, "threads")) {
		*ret_wants = "a number from 0 (automatic) to 64";
		return number_parse(value, PLUG_THREADS_MAX, &o->threads);
	}
	if (!strcmp(name, "depth")) {
		*ret_wants = "a number from 1 to 4096";
		return number_parse(value, 4096, &o->depth) || !o->depth ? -EINVAL : 0;
	}
	if (!strcmp(name, "timeout_ms")) {
		*ret_wants = "milliseconds, 0 for the library's limit";
		return number_parse(value, UINT32_MAX, &o->timeout_ms);
	}
	if (!strcmp(name, "backend")) {
		*ret_wants = "auto, uring or threads";
		return backend_parse(value, &o->backend);
	}
	*ret_wants = "true or false";
	if (!strcmp(name, "strict"))
		return bool_parse(value, &o->strict);
	if (!strcmp(name, "sync"))
		return bool_parse(value, &o->sync);
	if (!strcmp(name, "stable"))
		return bool_parse(value, &o->stable);
	*ret_wants = NULL;
	return -EINVAL;
}

/* Return the number of workers for this machine: more than 4 rarely help, and cost memory. */
static uint32_t threads_default(void)
{
	cpu_set_t set;
	int nr;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return 4;
	nr = CPU_COUNT(&set);
	return nr < 4 ? (uint32_t)nr : 4;
}

static int option_set(struct plug_opts *o, const char *name, const char *value)
{
	const char *wants;

	if (one_parse(name, value, o, &wants) == 0)
		return 0;
	if (wants)
		plug_log("parameter %s is '%s': give %s", name, value, wants);
	else
		plug_log("there is no parameter '%s': docs/NIXL.md lists all", name);
	return -EINVAL;
}

/* Use NAME=VALUE,NAME=VALUE of the environment: most programs pass no parameters. */
static int env_parse(struct plug_opts *o)
{
	const char *env = secure_getenv("PST_NIXL");
	char *copy, *save, *at;
	int err = 0;

	if (!env)
		return 0;
	copy = strdup(env);
	if (!copy)
		return -ENOMEM;
	for (at = strtok_r(copy, ",", &save); at && !err; at = strtok_r(NULL, ",", &save)) {
		char *value = strchr(at, '=');

		if (value)
			*value++ = 0;
		err = option_set(o, at, value ? value : "");
	}
	free(copy);
	return err;
}

int plug_opts_parse(const struct plug_param *params, size_t nr, struct plug_opts *ret_opts)
{
	struct plug_opts o = { .depth = 128 };
	size_t i;
	int err;

	err = env_parse(&o);
	for (i = 0; i < nr && !err; i++)
		err = option_set(&o, params[i].name, params[i].value);
	if (err)
		return err;
	if (!o.threads)
		o.threads = threads_default();
	*ret_opts = o;
	return 0;
}
