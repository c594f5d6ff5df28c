/* SPDX-License-Identifier: MIT */
/*
 * Read files that the kernel, or a container's maker, has put below a root.  Never blocks: only
 * regular files are read.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "gds/facts/internal.h"

#define LINE_MAX_LEN 8192
#define FILE_MAX_LEN MIB(64)

struct gds_path gds_path(const char *root, const char *fmt, ...)
{
	struct gds_path p;
	int n = snprintf(p.s, sizeof(p.s), "%s", root);
	va_list ap;

	if (n >= 0 && n < (int)sizeof(p.s)) {
		va_start(ap, fmt);
		n += vsnprintf(p.s + n, sizeof(p.s) - (size_t)n, fmt, ap);
		va_end(ap);
	}
	if (n < 0 || n >= (int)sizeof(p.s))
		p.s[0] = '\0';
	return p;
}

bool gds_exists(const struct gds_path *p)
{
	return access(p->s, F_OK) == 0;
}

/* Return a descriptor or -errno. */
static int open_regular(const struct gds_path *p)
{
	_cleanup_(closep) int fd = open(p->s, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? TAKE_FD(fd) : -EINVAL;
}

ssize_t gds_read(const struct gds_path *p, void *buf, size_t len)
{
	_cleanup_(closep) int fd = open_regular(p);
	size_t got = 0;
	ssize_t n;

	if (fd < 0)
		return fd;
	while (got < len && (n = read(fd, (char *)buf + got, len - got)) != 0) {
		if (n < 0)
			return -errno;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

int gds_line(const struct gds_path *p, char *buf, size_t len)
{
	ssize_t n = gds_read(p, buf, len - 1);

	buf[MAX(n, 0)] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return n < 0 ? (int)n : 0;
}

void gds_copy(char *buf, size_t len, const char *text)
{
	(void)snprintf(buf, len, "%s", text);
}

static void facts_fclosep(FILE **f)
{
	if (*f)
		(void)fclose(*f);
}

int gds_each_line(const struct gds_path *p, bool (*fn)(char *line, void *arg), void *arg)
{
	_cleanup_(closep) int fd = open_regular(p);
	_cleanup_(facts_fclosep) FILE *file = NULL;
	char line[LINE_MAX_LEN];
	bool within = false; /* skipping the rest of an overlong line */
	uint64_t total = 0;

	if (fd < 0)
		return fd;
	file = fdopen(fd, "r");
	if (!file)
		return -errno;
	fd = -1;
	while (total < FILE_MAX_LEN && fgets(line, sizeof(line), file)) {
		size_t len = strlen(line);
		bool whole = len && line[len - 1] == '\n', skip = within;

		total += MAX(len, 1u);
		within = !whole && len == sizeof(line) - 1;
		if (skip || within)
			continue;
		line[len - whole] = '\0';
		if (fn(line, arg))
			return 1;
	}
	return ferror(file) ? -EIO : 0;
}

int gds_real(const char *root, const struct gds_path *p, char ret[GDS_PATH_MAX])
{
	char base[PATH_MAX], to[PATH_MAX];
	size_t len = 0;

	if (*root && !realpath(root, base))
		return -errno;
	if (*root)
		len = strlen(base);
	if (!realpath(p->s, to))
		return -errno;
	if ((len && strncmp(to, base, len) != 0) || strncmp(to + len, "/sys/", 5) != 0)
		return -EXDEV;
	if (strlen(to + len) >= GDS_PATH_MAX)
		return -ENAMETOOLONG;
	gds_copy(ret, GDS_PATH_MAX, to + len);
	return 0;
}
