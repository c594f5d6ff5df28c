/* SPDX-License-Identifier: MIT */
#include "tier/name.h"

#include <linux/openat2.h>
#include <sys/syscall.h>

#include "base/err.h"

int name_check(const char *name)
{
	const char *part = name;

	if (strlen(name) >= TIER_NAME_SIZE)
		return err_set(ENAMETOOLONG, "the name has more than %u bytes", TIER_NAME_SIZE - 1);
	if (name[0] == '/')
		return err_set(EINVAL, "%s is not a name in a set: it begins with /", name);
	for (;;) {
		size_t len = strcspn(part, "/");

		if (len == 0)
			return err_set(EINVAL, "'%s' is not a name in a set: a part of it is empty",
				       name);
		if ((len == 1 && part[0] == '.') || (len == 2 && !strncmp(part, "..", 2)))
			return err_set(EINVAL, "%s is not a name in a set: it has . or ..", name);
		if (len > NAME_MAX)
			return err_set(ENAMETOOLONG, "a part of the name has more than %d bytes",
				       NAME_MAX);
		if (part == name && len == strlen(TIER_DIR) && !strncmp(part, TIER_DIR, len))
			return err_set(EINVAL, "%s is not a name in a set: %s is the set's own",
				       name, TIER_DIR);
		if (!part[len])
			return 0;
		part += len + 1;
	}
}

int name_open(int root_fd, const char *name, int flags, mode_t mode)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC),
		.mode = flags & O_CREAT ? mode : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};
	long fd;

	do {
		fd = syscall(SYS_openat2, root_fd, name, &how, sizeof(how));
	} while (fd < 0 && errno == EINTR);
	return fd < 0 ? -errno : (int)fd;
}

static int open_dir(int root_fd, const char *name, size_t len)
{
	char dir[PATH_MAX];

	if (len == 0)
		return name_open(root_fd, ".", O_RDONLY | O_DIRECTORY, 0);
	memcpy(dir, name, len);
	dir[len] = '\0';
	return name_open(root_fd, dir, O_RDONLY | O_DIRECTORY, 0);
}

int name_parent(int root_fd, const char *name, const char **ret_base)
{
	const char *slash = strrchr(name, '/');

	if (strlen(name) >= TIER_NAME_SIZE)
		return -ENAMETOOLONG;
	*ret_base = slash ? slash + 1 : name;
	return open_dir(root_fd, name, slash ? (size_t)(slash - name) : 0);
}

/* Make the directory named by the first len bytes, with mode and owner of the one at src_fd. */
static int name_make_dir(int dst_fd, int src_fd, const char *name, size_t len)
{
	_cleanup_(closep) int like = -1, parent = -1, made = -1;
	char dir[TIER_NAME_SIZE];
	const char *base;
	struct stat st = { .st_mode = 0755, .st_uid = geteuid(), .st_gid = getegid() };

	memcpy(dir, name, len);
	dir[len] = '\0';
	if (src_fd >= 0) {
		like = name_open(src_fd, dir, O_RDONLY | O_DIRECTORY, 0);
		if (like < 0)
			return like;
	}
	parent = name_parent(dst_fd, dir, &base);
	if (parent < 0)
		return parent;
	if (like >= 0 && fstat(like, &st) < 0)
		return -errno;
	if (mkdirat(parent, base, 0700) < 0 && errno != EEXIST)
		return -errno;
	made = name_open(dst_fd, dir, O_RDONLY | O_DIRECTORY, 0);
	if (made < 0)
		return made;
	if (fchown(made, st.st_uid, st.st_gid) < 0 || fchmod(made, st.st_mode & 07777) < 0)
		return -errno;
	if (fsync(made) < 0 || fsync(parent) < 0)
		return -errno;
	return 0;
}

int name_make_parent(int dst_fd, int src_fd, const char *name, const char **ret_base)
{
	int fd = name_parent(dst_fd, name, ret_base);

	for (const char *at = name; fd == -ENOENT && (at = strchr(at, '/')); at++) {
		size_t len = (size_t)(at - name);
		int dir = open_dir(dst_fd, name, len), r = 0;

		if (dir >= 0)
			(void)close(dir);
		else
			r = dir == -ENOENT ? name_make_dir(dst_fd, src_fd, name, len) : dir;
		if (r < 0)
			return r;
	}
	return fd == -ENOENT ? name_parent(dst_fd, name, ret_base) : fd;
}
