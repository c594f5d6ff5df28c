/* SPDX-License-Identifier: MIT */
/* The room of a store: budget, number of blocks, quotas, and the reserve of free disk space. */
#include "kv_case.h"

#define BIG (64u << 20)

static void the_budget_holds(void)
{
	static const char *const policies[] = { "lru", "arc", "s3fifo" };
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = 2u << 20 };
	struct pst_kv *kv;
	uint32_t space;
	char key[16];

	k_new_root();
	for (size_t p = 0; p < 3; p++) {
		o.policy = policies[p];
		T_OK(k_open_with(&o, &kv));
		space = k_space(kv, "m", NULL);
		for (unsigned i = 0; i < 100; i++) {
			(void)snprintf(key, sizeof(key), "%u", i);
			T_EQ(k_set(kv, space, key, 1000 + i * 700), 0);
			T_CHECK(k_stat(kv).used <= o.budget);
			T_CHECK(k_disk() <= o.budget);
			T_EQ(k_stat(kv).used, k_bytes);
		}
		T_CHECK(k_stat(kv).evicted > 0);
		T_EQ(k_get(kv, space, "99", BIG), 1000 + 99 * 700);
		T_EQ(k_set(kv, space, "huge", 3u << 20), -ENOSPC);
		pst_kv_close(kv);
	}
	/* A smaller budget is enforced from the start. */
	kv = k_open(1u << 20, 0);
	T_CHECK(k_disk() <= 1u << 20);
	T_EQ(k_stat(kv).used, k_bytes);
	pst_kv_close(kv);
	k_remove_root();
}

/* Tiny blocks reach the limit of their number long before they fill the budget. */
static void the_number_of_blocks_holds(void)
{
	static const char *const policies[] = { "lru", "arc", "s3fifo" };
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = BIG, .max_blocks = 100 };
	char key[16], path[PATH_MAX + 8];
	struct pst_kv_stat st;
	struct pst_kv *kv;
	uint32_t space;

	k_new_root();
	(void)snprintf(path, sizeof(path), "%s/index", k_root);
	for (size_t p = 0; p < 3; p++) {
		o.policy = policies[p];
		T_OK(k_open_with(&o, &kv));
		T_CHECK(k_stat(kv).blocks <= 100);
		space = k_space(kv, "m", NULL);
		for (unsigned i = 0; i < 1000; i++) {
			(void)snprintf(key, sizeof(key), "%u", i);
			T_EQ(k_set(kv, space, key, 1), 0);
		}
		T_EQ(k_get(kv, space, "999", BIG), 1);
		st = k_stat(kv);
		T_EQ(st.max_blocks, 100);
		T_EQ(st.blocks, 100);
		T_EQ(st.used, k_disk());
		T_EQ(k_files, 100);
		/* The table has at least 64 buckets. */
		T_CHECK(st.index_bytes <= 100 * 80 + 64 * 4);
		pst_kv_close(kv);
	}
	/* A smaller limit of blocks holds from the open on, with an index and without. */
	for (unsigned i = 0; i < 2; i++) {
		o.max_blocks = i ? 20 : 50;
		T_OK(k_open_with(&o, &kv));
		T_EQ(k_stat(kv).blocks, o.max_blocks);
		T_CHECK(k_stat(kv).index_bytes <= o.max_blocks * PST_KV_INDEX_BYTES + 64 * 36);
		T_EQ(k_stat(kv).used, k_disk());
		T_EQ(k_files, o.max_blocks);
		pst_kv_close(kv);
		if (!i)
			T_EQ(unlink(path), 0);
	}
	o.max_blocks = PST_KV_BLOCKS_MIN - 1;
	T_EQ(k_open_with(&o, &kv), -EINVAL);
	o.max_blocks = PST_KV_BLOCKS_MAX + 1;
	T_EQ(k_open_with(&o, &kv), -EINVAL);
	k_remove_root();
}

/* Spaces with quotas share the limit of blocks: the space with the most blocks loses some.  A
 * reader sees the limits of the owner. */
static void the_number_is_shared(void)
{
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = BIG, .max_blocks = 64 };
	struct pst_kv_space_opts so = {
		.sz = sizeof(so),
		.identity = "m",
		.quota = 4u << 20,
	};
	char key[16], tenant[16];
	struct pst_kv *kv, *reader;
	uint32_t space[4];

	k_new_root();
	T_OK(k_open_with(&o, &kv));
	so.tenant = tenant;
	for (unsigned s = 0; s < 4; s++) {
		(void)snprintf(tenant, sizeof(tenant), "%u", s);
		T_OK(pst_kv_space(kv, &so, &space[s]));
		T_EQ(k_set(kv, space[s], "first", 100), 0);
	}
	for (unsigned i = 0; i < 2000; i++) {
		(void)snprintf(key, sizeof(key), "%u", i);
		T_EQ(k_set(kv, space[i / 500], key, 100), 0);
		T_CHECK(k_stat(kv).blocks <= 64);
		T_CHECK(k_stat(kv).index_bytes <= 64 * PST_KV_INDEX_BYTES + 5 * 64 * 36);
	}
	/* The last space took blocks from the others only until it had as many as they. */
	T_CHECK(k_stat(kv).blocks == 64);
	T_EQ(k_exists(kv, space[3], "1999"), 100);
	T_EQ(k_stat(kv).used, k_disk());
	o = (struct pst_kv_opts){ .sz = sizeof(o), .flags = PST_KV_READER };
	T_OK(k_open_with(&o, &reader));
	T_EQ(k_stat(reader).budget, BIG);
	T_EQ(k_stat(reader).max_blocks, 64);
	pst_kv_close(reader);
	pst_kv_close(kv);
	kv = k_open(64ull << 30, 0);
	T_EQ(k_stat(kv).max_blocks, 1u << 20);
	pst_kv_close(kv);
	k_remove_root();
}

/* Spaces that were full and are empty give their memory back. */
static void memory_is_given_back(void)
{
	enum { MOST = 512, SPACES = 16 };
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = BIG, .max_blocks = MOST };
	struct pst_kv_space_opts so = {
		.sz = sizeof(so),
		.identity = "m",
		.quota = 8u << 20,
	};
	char key[16], tenant[16];
	struct pst_kv *kv;
	uint32_t space;

	k_new_root();
	T_OK(k_open_with(&o, &kv));
	so.tenant = tenant;
	for (unsigned s = 0; s < SPACES; s++) {
		(void)snprintf(tenant, sizeof(tenant), "%u", s);
		T_OK(pst_kv_space(kv, &so, &space));
		for (unsigned i = 0; i < MOST + 8; i++) {
			(void)snprintf(key, sizeof(key), "%u", i);
			T_EQ(k_set(kv, space, key, 1), 0);
		}
		T_EQ(k_stat(kv).blocks, MOST);
		if (s % 2) {
			T_EQ(pst_kv_drop(kv, NULL, tenant), 1);
			continue;
		}
		for (unsigned i = 0; i < MOST + 8; i++) {
			(void)snprintf(key, sizeof(key), "%u", i);
			(void)k_do(kv, PST_KV_DELETE, space, key, NULL, 0);
		}
	}
	T_EQ(k_stat(kv).blocks, 0);
	T_CHECK(k_stat(kv).index_bytes <= MOST * PST_KV_INDEX_BYTES + (SPACES + 1) * 64 * 36);
	pst_kv_close(kv);
	k_remove_root();
}

static void a_quota_holds(void)
{
	struct pst_kv_space_opts o = { .sz = sizeof(o), .identity = "m", .quota = 1u << 20 };
	struct pst_kv *kv;
	uint32_t small, other;
	char key[16];

	k_new_root();
	kv = k_open(4u << 20, 0);
	T_OK(pst_kv_space(kv, &o, &small));
	other = k_space(kv, "n", NULL);
	for (unsigned i = 0; i < 10; i++) {
		(void)snprintf(key, sizeof(key), "%u", i);
		T_EQ(k_set(kv, other, key, 100000), 0);
	}
	for (unsigned i = 0; i < 40; i++) {
		(void)snprintf(key, sizeof(key), "%u", i);
		T_EQ(k_set(kv, small, key, 100000), 0);
		T_CHECK(k_stat(kv).used <= 10 * 102400 + (1u << 20));
	}
	/* A tenant's sets do not evict another tenant's blocks. */
	for (unsigned i = 0; i < 10; i++) {
		(void)snprintf(key, sizeof(key), "%u", i);
		T_EQ(k_get(kv, other, key, 100000), 100000);
	}
	/* Both tenants together stay within the budget. */
	for (unsigned i = 10; i < 60; i++) {
		(void)snprintf(key, sizeof(key), "%u", i);
		T_EQ(k_set(kv, i & 1 && i < 30 ? small : other, key, 100000), 0);
		T_CHECK(k_stat(kv).used <= 4u << 20);
		T_CHECK(k_disk() <= 4u << 20);
	}
	T_EQ(k_set(kv, small, "huge", 2u << 20), -ENOSPC);
	o.quota = 2u << 20;
	T_EQ(pst_kv_space(kv, &o, &small), -EINVAL);
	pst_kv_close(kv);
	k_remove_root();
}

static void the_reserve_holds(void)
{
	struct pst_kv_opts o = { .sz = sizeof(o), .budget = BIG, .reserve = UINT64_C(1) << 60 };
	struct pst_kv *kv;
	uint32_t space;
	char key[16];

	k_new_root();
	kv = k_open(BIG, 0);
	space = k_space(kv, "m", NULL);
	T_EQ(k_set(kv, space, "a", 5000), 0);
	pst_kv_close(kv);
	T_OK(k_open_with(&o, &kv));
	space = k_space(kv, "m", NULL);
	T_EQ(k_set(kv, space, "b", 5000), -ENOSPC);
	T_EQ(k_disk(), 0);
	T_EQ(k_stat(kv).used, 0);
	pst_kv_close(kv);
	/* If other files fill the disk, one set must not evict all blocks. */
	kv = k_open(BIG, 0);
	space = k_space(kv, "m", NULL);
	for (unsigned i = 0; i < 20; i++) {
		(void)snprintf(key, sizeof(key), "%u", i);
		T_EQ(k_set(kv, space, key, 5000), 0);
	}
	pst_kv_close(kv);
	T_OK(k_open_with(&o, &kv));
	space = k_space(kv, "m", NULL);
	T_EQ(k_set(kv, space, "b", 5000), -ENOSPC);
	T_EQ(k_stat(kv).blocks, 4);
	T_EQ(k_stat(kv).used, k_disk());
	pst_kv_close(kv);
	k_remove_root();
}

int main(void)
{
	T_RUN(the_budget_holds);
	T_RUN(the_number_of_blocks_holds);
	T_RUN(the_number_is_shared);
	T_RUN(memory_is_given_back);
	T_RUN(a_quota_holds);
	T_RUN(the_reserve_holds);
	return t_done();
}
