/* SPDX-License-Identifier: MIT */
/* Shared by the tests of libpenstock_streamer: files with known bytes, requests and responses. */
#ifndef PST_STREAMER_RIG_H
#define PST_STREAMER_RIG_H

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <penstock.h>
#include <streamer.h>

#define T_ERROR_TEXT() runai_file_streamer_response_str(_r)
#include "t.h"

#include "child.h"
#include "scratch.h"

#define HOST ((struct runai_device){ RUNAI_DEVICE_CPU, 0 })
#define SEED 7

static char dir[PATH_MAX - 64];

static inline const char *in_dir(const char *name)
{
	static _Thread_local char path[16][PATH_MAX];
	static _Thread_local unsigned at;

	at = (at + 1) % 16;
	(void)snprintf(path[at], sizeof(path[at]), "%s/%s", dir, name);
	return path[at];
}

/* Make a file of len bytes of t_fill(). */
static inline const char *rig_file(const char *name, size_t len)
{
	const char *path = in_dir(name);
	char *bytes = malloc(len + 1);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	T_CHECK(bytes && fd >= 0);
	t_fill(bytes, SEED, 0, len);
	T_EQ(write(fd, bytes, len), (ssize_t)len);
	T_EQ(close(fd), 0);
	free(bytes);
	return path;
}

static inline void *rig_start(void)
{
	void *s = NULL;

	T_OK(runai_file_streamer_start(&s));
	T_CHECK(s);
	return s;
}

/* Request ranges of one file. */
static inline int rig_request(void *s, const char *path, uint32_t nr, const size_t *offs,
			      const size_t *sizes, void *const *dsts, uint64_t *ret)
{
	return runai_file_streamer_request(s, ret, 1, &path, &nr, offs, sizes, dsts, HOST);
}

static inline int rig_read(void *s, const char *path, size_t off, size_t size, void *dst)
{
	uint64_t id = 0;

	return rig_request(s, path, 1, &off, &size, &dst, &id);
}

struct response {
	uint64_t id;
	uint32_t file, range;
	int done, code;
};

static inline struct response rig_response(void *s)
{
	struct response r;

	r.code = runai_file_streamer_response(s, &r.id, &r.file, &r.range, &r.done, 60000);
	return r;
}

/* Request one range and return the code of its response. */
static inline int rig_only(void *s, const char *path, size_t off, size_t size, void *dst)
{
	struct response r;
	int code = rig_read(s, path, off, size, dst);

	if (code)
		return code;
	r = rig_response(s);
	T_EQ(r.done, 1);
	return r.code;
}

/* Check that no further response arrives. */
static inline void rig_quiet(void *s)
{
	struct response r = { 1, 1, 1, 1, 1 };

	r.code = runai_file_streamer_response(s, &r.id, &r.file, &r.range, &r.done, 20);
	T_EQ(r.code, RUNAI_TIMED_OUT);
	T_CHECK(!r.id && !r.file && !r.range && !r.done);
}

#endif
