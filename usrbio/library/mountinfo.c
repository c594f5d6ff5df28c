/* SPDX-License-Identifier: MIT */
/*
 * Find the mount point above a path in /proc/self/mountinfo, proc(5):
 *
 * 36 35 98:0 /root /mount\040point rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue
 *
 * Any number of fields may stand between the sixth and the dash.  Spaces, tabs, newlines and
 * backslashes in names are written as a backslash and three octal digits.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <hf3fs_usrbio.h>
#include "keep.h"
#include "log.h"
#include "mount.h"
#include "usrbio/proto/ioctl.h"
#include "usrbio/proto/plain.h"

static bool any_type;

static void mountinfo_read_environment(void)
{
	const char *word = secure_getenv("HF3FS_USRBIO_DONT_CHECKFS_FOR_MP");

	any_type = word && !strcasecmp(word, "yes");
	if (word && *word && !any_type && strcasecmp(word, "no") != 0)
		log_line(LOG_WARN,
			 "HF3FS_USRBIO_DONT_CHECKFS_FOR_MP is '%s', which is neither yes nor no; "
			 "no is taken",
			 word);
}

bool mount_any_type(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, mountinfo_read_environment);
	return any_type;
}

/* Return true if a path lies at or below a directory.  Both are canonical. */
static bool mountinfo_beneath(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	if (!strcmp(dir, "/"))
		return true;
	return !strncmp(path, dir, len) && (path[len] == '/' || path[len] == '\0');
}

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* Unescape a name in place. */
static void mountinfo_unescape(char *s)
{
	char *to = s;

	while (*s) {
		if (s[0] == '\\' && is_octal(s[1]) && is_octal(s[2]) && is_octal(s[3])) {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = '\0';
}

/* Split a line: find mount point and type.  Return false for a line of another form. */
static bool mountinfo_split(char *line, char **ret_mount, char **ret_type)
{
	char *dash = strstr(line, " - "), *save, *field = NULL;

	if (!dash)
		return false;
	*dash = '\0';
	field = strtok_r(line, " ", &save);
	for (int i = 0; field && i < 4; i++)
		field = strtok_r(NULL, " ", &save);
	*ret_type = strtok_r(dash + 3, " ", &save);
	if (!field || !*ret_type)
		return false;
	mountinfo_unescape(field);
	*ret_mount = field;
	return true;
}

/*
 * Return true for a mount point that serves this path.  If 3fs-virt is mounted separately from the
 * directories of the file system, its parent counts as the mount point.
 */
static bool is_candidate(char *mount, const char *path)
{
	char virt[PATH_MAX + sizeof("/" USRBIO_VIRT)];
	char *slash = strrchr(mount, '/');
	struct stat st;

	if (slash && !strcmp(slash + 1, USRBIO_VIRT)) {
		slash[slash == mount ? 1 : 0] = '\0';
		return mountinfo_beneath(path, mount);
	}
	if (!mountinfo_beneath(path, mount))
		return false;
	(void)snprintf(virt, sizeof(virt), "%s/" USRBIO_VIRT, strcmp(mount, "/") ? mount : "");
	return stat(virt, &st) == 0;
}

/* Keep the deeper directory. */
static void deeper(char best[PATH_MAX], const char *dir)
{
	if (strlen(dir) > strlen(best))
		(void)snprintf(best, PATH_MAX, "%s", dir);
}

static int find_mounted(const char *path, char best[PATH_MAX])
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *mount, *type;
	_cleanup_(freep) char *line = NULL;
	size_t room = 0;

	if (!f)
		return log_fail(errno, "cannot read /proc/self/mountinfo: %m");
	while (getline(&line, &room, f) > 0)
		if (mountinfo_split(line, &mount, &type) &&
		    (mount_any_type() || !strcmp(type, USRBIO_FSTYPE)) && is_candidate(mount, path))
			deeper(best, mount);
	(void)fclose(f);
	return 0;
}

/* Read the user of a line: "36 35 0:52 ... - fuse.hf3fs SOURCE rw,user_id=1000,group_id=1000". */
static bool read_user(char *line, dev_t dev, uid_t *ret)
{
	char *dash = strstr(line, " - "), *save, *options;
	unsigned major, minor;

	if (!dash || sscanf(line, "%*d %*d %u:%u", &major, &minor) != 2 ||
	    makedev(major, minor) != dev || !strtok_r(dash + 3, " ", &save) ||
	    !strtok_r(NULL, " ", &save))
		return false;
	options = strtok_r(NULL, " ", &save);
	options = options ? strstr(options, ",user_id=") : NULL;
	return options && sscanf(options, ",user_id=%u", ret) == 1;
}

uid_t mount_user(dev_t dev)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	_cleanup_(freep) char *line = NULL;
	size_t room = 0;
	uid_t user = 0;

	while (f && getline(&line, &room, f) > 0 && !read_user(line, dev, &user))
		;
	if (f)
		(void)fclose(f);
	return user;
}

/* Find the mount point above a path.  Return 0 or -errno. */
static int mountinfo_find(const char *path, char ret[PATH_MAX])
{
	char real[PATH_MAX], plain[PATH_MAX];
	int r;

	if (!path || !*path)
		return -EINVAL;
	if (!realpath(path, real))
		return -errno;
	ret[0] = '\0';
	r = find_mounted(real, ret);
	if (r < 0)
		return r;
	r = usrbio_plain_find(real, plain);
	if (r == 0)
		deeper(ret, plain);
	if (r == -EPERM && !ret[0])
		return mount_refuse(plain);
	return ret[0] ? 0 : -ENODEV;
}

/*
 * Log a missing mount point, because programs usually exit without an error text.  Log it once:
 * some programs try many paths.
 */
static void tell_none(const char *path)
{
	static _Atomic bool told;

	log_line(atomic_exchange(&told, true) ? LOG_DEBUG : LOG_WARN,
		 "%s is on no mount of 3FS and in no plain directory; 'penstock mount --plain DIR' "
		 "prepares one",
		 path);
}

int hf3fs_extract_mount_point(char *hf3fs_mount_point, int size, const char *path)
{
	int saved = errno;
	char best[PATH_MAX];
	size_t len;
	int r = mountinfo_find(path, best);

	if (r < 0) {
		if (r == -ENODEV)
			tell_none(path);
		else
			log_line(LOG_DEBUG, "no mount point of 3FS above %s: %s",
				 path ? path : "NULL", strerror(-r));
		errno = -r;
		return -1;
	}
	len = strlen(best) + 1;
	if (hf3fs_mount_point && size > 0 && len <= (size_t)size)
		memcpy(hf3fs_mount_point, best, len);
	errno = saved;
	return (int)len;
}
