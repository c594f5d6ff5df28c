/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/fs.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "usrbio/mount/caller.h"
#include "usrbio/mount/source.h"
#include "usrbio/proto/ioctl.h"

static struct node *fs_hold(struct op *op, fuse_ino_t ino, int *err)
{
	struct node *n = ino == FUSE_ROOT_ID ? &op->fs->nodes.root : (struct node *)(uintptr_t)ino;

	*err = node_hold(&op->fs->nodes, n);
	if (*err == 0 && op->fs->source->refresh)
		op->fs->source->refresh(op->fs, n);
	return *err < 0 ? NULL : n;
}

static __thread uid_t begun_for;

uid_t fs_caller(void)
{
	return begun_for;
}

int op_begin(struct op *op, fuse_req_t req, fuse_ino_t ino, fuse_ino_t ino2)
{
	int err;

	*op = (struct op){ .fs = fs_of(req) };
	begun_for = fuse_req_ctx(req)->uid;
	op->n = fs_hold(op, ino, &err);
	if (err == 0 && ino2)
		op->n2 = fs_hold(op, ino2, &err);
	return err;
}

int op_begin_as(struct op *op, fuse_req_t req, fuse_ino_t ino, fuse_ino_t ino2)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct caller c = { ctx->uid, ctx->gid, ctx->pid, ctx->umask };
	int err = op_begin(op, req, ino, ino2);

	return err < 0 ? err : caller_begin(&c);
}

void fs_op_end(struct op *op)
{
	if (op->n)
		node_release(&op->fs->nodes, op->n);
	if (op->n2)
		node_release(&op->fs->nodes, op->n2);
	*op = (struct op){ 0 };
}

struct fd_name fd_name(int fd)
{
	struct fd_name ret;

	(void)snprintf(ret.s, sizeof(ret.s), "%d", fd);
	return ret;
}

int fs_stat(struct fs *fs, struct node *n, struct stat *ret)
{
	return fs->source->stat(fs, n, ret);
}

int fs_stat_plain(struct fs *fs, struct node *n, struct stat *ret)
{
	(void)fs;
	if (fstatat(n->fd, "", ret, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	ret->st_ino = n->number;
	return 0;
}

double fs_attr_timeout(const struct fs *fs, const struct node *n)
{
	return atomic_load(&n->nr_writers) ? 0 : fs->timeout;
}

static int open_within(int dir, const char *name)
{
	struct open_how how = {
		.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS,
	};

	return (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));
}

/* Return true for the device of a mount of this file system type, of any server. */
static bool is_mount_of_ours(dev_t dev)
{
	_cleanup_(freep) char *line = NULL;
	FILE *f = fopen("/proc/self/mountinfo", "re");
	unsigned major, minor;
	bool ret = !f;
	size_t size = 0;

	while (f && !ret && getline(&line, &size, f) > 0)
		ret = strstr(line, " - " USRBIO_FSTYPE " ") &&
		      sscanf(line, "%*d %*d %u:%u", &major, &minor) == 2 &&
		      makedev(major, minor) == dev;
	if (f)
		(void)fclose(f);
	return ret;
}

/*
 * Open a name that is on another file system than its directory.  Refuse mounts of this file system
 * type: opening a name on this mount would wait for this server itself, and two mounts that lead to
 * each other would deadlock.
 */
static int open_across(int dir, const char *name)
{
	int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct statx st;

	if (fd < 0)
		return -errno;
	/* Do not send a request to the file system, which might be this server's. */
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &st) < 0 ||
	    is_mount_of_ours(makedev(st.stx_dev_major, st.stx_dev_minor))) {
		(void)close(fd);
		return -ELOOP;
	}
	return fd;
}

/*
 * Open a single name by O_PATH without following a link.  Return the descriptor, with its mount in
 * *ret_mnt; or -errno.
 */
static int open_name(const struct node *dir, const char *name, uint64_t *ret_mnt)
{
	int fd = open_within(dir->fd, name);

	*ret_mnt = dir->mnt;
	if (fd >= 0)
		return fd;
	/* ENOSYS, EPERM: openat2(2) is missing or forbidden. */
	if (errno != EXDEV && errno != ENOSYS && errno != EPERM)
		return -errno;
	fd = open_across(dir->fd, name);
	if (fd >= 0)
		*ret_mnt = node_mount(fd);
	return fd;
}

/* Fill in the entry of a descriptor, with those attributes.  Takes over the descriptor. */
static int mount_fs_entry(struct fs *fs, int fd, uint64_t mnt, const struct stat *st,
			  struct fuse_entry_param *ret)
{
	struct node *n;
	int err = node_get(&fs->nodes, fd, mnt, st, &n);

	if (err < 0)
		return err;
	*ret = (struct fuse_entry_param){
		.ino = fs_ino(fs, n),
		.attr = *st,
		.attr_timeout = fs_attr_timeout(fs, n),
		.entry_timeout = fs->timeout,
	};
	ret->attr.st_ino = n->number;
	return 0;
}

int fs_entry(struct fs *fs, int fd, uint64_t mnt, struct fuse_entry_param *ret)
{
	struct stat st;

	if (fstatat(fd, "", &st, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0) {
		int err = -errno;

		(void)close(fd);
		return err;
	}
	return mount_fs_entry(fs, fd, mnt, &st, ret);
}

/* Get the attributes of an inode that this machine has cached, without a request to its file
 * server. */
static int known_stat(int fd, struct stat *ret)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC,
		  STATX_BASIC_STATS, &st) < 0)
		return -errno;
	*ret = (struct stat){
		.st_dev = makedev(st.stx_dev_major, st.stx_dev_minor),
		.st_ino = st.stx_ino,
		.st_mode = st.stx_mode,
		.st_nlink = st.stx_nlink,
		.st_uid = st.stx_uid,
		.st_gid = st.stx_gid,
		.st_rdev = makedev(st.stx_rdev_major, st.stx_rdev_minor),
		.st_size = (off_t)st.stx_size,
		.st_blksize = (blksize_t)st.stx_blksize,
		.st_blocks = (blkcnt_t)st.stx_blocks,
		.st_atim = { st.stx_atime.tv_sec, st.stx_atime.tv_nsec },
		.st_mtim = { st.stx_mtime.tv_sec, st.stx_mtime.tv_nsec },
		.st_ctim = { st.stx_ctime.tv_sec, st.stx_ctime.tv_nsec },
	};
	return 0;
}

/*
 * Fill in the entry of another file system's root, with cached attributes.  Its server may hang,
 * and the kernel locks the parent directory for all users during a lookup.  The kernel asks for the
 * attributes later.
 */
static int root_entry(struct fs *fs, int fd, uint64_t mnt, struct fuse_entry_param *ret)
{
	struct stat st;
	int err = known_stat(fd, &st);

	if (err < 0) {
		(void)close(fd);
		return err;
	}
	err = mount_fs_entry(fs, fd, mnt, &st, ret);
	ret->attr_timeout = 0;
	return err;
}

int fs_lookup(struct fs *fs, struct node *dir, const char *name, struct fuse_entry_param *ret)
{
	return fs->source->lookup(fs, dir, name, ret);
}

int fs_lookup_plain(struct fs *fs, struct node *dir, const char *name, struct fuse_entry_param *ret)
{
	uint64_t mnt;
	int fd = open_name(dir, name, &mnt);

	if (fd < 0)
		return fd;
	return mnt == dir->mnt ? fs_entry(fs, fd, mnt, ret) : root_entry(fs, fd, mnt, ret);
}

struct node *fs_node_of_entry(struct fs *fs, const struct fuse_entry_param *e)
{
	return e->ino == FUSE_ROOT_ID ? &fs->nodes.root : (struct node *)(uintptr_t)e->ino;
}

void fs_unlook(struct fs *fs, const struct fuse_entry_param *e)
{
	node_put(&fs->nodes, fs_node_of_entry(fs, e), 1);
}

void fs_reply_entry(fuse_req_t req, int err, const struct fuse_entry_param *e)
{
	struct fs *fs = fs_of(req);

	if (err < 0) {
		(void)fuse_reply_err(req, -err);
		return;
	}
	/* Record the attributes before answering: the kernel may forget the node right after the
	 * answer. */
	node_tell(fs_node_of_entry(fs, e), &e->attr);
	if (fuse_reply_entry(req, e) < 0) {
		node_tell_failed(fs_node_of_entry(fs, e));
		fs_unlook(fs, e);
	}
}
