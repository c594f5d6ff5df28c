/* SPDX-License-Identifier: MIT */
#include "cli/mount/mount.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include "usrbio/proto/ioctl.h"
#include "usrbio/proto/plain.h"

#define USRBIO_PATH_MAX 255 /* bytes of the mount point in struct hf3fs_iov */
#define SHM "/dev/shm"
#define SHM_LEAST MIB(16) /* bytes; below this, not even small buffers fit */
#define SHM_PROBE KIB(64)
#define NAMES_SHOWN 8u /* maximum names of links in one line */

/* --------------------------------------------------------------- directory */

/* Return true if the device is a file system whose daemon serves usrbio. */
static bool on_daemon(dev_t dev)
{
	_cleanup_(fclosep) FILE *f = fopen("/proc/self/mountinfo", "re");
	_cleanup_(freep) char *line = NULL;
	size_t size = 0;

	while (f && getline(&line, &size, f) > 0) {
		const char *type = strstr(line, " - ");
		unsigned major, minor;

		if (type && !strncmp(type + 3, USRBIO_FSTYPE " ", sizeof(USRBIO_FSTYPE)) &&
		    sscanf(line, "%*d %*d %u:%u", &major, &minor) == 2 &&
		    makedev(major, minor) == dev)
			return true;
	}
	return false;
}

/* Return true if dir is a folder named USRBIO_VIRT, or is below one. */
static bool is_inside(const char *dir)
{
	const char *p = dir;

	while ((p = strstr(p, "/" USRBIO_VIRT))) {
		p += sizeof(USRBIO_VIRT);
		if (*p == '/' || *p == '\0')
			return true;
	}
	return false;
}

int mount_dir(const char *given, char ret[PATH_MAX])
{
	struct stat st;

	if (!realpath(given, ret) || stat(ret, &st) < 0)
		return fail(errno, "%s: %s", given, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return fail(ENOTDIR, "%s is not a directory", given);
	if (is_inside(ret))
		return fail(EINVAL,
			    "%s is part of what 'penstock mount' made: give the directory "
			    "that holds " USRBIO_VIRT,
			    ret);
	if (on_daemon(st.st_dev))
		return fail(EINVAL,
			    "%s is on a 3FS mount, whose daemon serves programs already: there "
			    "is nothing to prepare or undo, start them with 'penstock run'",
			    ret);
	if (strlen(ret) > USRBIO_PATH_MAX)
		return fail(ENAMETOOLONG,
			    "%s has a name of %zu bytes, and programs that use usrbio take %d at "
			    "most: use a directory further up",
			    ret, strlen(ret), USRBIO_PATH_MAX);
	return 0;
}

/* ---------------------------------------------------------------- failures */

static struct text user_text(uid_t uid)
{
	const struct passwd *pw = getpwuid(uid);
	struct text t;

	if (pw)
		(void)snprintf(t.s, sizeof(t.s), "%s", pw->pw_name);
	else
		(void)snprintf(t.s, sizeof(t.s), "%u", uid);
	return t;
}

/* Report the folder that belongs to another user or is writable by others. */
static int fail_perm(const char *dir)
{
	static const char *const names[] = { USRBIO_VIRT, USRBIO_IOVS };
	static const mode_t forbidden[] = { 022, 077 };
	char path[PATH_MAX + sizeof(USRBIO_IOVS) + 1];
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		if (lstat(path, &st) < 0)
			continue;
		if (st.st_uid != geteuid())
			return fail(EPERM,
				    "%s belongs to user %s, whom %s serves and nobody else: take "
				    "a directory of your own",
				    path, user_text(st.st_uid).s, dir);
		if (st.st_mode & forbidden[i])
			return fail(EPERM,
				    "others have rights on %s: if none of them put anything "
				    "there, 'chmod %o' it",
				    path, st.st_mode & 0777 & ~forbidden[i]);
	}
	return fail(EPERM, "cannot make or remove %s/" USRBIO_VIRT ": %s", dir, strerror(EPERM));
}

/* Return true if another process has prepared the directory since our first check. */
static bool is_prepared(const char *dir)
{
	_cleanup_(closep) int iovs = usrbio_plain_open(dir);

	return iovs >= 0;
}

int mount_fail(int err, const char *dir)
{
	char virt[PATH_MAX + sizeof(USRBIO_VIRT) + 1];
	struct stat st;

	err = err < 0 ? -err : err;
	(void)snprintf(virt, sizeof(virt), "%s/" USRBIO_VIRT, dir);
	/* ENOENT may also mean that 3fs-virt exists but is something else. */
	if (err == ENOENT && lstat(virt, &st) == 0)
		err = EEXIST;
	if (err == EEXIST && is_prepared(dir))
		err = EAGAIN;
	switch (err) {
	case EAGAIN:
		return fail(err, "others prepare and undo %s all the time: try again", dir);
	case EPERM:
		return fail_perm(dir);
	case EEXIST:
		return fail(err,
			    "%s is there and was not made by 'penstock mount': rename it, or take "
			    "another directory",
			    virt);
	case ENOTEMPTY:
		return fail(err,
			    "%s holds more than 'penstock mount' made: move away what is not "
			    "plain or iovs",
			    virt);
	case EACCES:
		return fail(err, "you may not write to %s: take a directory of your own", dir);
	default:
		return fail(err, "cannot make or remove %s: %s", virt, strerror(err));
	}
}

/* Write a list such as "1234 (python3), 99 (fio)". */
static void list_pids(const struct usrbio_users *u, char *buf, size_t len)
{
	size_t at = 0;

	for (unsigned i = 0; i < u->nr_pids && at < len; i++) {
		char path[64], name[64] = "?";

		(void)snprintf(path, sizeof(path), "/proc/%d/comm", u->pids[i]);
		(void)read_line(path, name, sizeof(name));
		at += (size_t)snprintf(buf + at, len - at, "%s%d (%s)", i ? ", " : "", u->pids[i],
				       name);
	}
}

/* Write a list such as "a, b and 30 more". */
static void list_names(const struct usrbio_users *u, char *buf, size_t len)
{
	unsigned nr = MIN(u->others, NAMES_SHOWN);
	size_t at = 0;

	for (unsigned i = 0; i < nr && at < len; i++)
		at += (size_t)snprintf(buf + at, len - at, "%s%s", i ? ", " : "", u->other[i]);
	if (u->others > nr && at < len)
		(void)snprintf(buf + at, len - at, " and %u more", u->others - nr);
}

/* Fail because the directory has links to shared memory whose names do not contain a process: only
 * the user knows whether it is in use. */
static int fail_others(const struct usrbio_users *u, const char *dir)
{
	char names[512] = "";

	list_names(u, names, sizeof(names));
	return fail(EBUSY,
		    "%s holds %u name%s of programs that left no trace of themselves; when they "
		    "have ended, 'find %s/" USRBIO_IOVS " -type l -delete' removes what is left: "
		    "%s",
		    dir, u->others, u->others == 1 ? "" : "s", dir, names);
}

int mount_busy(const char *dir)
{
	_cleanup_(closep) int iovs = usrbio_plain_open(dir);
	struct usrbio_users u;
	char pids[512];

	if (iovs < 0 || usrbio_plain_users(iovs, &u) < 0)
		return fail(EBUSY, "%s is in use", dir);
	if (u.nr_pids) {
		list_pids(&u, pids, sizeof(pids));
		return fail(EBUSY, "%s is in use by process %s: end %s first", dir, pids,
			    u.nr_pids > 1 ? "them" : "it");
	}
	if (u.others)
		return fail_others(&u, dir);
	if (u.hidden)
		return fail(EBUSY,
			    "%s is in use by processes of another container or machine, %u "
			    "name%s: undo it there, or remove what is in %s/" USRBIO_IOVS,
			    dir, u.hidden, u.hidden > 1 ? "s" : "", dir);
	return fail(EBUSY, "a program has just used %s: try again", dir);
}

/* ----------------------------------------------------------- shared memory */

static int check_size(void)
{
	struct statvfs vfs;
	uint64_t size;

	if (statvfs(SHM, &vfs) < 0)
		return fail(errno,
			    SHM ": %s; programs have their buffers there: mount -t tmpfs "
				"-o mode=1777 shm " SHM,
			    strerror(errno));
	size = (uint64_t)vfs.f_blocks * (uint64_t)vfs.f_frsize;
	if (size && size < SHM_LEAST)
		return fail(ENOSPC,
			    SHM " has %s in all, and programs have their buffers there: "
				"mount -o remount,size=1g " SHM
				", or start the container with --shm-size=1g",
			    size_text(size).s);
	return 0;
}

struct text mount_shm_text(void)
{
	struct text t = { "" };
	struct statvfs vfs;

	/* A tmpfs without a limit has 0 blocks. */
	if (statvfs(SHM, &vfs) == 0 && vfs.f_blocks)
		(void)snprintf(t.s, sizeof(t.s), ", %s free",
			       size_text((uint64_t)vfs.f_bavail * (uint64_t)vfs.f_frsize).s);
	return t;
}

/* Create, fill and remove a little shared memory, to test whether that works. */
static int try_memory(const char *path)
{
	_cleanup_(closep) int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return fail(errno,
			    "cannot make shared memory in " SHM ": %s; it must be "
			    "writable for everybody, with mode 1777",
			    strerror(errno));
	r = posix_fallocate(fd, 0, SHM_PROBE);
	(void)unlink(path);
	if (r == ENOSPC)
		return fail(r, SHM " is full: remove what is not used, or enlarge it by "
				   "mount -o remount,size=...");
	return r ? fail(r, "cannot fill shared memory in " SHM ": %s", strerror(r)) : 0;
}

/* Create shared memory whose name contains this process's id.  Return 0, or -errno with a
 * sentence. */
static int name_memory(char *path, size_t len)
{
	char name[USRBIO_SHM_NAME_MAX];
	struct usrbio_owner self;
	uint8_t id[USRBIO_ID_LEN];
	int r = usrbio_owner_self(&self);

	if (r < 0)
		return fail(r,
			    "programs cannot be told apart by /proc (%s): mount the one of this "
			    "PID namespace, 'mount -t proc proc /proc'",
			    strerror(-r));
	r = usrbio_id_new(id);
	if (r < 0)
		return fail(r, "cannot get random bytes: %s", strerror(-r));
	usrbio_owner_shm(&self, id, name);
	(void)snprintf(path, len, USRBIO_SHM_DIR "%s", name);
	return 0;
}

int mount_check_shm(void)
{
	char path[USRBIO_SHM_NAME_MAX + sizeof(USRBIO_SHM_DIR)];
	int r = check_size();

	if (r == 0)
		r = name_memory(path, sizeof(path));
	return r < 0 ? r : try_memory(path);
}

int mount_check_links(int iovs, const char *dir)
{
	char path[USRBIO_SHM_NAME_MAX + sizeof(USRBIO_SHM_DIR)];
	int r = name_memory(path, sizeof(path));

	if (r < 0)
		return r;
	/* The link gets the memory's name, which is unique. */
	if (symlinkat(path, iovs, path + sizeof(USRBIO_SHM_DIR) - 1) < 0) {
		if (errno == ENOENT)
			return -ENOENT;
		return fail(errno, "cannot make a symbolic link in %s/" USRBIO_IOVS ": %s%s", dir,
			    strerror(errno),
			    errno == EPERM ? "; take a directory on a file system that has them"
					   : "");
	}
	(void)unlinkat(iovs, path + sizeof(USRBIO_SHM_DIR) - 1, 0);
	return 0;
}
