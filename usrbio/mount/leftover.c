/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/leftover.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#include "base/base.h"
#include "usrbio/proto/link.h"
#include "usrbio/proto/owner.h"

void leftover_of(const struct caller *c, pid_t process, const char *target, int fd,
		 struct leftover *ret)
{
	char name[USRBIO_SHM_NAME_MAX];
	struct usrbio_owner o;
	struct stat st;

	ret->name[0] = '\0';
	if (fd < 0 || usrbio_link_shm(target, name) < 0 || usrbio_owner_parse(name, &o) < 0 ||
	    !caller_is(c, process, o.pid) || fstat(fd, &st) < 0)
		return;
	(void)strcpy(ret->name, name);
	ret->dev = st.st_dev;
	ret->ino = st.st_ino;
}

/* Remove a name of that file, with the rights of the file's user: if another user's file has the
 * name by now, the removal fails. */
static bool remove_as(int dir, const char *name, const struct stat *is, uid_t uid, gid_t gid)
{
	const struct caller c = { .uid = uid, .gid = gid };
	struct stat st;
	bool ret;

	if (caller_begin(&c) < 0)
		return false;
	ret = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	      st.st_uid == uid && st.st_dev == is->st_dev && st.st_ino == is->st_ino &&
	      unlinkat(dir, name, 0) == 0;
	caller_end();
	return ret;
}

void leftover_remove(const struct leftover *l, uid_t uid, gid_t gid)
{
	const struct stat is = { .st_dev = l->dev, .st_ino = l->ino };
	int dir;

	if (!l->name[0])
		return;
	dir = open(USRBIO_SHM_DIR, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0)
		(void)remove_as(dir, l->name, &is, uid, gid);
	closep(&dir);
}

unsigned leftover_sweep(uid_t of)
{
	DIR *d = opendir(USRBIO_SHM_DIR);
	struct dirent *e;
	unsigned nr = 0;

	while (d && (e = readdir(d))) {
		struct usrbio_owner o;
		struct stat st;

		if (usrbio_owner_parse(e->d_name, &o) == 0 &&
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    (of == LEFTOVER_ALL || of == st.st_uid) && usrbio_owner_alive(&o) == 0)
			nr += remove_as(dirfd(d), e->d_name, &st, st.st_uid, st.st_gid);
	}
	if (d)
		(void)closedir(d);
	return nr;
}
