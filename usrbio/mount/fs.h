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
	const char *dir;     /* canonical */
	const char *metrics; /* where numbers are told; "": nowhere; NULL: by the mount point */
	bool kernel_cache;   /* files go through the kernel's cache of the mount */
	bool read_only;      /* nothing of the source is changed */
	bool no_atime;       /* reading changes no times of access */
	bool no_exec;        /* no program is executed from it */
	unsigned timeout_s;  /* for which the kernel believes names and attributes */
	unsigned inodes;     /* that are kept open; 0: half of what the system allows */
	struct broker_quota quota;
};

/* Calls that remove trees, or move by ioctl(2), under way at once: of all, and of one user. */
#define MOUNT_REMOVERS 64
#define MOUNT_REMOVERS_USER 8

struct remover {
	bool busy;
	uid_t uid;
};

struct set_source;

struct fs {
	const struct fs_opts *opts;
	struct set_source *set; /* the source is a set of tiers (set.h); NULL: a directory */
	struct fuse_session *se;
	struct nodes nodes;
	struct broker *broker;                   /* of rings */
	pthread_mutex_t lock;                    /* of the lists */
	struct list files, dirs;                 /* what the kernel has open */
	struct remover removers[MOUNT_REMOVERS]; /* under the lock */
	int proc;                                /* /proc/self/fd */
	double timeout;                          /* seconds, as libfuse has them */
	uint64_t since;                          /* when it began to serve */
	uint64_t init;           /* number of the request by which the kernel begins */
	uint32_t flags[2];       /* what the kernel offered in it */
	unsigned depth;          /* of file systems beneath this one, for the kernel */
	unsigned forgetting;     /* threads in session_forget(), under the lock of the lists */
	bool ends;               /* it does nothing any more; likewise */
	atomic_bool passes;      /* the kernel reads and writes files of the source by itself */
	atomic_bool wants_open;  /* for that it wants an open file, and no O_PATH descriptor */
	enum counts_cause cause; /* why it does not */
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

/* An operation holds its nodes, so that their descriptors are there. */
struct op {
	struct fs *fs;
	struct node *n, *n2;
};

/* ino2: another node, or 0.  0 or -errno, and fs_op_end() in both cases. */
int op_begin(struct op *op, fuse_req_t req, fuse_ino_t ino, fuse_ino_t ino2);
/* The same with the rights of the caller. */
int op_begin_as(struct op *op, fuse_req_t req, fuse_ino_t ino, fuse_ino_t ino2);
/*
 * May be called again.  The thread keeps the rights of the caller until another request needs the
 * server's, or somebody else's (session.c): most requests of a user follow others of his.
 */
void fs_op_end(struct op *op);

/* A name in /proc/self/fd, for calls that take paths: of a node it means that inode itself. */
struct fd_name {
	char s[16];
};
struct fd_name fd_name(int fd);

/* Its attributes, with the number that it has on the mount.  0 or -errno. */
int fs_stat(struct fs *fs, const struct node *n, struct stat *ret);

/* Seconds for which the kernel may believe them: none while rings may write to the file. */
double fs_attr_timeout(const struct fs *fs, const struct node *n);

/*
 * Look up a name.  The kernel knows the node one time more, when it has the answer.
 * 0 or -errno; -ELOOP where the source leads to its own mount.
 */
int fs_lookup(struct fs *fs, const struct node *dir, const char *name,
	      struct fuse_entry_param *ret);
/* The same for a directory as the source, whatever it is. */
int fs_lookup_plain(struct fs *fs, const struct node *dir, const char *name,
		    struct fuse_entry_param *ret);
/* The same by a descriptor of it, which is taken, and its mount. */
int fs_entry(struct fs *fs, int fd, uint64_t mnt, struct fuse_entry_param *ret);

/* The answer did not reach the kernel. */
void fs_unlook(struct fs *fs, const struct fuse_entry_param *e);

/* Answer with an entry, or with -err. */
void fs_reply_entry(fuse_req_t req, int err, const struct fuse_entry_param *e);

/* Is that one of the virtual tree?  It has no node. */
static inline bool virt_is(fuse_ino_t ino)
{
	return ino >> 63;
}

/* Close what the kernel has open still, when it asks no more. */
void dirs_done(struct fs *fs);
void files_done(struct fs *fs);

/* The operations of each file, filled in. */
void names_ops(struct fuse_lowlevel_ops *ops);
void attr_ops(struct fuse_lowlevel_ops *ops);
void dir_ops(struct fuse_lowlevel_ops *ops);
void file_ops(struct fuse_lowlevel_ops *ops);
void ioctl_ops(struct fuse_lowlevel_ops *ops);
/* Last: what is asked of the virtual tree goes another way than the others' operations. */
void virt_ops(struct fuse_lowlevel_ops *ops);

#endif
