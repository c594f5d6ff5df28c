/* SPDX-License-Identifier: MIT */
/* A scan lets other processes change the set between its parts, and forgets only files that are
 * gone. */
#include "move_rig.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "base/err.h"
#include "tier/change.h"
#include "tier/scan.h"

#define FILES 6u

static void (*in_pause)(void); /* another process' action between two parts */
static unsigned pauses, at;
static struct tier_set *other;
static int64_t id; /* number of the file that is renamed or added */

int __real_nanosleep(const struct timespec *ts, struct timespec *left);
int __wrap_nanosleep(const struct timespec *ts, struct timespec *left);
int __wrap_nanosleep(const struct timespec *ts, struct timespec *left)
{
	if (!in_pause)
		return __real_nanosleep(ts, left);
	pauses++;
	in_pause();
	return 0;
}

/* Scan in parts of one name. */
static void scan(struct tier_set *set, void (*fn)(void))
{
	struct scan_counts counts;

	pauses = 0;
	in_pause = fn;
	jump_ns = NSEC_PER_SEC;
	T_OK(scan_set(set, &counts));
	jump_ns = 0;
	in_pause = NULL;
	T_EQ(counts.twice, 0);
}

static struct tier_set *begin(void)
{
	struct recover_counts counts;
	struct tier_set *set;
	char name[32];

	set_up();
	T_EQ(mkdir(path_of(TIER_HDD, "e"), 0755), 0);
	for (unsigned i = 0; i < FILES; i++) {
		(void)snprintf(name, sizeof(name), "e/f%u", i);
		put(path_of(i % 2 ? TIER_HDD : TIER_NVME, i % 2 ? name : name + 2), 10);
	}
	set = open_set(&counts);
	T_OK(set_open("m", &other));
	catalog_hurry(other->catalog);
	return set;
}

static void end(struct tier_set *set)
{
	other = set_close(other);
	T_CHECK(!set_close(set));
	tear_down();
}

/* ------------------------------------------------------------------ cases */

static void change_catalog(void)
{
	T_OK(catalog_begin(other->catalog));
	T_OK(catalog_commit(other->catalog));
}

static void others_have_their_turn(void)
{
	struct tier_set *set = begin();

	scan(set, change_catalog);
	T_CHECK(pauses >= FILES);
	end(set);
}

static void is_waited_for(void)
{
	struct tier_set *set = begin();
	struct tier_file f = { .name = "x" }, g;

	T_OK(catalog_begin(set->catalog));
	T_EQ(catalog_begin(other->catalog), -EWOULDBLOCK);
	T_EQ(catalog_put(other->catalog, &f), -EWOULDBLOCK);
	/* Reading the catalogue does not wait. */
	T_OK(catalog_find(other->catalog, NAME, &g));
	T_OK(catalog_commit(set->catalog));
	T_OK(catalog_put(other->catalog, &f));
	end(set);
}

/* Rename the file to the other directory, in the at-th pause. */
static void rename_it(void)
{
	struct tier_file f, old;

	if (pauses == at)
		T_OK(change_rename(other, NAME, "e/renamed", 0, &f, &old));
}

static void renamed_meanwhile(void)
{
	unsigned nr = 1;

	for (at = 1; at <= nr; at++) {
		struct tier_set *set = begin();
		struct tier_file f;

		T_OK(catalog_find(set->catalog, NAME, &f));
		id = f.id;
		scan(set, rename_it);
		/* The scan meets the file twice, once or never, so the number of pauses varies. */
		nr = pauses;
		if (pauses < at) {
			end(set);
			break;
		}
		T_OK(catalog_find(set->catalog, "e/renamed", &f));
		T_EQ(f.id, id);
		T_EQ(catalog_find(set->catalog, NAME, &f), -ENOENT);
		end(set);
	}
	T_CHECK(at > FILES);
}

/* Add a file like create_file() of a mount. */
static void add_it(void)
{
	struct tier_file f = { .name = "d/added", .root = TIER_HDD };

	if (pauses != at)
		return;
	put(path_of(TIER_HDD, f.name), 20);
	T_OK(catalog_put(other->catalog, &f));
	id = f.id;
}

static void added_meanwhile(void)
{
	unsigned nr = 1;

	for (at = 1; at <= nr; at++) {
		struct tier_set *set = begin();
		struct tier_file f;

		scan(set, add_it);
		nr = pauses;
		if (pauses >= at) {
			T_OK(catalog_find(set->catalog, "d/added", &f));
			T_EQ(f.id, id);
		}
		end(set);
	}
}

static void drop_it(void)
{
	struct tier_file f;

	if (pauses == at)
		T_OK(change_unlink(other, NAME, &f));
}

static void unlinked_meanwhile(void)
{
	unsigned nr = 1;

	for (at = 1; at <= nr; at++) {
		struct tier_set *set = begin();
		struct tier_file f;

		scan(set, drop_it);
		nr = pauses;
		if (pauses >= at)
			T_EQ(catalog_find(set->catalog, NAME, &f), -ENOENT);
		end(set);
	}
}

static int count_file(const struct tier_file *f, void *arg)
{
	(void)f;
	++*(unsigned *)arg;
	return 0;
}

static void gone_files_are_forgotten(void)
{
	struct tier_set *set = begin();
	struct tier_file f;
	unsigned nr = 0;

	T_EQ(unlink(path_of(TIER_HDD, NAME)), 0);
	T_EQ(unlink(path_of(TIER_HDD, "e/f1")), 0);
	T_EQ(mkdir(path_of(TIER_HDD, "e/f1"), 0755), 0);
	T_EQ(unlink(path_of(TIER_HDD, "e/f3")), 0);
	T_EQ(symlink("f5", path_of(TIER_HDD, "e/f3")), 0);
	scan(set, change_catalog);
	T_EQ(catalog_find(set->catalog, NAME, &f), -ENOENT);
	T_EQ(catalog_find(set->catalog, "e/f1", &f), -ENOENT);
	T_EQ(catalog_find(set->catalog, "e/f3", &f), -ENOENT);
	T_OK(catalog_each(set->catalog, count_file, &nr));
	T_EQ(nr, FILES - 2);
	end(set);
}

int main(void)
{
	T_RUN(others_have_their_turn);
	T_RUN(is_waited_for);
	T_RUN(renamed_meanwhile);
	T_RUN(added_meanwhile);
	T_RUN(unlinked_meanwhile);
	T_RUN(gone_files_are_forgotten);
	return t_done();
}
