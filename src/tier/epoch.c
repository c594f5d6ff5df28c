/* SPDX-License-Identifier: MIT */
#include "tier/epoch.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/err.h"

struct epochs {
	_Atomic uint64_t of[EPOCHS];
};

static int map(const char *path, int fd, struct epochs **ret)
{
	struct stat st;
	void *at;

	if (fstat(fd, &st) < 0)
		return err_set(errno, "cannot look at %s: %s", path, strerror(errno));
	/* Only grown, so that no process that has it mapped loses a page. */
	if (st.st_size < (off_t)sizeof(struct epochs) &&
	    ftruncate(fd, (off_t)sizeof(struct epochs)) < 0)
		return err_set(errno, "cannot make %s: %s", path, strerror(errno));
	at = mmap(NULL, sizeof(struct epochs), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return err_set(errno, "cannot map %s: %s", path, strerror(errno));
	*ret = at;
	return 0;
}

int epochs_open(const char *state, struct epochs **ret)
{
	_cleanup_(closep) int fd = -1;
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/epochs", state) >= (int)sizeof(path))
		return err_set(ENAMETOOLONG, "%s is too long for a directory of state", state);
	fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set(errno, "cannot open %s: %s", path, strerror(errno));
	return map(path, fd, ret);
}

struct epochs *epochs_close(struct epochs *e)
{
	if (e)
		(void)munmap(e, sizeof(*e));
	return NULL;
}

_Atomic uint64_t *epochs_of(struct epochs *e, const char *name)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	return &e->of[hash % EPOCHS];
}
