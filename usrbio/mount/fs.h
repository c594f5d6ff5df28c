/* SPDX-License-Identifier: MIT */
/*
 * A file system that mirrors a directory, its source.
 *
 * kernel -> session.c -> names.c attr.c dir.c file.c -> the source, by descriptor
 *		    -> virt.c ioctl.c -> broker.c -> a worker per user, rings
 *
 * The kernel checks permissions by the attributes that it has (default_permissions).  The source
 * checks again, because each operation has the rights of its caller (caller.h).  An inode of the
 * source that the kernel knows is a node (node.h).
 *
 * With passthrough the bytes of files do not come here (backing.h).
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
	const char *metrics; /* address for metrics; "": none; NULL: by the mount point */
	bool kernel_cache;   /* use the kernel's cache, not passthrough */
	bool read_only;      /* the source cannot be changed */
	bool no_atime;       /* reads do not change access times */
	bool no_exec;        /* no program can be executed */
	uid_t uid;           /* owner of the files of a storage service */
	gid_t gid;
	unsigned timeout_s; /* cache time of names and attributes, s */
	unsigned inodes;    /* inodes kept open; 0: half of the system's limit */
	struct broker_quota quota;
};

/* Maximum concurrent calls that remove trees, or move by ioctl(2): of all users, and of one
 * user. */
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
	const struct source_ops *source; /* kind of source */
	struct set_source *set;          /* only for a set of tiers (set.h) */
	struct service *service;         /* only for a storage service (service.h) */
	struct fuse_session *se;
	struct nodes nodes;
	struct broker *broker;                   /* serves rings */
	pthread_mutex_t lock;                    /* protects files, dirs, removers, forgetting and
						  * ends */
	struct list files, dirs;                 /* files and directories that are open */
	struct remover removers[MOUNT_REMOVERS]; /* removals in progress; under lock */
	int proc;                                /* descriptor of /proc/self/fd */
	double timeout;                          /* cache time of names and attributes, s, for
						  * libfuse */
	uint64_t since;                          /* start of the mount, ns */
	uint64_t init;                           /* number of the kernel's FUSE_INIT request */
	uint32_t flags[2];                       /* flags that the kernel offered in FUSE_INIT */
	unsigned depth;                          /* stacked file systems below this one */
	unsigned forgetting;                     /* threads in session_forget(); under lock */
	bool ends;                               /* the mount has ended; under lock */
	atomic_bool passes;                      /* passthrough is used */
	atomic_bool wants_open;                  /* the kernel refuses O_PATH for passthrough */
	enum counts_cause cause;                 /* why passthrough is not used */
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

/* An operation and its nodes, whose descriptors stay open until fs_op_end(). */
struct op {
	struct fs *fs;
	struct node *n, *n2;
};

/* Begin an operation on a node, and on a second one (ino2) or 0.  Return 0 or -errno; call
 * fs_op_end() in both cases. */
int op_begin(struct op *op, fuse_req_t req, fuse_ino_t ino, fuse_ino_t ino2);
/* Return the user of the operation that this thread began last. */
uid_t fs_caller(void);
/* Begin an operation with the rights of the caller. */
int op_begin_as(struct op *op, fuse_req_t req, fuse_ino_t ino, fuse_ino_t ino2);
/*
 * End an operation; may be called twice.  The thread keeps the caller's rights until a request
 * needs other rights (session.c), because requests of one user often follow each other.
 */
void fs_op_end(struct op *op);

/* A name in /proc/self/fd, for calls that take paths.  A node's name refers to the inode itself. */
struct fd_name {
	char s[16];
};
struct fd_name fd_name(int fd);

/* Get a node's attributes, with its inode number on the mount.  Return 0 or -errno. */
int fs_stat(struct fs *fs, struct node *n, struct stat *ret);

/* Return the seconds for which the kernel may cache attributes: 0 while rings may write to the
 * file. */
double fs_attr_timeout(const struct fs *fs, const struct node *n);

/*
 * Look up a name, and count one more lookup of the node, for the kernel.  Return 0 or -errno;
 * -ELOOP if the source leads to its own mount.
 */
int fs_lookup(struct fs *fs, struct node *dir, const char *name, struct fuse_entry_param *ret);
/* As fs_lookup(), for a source that is a directory. */
int fs_lookup_plain(struct fs *fs, struct node *dir, const char *name,
		    struct fuse_entry_param *ret);
/* As fs_stat(), for a source with descriptors. */
int fs_stat_plain(struct fs *fs, struct node *n, struct stat *ret);
/* Fill in an entry for a descriptor, which is taken over, on that mount.  Return as fs_lookup()
 * does. */
int fs_entry(struct fs *fs, int fd, uint64_t mnt, struct fuse_entry_param *ret);

/* Return the node of an entry. */
struct node *fs_node_of_entry(struct fs *fs, const struct fuse_entry_param *e);

/* Answer with the attributes of a node. */
void fs_reply_attr(fuse_req_t req, struct node *n);

/* Undo fs_lookup(), because the answer did not reach the kernel. */
void fs_unlook(struct fs *fs, const struct fuse_entry_param *e);

/* Answer with an entry; with -err if err is negative. */
void fs_reply_entry(fuse_req_t req, int err, const struct fuse_entry_param *e);

/* Return true for an inode of the virtual tree, which has no node. */
static inline bool virt_is(fuse_ino_t ino)
{
	return ino >> 63;
}

/* Close everything that the kernel left open, after its last request. */
void dirs_done(struct fs *fs);
void files_done(struct fs *fs);

/* Set the operations that the files names.c to ioctl.c implement. */
void names_ops(struct fuse_lowlevel_ops *ops);
void attr_ops(struct fuse_lowlevel_ops *ops);
void dir_ops(struct fuse_lowlevel_ops *ops);
void file_ops(struct fuse_lowlevel_ops *ops);
void ioctl_ops(struct fuse_lowlevel_ops *ops);
/* Call this last: it wraps the other operations, and handles requests on the virtual tree. */
void virt_ops(struct fuse_lowlevel_ops *ops);

#endif
