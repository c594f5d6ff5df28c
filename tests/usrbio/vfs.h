/* SPDX-License-Identifier: MIT */
/*
 * A small FUSE file system for daemons under test: a backing directory passed through, and one
 * virtual directory in it with symbolic links of the file system's owner.  Names, numbers and
 * meaning of virtual objects are up to the owner.
 *
 * 	MOUNTPOINT/			the backing directory
 * 	MOUNTPOINT/OUTER/		virtual, found by name, not listed, holds only INNER
 * 	MOUNTPOINT/OUTER/INNER/		virtual, holds links: ops->lookup() and similar
 *
 * Other calls in the virtual directories give EPERM, unknown names ENOENT.
 *
 * An inode number is the same for clients (statx), for the kernel and in this interface: the
 * backing file's number, and 1 for the root.  A file keeps its number while the backing file
 * exists.  The backing directory must be on one file system; files of another one give EIO.  The
 * kernel checks permissions by the modes of the backing files (default_permissions).  Files made
 * through the mount belong to the caller, if the daemon may change owners.
 *
 * Functions return 0 or -errno unless documented otherwise.  All calls except vfs_mount() and
 * vfs_free() may be made from any thread between these two.
 */
#ifndef PST_TESTS_VFS_H
#define PST_TESTS_VFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct vfs;
struct vfs_list;

/* The caller.  tid is 0 if the thread is in another PID namespace. */
struct vfs_caller {
	uid_t uid;
	gid_t gid;
	pid_t tid;
};

/* A virtual link as stat shows it. */
struct vfs_link {
	uint64_t ino;        /* differs from all backing files and virtual directories */
	uint64_t generation; /* differs each time ino is reused */
	mode_t mode;         /* permission bits */
	uid_t uid;
	gid_t gid;
	size_t size;    /* length of the target */
	double timeout; /* cache time of the kernel for name and attributes, s */
};

/* An open file or directory. */
struct vfs_file {
	uint64_t ino;
	int fd; /* descriptor of the backing file in the mode of its open; -1: a directory */
};

/*
 * The owner's functions.  Several threads call them at once, without locks.  A NULL member does
 * nothing for open, release, opendir and releasedir, and is EPERM otherwise.
 */
struct vfs_ops {
	/* Fill in the link of that name. */
	int (*lookup)(void *owner, const struct vfs_caller *who, const char *name,
		      struct vfs_link *ret_link);
	/* Fill in the link of that number; -ENOENT if there is none. */
	int (*getattr)(void *owner, const struct vfs_caller *who, uint64_t ino,
		       struct vfs_link *ret_link);
	/* Write the link's target, with a NUL, into buf. */
	int (*readlink)(void *owner, const struct vfs_caller *who, uint64_t ino, char *buf,
			size_t size);
	int (*symlink)(void *owner, const struct vfs_caller *who, const char *target,
		       const char *name, struct vfs_link *ret_link);
	int (*unlink)(void *owner, const struct vfs_caller *who, const char *name);

	/*
	 * open: a file was opened; called before the caller knows.  release: the file was closed
	 * for the last time.  key is the same for both.
	 */
	void (*open)(void *owner, const struct vfs_caller *who, const struct vfs_file *file,
		     const void *key);
	void (*release)(void *owner, const void *key);

	/*
	 * opendir: INNER was opened.  list: list it from its start by vfs_list_add(). releasedir:
	 * it was closed for the last time.  id identifies the opening; releasedir gets the caller
	 * of opendir.
	 */
	void (*opendir)(void *owner, const struct vfs_caller *who, uint64_t id);
	int (*list)(void *owner, const struct vfs_caller *who, uint64_t id, struct vfs_list *list);
	void (*releasedir)(void *owner, const struct vfs_caller *opener, uint64_t id);

	/*
	 * An ioctl on any file or directory.  The ioctl's number determines the lengths of in and
	 * out; out is zeroed before.
	 */
	int (*ioctl)(void *owner, const struct vfs_caller *who, const struct vfs_file *file,
		     unsigned cmd, const void *in, size_t in_len, void *out, size_t out_len);
};

/* Strings must stay valid as long as the file system exists. */
struct vfs_config {
	const char *backing;
	const char *mountpoint;
	const char *fsname;  /* the mount's source */
	const char *subtype; /* the mount's type is "fuse.SUBTYPE" */
	const char *outer, *inner;
	uint64_t outer_ino, inner_ino;
	mode_t outer_mode, inner_mode; /* permission bits */
	double timeout; /* cache time of the kernel for names and attributes of files, s */
};

/**
 * vfs_mount() - mount the file system
 * @config: copied
 * @owner:  passed to each of @ops
 *
 * Sets the umask of the process to 0, because the kernel applies the caller's.  libfuse prints its
 * errors to standard error.
 *
 * Return: 0, the errno of opening the backing directory, -ENOMEM, -EIO if FUSE failed.
 */
int vfs_mount(const struct vfs_config *config, const struct vfs_ops *ops, void *owner,
	      struct vfs **ret_vfs);

/**
 * vfs_serve() - serve until the file system is unmounted, or SIGTERM, SIGINT or SIGHUP arrives
 *
 * Other threads must block these signals: they end this call only in its own thread.  Unmounts the
 * file system at the end.
 */
int vfs_serve(struct vfs *vfs);

struct vfs *vfs_free(struct vfs *vfs);

/* Add an entry.  Errors: -ENOMEM; -ENAMETOOLONG for 256 bytes or more. */
int vfs_list_add(struct vfs_list *list, const char *name, uint64_t ino, mode_t type);

/**
 * vfs_reopen() - open the backing file of any inode that the kernel knows
 * @ino:   as clients see it
 * @flags: of open(2); close-on-exec is added
 *
 * Checks no rights: for owners who trust numbers, and for directories (O_PATH).
 *
 * Return: a descriptor that the caller closes, -ENOENT for an unknown number, or the errno of
 * open(2).
 */
int vfs_reopen(struct vfs *vfs, uint64_t ino, int flags);

/**
 * vfs_dup_opened() - duplicate the backing file of an inode that a user has open on the mount
 * @accmode: the needed access: O_RDONLY, O_WRONLY or O_RDWR
 *
 * A file counts as open until the last duplicate of the client's descriptor is closed.
 *
 * Return: a close-on-exec duplicate with at least that access, which the caller closes; -EBADF if
 * the user does not have the file open, -EACCES if not with that access, or the errno of dup.
 */
int vfs_dup_opened(struct vfs *vfs, uint64_t ino, uid_t uid, int accmode);

/**
 * vfs_invalidate() - make the kernel drop attributes and cached bytes of a file
 * @len: 0 means to the end
 *
 * Call this after changing bytes without the kernel's knowledge; mappings then show them, too.
 * Waits for reads and writes of the range in flight.  Does nothing for a file that the kernel does
 * not know.
 */
int vfs_invalidate(struct vfs *vfs, uint64_t ino, uint64_t off, uint64_t len);

#endif
