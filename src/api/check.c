/* SPDX-License-Identifier: MIT */
/* pst_check(): each topic has one function. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/guard.h"
#include "base/err.h"
#include "base/opts.h"
#include "core/ways/path.h"
#include "file/io.h"
#include "net/verbs/check.h"

/* ---------------------------------------------------------------------- io */

static int check_io(const struct pst_check_opts *o, struct pst_check *ret)
{
	static const struct {
		const char *name;
		const struct io_backend *ops;
	} backends[] = { { "io_uring", &uring_backend }, { "threads", &threads_backend } };

	(void)o;
	for (unsigned i = 0; i < ARRAY_SIZE(backends); i++) {
		int r = backends[i].ops->check();

		ret[i] = (struct pst_check){ .sz = sizeof(ret[i]),
					     .state = r < 0 ? PST_CHECK_MISSING : PST_CHECK_OK,
					     .err = -MIN(r, 0) };
		(void)snprintf(ret[i].name, sizeof(ret[i].name), "%s", backends[i].name);
		(void)snprintf(ret[i].text, sizeof(ret[i].text), "%s",
			       r < 0 ? err_text() : "file operations can be done by it");
	}
	return ARRAY_SIZE(backends);
}

/* -------------------------------------------------------------------- rdma */

static int check_rdma(const struct pst_check_opts *o, struct pst_check *ret)
{
	(void)o;
	return verbs_check("", ret, TOPIC_CHECKS_MAX);
}

/* ------------------------------------------------------------------ topics */

static const struct topic io = { "io", check_io, 0 }, rdma = { "rdma", check_rdma, 0 };

/* Find a topic by its name; a path with checks is also a topic. */
static const struct topic *topic_find(const char *name)
{
	if (!strcmp(name, io.name))
		return &io;
	if (!strcmp(name, rdma.name))
		return &rdma;
	for (const struct path_ops **at = path_list; *at; at++)
		if ((*at)->topic && !strcmp((*at)->topic->name, name))
			return (*at)->topic;
	return NULL;
}

/* Write the names of all topics: "io and rdma and gds". */
static void topics_list(char *ret, size_t len)
{
	size_t n = (size_t)snprintf(ret, len, "%s and %s", io.name, rdma.name);

	for (const struct path_ops **at = path_list; *at && n < len; at++)
		if ((*at)->topic)
			n += (size_t)snprintf(ret + n, len - n, " and %s", (*at)->topic->name);
}

int pst_check(const char *topic, const struct pst_check_opts *opts, struct pst_check *ret,
	      unsigned max)
{
	const struct topic *t = topic ? topic_find(topic) : NULL;
	_cleanup_(freep) struct pst_check *found = NULL;
	struct pst_check_opts o;
	char has[100];
	int r;

	GUARD();
	if (!topic)
		return err_set(EINVAL, "no topic is given");
	if (!t) {
		topics_list(has, sizeof(has));
		return err_set(EOPNOTSUPP, "topic %s is unknown to this version; it has %s", topic,
			       has);
	}
	r = opts_copy(&o, sizeof(o), opts);
	if (r == 0 && (o.flags & ~t->flags || o.reserved))
		r = err_set(EINVAL, "flags 0x%x do not go with topic %s", o.flags, topic);
	if (r == 0)
		r = opts_array_check(ret, max, "pst_check");
	found = calloc(TOPIC_CHECKS_MAX, sizeof(*found));
	if (r == 0 && !found)
		r = err_set(ENOMEM, "out of memory");
	if (r == 0)
		r = t->check(&o, found);
	for (int i = 0; i < r && i < (int)MIN(max, TOPIC_CHECKS_MAX); i++)
		(void)opts_return(opts_array_at(ret, (unsigned)i), &found[i], sizeof(found[i]));
	return r;
}
