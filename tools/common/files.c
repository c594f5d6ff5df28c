/* SPDX-License-Identifier: MIT */
#include "tools/common/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/scheme.h"
#include "tools/common/fail.h"

bool names_service(const char *name)
{
	return scheme_len(name);
}

bool names_object(const char *name)
{
	static const char *const schemes[] = { "s3://", "rados://", "https://", "http://" };

	for (size_t i = 0; i < sizeof(schemes) / sizeof(*schemes); i++)
		if (strncmp(name, schemes[i], strlen(schemes[i])) == 0)
			return true;
	return false;
}

char *shown_name(const char *name)
{
	return strndup(name, (size_t)scheme_shown_len(name));
}

int check_path(const char *name)
{
	if (!names_service(name))
		return 0;
	return fail(EPROTONOSUPPORT,
		    "%.*s names a file of a service, and this command takes paths; a path that is "
		    "called so is given as ./%.*s",
		    scheme_shown_len(name), name, scheme_shown_len(name), name);
}

int fail_open(const char *path)
{
	int err = errno;
	char to[PATH_MAX];
	ssize_t n = err == ENOENT ? readlink(path, to, sizeof(to)) : -1;

	if (n > 0)
		return fail(err,
			    "cannot open %s: it is a symbolic link to %.*s, where no file is; "
			    "restore that file or download it again",
			    path, (int)n, to);
	return fail(err, "cannot open %s: %s", path, strerror(err));
}

int scratch_dir(const char *dir, char **ret_path)
{
	const char *places[] = { dir, getenv("TMPDIR"), "/var/tmp", "." };
	int r = -ENOENT;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		_cleanup_(freep) char *path = NULL;

		if (!places[i] || !*places[i])
			continue;
		if (asprintf(&path, "%s/penstock-XXXXXX", places[i]) < 0)
			return fail(ENOMEM, "out of memory");
		if (mkdtemp(path)) {
			*ret_path = TAKE_PTR(path);
			return 0;
		}
		r = fail(errno, "cannot make a directory in %s: %s; name another with --dir",
			 places[i], strerror(errno));
		if (dir)
			break;
	}
	return r;
}

void scratch_remove(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;

	if (!d)
		return;
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			(void)unlinkat(dirfd(d), e->d_name, 0);
	(void)closedir(d);
	(void)rmdir(path);
}

int write_all(int fd, const void *buf, size_t len, const char *name)
{
	const char *p = buf;

	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR && !stop_signal)
			continue;
		if (n < 0)
			return fail(errno, "writing %s: %s", name, strerror(errno));
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int pread_all(int fd, void *buf, size_t len, uint64_t off, const char *name)
{
	char *p = buf;

	while (len) {
		ssize_t n = pread(fd, p, len, (off_t)off);

		if (n < 0 && errno == EINTR && !stop_signal)
			continue;
		if (n < 0)
			return fail(errno, "reading %s: %s", name, strerror(errno));
		if (n == 0)
			return fail(EIO, "%s ended while it was read: something made it shorter",
				    name);
		p += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int pwrite_all(int fd, const void *buf, size_t len, uint64_t off, const char *name)
{
	const char *p = buf;

	while (len) {
		ssize_t n = pwrite(fd, p, len, (off_t)off);

		if (n < 0 && errno == EINTR && !stop_signal)
			continue;
		if (n < 0)
			return fail(errno, "writing %s: %s", name, strerror(errno));
		p += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

void drop_clean(int fd)
{
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

void make_cold(int fd)
{
	/* Ignore failure: pages that could not be written stay resident, and resident_part()
	 * reports them. */
	(void)fdatasync(fd);
	drop_clean(fd);
}

int make_warm(int fd, const char *name)
{
	_cleanup_(freep) char *buf = malloc(MIB(1));
	uint64_t off = 0;

	if (!buf)
		return fail(ENOMEM, "out of memory");
	for (;;) {
		ssize_t n = pread(fd, buf, MIB(1), (off_t)off);

		if (stop_signal)
			return fail(EINTR, "interrupted");
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(errno, "reading %s: %s", name, strerror(errno));
		if (n == 0)
			return 0;
		off += (uint64_t)n;
	}
}

double resident_part(int fd)
{
	const uint64_t chunk = MIB(256);
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), pages = 0, there = 0;
	_cleanup_(freep) unsigned char *vec = malloc(chunk / page);
	struct stat st;

	if (!vec || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
		return -1;
	/* The kernel reports every page as resident if the caller may not write the file. */
	if (st.st_uid != geteuid() && geteuid() != 0)
		return -1;
	for (uint64_t off = 0; off < (uint64_t)st.st_size; off += chunk) {
		uint64_t len = MIN(chunk, (uint64_t)st.st_size - off);
		void *p = mmap(NULL, len, PROT_NONE, MAP_SHARED, fd, (off_t)off);
		int r;

		if (p == MAP_FAILED)
			return -1;
		r = mincore(p, len, vec);
		(void)munmap(p, len);
		if (r < 0)
			return -1;
		for (uint64_t i = 0; i < (len + page - 1) / page; i++)
			there += vec[i] & 1;
		pages += (len + page - 1) / page;
	}
	return (double)there / (double)pages;
}
