/* SPDX-License-Identifier: MIT */
/*
 * Scratch folders.  They are in the directory that tests/guard gives each test and removes after
 * it, so a crashed or skipped test leaves none.
 */
#ifndef PST_TESTS_SCRATCH_H
#define PST_TESTS_SCRATCH_H

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Make a folder in parent; NULL: in the test's directory.  Return 0 or -errno. */
static inline int scratch_new(const char *parent, char *ret, size_t size)
{
	parent = parent ? parent : getenv("PST_TEST_DIR");
	parent = parent ? parent : getenv("TMPDIR");
	if ((size_t)snprintf(ret, size, "%s/pst-test-XXXXXX", parent ? parent : "/var/tmp") >= size)
		return -ENAMETOOLONG;
	return mkdtemp(ret) ? 0 : -errno;
}

static inline int scratch_unlink(const char *at, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(at);
}

/* Remove a folder with its contents, except mounts in it.  Return 0, or -1 and errno. */
static inline int scratch_remove(const char *dir_path)
{
	return nftw(dir_path, scratch_unlink, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

#endif
