/* SPDX-License-Identifier: MIT */
#include "cli/serve/store.h"

#include "kv/lend.h"
#include "kv/name.h"
#include "kv/store.h"
#include "tools/common/util.h"

static int lent_open(void *arg, const char *name, const char *key, const char *who, bool write,
		     void **ret, int *ret_fd, uint64_t *ret_len)
{
	const struct served_store *s = arg;
	const struct lend_client client = { .who = who, .tenant = key };
	struct lend *l;
	int r = lend_open(s->kv, name, &client, s->quota, write, &l, ret_fd, ret_len);

	if (r == 0)
		*ret = l;
	return r;
}

static int lent_write(void *file, const void *buf, uint32_t len, uint64_t off)
{
	return lend_write(file, buf, len, off);
}

static int lent_publish(void *file)
{
	return lend_publish(file);
}

static void lent_close(void *file)
{
	lend_close(file);
}

static int lent_find(void *arg, const char *name, const char *key, uint64_t *ret_len)
{
	return lend_find(((struct served_store *)arg)->kv, name, key, ret_len);
}

static int lent_remove(void *arg, const char *name, const char *key)
{
	return lend_delete(((struct served_store *)arg)->kv, name, key);
}

int store_begin(struct served_store *s)
{
	int r;

	s->opts.sz = sizeof(s->opts);
	/* Clients are served by the threads of the server. */
	s->opts.threads = 1;
	r = kv_open(s->dirs, s->nr, &s->opts, s->quota, &s->kv);
	if (r < 0)
		return fail(-r, "%s", pst_kv_error_text());
	s->ops = (struct serve_store){
		.arg = s,
		.root = NAME_ROOT,
		.open = lent_open,
		.write = lent_write,
		.publish = lent_publish,
		.close = lent_close,
		.find = lent_find,
		.remove = lent_remove,
	};
	return 0;
}

int store_check(const struct served_store *s)
{
	int r = kv_check(s->dirs, s->nr, &s->opts);

	return r < 0 ? fail(-r, "%s", pst_kv_error_text()) : 0;
}

void store_end(struct served_store *s)
{
	s->kv = pst_kv_close(s->kv);
}
