/* SPDX-License-Identifier: MIT */
/*
 * Mount an empty tmpfs on /mnt in a private mount namespace, as root or as root of a new user
 * namespace.  Call this before starting threads, which would keep the old namespace.
 */
#ifndef PST_TESTS_OWN_MNT_H
#define PST_TESTS_OWN_MNT_H

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#define OWN_MNT_LACKS "a mount namespace, as root or of a user"

static inline bool own_mnt_write(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY | O_CLOEXEC);
	bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		(void)close(fd);
	return good;
}

/* Map the user and group to themselves. */
static inline bool own_mnt_users(uid_t uid, gid_t gid)
{
	char users[64], groups[64];

	(void)snprintf(users, sizeof(users), "%u %u 1", uid, uid);
	(void)snprintf(groups, sizeof(groups), "%u %u 1", gid, gid);
	return own_mnt_write("/proc/self/setgroups", "deny") &&
	       own_mnt_write("/proc/self/uid_map", users) &&
	       own_mnt_write("/proc/self/gid_map", groups);
}

static inline bool own_mnt(void)
{
	uid_t uid = getuid();
	gid_t gid = getgid();

	if (unshare(CLONE_NEWNS) < 0 &&
	    (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 || !own_mnt_users(uid, gid)))
		return false;
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("tmpfs", "/mnt", "tmpfs", 0, NULL) == 0;
}

#endif
