/* SPDX-License-Identifier: MIT */
/* Plans of each policy and of the watermarks, made from counted accesses. */
#include "scratch.h"
#include "t.h"
#undef T_ERROR_TEXT
#define T_ERROR_TEXT() err_text()

#include <fcntl.h>
#include <sys/stat.h>

#include "base/err.h"
#include "tier/plan.h"
#include "tier/scan.h"

#define BLOCK 4096u
#define FILES 20u

static char base[256];

static const char *path_of(enum tier_class class, const char *name)
{
	static char path[512];

	(void)snprintf(path, sizeof(path), "%s/%s/%s", base, tier_class_name(class), name);
	return path;
}

/* Make files f0, f1, ... of one block each, all of one class.  blocks: quota of each class. */
static struct tier_set *set_up(const char *policy, enum tier_class where, unsigned blocks)
{
	struct tier_set *set = calloc(1, sizeof(*set));
	struct scan_counts scanned;
	char state[300];

	T_CHECK(set);
	T_EQ(scratch_new(NULL, base, sizeof(base)), 0);
	(void)snprintf(state, sizeof(state), "%s/state", base);
	(void)setenv("PST_TIER_DIR", state, 1);
	(void)snprintf(set->name, sizeof(set->name), "m");
	set->policy = tier_policy_find(policy);
	T_CHECK(set->policy);
	set->same_fs = true;
	for (unsigned i = 0; i < TIER_DISK_CLASSES; i++) {
		struct tier_root *root = &set->roots[set->nr_roots++];

		set->limits[i] = (struct tier_limits){ .low = 50, .high = 100 };
		if (i != TIER_HDD)
			/* Watermarks are whole per cent of the quota. */
			set->limits[i].quota = (blocks * BLOCK + 99) / 100 * 100;
		root->class = (enum tier_class)i;
		root->fd = -1;
		(void)snprintf(root->path, sizeof(root->path), "%s/%s", base,
			       tier_class_name(root->class));
		T_EQ(mkdir(root->path, 0755), 0);
	}
	T_OK(set_init(set));
	for (unsigned i = 0; i < TIER_DISK_CLASSES; i++)
		(void)close(set->roots[i].fd);
	free(set);
	for (unsigned i = 0; i < FILES; i++) {
		char name[16], buf[BLOCK];
		int fd;

		(void)snprintf(name, sizeof(name), "f%u", i);
		fd = open(path_of(where, name), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		t_fill(buf, i, 0, BLOCK);
		T_EQ(write(fd, buf, BLOCK), BLOCK);
		T_EQ(fsync(fd), 0); /* allocates its blocks */
		(void)close(fd);
	}
	T_OK(set_open("m", &set));
	T_OK(set_lock(set));
	T_OK(scan_set(set, &scanned));
	T_EQ(scanned.files, FILES);
	return set;
}

static void tear_down(struct tier_set *set)
{
	T_CHECK(!set_close(set));
	T_EQ(scratch_remove(base), 0);
}

/* Return the class to which a plan moves a file, or -1 if the file stays. */
static int to(const struct plan *plan, const char *name)
{
	for (size_t i = 0; i < plan->nr; i++)
		if (!strcmp(plan->moves[i].name, name))
			return (int)plan->moves[i].to;
	return -1;
}

static void literal_is_the_thresholds(void)
{
	struct tier_set *set = set_up("literal", TIER_HDD, 10);
	struct plan plan;

	T_OK(catalog_access(set->catalog, "f0", 9));
	T_OK(catalog_access(set->catalog, "f1", 10));
	T_OK(catalog_access(set->catalog, "f2", 99));
	T_OK(catalog_access(set->catalog, "f3", 100));
	T_OK(plan_make(set, &plan));
	T_EQ(to(&plan, "f0"), -1);
	T_EQ(to(&plan, "f1"), TIER_SSD);
	T_EQ(to(&plan, "f2"), TIER_SSD);
	T_EQ(to(&plan, "f3"), TIER_NVME);
	T_EQ(plan.nr, 3);
	plan_done(&plan);
	tear_down(set);
	/* The other direction: cold files leave fast tiers, even if room is left. */
	set = set_up("literal", TIER_NVME, FILES);
	T_OK(catalog_access(set->catalog, "f1", 10));
	T_OK(catalog_access(set->catalog, "f3", 100));
	T_OK(plan_make(set, &plan));
	T_EQ(to(&plan, "f0"), TIER_HDD);
	T_EQ(to(&plan, "f1"), TIER_SSD);
	T_EQ(to(&plan, "f3"), -1);
	T_EQ(plan.nr, FILES - 1);
	plan_done(&plan);
	tear_down(set);
}

/* A single scan of all files promotes nothing; files used again are promoted. */
static void one_read_promotes_nothing(void)
{
	for (unsigned i = 0; tier_policies[i]; i++) {
		struct tier_set *set = set_up(tier_policies[i]->name, TIER_HDD, 10);
		struct plan plan;

		for (unsigned k = 0; k < FILES; k++) {
			char name[16];

			(void)snprintf(name, sizeof(name), "f%u", k);
			T_OK(catalog_access(set->catalog, name, 1));
		}
		T_OK(plan_make(set, &plan));
		T_EQ(plan.nr, 0);
		plan_done(&plan);
		T_OK(catalog_access(set->catalog, "f7", 100));
		T_OK(plan_make(set, &plan));
		T_EQ(to(&plan, "f7"), TIER_NVME);
		T_EQ(plan.nr, 1);
		plan_done(&plan);
		tear_down(set);
	}
}

/* Above the high watermark the coldest files leave, down to the low one; hot and pinned files
 * stay. */
static void watermarks_take_the_coldest(void)
{
	struct tier_set *set = set_up("arc", TIER_NVME, 10);
	struct plan plan;

	for (unsigned k = 0; k < 3; k++)
		T_OK(catalog_access(set->catalog, "f4", 1));
	T_OK(catalog_access(set->catalog, "f5", 1));
	T_OK(catalog_pin(set->catalog, "f0", true));
	T_OK(plan_make(set, &plan));
	/* Of 20 blocks, 5 may stay. */
	T_EQ(plan.nr, FILES - 5);
	T_EQ(to(&plan, "f0"), -1);
	T_EQ(to(&plan, "f4"), -1);
	T_EQ(to(&plan, "f5"), -1);
	/* The next class takes as many as fit, the last one the rest. */
	for (size_t i = 0; i < plan.nr; i++)
		T_EQ(plan.moves[i].to, i < 10 ? TIER_SSD : TIER_HDD);
	plan_done(&plan);
	tear_down(set);
}

/* A promotion does not fill a class above its watermark. */
static void promotions_fit(void)
{
	struct tier_set *set = set_up("arc", TIER_HDD, 4);
	struct plan plan;
	unsigned nr[TIER_DISK_CLASSES] = { 0 };

	for (unsigned k = 0; k < 2 * FILES; k++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "f%u", k % 6);
		T_OK(catalog_access(set->catalog, name, 2));
	}
	T_OK(plan_make(set, &plan));
	for (size_t i = 0; i < plan.nr; i++)
		nr[plan.moves[i].to]++;
	T_CHECK(nr[TIER_NVME] > 0 && nr[TIER_NVME] <= 4);
	T_CHECK(nr[TIER_SSD] <= 4);
	T_EQ(nr[TIER_HDD], 0);
	plan_done(&plan);
	tear_down(set);
}

int main(void)
{
	T_RUN(literal_is_the_thresholds);
	T_RUN(one_read_promotes_nothing);
	T_RUN(watermarks_take_the_coldest);
	T_RUN(promotions_fit);
	return t_done();
}
