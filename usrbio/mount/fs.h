/* SPDX-License-Identifier: MIT */
/*
 * A file system that passes everything on to a directory, its source.
 *
 *	kernel -> session.c -> names.c attr.c dir.c file.c -> the source, by descriptor
 *	                    -> virt.c ioctl.c -> broker.c -> a worker for each user, rings
 *
 * The kernel checks permissions by the attributes that it knows (default_permissions), and the
 * source checks them again: each operation is made with the rights of its caller (caller.h).  An
 * inode of the source that the kernel knows is a node (node.h).
 *
 * The bytes of files do not come here where the kernel can pass them on by itself (backing.h).
 */
#ifndef MOUNT_FS_H
#define MOUNT_FS_H

#define FUSE_USE_VERSION 312

#include <fuse_lowlevel.h>
#include <stdbool.h>

#include "base/base.h"
#include "usrbio/mount/broker.h"
#include "usrbio/mount/counts.h"
#include "usrbio/mount/node.h"

struct fs_opts {
	const char *source;
	const char *dir;     /* canonical path of the mount point */
	const char *metrics; /* where metrics are served; "": nowhere; NULL: derived from the
			      * mount point */
	bool kernel_cache;   /* files use the kernel's cache of the mount */
	bool read_only;      /* the source cannot be changed */
	bool no_atime;       /* reading does not change access times */
	bool no_exec;        /* no program is executed from it */
	uid_t uid;           /* owner of the files of a storage service */
	gid_t gid;
	unsigned timeout_s; /* seconds for which the kernel caches names and attributes */
	unsigned inodes;    /* inodes that are kept open; 0: half of what the system allows */
	struct broker_quota quota;
};

/* Calls in flight that remove trees, or move by ioctl(2): of all users, and of one. */
#define MOUNT_REMOVERS 64
#define MOUNT_REMOVERS_USER 8

struct remover {
	bool busy;
	uid_t uid;
};

struct set_source;
struct service;
struct source_ops;

struct fs {
	const struct fs_opts *opts;
	const struct source_ops *source; /* the kind of the source */
	struct set_source *set;          /* for a set of tiers (set.h) */
	struct service *service;         /* for a storage service (service.h) */
	struct fuse_session *se;
	struct nodes nodes;
	struct broker *broker;                   /* serves rings */
	pthread_mutex_t lock;                    /* covers the lists */
	struct list files, dirs;                 /* what the kernel has open */
	struct remover removers[MOUNT_REMOVERS]; /* under the lock */
	int proc;                                /* /proc/self/fd */
	double timeout;                          /* timeout in seconds, for libfuse */
	uint64_t since;                          /* when the mount began to serve */
	uint64_t init;                           /* number of the kernel's first request */
	uint32_t flags[2];                       /* flags that the kernel offered in it */
	unsigned depth;          /* number of file systems below this one, for the kernel */
	unsigned forgetting;     /* threads in session_forget(), under the lock of the lists */
	bool ends;               /* the mount has ended; under the same lock */
	atomic_bool passes;      /* the kernel reads and writes files of the source by itself */
	atomic_bool wants_open;  /* passthrough needs an open file, not an O_PATH descriptor */
	enum counts_cause cause; /* why passthrough is not used */
};

static inline struct fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static inline struct node *fs_node(fuse_req_t req, fuse_ino_t ino)
{
	struct fs *fs = fs_of(req);

	return ino == FUSE_ROOT_ID ? &fs->nodes.root : (struct node *)(uintptr_t)ino;
}

static inline fuse_ino_t fs_ino(const struct fs *fs, const struct node *n)
{
	return n == &fs->nodes.root ? FUSE_ROOT_ID : (fuse_ino_t)(uintptr_t)n;
}

/* An operation; it holds its nodes, so that their descriptors stay open. */
struct op {
	struct fs *fs;
	struct node *n, *n2;
};

/* Begin an operation on a node, and on another one (ino2) or 0.  Return 0 or -errno; call
 * fs_op_end() in both cases. */
int op_begin(struct op *op, fuse_req_t req, fuse_ino_t ino, fuse_ino_t ino2);
/* The user whose operation this thread began last. */
uid_t fs_caller(void);
/* Begin an operation with the rights of the caller. */
int op_begin_as(struct op *op, fuse_req_t req, fuse_ino_t ino, fuse_ino_t ino2);
/*
 * End an operation; may be called twice.  The thread keeps the caller's rights until another
 * request needs other ones (session.c), because most requests of a user follow each other.
 */
void fs_op_end(struct op *op);

/* A name in /proc/self/fd, for calls that take paths; for a node it names the inode itself. */
struct fd_name {
	char s[16];
};
struct fd_name fd_name(int fd);

/* Return a node's attributes, with its number on the mount.  Return 0 or -errno. */
int fs_stat(struct fs *fs, struct node *n, struct stat *ret);

/* Return the seconds for which the kernel may cache attributes: none while rings may write to the
 * file. */
double fs_attr_timeout(const struct fs *fs, const struct node *n);

/*
 * Look up a name.  The kernel counts one more lookup of the node when it has the answer.  Return 0
 * or -errno; -ELOOP if the source leads to its own mount.
 */
int fs_lookup(struct fs *fs, struct node *dir, const char *name, struct fuse_entry_param *ret);
/* As fs_lookup(), for a source that is a directory. */
int fs_lookup_plain(struct fs *fs, struct node *dir, const char *name,
		    struct fuse_entry_param *ret);
/* As fs_stat(), for a source with descriptors. */
int fs_stat_plain(struct fs *fs, struct node *n, struct stat *ret);
/* As fs_lookup(), by a descriptor, which is taken over, and its mount. */
int fs_entry(struct fs *fs, int fd, uint64_t mnt, struct fuse_entry_param *ret);

/* The node of an entry. */
struct node *fs_node_of_entry(struct fs *fs, const struct fuse_entry_param *e);

/* Answer with the attributes of a node. */
void fs_reply_attr(fuse_req_t req, struct node *n);

/* The answer did not reach the kernel. */
void fs_unlook(struct fs *fs, const struct fuse_entry_param *e);

/* Answer with an entry, or with -err. */
void fs_reply_entry(fuse_req_t req, int err, const struct fuse_entry_param *e);

/* Return true for an inode of the virtual tree, which has no node. */
static inline bool virt_is(fuse_ino_t ino)
{
	return ino >> 63;
}

/* Close what the kernel still has open, after its last request. */
void dirs_done(struct fs *fs);
void files_done(struct fs *fs);

/* Fill in the operations of each file. */
void names_ops(struct fuse_lowlevel_ops *ops);
void attr_ops(struct fuse_lowlevel_ops *ops);
void dir_ops(struct fuse_lowlevel_ops *ops);
void file_ops(struct fuse_lowlevel_ops *ops);
void ioctl_ops(struct fuse_lowlevel_ops *ops);
/* Called last: requests on the virtual tree bypass the other operations. */
void virt_ops(struct fuse_lowlevel_ops *ops);

#endif
