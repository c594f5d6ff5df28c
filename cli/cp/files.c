/* SPDX-License-Identifier: MIT */
/*
 * Targets, treated as cp(1) does.  An existing target is opened by its given name, so that the
 * kernel applies its rules for links (fs.protected_symlinks), and is overwritten in place: mode,
 * owner, ACL and hard links stay.  A new target gets the source's mode, reduced by the umask.
 *
 * A new target's bytes go to an unnamed file (O_TMPFILE) if the file system supports that, else to
 * a temporary file in the same directory (temp.c).  That file gets the target's name only after all
 * bytes are on the disk and checked, and only if nobody else has taken the name.
 */
#include "cli/cp/cp.h"

#include <fcntl.h>
#include <libgen.h>

#include "tools/common/temp.h"
#include "tools/common/names.h"

int cp_names_device(const char *s)
{
	struct pst_device dev = { .sz = sizeof(dev) };
	char meant[NEAREST_DEVICE_MAX];
	struct stat st;
	int r;

	if (strchr(s, '/'))
		return 0;
	r = pst_device_find(s, &dev);
	/* A file name may be 32 hex digits: treat it as a device only if that device exists. */
	if (r != -EINVAL)
		return r == 0 || strchr(s, ':') || nearest_device(s, meant);
	if (!nearest_device(s, meant) || lstat(s, &st) == 0)
		return 0;
	if (*meant)
		return fail(EINVAL,
			    "there is no device %s; did you mean %s? A file of that name is given "
			    "as ./%s",
			    s, meant, s);
	return fail(EINVAL,
		    "there is no device %s, 'penstock doctor' lists those that there are; a file "
		    "of that name is given as ./%s",
		    s, s);
}

/* Refuse files such as those in /proc, whose reported size is not the number of their bytes. */
static int check_length(const struct copy *c)
{
	ssize_t n;
	char byte;

	if (!S_ISREG(c->src_stat.st_mode) || c->src_stat.st_size)
		return 0;
	n = pread(c->src_fd, &byte, 1, 0);
	if (n < 0)
		return fail(errno, "%s: %s", c->src, strerror(errno));
	return n == 0 ? 0
		      : fail(EINVAL, "%s has more than the 0 bytes that it says; take cp(1)",
			     c->src);
}

/* Open a file of a service, which has no descriptor. */
static int open_service(struct copy *c)
{
	struct pst_file_info info = { .sz = sizeof(info) };
	int r = pst_file_open(c->name, PST_FILE_READ, NULL, &c->in);

	if (r == 0)
		r = pst_file_info(c->in, &info);
	if (r < 0)
		return fail_pst(r, c->src);
	c->size = info.size;
	c->src_stat.st_mode = S_IFREG | 0666;
	return cp_names_tier(c->src) ? cp_tier_stat(c->src, &c->src_stat) : 0;
}

int cp_open_source(struct copy *c)
{
	struct pst_file_info info = { .sz = sizeof(info) };
	int r;

	if (names_service(c->src))
		return open_service(c);
	/* O_NONBLOCK, because opening a FIFO would wait for a writer. */
	c->src_fd = open(c->src, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (c->src_fd < 0 && errno == ENOENT && cp_names_device(c->src) > 0)
		return fail(ENOENT,
			    "%s is a device and no file: its memory is new to each command, so "
			    "there is nothing to copy from it",
			    c->src);
	if (c->src_fd < 0)
		return fail_open(c->src);
	if (fstat(c->src_fd, &c->src_stat) < 0)
		return fail(errno, "%s: %s", c->src, strerror(errno));
	if (S_ISDIR(c->src_stat.st_mode))
		return fail(EISDIR, "%s is a directory; penstock cp copies single files", c->src);
	if (!S_ISREG(c->src_stat.st_mode) && !S_ISBLK(c->src_stat.st_mode))
		return fail(EINVAL, "%s is neither a regular file nor a block device", c->src);
	r = check_length(c);
	if (r < 0)
		return r;
	(void)fcntl(c->src_fd, F_SETFL, O_RDONLY);

	r = pst_file_wrap(c->src_fd, 0, NULL, &c->in);
	if (r < 0)
		return fail_pst(r, c->src);
	r = pst_file_info(c->in, &info);
	if (r < 0)
		return fail_pst(r, c->src);
	c->size = info.size;
	return 0;
}

int cp_read_source(const struct copy *c, void *buf, uint64_t len, uint64_t off)
{
	int64_t n;

	if (c->src_fd >= 0)
		return pread_all(c->src_fd, buf, len, off, c->src);
	n = pst_read(c->in, off, NULL, (uintptr_t)buf, len, NULL);
	if (n < 0)
		return fail_pst((int)n, c->src);
	return (uint64_t)n == len ? 0 : fail(EIO, "%s is shorter than it was", c->src);
}

int cp_check_unchanged(const struct copy *c)
{
	struct pst_file_info info = { .sz = sizeof(info) };
	struct stat st;

	if (c->src_fd < 0) {
		int r = pst_file_info(c->in, &info);

		if (r < 0)
			return fail_pst(r, c->src);
		if (info.size == c->size)
			return 0;
		return fail(EBUSY, "%s changed while it was copied; nothing was kept of the copy",
			    c->src);
	}
	if (fstat(c->src_fd, &st) < 0)
		return fail(errno, "%s: %s", c->src, strerror(errno));
	if (st.st_size != c->src_stat.st_size || st.st_mtim.tv_sec != c->src_stat.st_mtim.tv_sec ||
	    st.st_mtim.tv_nsec != c->src_stat.st_mtim.tv_nsec)
		return fail(EBUSY, "%s changed while it was copied; nothing was kept of the copy",
			    c->src);
	return 0;
}

/* Open and check an existing target, without changing it.  Return 0 with dst_fd -1 if there is
 * none. */
static int open_existing(struct copy *c)
{
	struct stat st;

	if (stat(c->dst, &st) < 0) {
		if (errno != ENOENT)
			return fail(errno, "%s: %s", c->dst, strerror(errno));
		if (lstat(c->dst, &st) == 0)
			return fail(ENOENT, "%s is a symbolic link that leads nowhere", c->dst);
		return 0;
	}
	/* Open only regular files: opening other things may have side effects. */
	if (S_ISREG(st.st_mode)) {
		c->dst_fd = open(c->dst, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
		if (c->dst_fd < 0 && errno == EACCES && !c->o->verify)
			c->dst_fd = open(c->dst, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
		if (c->dst_fd < 0 || fstat(c->dst_fd, &st) < 0)
			return fail(errno, "cannot open %s to write: %s", c->dst, strerror(errno));
		(void)fcntl(c->dst_fd, F_SETFL, 0);
	}
	if (st.st_dev == c->src_stat.st_dev && st.st_ino == c->src_stat.st_ino)
		return fail(EINVAL, "%s and %s are the same file", c->src, c->dst);
	if (S_ISDIR(st.st_mode))
		return fail(EISDIR, "%s is a directory", c->dst);
	if (!S_ISREG(st.st_mode))
		return fail(EINVAL, "%s is not a regular file", c->dst);
	c->in_place = true;
	c->old_size = st.st_size;
	return 0;
}

int cp_resolve_target(struct copy *c, const char *dst)
{
	_cleanup_(freep) char *src = strdup(c->src);
	size_t len = strlen(dst);
	struct stat st;

	if (!src)
		return fail(ENOMEM, "out of memory");
	if (!len)
		return fail(ENOENT, "the target has no name");
	if (cp_names_tier(dst)) {
		int r = cp_tier_resolve(c, dst);

		if (r == 0)
			r = open_existing(c);
		cp_tier_resolved(c);
		return r;
	}
	if (stat(dst, &st) == 0 && S_ISDIR(st.st_mode)) {
		if (asprintf(&c->dst, "%s/%s", dst, basename(src)) < 0)
			c->dst = NULL;
	} else if (dst[len - 1] == '/') {
		return fail(ENOTDIR, "there is no directory %s", dst);
	} else {
		c->dst = strdup(dst);
	}
	return c->dst ? open_existing(c) : fail(ENOMEM, "out of memory");
}

/* --------------------------------------------------------------------- files */

/* Reserve the space first, so that a full disk is reported before copying. */
static int files_reserve(const struct copy *c)
{
	if (!c->size || fallocate(c->dst_fd, 0, 0, (off_t)c->size) == 0 ||
	    (errno != ENOSPC && errno != EDQUOT && errno != EFBIG))
		return 0;
	return fail(errno, "%s needs %s: %s", c->dst, size_text(c->size).s, strerror(errno));
}

static int begin_in_place(struct copy *c)
{
	int r = files_reserve(c);

	if (r < 0) {
		(void)!ftruncate(c->dst_fd, c->old_size);
		return r;
	}
	c->torn = true;
	if (ftruncate(c->dst_fd, 0) < 0)
		return fail(errno, "%s cannot be emptied: %s", c->dst, strerror(errno));
	return files_reserve(c);
}

/*
 * Create the target with the source's mode, and record the mode that the kernel chose by the umask
 * and the directory's ACL. Until the file is complete, its mode lets only the owner read and write.
 */
static int files_create(struct copy *c, const char *name, int flags)
{
	struct stat st;

	c->dst_fd = openat(c->dir_fd, name, flags | O_RDWR | O_CLOEXEC, c->src_stat.st_mode & 0777);
	if (c->dst_fd < 0)
		return -errno;
	if (fstat(c->dst_fd, &st) < 0)
		return -errno;
	c->mode = st.st_mode & 07777;
	if ((c->mode & 0600) != 0600)
		(void)fchmod(c->dst_fd, c->mode | 0600);
	return 0;
}

static int create_named(struct copy *c, const char *dir)
{
	int r;

	temp_clear(c->dir_fd, c->base);
	for (int tries = 0; tries < 100; tries++) {
		_cleanup_(freep) char *name = NULL;

		r = temp_name(c->base, &name);
		if (r < 0)
			return r;
		r = files_create(c, name, O_CREAT | O_EXCL);
		if (r == 0 && temp_lock(c->dir_fd, name, c->dst_fd)) {
			c->tmp = TAKE_PTR(name);
			return 0;
		}
		closep(&c->dst_fd);
		c->dst_fd = -1;
		if (r < 0 && r != -EEXIST)
			return fail(r, "cannot create a file in %s: %s", dir, strerror(-r));
	}
	return fail(EEXIST, "cannot find a free name in %s", dir);
}

static int begin_new(struct copy *c)
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

	/* Naming an O_TMPFILE later needs /proc. */
	if (access("/proc/self/fd", X_OK) == 0)
		(void)files_create(c, ".", O_TMPFILE);
	r = c->dst_fd < 0 ? create_named(c, dir) : 0;
	if (r < 0)
		return r;
	return files_reserve(c);
}

int cp_open_target(struct copy *c)
{
	int r = c->in_place ? begin_in_place(c) : begin_new(c);

	if (r < 0)
		return r;
	r = pst_file_wrap(c->dst_fd, 0, NULL, &c->out);
	return r < 0 ? fail_pst(r, c->dst) : 0;
}

/* Link the file to its name, but never replace an existing file or link. */
static int take_name(struct copy *c)
{
	char fd_path[64];

	(void)snprintf(fd_path, sizeof(fd_path), "/proc/self/fd/%d", c->dst_fd);
	if (!c->tmp)
		return linkat(AT_FDCWD, fd_path, c->dir_fd, c->base, AT_SYMLINK_FOLLOW);
	if (renameat2(c->dir_fd, c->tmp, c->dir_fd, c->base, RENAME_NOREPLACE) < 0) {
		/* Some file systems lack RENAME_NOREPLACE; these have hard links. */
		if ((errno != EINVAL && errno != ENOSYS) ||
		    linkat(c->dir_fd, c->tmp, c->dir_fd, c->base, 0) < 0)
			return -1;
		(void)unlinkat(c->dir_fd, c->tmp, 0);
	}
	free(c->tmp);
	c->tmp = NULL;
	return 0;
}

int cp_publish(struct copy *c)
{
	if (c->in_place) {
		c->torn = false;
		return 0;
	}
	if ((c->mode & 0600) != 0600 && fchmod(c->dst_fd, c->mode) < 0)
		return fail(errno, "setting the mode of %s: %s", c->dst, strerror(errno));
	if (take_name(c) < 0)
		return fail(errno, "naming %s: %s", c->dst, strerror(errno));
	/* Ignore EINVAL and EBADF: some file systems cannot sync directories, and an O_PATH
	 * descriptor cannot. */
	if (c->o->sync && fsync(c->dir_fd) < 0 && errno != EINVAL && errno != EBADF)
		return fail(errno, "syncing the directory of %s: %s", c->dst, strerror(errno));
	return 0;
}

void cp_give_up(struct copy *c)
{
	if (c->tmp)
		(void)unlinkat(c->dir_fd, c->tmp, 0);
	/* Truncate the file to 0 bytes: with its full size, programs could take a torn file for a
	 * complete one. */
	if (c->torn)
		(void)!ftruncate(c->dst_fd, 0);
}
