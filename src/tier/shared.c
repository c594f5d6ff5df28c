/* SPDX-License-Identifier: MIT */
#include "tier/shared.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/err.h"

static int tier_shared_map(const char *path, int fd, size_t size, void **ret)
{
	struct stat st;
	void *at;

	if (fstat(fd, &st) < 0)
		return err_set(errno, "cannot look at %s: %s", path, strerror(errno));
	/* Never shrink the file: another process that has mapped it would lose pages. */
	if (st.st_size < (off_t)size && ftruncate(fd, (off_t)size) < 0)
		return err_set(errno, "cannot make %s: %s", path, strerror(errno));
	at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return err_set(errno, "cannot map %s: %s", path, strerror(errno));
	*ret = at;
	return 0;
}

int shared_map(const char *state, const char *name, size_t size, void **ret)
{
	_cleanup_(closep) int fd = -1;
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", state, name) >= (int)sizeof(path))
		return err_set(ENAMETOOLONG, "%s is too long for a directory of state", state);
	fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set(errno, "cannot open %s: %s", path, strerror(errno));
	return tier_shared_map(path, fd, size, ret);
}

void shared_unmap(void *at, size_t size)
{
	if (at)
		(void)munmap(at, size);
}
