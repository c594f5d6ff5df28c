/* SPDX-License-Identifier: MIT */
/* Calls on names of a storage service. */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "file/names.h"
#include "remote/remote.h"

#define PAGE KIB(64) /* bytes of entries requested at a time */

/* State of one call: the given name, the path on the server, and a connection. */
struct name_call {
	const char *name, *path;
	struct remote_server server;
	struct remote_talk *talk;
};

static int err_name_of(const struct name_call *a, int err)
{
	return err_set(err, "%s: %s", a->name, err_text());
}

static int name_call_begin(const char *name, bool may_be_root, struct name_call *ret)
{
	int r;

	*ret = (struct name_call){ .name = name };
	r = remote_name(name, may_be_root, &ret->server, &ret->path);
	if (r < 0)
		return r;
	r = remote_talk_begin(&ret->server, remote_channel(), 1, &ret->talk);
	explicit_bzero(&ret->server.key, sizeof(ret->server.key));
	return r < 0 ? err_name_of(ret, r) : 0;
}

static void name_call_end(struct name_call *a)
{
	remote_talk_end(a->talk);
}

/* Send a request whose answer has no payload, and wait for the answer. */
static int name_call_ask(struct name_call *a, struct wire_request *q, const char *payload,
			 size_t len)
{
	struct wire_reply rep;
	uint8_t none[1];
	int r = remote_talk_ask(a->talk, q, payload, len, &rep, none, 0);

	return r < 0 ? err_name_of(a, r) : 0;
}

static int name_call_attr(struct name_call *a, struct wire_request *q, const char *path,
			  struct wire_attr *ret, uint32_t *ret_handle)
{
	uint8_t payload[WIRE_ATTR_LEN];
	struct wire_reply rep;
	int r = remote_talk_ask(a->talk, q, path, strlen(path), &rep, payload, sizeof(payload));

	if (r == 0)
		r = remote_get_attr(payload, &rep, ret);
	if (r == 0 && ret_handle)
		*ret_handle = rep.count;
	return r < 0 ? err_name_of(a, r) : 0;
}

/* wire_kind values equal pst_name_kind values, so no translation is needed. */
_Static_assert((int)WIRE_KIND_FILE == (int)PST_NAME_FILE &&
		       (int)WIRE_KIND_DIR == (int)PST_NAME_DIR &&
		       (int)WIRE_KIND_OTHER == (int)PST_NAME_OTHER,
	       "kinds are the same numbers");

static void set_info(struct pst_name_info *ret, const struct wire_attr *a)
{
	ret->kind = a->kind;
	ret->has = PST_NAME_HAS_SIZE | PST_NAME_HAS_MTIME;
	ret->size = a->kind == WIRE_KIND_FILE ? a->size : 0;
	ret->mtime_ns = (int64_t)a->mtime_ns;
}

/* -------------------------------------------------------------------- stat */

static int remote_stat(const char *name, struct pst_name_info *ret)
{
	struct wire_request q = { .op = WIRE_STAT };
	struct wire_attr attr;
	struct name_call a;
	int r = name_call_begin(name, true, &a);

	if (r < 0)
		return r;
	r = name_call_attr(&a, &q, *a.path ? a.path : ".", &attr, NULL);
	if (r == 0)
		set_info(ret, &attr);
	name_call_end(&a);
	return r;
}

/* -------------------------------------------------------------------- list */

/* State of a listing. */
struct listing {
	struct name_call pages, facts;
	uint32_t flags;
	pst_name_fn fn;
	void *arg;
	uint64_t cursor;
	uint8_t payload[PAGE];
};

/* Request the facts of an entry.  Return 1; 0 if the entry is gone. */
static int add_facts(struct listing *l, const char *entry, struct pst_name_info *info)
{
	struct wire_request q = { .op = WIRE_STAT };
	struct name_call *a = &l->facts;
	struct wire_attr attr;
	char *path;
	int r;

	if (asprintf(&path, "%s%s%s", a->path, *a->path ? "/" : "", entry) < 0)
		return err_set(ENOMEM, "out of memory");
	r = strlen(path) > WIRE_NAME_MAX
		    ? err_set(ENAMETOOLONG, "%s: a name in it is too long", a->name)
		    : name_call_attr(a, &q, path, &attr, NULL);
	free(path);
	/* A link whose target is missing or outside of the served tree stays PST_NAME_OTHER. */
	if (info->kind == PST_NAME_OTHER && (r == -ENOENT || r == -EXDEV || r == -ELOOP))
		return 1;
	if (r == -ENOENT)
		return 0;
	/* A link to a directory stays PST_NAME_OTHER, so that walking a tree ends. */
	if (r == 0 && (attr.kind != WIRE_KIND_DIR || info->kind == PST_NAME_DIR))
		set_info(info, &attr);
	return r < 0 ? r : 1;
}

static int give_entry(struct listing *l, const struct wire_entry *e)
{
	struct pst_name_info info = { .sz = sizeof(info), .kind = e->kind };
	char *entry = strndup(e->name, e->name_len);
	int r = 1;

	if (!entry)
		return err_set(ENOMEM, "out of memory");
	if (!strcmp(entry, ".") || !strcmp(entry, ".."))
		r = err_set(EPROTO, "%s: the server lists an entry %s", l->pages.name, entry);
	else if (l->flags & PST_NAME_FACTS)
		r = add_facts(l, entry, &info);
	if (r > 0)
		r = l->fn(l->arg, entry, &info);
	free(entry);
	return r;
}

/* Read one page of entries.  *ret_more: there are more pages. */
static int read_page(struct listing *l, bool *ret_more)
{
	struct wire_request q = { .op = WIRE_LIST, .off = l->cursor, .count = PAGE };
	struct wire_entry e;
	struct wire_reply rep;
	uint32_t at = 0;
	int r = remote_talk_ask(l->pages.talk, &q, l->pages.path, strlen(l->pages.path), &rep,
				l->payload, PAGE);

	if (r < 0)
		return err_name_of(&l->pages, r);
	*ret_more = rep.value;
	while ((r = wire_get_entry(l->payload, rep.count, &at, &e)) > 0) {
		l->cursor = e.next;
		r = give_entry(l, &e);
		if (r)
			return r;
	}
	if (r < 0 || (rep.value && !at))
		return err_set(EPROTO, "%s: the server's answer is no list", l->pages.name);
	return 0;
}

static int remote_list(const char *name, uint32_t flags, pst_name_fn fn, void *arg)
{
	struct listing *l = calloc(1, sizeof(*l));
	bool more = true;
	int r;

	if (!l)
		return err_set(ENOMEM, "out of memory");
	*l = (struct listing){ .flags = flags, .fn = fn, .arg = arg };
	r = name_call_begin(name, true, &l->pages);
	if (r == 0 && flags & PST_NAME_FACTS)
		r = name_call_begin(name, true, &l->facts);
	while (r == 0 && more)
		r = read_page(l, &more);
	name_call_end(&l->facts);
	name_call_end(&l->pages);
	free(l);
	return r;
}

/* ------------------------------------------------------------------- change */

static int remote_unlink(const char *name)
{
	struct wire_request q = { .op = WIRE_UNLINK };
	struct name_call a;
	int r = name_call_begin(name, false, &a);

	if (r < 0)
		return r;
	r = name_call_ask(&a, &q, a.path, strlen(a.path));
	name_call_end(&a);
	return r;
}

static int remote_rename(const char *name, const char *to)
{
	struct wire_request q = { .op = WIRE_RENAME };
	struct remote_server server = { 0 }, to_server = { 0 };
	const char *path, *to_path;
	bool same = false;
	struct name_call a;
	char *names;
	int r = remote_name(to, false, &to_server, &to_path);

	if (r == 0)
		r = remote_name(name, false, &server, &path);
	if (r == 0)
		same = remote_is_server(&server, &to_server);
	explicit_bzero(&server.key, sizeof(server.key));
	explicit_bzero(&to_server.key, sizeof(to_server.key));
	if (r < 0)
		return r;
	if (!same)
		return err_set(EXDEV,
			       "%s and %s are not of one server; copy the file with "
			       "penstock cp, and remove the old one",
			       name, to);
	if (asprintf(&names, "%s%s", path, to_path) < 0)
		return err_set(ENOMEM, "out of memory");
	q.count = (uint32_t)strlen(path);
	r = name_call_begin(name, false, &a);
	if (r == 0) {
		r = name_call_ask(&a, &q, names, strlen(names));
		name_call_end(&a);
	}
	free(names);
	return r;
}

static int remote_truncate(const char *name, uint64_t size)
{
	struct wire_request open = { .op = WIRE_OPEN, .how = WIRE_O_WRITE };
	struct wire_request q = { .op = WIRE_TRUNCATE, .off = size };
	struct wire_attr attr;
	struct name_call a;
	int r = name_call_begin(name, false, &a);

	if (r < 0)
		return r;
	r = name_call_attr(&a, &open, a.path, &attr, &q.handle);
	if (r == 0)
		r = name_call_ask(&a, &q, "", 0);
	name_call_end(&a);
	return r;
}

const struct names_ops remote_names_ops = {
	.stat = remote_stat,
	.list = remote_list,
	.unlink = remote_unlink,
	.rename = remote_rename,
	.truncate = remote_truncate,
};
