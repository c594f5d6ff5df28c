/* SPDX-License-Identifier: MIT */
#include "cli/mount/daemon.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "cli/mount/source.h"
#include "tools/common/util.h"
#include "usrbio/proto/ioctl.h"
#include "usrbio/proto/place.h"

#define PROGRAM "penstock-mount"

/* Folders relative to that of the command: installed, in a bundle, in a build. */
static const char *const places[] = { "../libexec/penstock", "../usrbio/mount" };

static int daemon_find_program(char ret[PATH_MAX])
{
	char self[PATH_MAX], path[2 * PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0)
		return fail(errno, "/proc/self/exe: %s", strerror(errno));
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s/" PROGRAM, self, places[i]);
		if (realpath(path, ret) && access(ret, X_OK) == 0)
			return 0;
	}
	return fail(ENOENT,
		    PROGRAM " is neither in %s/%s nor in %s/%s: build or install Penstock where "
			    "libfuse3 (Debian: libfuse3-dev) is",
		    self, places[0], self, places[1]);
}

static int check_fuse(void)
{
	_cleanup_(closep) int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return 0;
	if (errno == ENOENT || errno == ENODEV || errno == ENXIO)
		return fail(errno, "there is no /dev/fuse: 'modprobe fuse', or start the container "
				   "with --device /dev/fuse");
	return fail(errno, "/dev/fuse: %s; root may open it, and others where its mode is 0666%s",
		    strerror(errno),
		    geteuid() == 0 ? ": start the container with --device /dev/fuse and "
				     "--cap-add SYS_ADMIN"
				   : "");
}

static int daemon_check_dir(const char *given, char ret[PATH_MAX])
{
	struct stat st;

	if (!realpath(given, ret) || stat(ret, &st) < 0)
		return fail(errno, "%s: %s", given, strerror(errno));
	return S_ISDIR(st.st_mode) ? 0 : fail(ENOTDIR, "%s is not a directory", given);
}

/* Print a note if the directory has files, which the mount will hide. */
static void say_if_not_empty(const char *dir)
{
	DIR *d = opendir(dir);
	const struct dirent *e;
	bool any = false;

	while (d && (e = readdir(d)))
		any |= strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	if (d)
		(void)closedir(d);
	if (any)
		(void)fprintf(stderr,
			      "penstock: %s is not empty: what is in it is hidden until 'penstock "
			      "umount'\n",
			      dir);
}

/*
 * Make a path absolute, because the server has another working directory.  "none" and addresses
 * stay unchanged.
 */
static int whole_path(const char *given, char ret[PATH_MAX])
{
	char here[PATH_MAX] = "";
	struct sockaddr_storage a;
	bool whole = !given || *given == '/' || !strcmp(given, "none") ||
		     usrbio_place_tcp(given, &a) > 0;

	if (!whole && !getcwd(here, sizeof(here)))
		return fail(errno, "the current folder: %s", strerror(errno));
	if (snprintf(ret, PATH_MAX, "%s%s%s", here, whole ? "" : "/", given ? given : "") >=
	    PATH_MAX)
		return fail(ENAMETOOLONG, "%s: %s", given, strerror(ENAMETOOLONG));
	return 0;
}

/* Sources that the server opens itself, and the options that they exclude. */
static const struct {
	const char *scheme;
	bool no_ro, no_noatime;
	const char *why;
} sources[] = {
	{ "tier:", true, true, "sets of tiers, which files move in" },
	{ "pst://", false, true, "storage services, which decide that themselves" },
	{ "psts://", false, true, "storage services, which decide that themselves" },
	{ "pst+unix://", false, true, "storage services, which decide that themselves" },
};

/* Return a source's index in sources; the array's size for a directory. */
static size_t source_index(const char *source)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(sources) &&
	       strncmp(source, sources[i].scheme, strlen(sources[i].scheme)) != 0)
		i++;
	return i;
}

/* Reject options that need a server run by root, if the user is not root. */
static int check_user(const struct daemon_opts *o)
{
	if (geteuid() == 0)
		return 0;
	if (o->allow_other)
		return fail(EPERM, "--allow-other: only a server of root's acts with the rights of "
				   "each user; mount it as root");
	if ((o->read_only || o->no_atime) && source_index(o->source) == ARRAY_SIZE(sources))
		return fail(EPERM, "-o %s takes a server of root's; mount it as root",
			    o->read_only ? "ro" : "noatime");
	return 0;
}

/* Check the source: a directory, or a source that the server opens itself. */
static int daemon_check_source(const struct daemon_opts *o, char ret[PATH_MAX])
{
	size_t i = source_index(o->source);

	if (i == ARRAY_SIZE(sources))
		return source_check(o->source, ret);
	if ((o->read_only && sources[i].no_ro) || (o->no_atime && sources[i].no_noatime))
		return fail(EOPNOTSUPP, "-o %s is not for %s",
			    o->no_atime && sources[i].no_noatime ? "noatime" : "ro",
			    sources[i].why);
	if (strlen(o->source) >= PATH_MAX)
		return fail(ENAMETOOLONG, "%s is too long for a source", o->source);
	(void)strcpy(ret, o->source);
	return 0;
}

int daemon_start(const char *given, const struct daemon_opts *o)
{
	char path[PATH_MAX], dir[PATH_MAX], source[PATH_MAX], metrics[PATH_MAX], text[7][32];
	const char *argv[24];
	union {
		const char *const *from;
		char *const *to; /* argv for exec, which does not modify it */
	} args = { argv };
	unsigned nr_texts;
	int n = 0, r = check_user(o);

	if (r == 0)
		r = daemon_find(given, dir);
	if (r > 0)
		return fail(EBUSY, "%s serves already; 'penstock umount %s' ends that", dir, dir);
	if (r == 0)
		r = daemon_check_dir(given, dir);
	if (r == 0)
		r = daemon_check_source(o, source);
	if (r == 0)
		r = whole_path(o->metrics, metrics);
	if (r == 0)
		r = check_fuse();
	if (r == 0)
		r = daemon_find_program(path);
	if (r < 0)
		return r;
	say_if_not_empty(dir);
	(void)snprintf(text[0], sizeof(text[0]), "--timeout=%" PRIu64, o->timeout_s);
	(void)snprintf(text[1], sizeof(text[1]), "--links=%" PRIu64, o->links);
	(void)snprintf(text[2], sizeof(text[2]), "--rings=%" PRIu64, o->rings);
	(void)snprintf(text[3], sizeof(text[3]), "--memory=%" PRIu64, o->memory);
	(void)snprintf(text[4], sizeof(text[4]), "--users=%" PRIu64, o->users);
	nr_texts = 5;
	if (o->uid != DAEMON_SELF)
		(void)snprintf(text[nr_texts++], sizeof(text[0]), "--uid=%" PRIu64, o->uid);
	if (o->gid != DAEMON_SELF)
		(void)snprintf(text[nr_texts++], sizeof(text[0]), "--gid=%" PRIu64, o->gid);
	argv[n++] = PROGRAM;
	if (o->foreground)
		argv[n++] = "--foreground";
	if (o->kernel_cache)
		argv[n++] = "--kernel-cache";
	if (o->read_only)
		argv[n++] = "--read-only";
	if (o->no_atime)
		argv[n++] = "--no-atime";
	if (o->no_exec)
		argv[n++] = "--no-exec";
	for (unsigned i = 0; i < nr_texts; i++)
		argv[n++] = text[i];
	if (o->metrics) {
		argv[n++] = "--metrics";
		argv[n++] = metrics;
	}
	argv[n++] = "--source";
	argv[n++] = source;
	argv[n++] = "--";
	argv[n++] = dir;
	argv[n] = NULL;
	(void)execv(path, args.to);
	return fail(errno, "%s: %s", path, strerror(errno));
}

/* ------------------------------------------------------------------- umount */

/* Return the canonical path of a mount point.  Do not access the mount point itself, because its
 * server may be dead. */
static int daemon_resolve(const char *given, char ret[PATH_MAX])
{
	char parent[PATH_MAX], name[PATH_MAX], dir[PATH_MAX];
	size_t len;

	if (realpath(given, ret))
		return 0;
	if (errno != ENOTCONN && errno != ECONNABORTED && errno != EIO)
		return fail(errno, "%s: %s", given, strerror(errno));
	if (strlen(given) >= sizeof(parent))
		return fail(ENAMETOOLONG, "%s: %s", given, strerror(ENAMETOOLONG));
	(void)strcpy(parent, given);
	(void)strcpy(name, given);
	if (!realpath(dirname(parent), dir))
		return fail(errno, "%s: %s", given, strerror(errno));
	len = (size_t)snprintf(ret, PATH_MAX, "%s/%s", strcmp(dir, "/") ? dir : "", basename(name));
	return len < PATH_MAX ? 0 : fail(ENAMETOOLONG, "%s: %s", given, strerror(ENAMETOOLONG));
}

/* Decode mountinfo's escapes, such as \040 for a space. */
static void daemon_decode(char *s)
{
	char *to = s;

	for (; *s; s++, to++) {
		unsigned c;

		if (s[0] == '\\' && sscanf(s + 1, "%3o", &c) == 1) {
			*to = (char)c;
			s += 3;
		} else {
			*to = *s;
		}
	}
	*to = '\0';
}

/* Return true if the last mount at that path has our file system type. */
static bool is_mounted(const char *dir)
{
	_cleanup_(fclosep) FILE *f = fopen("/proc/self/mountinfo", "re");
	_cleanup_(freep) char *line = NULL;
	bool ret = false;
	size_t size = 0;

	while (f && getline(&line, &size, f) > 0) {
		const char *type = strstr(line, " - ");
		char at[PATH_MAX];

		if (!type || sscanf(line, "%*d %*d %*s %*s %4095s", at) != 1)
			continue;
		daemon_decode(at);
		if (strcmp(at, dir) == 0)
			ret = !strncmp(type + 3, USRBIO_FSTYPE " ", sizeof(USRBIO_FSTYPE));
	}
	return ret;
}

/* Return true for a mount of Penstock: its server confirms it, or the server is dead. */
static bool daemon_is_ours(const char *dir)
{
	_cleanup_(closep) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char name[32] = "";

	if (fd < 0)
		return errno == ENOTCONN || errno == ECONNABORTED;
	return ioctl(fd, USRBIO_IOC_MOUNT_NAME, name) == 0 &&
	       !strncmp(name, "penstock", sizeof(name));
}

int daemon_find(const char *given, char ret[PATH_MAX])
{
	int r = daemon_resolve(given, ret);

	return r < 0 ? r : is_mounted(ret) && daemon_is_ours(ret);
}

static int unmount_as_user(const char *dir)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		(void)execlp("fusermount3", "fusermount3", "-u", "--", dir, (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -errno;
	if (!WIFEXITED(status) || WEXITSTATUS(status) == 127)
		return -ENOENT;
	return WEXITSTATUS(status) ? -EPERM : 0;
}

int daemon_stop(const char *dir)
{
	int r;

	if (geteuid() != 0) {
		r = unmount_as_user(dir);
		if (r == -ENOENT)
			return fail(ENOENT,
				    "fusermount3 is missing (Debian: fuse3), by which who is "
				    "not root unmounts");
		return r < 0 ? fail(-r, "fusermount3 did not unmount %s", dir) : 0;
	}
	if (umount2(dir, 0) == 0)
		return 0;
	if (errno == EBUSY)
		return fail(EBUSY,
			    "programs use %s: 'fuser -vm %s' names them; 'umount -l %s' takes it "
			    "away from new ones",
			    dir, dir, dir);
	return fail(errno, "%s: %s", dir, strerror(errno));
}
