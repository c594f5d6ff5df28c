/* SPDX-License-Identifier: MIT */
#include "move_rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "scratch.h"

#include "base/err.h"
#include "tier/scan.h"

char base[256];
uint64_t jump_ns;
bool no_lease, no_watch, young;
bool wrote;
void (*object_begin)(void);

const char *path_of(enum tier_class class, const char *name)
{
	static char path[512];

	(void)snprintf(path, sizeof(path), "%s/%s/%s", base, tier_class_name(class), name);
	return path;
}

void put(const char *path, size_t size)
{
	char buf[SIZE];
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);

	T_CHECK(fd >= 0);
	t_fill(buf, 1, 0, size);
	T_EQ(write(fd, buf, size), size);
	(void)close(fd);
}

/* Make a set of three directories with one file on hdd. */
void set_up(void)
{
	struct tier_set *set = calloc(1, sizeof(*set));
	char state[300];

	T_CHECK(set);
	T_EQ(scratch_new(NULL, base, sizeof(base)), 0);
	(void)snprintf(state, sizeof(state), "%s/state", base);
	(void)setenv("PST_TIER_DIR", state, 1);
	(void)snprintf(set->name, sizeof(set->name), "m");
	set->policy = tier_policy_find(TIER_POLICY_DEFAULT);
	set->same_fs = true;
	for (unsigned i = 0; i < TIER_DISK_CLASSES; i++) {
		struct tier_root *root = &set->roots[set->nr_roots++];

		set->limits[i] = (struct tier_limits){ .low = 80, .high = 90 };
		root->class = (enum tier_class)i;
		root->fd = -1;
		(void)snprintf(root->path, sizeof(root->path), "%s/%s", base,
			       tier_class_name(root->class));
		T_EQ(mkdir(root->path, 0755), 0);
	}
	if (object_begin) {
		struct tier_root *root = &set->roots[set->nr_roots++];

		object_begin();
		set->limits[TIER_OBJECT] =
			(struct tier_limits){ .low = 80, .high = 90, .quota = 10 * SIZE };
		root->class = TIER_OBJECT;
		root->fd = -1;
		(void)snprintf(root->path, sizeof(root->path), "s3://bucket/cold");
	}
	T_OK(set_init(set));
	for (unsigned i = 0; i < TIER_DISK_CLASSES; i++)
		(void)close(set->roots[i].fd);
	free(set);
	T_EQ(mkdir(path_of(TIER_HDD, "d"), 0750), 0);
	put(path_of(TIER_HDD, NAME), SIZE);
}

void tear_down(void)
{
	T_EQ(scratch_remove(base), 0);
}

struct tier_set *open_set(struct recover_counts *counts)
{
	struct tier_set *set = NULL;
	struct scan_counts scanned;

	T_OK(set_open("m", &set));
	T_OK(set_whole(set));
	T_OK(set_lock(set));
	T_OK(recover_set(set, counts));
	T_OK(scan_set(set, &scanned));
	T_EQ(scanned.twice, 0);
	return set;
}

unsigned files_in(const char *dir)
{
	DIR *d = opendir(dir);
	unsigned nr = 0;
	struct dirent *e;

	T_CHECK(d);
	while ((e = readdir(d)))
		nr += e->d_name[0] != '.';
	(void)closedir(d);
	return nr;
}

void check_set(int result)
{
	struct recover_counts counts;
	struct tier_set *set = open_set(&counts);
	char buf[SIZE + 16];
	struct tier_file f;
	size_t want = SIZE + wrote;
	ssize_t n;
	int fd;

	T_EQ(counts.waiting, 0);
	T_EQ(counts.conflicts, 0);
	T_OK(catalog_find(set->catalog, NAME, &f));
	if (result == 0)
		T_EQ(set->roots[f.root].class, TIER_NVME);
	T_CHECK((access(path_of(TIER_NVME, NAME), F_OK) == 0) !=
		(access(path_of(TIER_HDD, NAME), F_OK) == 0));
	fd = name_open(set->roots[f.root].fd, NAME, O_RDONLY, 0);
	T_CHECK(fd >= 0);
	n = read(fd, buf, sizeof(buf));
	T_EQ(n, want);
	T_EQ(t_differs(buf, 1, 0, SIZE), SIZE);
	if (wrote)
		T_EQ(buf[SIZE], '!');
	(void)close(fd);
	for (unsigned i = 0; i < TIER_DISK_CLASSES; i++)
		T_EQ(files_in(path_of((enum tier_class)i, TIER_TMP)), 0);
	T_CHECK(!set_close(set));
}

/* Refuse leases if no_lease is set: not every file system has them. */
int __real_fcntl64(int fd, int cmd, long arg);
int __wrap_fcntl64(int fd, int cmd, long arg);
int __wrap_fcntl64(int fd, int cmd, long arg)
{
	if (cmd == F_SETLEASE && no_lease) {
		errno = EINVAL;
		return -1;
	}
	return __real_fcntl64(fd, cmd, arg);
}

/* Refuse watches if no_watch is set: before Linux 5.13, users have none. */
int __real_fanotify_init(unsigned flags, unsigned event_flags);
int __wrap_fanotify_init(unsigned flags, unsigned event_flags);
int __wrap_fanotify_init(unsigned flags, unsigned event_flags)
{
	if (no_watch) {
		errno = EPERM;
		return -1;
	}
	return __real_fanotify_init(flags, event_flags);
}

/* Shift the clock by a second unless young is set: a file just made then looks a second old. */
int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
	int r = __real_clock_gettime(clock, ret);

	static uint64_t jumped;

	ret->tv_sec += clock == CLOCK_REALTIME && !young;
	if (clock == CLOCK_MONOTONIC) {
		jumped += jump_ns;
		ret->tv_sec += (time_t)(jumped / NSEC_PER_SEC);
	}
	return r;
}
