/* SPDX-License-Identifier: MIT */
/*
 * usrbio-foreign-daemon BACKING MOUNTPOINT [--OPTION VALUE]...
 *
 * Mounts BACKING on MOUNTPOINT as 3FS's daemon mounts a cluster, prints "ready" and serves files
 * and rings until it is unmounted or gets SIGTERM.
 *
 * --name NAME		name of the mount (foreign)
 * --chunk BYTES		chunk size of files (1048576)
 * --max-iovs N		most links (1048576)
 * --slow MS		shortest duration of each request
 * --die-after N		call _exit() after that many requests
 * --readonly 1		writes through rings give EROFS
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "foreign_daemon.h"

#define CACHE_S 5.0 /* cache time of the kernel for names and attributes of files, s */

struct options options = { .name = "foreign", .chunk = 1 << 20, .max_iovs = 1 << 20 };

static struct {
	const char *backing, *mountpoint;
} paths;

/* ------------------------------------------------------------ virtual links */

static const char *const sem_names[NR_PRIOS] = {
	[PRIO_HIGH] = "submit-ios.ph",
	[PRIO_NORMAL] = "submit-ios",
	[PRIO_LOW] = "submit-ios.pl",
};

static void sem_link(enum prio prio, struct vfs_link *l)
{
	*l = (struct vfs_link){ .ino = INO_SEM(prio), .mode = 0666, .timeout = CACHE_S };
	l->uid = geteuid();
	l->gid = getegid();
	l->size = strlen(executor_target(prio));
}

/* Return the priority whose semaphore has that name, or -1. */
static int sem_by_name(const char *name)
{
	for (int i = 0; i < NR_PRIOS; i++)
		if (strcmp(name, sem_names[i]) == 0)
			return i;
	return -1;
}

static int sem_by_ino(uint64_t ino)
{
	for (int i = 0; i < NR_PRIOS; i++)
		if (ino == INO_SEM(i))
			return i;
	return -1;
}

/* Fill in a link and drop its reference.  No caching by the kernel: only the owner may see the
 * link. */
static int iov_link(struct iov *iov, const struct vfs_caller *who, struct vfs_link *l)
{
	int r = 0;

	if (!iov)
		return -ENOENT;
	if (iov->creator.uid != who->uid)
		r = -EPERM;
	else
		*l = (struct vfs_link){ .ino = iov->ino,
					.generation = iov->generation,
					.mode = 0400,
					.uid = iov->creator.uid,
					.gid = iov->creator.gid,
					.size = strlen(iov->target) };
	iov_unref(iov);
	return r;
}

static int on_lookup(void *owner, const struct vfs_caller *who, const char *name,
		     struct vfs_link *ret_link)
{
	int prio = sem_by_name(name);

	(void)owner;
	if (prio < 0)
		return iov_link(iov_find_name(name), who, ret_link);
	sem_link((enum prio)prio, ret_link);
	return 0;
}

static int on_getattr(void *owner, const struct vfs_caller *who, uint64_t ino,
		      struct vfs_link *ret_link)
{
	int prio = sem_by_ino(ino);

	(void)owner;
	if (prio < 0)
		return iov_link(iov_find_ino(ino), who, ret_link);
	sem_link((enum prio)prio, ret_link);
	return 0;
}

static int on_readlink(void *owner, const struct vfs_caller *who, uint64_t ino, char *buf,
		       size_t size)
{
	int prio = sem_by_ino(ino), r = 0;
	struct iov *iov;

	(void)owner;
	if (prio >= 0) {
		(void)snprintf(buf, size, "%s", executor_target((enum prio)prio));
		return 0;
	}
	iov = iov_find_ino(ino);
	if (!iov)
		return -ENOENT;
	if (iov->creator.uid == who->uid)
		(void)snprintf(buf, size, "%s", iov->target);
	else
		r = -EPERM;
	iov_unref(iov);
	return r;
}

static int on_symlink(void *owner, const struct vfs_caller *who, const char *target,
		      const char *name, struct vfs_link *ret_link)
{
	struct iov *iov;
	int r = iov_publish(name, target, who, &iov);

	(void)owner;
	return r < 0 ? r : iov_link(iov, who, ret_link);
}

static int on_unlink(void *owner, const struct vfs_caller *who, const char *name)
{
	(void)owner;
	return sem_by_name(name) >= 0 ? -EPERM : iov_unpublish(name, who->uid);
}

struct listing {
	struct vfs_list *list;
	uid_t uid;
};

static int list_one(struct iov *iov, void *arg)
{
	struct listing *l = arg;

	return iov->creator.uid == l->uid ? vfs_list_add(l->list, iov->name, iov->ino, S_IFLNK) : 0;
}

static int on_list(void *owner, const struct vfs_caller *who, uint64_t id, struct vfs_list *list)
{
	struct listing l = { .list = list, .uid = who->uid };
	int r = 0;

	(void)owner;
	(void)id;
	for (int i = 0; r == 0 && i < NR_PRIOS; i++)
		r = vfs_list_add(list, sem_names[i], INO_SEM(i), S_IFLNK);
	return r < 0 ? r : iov_each(list_one, &l);
}

/*
 * Remove the links of a client that ended, noticed when its descriptor of the directory closes.  As
 * in 3FS's daemon, this also removes links of a thread that only listed the directory, but not its
 * other threads'.
 */
static void on_releasedir(void *owner, const struct vfs_caller *opener, uint64_t id)
{
	(void)owner;
	(void)id;
	iov_unpublish_of(opener->tid);
}

/* ------------------------------------------------------------------ ioctls */

static int answer_u32(uint32_t value, void *out)
{
	memcpy(out, &value, sizeof(value));
	return 0;
}

/* Make another name of a file in a directory; checks no rights. */
static int hardlink(const struct vfs_file *file, const struct wire_hardlink *to)
{
	char from[40];
	int r, dir;

	if (file->fd < 0)
		return -EPERM;
	if (!memchr(to->name, '\0', sizeof(to->name)))
		return -ENAMETOOLONG;
	dir = vfs_reopen(exec_vfs, to->parent, O_PATH | O_DIRECTORY);
	if (dir < 0)
		return dir;
	(void)snprintf(from, sizeof(from), "/proc/self/fd/%d", file->fd);
	r = linkat(AT_FDCWD, from, dir, to->name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
	(void)close(dir);
	return r < 0 ? r : vfs_invalidate(exec_vfs, file->ino, 0, 0);
}

static int punch(const struct vfs_file *file, const struct wire_holes *holes)
{
	if (file->fd < 0 || holes->n < 0 || holes->n > WIRE_MAX_HOLES)
		return -EINVAL;
	for (int i = 0; i < holes->n; i++)
		if (holes->start[i] % options.chunk || holes->end[i] % options.chunk ||
		    holes->start[i] >= holes->end[i] || holes->end[i] > INT64_MAX)
			return -EINVAL;
	for (int i = 0; i < holes->n; i++)
		if (fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			      (off_t)holes->start[i], (off_t)(holes->end[i] - holes->start[i])) < 0)
			return -errno;
	return vfs_invalidate(exec_vfs, file->ino, 0, 0);
}

static int on_ioctl(void *owner, const struct vfs_caller *who, const struct vfs_file *file,
		    unsigned cmd, const void *in, size_t in_len, void *out, size_t out_len)
{
	(void)owner;
	(void)who;
	(void)in_len; /* the ioctl's number determines the length */
	switch (cmd) {
	case WIRE_GET_MOUNT_NAME:
		(void)snprintf(out, out_len, "%s", options.name);
		return 0;
	case WIRE_GET_PATH_OFFSET:
		return answer_u32((uint32_t)strlen(paths.mountpoint), out);
	case WIRE_GET_MAGIC:
		return answer_u32(WIRE_MAGIC, out);
	case WIRE_GET_VERSION:
		return answer_u32(WIRE_VERSION, out);
	case WIRE_FSYNC:
		if (file->fd >= 0 && fsync(file->fd) < 0)
			return -errno;
		return vfs_invalidate(exec_vfs, file->ino, 0, 0);
	case WIRE_HARDLINK:
		return hardlink(file, in);
	case WIRE_PUNCH_HOLE:
		return punch(file, in);
	default:
		return -ENOTTY;
	}
}

static const struct vfs_ops ops = {
	.lookup = on_lookup,
	.getattr = on_getattr,
	.readlink = on_readlink,
	.symlink = on_symlink,
	.unlink = on_unlink,
	.list = on_list,
	.releasedir = on_releasedir,
	.ioctl = on_ioctl,
};

/* ------------------------------------------------------------------ options */

static bool parse_u64(const char *s, uint64_t min, uint64_t *ret)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(s, &end, 10);
	if (errno || end == s || *end || *s == '-' || n < min)
		return false;
	*ret = n;
	return true;
}

static bool parse_options(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "name", required_argument, NULL, 'n' },
		{ "chunk", required_argument, NULL, 'c' },
		{ "max-iovs", required_argument, NULL, 'i' },
		{ "slow", required_argument, NULL, 's' },
		{ "die-after", required_argument, NULL, 'd' },
		{ "readonly", required_argument, NULL, 'r' },
		{ NULL, 0, NULL, 0 },
	};
	uint64_t readonly = 0;
	bool ok = true;
	int c;

	while (ok && (c = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
		switch (c) {
		case 'n':
			options.name = optarg;
			break;
		case 'c':
			ok = parse_u64(optarg, 4096, &options.chunk);
			break;
		case 'i':
			ok = parse_u64(optarg, 1, &options.max_iovs);
			break;
		case 's':
			ok = parse_u64(optarg, 0, &options.slow_ms);
			break;
		case 'd':
			ok = parse_u64(optarg, 1, &options.die_after);
			break;
		case 'r':
			ok = parse_u64(optarg, 0, &readonly);
			break;
		default:
			ok = false;
		}
	}
	options.readonly = readonly;
	if (!ok || argc - optind != 2)
		return false;
	paths.backing = argv[optind];
	paths.mountpoint = argv[optind + 1];
	return true;
}

static int serve(void)
{
	const struct vfs_config config = {
		.backing = paths.backing,
		.mountpoint = paths.mountpoint,
		.fsname = "foreign",
		.subtype = "hf3fs",
		.outer = "3fs-virt",
		.inner = "iovs",
		.outer_ino = INO_OUTER,
		.inner_ino = INO_IOVS,
		.outer_mode = 0555,
		.inner_mode = 0777,
		.timeout = CACHE_S,
	};
	int r = vfs_mount(&config, &ops, NULL, &exec_vfs);

	if (r < 0)
		return r;
	r = executors_start();
	if (r < 0) {
		executors_unlink();
	} else {
		(void)printf("ready\n");
		(void)fflush(stdout);
		r = vfs_serve(exec_vfs);
		executors_stop();
	}
	iov_unpublish_all();
	exec_vfs = vfs_free(exec_vfs);
	return r;
}

int main(int argc, char **argv)
{
	int r;

	if (!parse_options(argc, argv)) {
		(void)fprintf(stderr, "usage: usrbio-foreign-daemon BACKING MOUNTPOINT "
				      "[--name NAME] [--chunk BYTES] [--max-iovs N] [--slow MS] "
				      "[--die-after N] [--readonly 1]\n");
		return 2;
	}
	r = serve();
	if (r < 0) {
		(void)fprintf(stderr, "usrbio-foreign-daemon: %s on %s: %s\n", paths.backing,
			      paths.mountpoint, strerror(-r));
		return 1;
	}
	return 0;
}
