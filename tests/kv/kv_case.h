/* SPDX-License-Identifier: MIT */
/* Shared by the tests of a store: a root directory, blocks of known bytes, calls for one block. */
#ifndef PST_TESTS_KV_CASE_H
#define PST_TESTS_KV_CASE_H

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>

#include <penstock_kv.h>

#define T_ERROR_TEXT() pst_kv_error_text()
#include "scratch.h"
#include "t.h"

static char k_root[PATH_MAX];

static inline void k_new_root(void)
{
	/* Prefer memory: each new root is synced. */
	T_EQ(scratch_new(getenv("PST_TEST_DIR") ?: "/dev/shm", k_root, sizeof(k_root)), 0);
}

static inline void k_remove_root(void)
{
	T_EQ(scratch_remove(k_root), 0);
}

static inline int k_open_with(const struct pst_kv_opts *opts, struct pst_kv **ret)
{
	const char *dirs[] = { k_root };

	return pst_kv_open(dirs, 1, opts, ret);
}

static inline struct pst_kv *k_open(uint64_t budget, uint32_t flags)
{
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = budget, .flags = flags };
	struct pst_kv *kv;

	T_OK(k_open_with(&o, &kv));
	return kv;
}

static inline uint32_t k_space(struct pst_kv *kv, const char *identity, const char *tenant)
{
	struct pst_kv_space_opts o = { .sz = sizeof(o), .identity = identity, .tenant = tenant };
	uint32_t space;

	T_OK(pst_kv_space(kv, &o, &space));
	return space;
}

/* Run a batch of one block in host memory.  Return its result. */
static inline int64_t k_do(struct pst_kv *kv, uint32_t op, uint32_t space, const char *key,
			   void *buf, uint64_t len)
{
	struct pst_kv_item item = {
		.key = key,
		.key_len = strlen(key),
		.mem_off = (uintptr_t)buf,
		.len = len,
	};
	int64_t result = -1000;
	struct pst_kv_batch b = {
		.sz = sizeof(b),
		.op = op,
		.space = space,
		.items = &item,
		.nr = 1,
		.results = &result,
	};
	int r = pst_kv_run(kv, &b, NULL);

	return r < 0 ? r : result;
}

/* Return the seed of a key's bytes. */
static inline uint64_t k_seed(const char *key)
{
	uint64_t h = 1469598103934665603u;

	for (; *key; key++)
		h = (h ^ (unsigned char)*key) * 1099511628211u;
	return h;
}

static inline int64_t k_set(struct pst_kv *kv, uint32_t space, const char *key, uint64_t len)
{
	char *buf = aligned_alloc(64, (len + 63) / 64 * 64); /* no test makes this call fail */
	int64_t r;

	t_fill(buf, k_seed(key), 0, len);
	r = k_do(kv, PST_KV_SET, space, key, buf, len);
	free(buf);
	return r;
}

/* Get a block and check its bytes.  Return its length, the error of the get, or -1000 for wrong
 * bytes. */
static inline int64_t k_get(struct pst_kv *kv, uint32_t space, const char *key, uint64_t room)
{
	char *buf = aligned_alloc(64, (room + 63) / 64 * 64);
	int64_t r;

	memset(buf, 0xa5, room);
	r = k_do(kv, PST_KV_GET, space, key, buf, room);
	if (r >= 0 && t_differs(buf, k_seed(key), 0, (size_t)r) != (size_t)r)
		r = -1000;
	free(buf);
	return r;
}

static inline int64_t k_exists(struct pst_kv *kv, uint32_t space, const char *key)
{
	return k_do(kv, PST_KV_EXISTS, space, key, NULL, 0);
}

static inline struct pst_kv_stat k_stat(struct pst_kv *kv)
{
	struct pst_kv_stat st = { .sz = sizeof(st) };

	T_OK(pst_kv_stat(kv, &st));
	return st;
}

/* Bytes and number of files of blocks and temporary files; each size is rounded up as for the
 * budget. */
static uint64_t k_bytes, k_files;
static char k_last[PATH_MAX]; /* path of some block */

static inline int k_count(const char *at, const struct stat *st, int type, struct FTW *ftw)
{
	(void)ftw;
	if (type != FTW_F ||
	    (!strstr(at + strlen(k_root), "/b/") && !strstr(at + strlen(k_root), "/tmp/")))
		return 0;
	k_bytes += ((uint64_t)st->st_size + 4095) / 4096 * 4096;
	k_files++;
	(void)snprintf(k_last, sizeof(k_last), "%s", at);
	return 0;
}

static inline uint64_t k_disk(void)
{
	k_bytes = k_files = 0;
	(void)nftw(k_root, k_count, 16, FTW_PHYS);
	return k_bytes;
}

#endif
