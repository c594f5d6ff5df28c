/* SPDX-License-Identifier: MIT */
/*
 * Temporary names of incomplete files: DST.penstock-BBBBBBBBBBBBRRRRRRRR in the target's directory,
 * where B are digits of the kernel's boot id and R random digits.
 *
 * A command keeps its file locked while it writes, so an unlocked file was left by a killed
 * command.  Other machines' locks are not always visible, so only files with this kernel's boot id
 * are removed, and none if /proc does not tell the boot id.
 */
#include "tools/common/temp.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "tools/common/util.h"

enum {
	BOOT_DIGITS = 12,
	RANDOM_DIGITS = 8,
	STEM_MAX = NAME_MAX - BOOT_DIGITS - RANDOM_DIGITS - 10, /* ".penstock-" */
};

/* Return false if the kernel's boot id is unknown. */
static bool boot_digits(char ret[static BOOT_DIGITS + 1])
{
	_cleanup_(closep) int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	char text[40];
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text)) : 0;
	size_t len = 0;

	for (ssize_t i = 0; i < n && len < BOOT_DIGITS; i++)
		if (isxdigit((unsigned char)text[i]))
			ret[len++] = text[i];
	ret[len] = '\0';
	return len == BOOT_DIGITS;
}

int temp_name(const char *base, char **ret_name)
{
	uint32_t random[2] = { 0 };
	char boot[BOOT_DIGITS + 1];

	if (getrandom(random, sizeof(random), 0) < 0)
		random[0] = (uint32_t)now_ns();
	if (!boot_digits(boot))
		(void)snprintf(boot, sizeof(boot), "%012x", random[1]);
	if (asprintf(ret_name, "%.*s.penstock-%s%08x", STEM_MAX, base, boot, random[0]) < 0)
		return fail(ENOMEM, "out of memory");
	return 0;
}

bool temp_lock(int dir_fd, const char *name, int fd)
{
	struct stat st;

	if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		return false;
	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void remove_dead(int dir_fd, const char *name)
{
	_cleanup_(closep) int fd =
		openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0)
		(void)unlinkat(dir_fd, name, 0);
}

void temp_clear(int dir_fd, const char *base)
{
	_cleanup_(freep) char *prefix = NULL;
	char boot[BOOT_DIGITS + 1];
	struct dirent *e;
	size_t len;
	DIR *d;
	int fd;

	if (!boot_digits(boot))
		return;
	if (asprintf(&prefix, "%.*s.penstock-%s", STEM_MAX, base, boot) < 0) {
		prefix = NULL;
		return;
	}
	fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fd >= 0 ? fdopendir(fd) : NULL;
	if (!d) {
		closep(&fd);
		return;
	}
	len = strlen(prefix);
	while ((e = readdir(d)))
		if (strncmp(e->d_name, prefix, len) == 0 &&
		    strlen(e->d_name) == len + RANDOM_DIGITS &&
		    strspn(e->d_name + len, "0123456789abcdef") == RANDOM_DIGITS)
			remove_dead(dir_fd, e->d_name);
	(void)closedir(d);
}
