/* SPDX-License-Identifier: MIT */
/*
 * The bytes go to a file without a name where the file system has such files (O_TMPFILE),
 * else to DST.penstock-XXXXXX beside the target.  Only when all of them are there, on the
 * disk and checked, does it take the target's name by rename(2).  So whatever ends the
 * copy, a file under the target's name is either the old one or the whole new one.
 */
#include "cp.h"

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <sys/random.h>

bool cp_names_device(const char *s)
{
	static const char *const kinds[] = { "host", "soft", "cuda", "gaudi" };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		size_t n = strlen(kinds[i]);

		if (!strncmp(s, kinds[i], n) && (!s[n] || s[n] == ':') && !strchr(s, '/'))
			return true;
	}
	return false;
}

int cp_open_source(struct copy *c)
{
	struct pst_file_info info = { .sz = sizeof(info) };
	int r;

	/* O_NONBLOCK: to open a FIFO would wait for a writer. */
	c->src_fd = open(c->src, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (c->src_fd < 0 && errno == ENOENT && cp_names_device(c->src))
		return fail(ENOENT,
			    "%s is a device and no file: its memory is new to each command, so "
			    "there is nothing to copy from it",
			    c->src);
	if (c->src_fd < 0)
		return fail(errno, "cannot open %s: %s", c->src, strerror(errno));
	if (fstat(c->src_fd, &c->src_stat) < 0)
		return fail(errno, "%s: %s", c->src, strerror(errno));
	if (S_ISDIR(c->src_stat.st_mode))
		return fail(EISDIR, "%s is a directory; penstock cp copies single files", c->src);
	if (!S_ISREG(c->src_stat.st_mode) && !S_ISBLK(c->src_stat.st_mode))
		return fail(EINVAL, "%s is neither a regular file nor a block device", c->src);
	(void)fcntl(c->src_fd, F_SETFL, O_RDONLY);

	r = pst_file_wrap(c->src_fd, 0, &c->in);
	if (r < 0)
		return fail_pst(r, c->src);
	r = pst_file_info(c->in, &info);
	if (r < 0)
		return fail_pst(r, c->src);
	c->size = info.size;
	return 0;
}

int cp_check_unchanged(const struct copy *c)
{
	struct stat st;

	if (fstat(c->src_fd, &st) < 0)
		return fail(errno, "%s: %s", c->src, strerror(errno));
	if (st.st_size != c->src_stat.st_size || st.st_mtim.tv_sec != c->src_stat.st_mtim.tv_sec ||
	    st.st_mtim.tv_nsec != c->src_stat.st_mtim.tv_nsec)
		return fail(EBUSY, "%s changed while it was copied; nothing was kept of the copy",
			    c->src);
	return 0;
}

int cp_resolve_target(struct copy *c, const char *dst)
{
	_cleanup_(freep) char *path = NULL, *src = strdup(c->src);
	size_t len = strlen(dst);
	struct stat st;

	if (!src)
		return fail(ENOMEM, "out of memory");
	if (!len)
		return fail(ENOENT, "the target has no name");
	if (stat(dst, &st) == 0 && S_ISDIR(st.st_mode)) {
		if (asprintf(&path, "%s/%s", dst, basename(src)) < 0)
			return fail(ENOMEM, "out of memory");
	} else if (dst[len - 1] == '/') {
		return fail(ENOTDIR, "there is no directory %s", dst);
	} else {
		path = strdup(dst);
	}
	if (!path)
		return fail(ENOMEM, "out of memory");

	if (lstat(path, &st) < 0) {
		if (errno != ENOENT)
			return fail(errno, "%s: %s", path, strerror(errno));
		c->dst = TAKE_PTR(path);
		return 0;
	}
	if (S_ISLNK(st.st_mode)) {
		c->dst = realpath(path, NULL);
		if (!c->dst)
			return fail(errno, "%s is a symbolic link that leads nowhere: %s", path,
				    strerror(errno));
		if (stat(c->dst, &st) < 0)
			return fail(errno, "%s: %s", c->dst, strerror(errno));
	} else {
		c->dst = TAKE_PTR(path);
	}
	if (st.st_dev == c->src_stat.st_dev && st.st_ino == c->src_stat.st_ino)
		return fail(EINVAL, "%s and %s are the same file", c->src, c->dst);
	if (S_ISDIR(st.st_mode))
		return fail(EISDIR, "%s is a directory", c->dst);
	if (!S_ISREG(st.st_mode))
		return fail(EINVAL, "%s is not a regular file", c->dst);
	/* rename(2) asks the directory only; a file that is read-only is so for a reason. */
	if (faccessat(AT_FDCWD, c->dst, W_OK, AT_EACCESS) < 0)
		return fail(errno, "cannot replace %s: %s", c->dst, strerror(errno));
	return 0;
}

static int temp_name(struct copy *c)
{
	uint32_t random = 0;

	free(c->tmp);
	c->tmp = NULL;
	if (getrandom(&random, sizeof(random), 0) < 0)
		random = (uint32_t)now_ns();
	/* Room for the suffix in a name as long as names may be. */
	if (asprintf(&c->tmp, "%.*s.penstock-%06x", NAME_MAX - 20, c->base, random & 0xffffff) <
	    0) {
		c->tmp = NULL;
		return fail(ENOMEM, "out of memory");
	}
	return 0;
}

int cp_open_target(struct copy *c)
{
	_cleanup_(freep) char *copy = strdup(c->dst);
	const char *slash = strrchr(c->dst, '/');
	const char *dir;
	int r;

	c->base = strdup(slash ? slash + 1 : c->dst);
	if (!copy || !c->base)
		return fail(ENOMEM, "out of memory");
	dir = dirname(copy);
	c->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c->dir_fd < 0 && errno == EACCES)
		c->dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (c->dir_fd < 0)
		return fail(errno, "cannot open directory %s: %s", dir, strerror(errno));

	/* To give it a name later takes /proc. */
	if (access("/proc/self/fd", X_OK) == 0)
		c->dst_fd = openat(c->dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	for (int tries = 0; c->dst_fd < 0 && tries < 100; tries++) {
		r = temp_name(c);
		if (r < 0)
			return r;
		c->dst_fd = openat(c->dir_fd, c->tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (c->dst_fd < 0) {
			int err = errno;

			free(c->tmp);
			c->tmp = NULL;
			if (err != EEXIST)
				return fail(err, "cannot create a file in %s: %s", dir,
					    strerror(err));
		}
	}
	if (c->dst_fd < 0)
		return fail(EEXIST, "cannot find a free name in %s", dir);

	/* Room first: a disk that is too full says so now and not at the end. */
	if (c->size && fallocate(c->dst_fd, 0, 0, (off_t)c->size) < 0 &&
	    (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
		return fail(errno, "%s needs %s: %s", c->dst, size_text(c->size).s,
			    strerror(errno));

	r = pst_file_wrap(c->dst_fd, 0, &c->out);
	return r < 0 ? fail_pst(r, c->dst) : 0;
}

int cp_publish(struct copy *c)
{
	mode_t mode = S_ISREG(c->src_stat.st_mode) ? c->src_stat.st_mode & 0777 : 0600;
	char fd_path[64];
	int r;

	if (fchmod(c->dst_fd, mode) < 0)
		return fail(errno, "setting the mode of %s: %s", c->dst, strerror(errno));
	(void)snprintf(fd_path, sizeof(fd_path), "/proc/self/fd/%d", c->dst_fd);
	for (int tries = 0; !c->tmp; tries++) {
		r = temp_name(c);
		if (r < 0)
			return r;
		if (linkat(AT_FDCWD, fd_path, c->dir_fd, c->tmp, AT_SYMLINK_FOLLOW) < 0) {
			int err = errno;

			free(c->tmp);
			c->tmp = NULL;
			if (err != EEXIST || tries == 100)
				return fail(err, "naming %s: %s", c->dst, strerror(err));
		}
	}
	if (renameat(c->dir_fd, c->tmp, c->dir_fd, c->base) < 0)
		return fail(errno, "naming %s: %s", c->dst, strerror(errno));
	free(c->tmp);
	c->tmp = NULL;
	/* Some file systems have no fsync for directories, and O_PATH has none either. */
	if (c->o->sync && fsync(c->dir_fd) < 0 && errno != EINVAL && errno != EBADF)
		return fail(errno, "syncing the directory of %s: %s", c->dst, strerror(errno));
	return 0;
}
