/* SPDX-License-Identifier: MIT */
/*
 * List the links of an iovs directory and their owners, and remove dead ones.  A program may
 * replace a link at any time, so a name is renamed and checked again before it is removed.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#include "base/base.h"
#include "base/user.h"
#include "usrbio/proto/plain.h"

#define MAGIC_BCACHEFS 0xca451a4e
#define MAGIC_ZFS 0x2fc12fc1

enum whose {
	LIVING,   /* the owner lives */
	DEAD,     /* the owner is gone */
	HIDDEN,   /* the owner cannot be seen from here */
	OWNERLESS /* the name has no owner */
};

struct entry {
	enum whose whose;
	struct usrbio_owner owner;
	char shm[USRBIO_SHM_NAME_MAX]; /* name of the link's memory; "" without an owner */
};

static void sweep_closedirp(DIR **d)
{
	if (*d)
		(void)closedir(*d);
}

/* Open the directory again, so that the position in it is our own. */
static DIR *open_list(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d;

	if (fd < 0)
		return NULL;
	d = fdopendir(fd);
	if (!d)
		(void)close(fd);
	return d;
}

/* ---------------------------------------------------------------- judgment */

/* Return true if only one machine at a time can mount this file system. */
static bool is_local(int fd)
{
	static const uint32_t local[] = {
		BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC,      F2FS_SUPER_MAGIC, MAGIC_BCACHEFS,
		MAGIC_ZFS,         OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC,      XFS_SUPER_MAGIC,
	};
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(local); i++)
		if ((uint32_t)fs.f_type == local[i])
			return true;
	return false;
}

static time_t boot_time(void)
{
	struct timespec now, up;

	if (clock_gettime(CLOCK_REALTIME, &now) < 0 || clock_gettime(CLOCK_BOOTTIME, &up) < 0)
		return 0;
	return now.tv_sec - up.tv_sec;
}

/* Return true if the name is older than the machine's boot and its memory is gone. */
static bool is_stale(int iovs, const char *name, const struct stat *st)
{
	struct stat target;

	return st->st_mtim.tv_sec < boot_time() && fstatat(iovs, name, &target, 0) < 0 &&
	       errno == ENOENT && is_local(iovs);
}

/* Find the owner of the memory that a link leads to.  Return 0, -EINVAL, or -ENOENT if the link
 * disappeared. */
static int find_owner(int iovs, const char *name, struct entry *e)
{
	char target[sizeof(USRBIO_SHM_DIR) + USRBIO_SHM_NAME_MAX];
	ssize_t n = readlinkat(iovs, name, target, sizeof(target) - 1);

	if (n < 0)
		return errno == ENOENT ? -ENOENT : -EINVAL;
	target[n] = '\0';
	if (usrbio_link_shm(target, e->shm) == 0 && usrbio_owner_parse(e->shm, &e->owner) == 0)
		return 0;
	e->shm[0] = '\0';
	return -EINVAL;
}

/* Find out whether an entry's owner lives.  Return 0, or -ENOENT if the entry disappeared. */
static int judge(int iovs, const char *name, struct entry *ret)
{
	struct stat st;
	int alive, r;

	*ret = (struct entry){ .whose = OWNERLESS };
	if (fstatat(iovs, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -ENOENT;
	r = find_owner(iovs, name, ret);
	if (r == -ENOENT)
		return r;
	if (r == 0) {
		alive = usrbio_owner_alive(&ret->owner);
		ret->whose = alive > 0 ? LIVING : alive == 0 ? DEAD : HIDDEN;
	}
	if ((ret->whose == HIDDEN || ret->whose == OWNERLESS) && is_stale(iovs, name, &st))
		ret->whose = DEAD;
	return 0;
}

/* Return the next entry of a directory, except "." and "..". */
static const char *next_name(DIR *d)
{
	const struct dirent *e;

	do
		e = readdir(d);
	while (e && (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")));
	return e ? e->d_name : NULL;
}

/* ------------------------------------------------------------------- sweep */

/*
 * Remove a name whose owner is gone.  Another link may have replaced it since, so rename it to a
 * name that nobody uses and check it again.
 */
static bool take_away(int iovs, const char *name, struct entry *ret)
{
	char uuid[USRBIO_ID_TEXT], aside[64];
	uint8_t id[USRBIO_ID_LEN];

	if (usrbio_id_new(id) < 0)
		return false;
	usrbio_id_format(id, uuid);
	(void)snprintf(aside, sizeof(aside), ".gone-%s", uuid);
	if (renameat(iovs, name, iovs, aside) < 0 || judge(iovs, aside, ret) < 0)
		return false;
	if (ret->whose == DEAD)
		return unlinkat(iovs, aside, 0) == 0;
	/* Rename it back, unless the name was made again; some file systems lack
	 * RENAME_NOREPLACE. */
	if (renameat2(iovs, aside, iovs, name, RENAME_NOREPLACE) < 0 && errno != EEXIST)
		(void)renameat(iovs, aside, iovs, name);
	(void)unlinkat(iovs, aside, 0);
	return false;
}

/* Return true for memory of this user. */
static bool is_own(int shm, const char *name)
{
	struct stat st;

	return fstatat(shm, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       user_is_own(st.st_uid);
}

/* Remove memory whose owner died before publishing it, or after withdrawing it. */
static void sweep_shm(int shm)
{
	_cleanup_(sweep_closedirp) DIR *d = open_list(shm);
	struct usrbio_owner owner;
	const char *name;

	while (d && (name = next_name(d)))
		if (usrbio_owner_parse(name, &owner) == 0 && is_own(shm, name) &&
		    usrbio_owner_alive(&owner) == 0)
			(void)unlinkat(shm, name, 0);
}

int usrbio_plain_sweep(int iovs_fd)
{
	_cleanup_(closep) int shm = open(USRBIO_SHM_DIR, O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(sweep_closedirp) DIR *d = open_list(iovs_fd);
	const char *name;
	struct entry e;
	int removed = 0;

	if (!d)
		return -errno;
	while ((name = next_name(d))) {
		if (judge(iovs_fd, name, &e) < 0 || e.whose != DEAD ||
		    !take_away(iovs_fd, name, &e))
			continue;
		removed++;
		if (e.shm[0] && is_own(shm, e.shm))
			(void)unlinkat(shm, e.shm, 0);
	}
	sweep_shm(shm);
	return removed;
}

/* ------------------------------------------------------------------- users */

static void add_pid(struct usrbio_users *u, pid_t pid)
{
	for (unsigned i = 0; i < u->nr_pids; i++)
		if (u->pids[i] == pid)
			return;
	if (u->nr_pids < USRBIO_USERS)
		u->pids[u->nr_pids++] = pid;
}

int usrbio_plain_users(int iovs_fd, struct usrbio_users *ret)
{
	_cleanup_(sweep_closedirp) DIR *d = open_list(iovs_fd);
	struct usrbio_users u = { 0 };
	const char *name;
	struct entry e;

	if (!d)
		return -errno;
	while ((name = next_name(d))) {
		if (judge(iovs_fd, name, &e) < 0 || e.whose == DEAD)
			continue;
		if (e.whose == LIVING) {
			add_pid(&u, e.owner.pid);
		} else if (e.whose == HIDDEN) {
			u.hidden++;
		} else {
			if (u.others < USRBIO_USERS)
				(void)snprintf(u.other[u.others], sizeof(u.other[0]), "%s", name);
			u.others++;
		}
	}
	*ret = u;
	return 0;
}
