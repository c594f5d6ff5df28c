/* SPDX-License-Identifier: MIT */
/*
 * A small FUSE file system for daemons under test: a backing directory passed through, and
 * one virtual directory in it that holds symbolic links which the owner of the file system
 * answers for.  Plumbing only: names, numbers and meaning of what is virtual are the owner's.
 *
 *	MOUNTPOINT/			the backing directory
 *	MOUNTPOINT/OUTER/		virtual, found by name, not listed, holds INNER alone
 *	MOUNTPOINT/OUTER/INNER/		virtual, holds links: ops->lookup() and its kin
 *
 * Any other call in the virtual directories gives EPERM, an unknown name ENOENT.
 *
 * An inode number is the same for clients (statx), for the kernel and in this interface: that
 * of the backing file, and 1 for the root.  A file keeps its number while the backing file
 * lives.  The backing directory must be on one file system; what lies on another gives EIO.
 * The kernel checks permissions by the modes of the backing files (default_permissions); what is
 * made through the mount belongs to who made it, if the daemon may give files away.
 *
 * Results are 0 or what is said, and -errno.  All calls but vfs_mount() and vfs_free() may be
 * made from any thread at any time between these two.
 */
#ifndef PST_TESTS_VFS_H
#define PST_TESTS_VFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct vfs;
struct vfs_list;

/* The caller.  The id is that of the calling thread, and 0 where it has none here. */
struct vfs_caller {
	uid_t uid;
	gid_t gid;
	pid_t tid;
};

/* A virtual link as stat shows it. */
struct vfs_link {
	uint64_t ino;        /* not that of a backing file or of a virtual directory */
	uint64_t generation; /* another one each time that ino is used again */
	mode_t mode;         /* permissions */
	uid_t uid;
	gid_t gid;
	size_t size;    /* length of the target */
	double timeout; /* seconds for which the kernel may keep name and attributes */
};

/* An open file or directory. */
struct vfs_file {
	uint64_t ino;
	int fd; /* the backing file, as it was opened; -1 for a directory */
};

/*
 * The owner's side.  Calls come from several threads at once, with no lock held; a NULL member
 * does nothing for open, release, opendir and releasedir, and is EPERM else.
 */
struct vfs_ops {
	/* The link of that name. */
	int (*lookup)(void *owner, const struct vfs_caller *who, const char *name,
		      struct vfs_link *ret_link);
	/* The link of that number; -ENOENT where there is none. */
	int (*getattr)(void *owner, const struct vfs_caller *who, uint64_t ino,
		       struct vfs_link *ret_link);
	/* Its target, with a NUL, into buf. */
	int (*readlink)(void *owner, const struct vfs_caller *who, uint64_t ino, char *buf,
			size_t size);
	int (*symlink)(void *owner, const struct vfs_caller *who, const char *target,
		       const char *name, struct vfs_link *ret_link);
	int (*unlink)(void *owner, const struct vfs_caller *who, const char *name);

	/*
	 * A file was opened, before its opener knows, and closed by the last who had it.  key is
	 * the same for both.
	 */
	void (*open)(void *owner, const struct vfs_caller *who, const struct vfs_file *file,
		     const void *key);
	void (*release)(void *owner, const void *key);

	/*
	 * INNER was opened, is listed from its start by vfs_list_add(), was closed by the last
	 * who had it.  id is one opening; releasedir is told who opened it.
	 */
	void (*opendir)(void *owner, const struct vfs_caller *who, uint64_t id);
	int (*list)(void *owner, const struct vfs_caller *who, uint64_t id, struct vfs_list *list);
	void (*releasedir)(void *owner, const struct vfs_caller *opener, uint64_t id);

	/*
	 * An ioctl on any file or directory.  in and out have the lengths that the number
	 * encodes for its direction, out is zeroed before.
	 */
	int (*ioctl)(void *owner, const struct vfs_caller *who, const struct vfs_file *file,
		     unsigned cmd, const void *in, size_t in_len, void *out, size_t out_len);
};

/* Strings must live as long as the file system. */
struct vfs_config {
	const char *backing;
	const char *mountpoint;
	const char *fsname;  /* the mount's source */
	const char *subtype; /* the mount's type is "fuse.SUBTYPE" */
	const char *outer, *inner;
	uint64_t outer_ino, inner_ino;
	mode_t outer_mode, inner_mode; /* permissions */
	double timeout; /* seconds for which the kernel may keep names and attributes of files */
};

/**
 * vfs_mount() - mount it
 * @config: copied
 * @owner:  passed to each of @ops
 *
 * Sets the umask of the process to 0, because the kernel applies that of each caller.  Reasons of
 * libfuse go to stderr.
 *
 * Return: 0, the errno of opening the backing directory, -ENOMEM, -EIO when FUSE would not.
 */
int vfs_mount(const struct vfs_config *config, const struct vfs_ops *ops, void *owner,
	      struct vfs **ret_vfs);

/**
 * vfs_serve() - answer the kernel until somebody unmounts it or SIGTERM, SIGINT or SIGHUP comes
 *
 * The signals end it only if they are delivered to the thread that calls this: others must block
 * them.  It is unmounted afterwards.
 */
int vfs_serve(struct vfs *vfs);

struct vfs *vfs_free(struct vfs *vfs);

/* Returns -ENOMEM, or -ENAMETOOLONG from 256 bytes on. */
int vfs_list_add(struct vfs_list *list, const char *name, uint64_t ino, mode_t type);

/**
 * vfs_reopen() - open the backing file of any inode that the kernel knows
 * @ino:   as clients see it
 * @flags: of open(2); close-on-exec is added
 *
 * Asks nobody's rights: this is for owners who trust numbers, and for directories (O_PATH).
 *
 * Return: a descriptor that the caller closes, -ENOENT for a number that is not known, or the
 * errno of open(2).
 */
int vfs_reopen(struct vfs *vfs, uint64_t ino, int flags);

/**
 * vfs_dup_opened() - the backing file of an inode that a user has open through the mount now
 * @accmode: O_RDONLY, O_WRONLY or O_RDWR: the access that is needed
 *
 * A file counts as open until the last duplicate of the client's descriptor is closed.
 *
 * Return: a duplicate, close-on-exec, that the caller closes and that was opened with that access
 * at least; -EBADF when the user does not have it open, -EACCES when never with that access, or
 * the errno of dup.
 */
int vfs_dup_opened(struct vfs *vfs, uint64_t ino, uid_t uid, int accmode);

/**
 * vfs_invalidate() - make the kernel forget attributes and cached bytes of a file
 * @len: 0 means to the end
 *
 * To be called after bytes were changed behind the kernel's back; those who map the file see them
 * too.  Waits for reads and writes of the range that are under way.  A file that the kernel does
 * not know is fine.
 */
int vfs_invalidate(struct vfs *vfs, uint64_t ino, uint64_t off, uint64_t len);

#endif
