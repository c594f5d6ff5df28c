/* SPDX-License-Identifier: MIT */
#include "cli/serve/store.h"

#include <inttypes.h>
#include <stdio.h>

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

/* Members of struct pst_kv_stat, with the names that penstock.kv gives them. */
static const struct {
	const char *name, *type, *help;
	size_t member;
} numbers[] = {
#define GAUGE(name, help)                                                \
	{                                                                \
#name, "gauge", help, offsetof(struct pst_kv_stat, name) \
	}
#define COUNTER(name, help)                                                \
	{                                                                  \
#name, "counter", help, offsetof(struct pst_kv_stat, name) \
	}
	GAUGE(budget, "Bytes of budget."),
	GAUGE(used, "Bytes of files, those in flight included."),
	GAUGE(blocks, "Blocks in the index."),
	GAUGE(max_blocks, "Bound of the number of blocks."),
	GAUGE(index_bytes, "Memory of the index."),
	GAUGE(scanned, "Blocks that the start found in the directories."),
	GAUGE(loaded, "Blocks that the start read from the index file."),
	COUNTER(gets, "Blocks that gets asked for."),
	COUNTER(hits, "Blocks that gets found."),
	COUNTER(got_bytes, "Bytes of the blocks that gets found."),
	COUNTER(sets, "Blocks that were stored."),
	COUNTER(set_bytes, "Bytes of the blocks that were stored."),
	COUNTER(written, "Bytes written to files for stored blocks."),
	COUNTER(evicted, "Blocks that were evicted."),
	COUNTER(removed, "Blocks that were deleted or dropped."),
	COUNTER(corrupt, "Blocks that failed their check."),
	COUNTER(timeouts, "Blocks that ended with ETIMEDOUT."),
	COUNTER(errors, "Blocks that ended with EIO or the like."),
	COUNTER(no_room, "Sets that ended with ENOSPC."),
	COUNTER(events_lost, "Events that no queue took."),
#undef GAUGE
#undef COUNTER
};

static void lent_metrics(void *arg, FILE *to)
{
	struct pst_kv_stat st = { .sz = sizeof(st) };

	if (pst_kv_stat(((struct served_store *)arg)->kv, &st) < 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		const char *total = strcmp(numbers[i].type, "counter") ? "" : "_total";

		(void)fprintf(to,
			      "# HELP penstock_kv_%s%s %s\n# TYPE penstock_kv_%s%s %s\n"
			      "penstock_kv_%s%s %" PRIu64 "\n",
			      numbers[i].name, total, numbers[i].help, numbers[i].name, total,
			      numbers[i].type, numbers[i].name, total,
			      *(const uint64_t *)((const char *)&st + numbers[i].member));
	}
}

int store_begin(struct served_store *s)
{
	int r;

	s->opts.sz = sizeof(s->opts);
	/* One thread of the store is enough, because the server's threads serve the clients. */
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
		.metrics = lent_metrics,
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
