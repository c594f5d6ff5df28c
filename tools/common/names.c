/* SPDX-License-Identifier: MIT */
#include "tools/common/names.h"

#include <stdio.h>
#include <string.h>

#include "tools/common/fail.h"

static int no_path(const char *name, int len)
{
	const char *names[PST_PATH_MAX + 1] = { "auto" }, *meant;

	for (uint32_t path = 1; path < PST_PATH_MAX; path++)
		if (strcmp(pst_path_name(path), "unknown") != 0)
			names[path] = pst_path_name(path);
	meant = nearest(name, (size_t)len, names, sizeof(names[0]), ARRAY_SIZE(names));
	if (meant)
		return fail(EINVAL, "no path is called '%.*s'; did you mean %s?", len, name, meant);
	return fail(EINVAL,
		    "no path is called '%.*s'; known are auto, direct, cached, buffered, staged "
		    "and what penstock doctor lists",
		    len, name);
}

int parse_policy(const char *text, uint64_t *ret)
{
	uint64_t policy = 0;
	unsigned nr = 0;

	if (!strcmp(text, "auto")) {
		*ret = PST_POLICY_AUTO;
		return 0;
	}
	for (const char *p = text;; p++) {
		size_t len = strcspn(p, ",+");
		uint32_t path;

		for (path = 1; path < PST_PATH_MAX; path++) {
			const char *name = pst_path_name(path);

			if (strlen(name) == len && !strncmp(name, p, len) &&
			    strcmp(name, "unknown") != 0)
				break;
		}
		if (path == PST_PATH_MAX)
			return no_path(p, (int)len);
		if (nr == 8)
			return fail(EINVAL, "a policy holds at most 8 paths");
		policy |= (uint64_t)path << (4 * nr++);
		p += len;
		if (!*p)
			break;
	}
	*ret = policy;
	return 0;
}

int parse_store(const char *text, uint32_t *ret)
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

struct text paths_text(uint32_t paths)
{
	struct text t = { "" };
	size_t n = 0;

	/* Name the hop into the device first, then the file hop. */
	for (unsigned pass = 0; pass < 2; pass++) {
		for (uint32_t p = 1; p < PST_PATH_MAX; p++) {
			bool file_hop = p <= PST_PATH_BUFFERED;

			if (!(paths & PST_PATH_BIT(p)) || file_hop != (pass == 1))
				continue;
			n += (size_t)snprintf(t.s + n, sizeof(t.s) - n, "%s%s", n ? "+" : "",
					      pst_path_name(p));
			if (n >= sizeof(t.s))
				return t;
		}
	}
	if (!n)
		(void)strcpy(t.s, "-");
	return t;
}

struct text why_text(uint32_t why, int32_t detail)
{
	struct text t;

	(void)pst_why_text(why, detail, t.s, sizeof(t.s));
	return t;
}

void whys_add(struct whys *w, uint32_t why, int32_t detail)
{
	if (why > PST_WHY_MAX)
		why = PST_WHY_MAX;
	w->nr[why]++;
	w->detail[why] = detail;
}

void whys_merge(struct whys *w, const struct whys *other)
{
	for (uint32_t i = 0; i <= PST_WHY_MAX; i++) {
		if (other->nr[i])
			w->detail[i] = other->detail[i];
		w->nr[i] += other->nr[i];
	}
}

bool whys_any(const struct whys *w)
{
	for (uint32_t i = PST_WHY_NONE + 1; i <= PST_WHY_MAX; i++)
		if (w->nr[i])
			return true;
	return false;
}

struct pst_check backend_check(uint32_t backend)
{
	const char *name = backend == PST_BACKEND_URING ? "io_uring" : "threads";
	struct pst_check of[4];
	int nr;

	for (size_t i = 0; i < ARRAY_SIZE(of); i++)
		of[i] = (struct pst_check){ .sz = sizeof(of[i]) };
	nr = pst_check("io", NULL, of, ARRAY_SIZE(of));
	for (int i = 0; i < nr && i < (int)ARRAY_SIZE(of); i++)
		if (!strcmp(of[i].name, name))
			return of[i];
	of[0] = (struct pst_check){ .sz = sizeof(of[0]), .err = nr < 0 ? -nr : EINVAL };
	(void)snprintf(of[0].text, sizeof(of[0].text), "%.400s", pst_error_text());
	return of[0];
}
