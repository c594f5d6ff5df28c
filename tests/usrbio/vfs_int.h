/* SPDX-License-Identifier: MIT */
/* Internals of the file system of vfs.h. */
#ifndef PST_TESTS_VFS_INT_H
#define PST_TESTS_VFS_INT_H

#define FUSE_USE_VERSION 312

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/stat.h>

#include "vfs.h"

#define VFS_BUCKETS 1024

/* A backing file that the kernel knows.  The open descriptor prevents reuse of its number. */
struct vfs_inode {
	LIST_ENTRY(vfs_inode) link;
	uint64_t ino;
	dev_t dev;
	int fd; /* descriptor, O_PATH */
	uint64_t nr_lookups;
};

/* A file that a client has open. */
struct vfs_opened {
	LIST_ENTRY(vfs_opened) link;
	uint64_t ino;
	int fd;
	int accmode;
	uid_t uid;
};

LIST_HEAD(vfs_inodes, vfs_inode);
LIST_HEAD(vfs_openeds, vfs_opened);

struct vfs {
	struct vfs_config config;
	const struct vfs_ops *ops;
	void *owner;
	struct fuse_session *se;
	bool mounted, has_signals;

	struct stat root; /* the backing directory */
	int root_fd;
	atomic_uint_fast64_t next_dir; /* id of the next opening */

	pthread_mutex_t lock; /* protects the members below */
	struct vfs_inodes inodes[VFS_BUCKETS];
	struct vfs_openeds opened;
};

struct vfs_dirent {
	uint64_t ino;
	mode_t type;
	char name[256];
};

/* A snapshot of a directory, taken when its listing began. */
struct vfs_list {
	struct vfs_dirent *ents;
	size_t nr, room;
};

/* A path for system calls that do not accept an O_PATH descriptor. */
struct vfs_path {
	char text[40];
};
struct vfs_path vfs_path(int fd);

/* Stat a backing file, with the number that clients see. */
int vfs_inode_stat(struct vfs *v, int fd, struct stat *ret_st);
/* Find a name and count a lookup; *ret_st is its stat. */
int vfs_inode_lookup(struct vfs *v, int parent_fd, const char *name, struct stat *ret_st);
void vfs_inode_forget(struct vfs *v, uint64_t ino, uint64_t nr_lookups);
/* Return the inode's O_PATH descriptor, valid while the kernel knows the inode; -ENOENT. */
int vfs_inode_fd(struct vfs *v, uint64_t ino);
void vfs_inodes_free(struct vfs *v);

/* Add an open file.  Takes over the descriptor on success only; NULL if out of memory. */
struct vfs_opened *vfs_opened_new(struct vfs *v, uint64_t ino, int fd, int flags,
				  const struct vfs_caller *who);
void vfs_opened_free(struct vfs *v, struct vfs_opened *o);

/* vfs_file.c: operations on files. */
void vfs_file_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void vfs_file_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void vfs_file_read(fuse_req_t req, fuse_ino_t ino, size_t len, off_t off,
		   struct fuse_file_info *fi);
void vfs_file_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t len, off_t off,
		    struct fuse_file_info *fi);
void vfs_file_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void vfs_file_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		      struct fuse_file_info *fi);

static inline struct vfs *vfs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static inline struct vfs_caller vfs_caller_of(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	return (struct vfs_caller){ .uid = ctx->uid, .gid = ctx->gid, .tid = ctx->pid };
}

static inline struct vfs_opened *vfs_opened_of(const struct fuse_file_info *fi)
{
	return (struct vfs_opened *)(uintptr_t)fi->fh;
}

/* Reply with 0 or -errno. */
static inline void vfs_reply(fuse_req_t req, int r)
{
	(void)fuse_reply_err(req, -r);
}

#endif
