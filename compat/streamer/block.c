/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <string.h>

#include "base/base.h"
#include "base/dio.h"
#include "base/log.h"

#include "block.h"

#define BLOCK_MIN 512u /* bytes; smallest block of any disk */

/* Get the alignment of one file.  Return 0, or -errno with *ret unchanged. */
static int of_file(const char *path, size_t *ret)
{
	_cleanup_(closep) int fd = -1;
	uint32_t mem, off;
	int r;

	/* O_NONBLOCK, because opening a pipe would wait for a writer. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return -errno;
	r = dio_align(fd, &mem, &off);
	if (r == 0)
		*ret = MAX(mem, off);
	/* Without O_DIRECT, any alignment suits. */
	return r == -EOPNOTSUPP ? 0 : r;
}

int block_size(const struct strings *paths, size_t *ret)
{
	size_t block = BLOCK_MIN;
	int code = paths->nr ? RUNAI_SUCCESS : RUNAI_UNKNOWN;

	for (uint64_t i = 0; i < paths->nr; i++) {
		const char *path = paths->at[i];
		size_t one = BLOCK_MIN;
		int r = code_of_path(path) || path_is_object(path) ? -ENODATA : of_file(path, &one);

		if (r < 0) {
			log_info("%s does not tell what O_DIRECT wants: %s", path, strerror(-r));
			code = RUNAI_UNKNOWN;
		}
		block = MAX(block, one);
	}
	/* If a file's alignment is unknown, return at least a page. */
	*ret = code ? MAX(block, (size_t)sysconf(_SC_PAGESIZE)) : block;
	return code;
}
