/* SPDX-License-Identifier: MIT */
/* Shared by the cases of gpu-verify: pattern files, and comparisons with the pattern. */
#ifndef PST_HW_VERIFY_H
#define PST_HW_VERIFY_H

#include <getopt.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "hw.h"

#define BIG (RIG_MIB(256) + 12345)
#define PIECES 16384
#define PIECE 4096

static const char *device = "cuda:0";
static const char *no_driver; /* why the driver cannot be called, or NULL */
static const char *self;

static inline void need_driver(void)
{
	if (no_driver)
		T_SKIP("%s", no_driver);
}

static inline struct pst_queue *queue(void)
{
	rig_q = rig_queue(PST_BACKEND_AUTO, 0);
	return rig_q;
}

static inline void end_queue(void)
{
	rig_q = pst_queue_free(rig_q);
}

/* Compare device memory with the pattern, 64 MiB at a time. */
static inline void check(struct pst_mem *m, uint64_t mem_off, uint64_t len, uint64_t seed,
			 uint64_t file_off)
{
	for (uint64_t at = 0; at < len; at += RIG_MIB(64)) {
		uint64_t n = len - at < RIG_MIB(64) ? len - at : RIG_MIB(64);
		uint64_t good = rig_mem_differs(m, mem_off + at, n, seed, file_off + at);

		if (good != n)
			T_FAIL("device byte %" PRIu64 " is not byte %" PRIu64 " of the file",
			       mem_off + at + good, file_off + at + good);
	}
}

/* Compare a file with the pattern. */
static inline void check_file(const char *path, uint64_t seed, uint64_t off, uint64_t len,
			      uint64_t at)
{
	char *buf = malloc(len);

	T_CHECK(buf);
	T_EQ(rig_slurp(path, off, buf, len), len);
	T_EQ(t_differs(buf, seed, at, len), len);
	free(buf);
}

static inline void expect(struct pst_done d, uint64_t want)
{
	if (d.res != (int64_t)want || d.prefix != want) {
		rig_show(&d);
		T_FAIL("%lld bytes and not %" PRIu64, (long long)d.res, want);
	}
}

static inline struct pst_file *pattern(const char *name, uint64_t seed, uint64_t len,
				       uint32_t flags)
{
	rig_make(rig_path(name), seed, len);
	return rig_open(rig_path(name), flags);
}

#endif
