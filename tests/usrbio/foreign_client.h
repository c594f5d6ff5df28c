/* SPDX-License-Identifier: MIT */
/*
 * Shared by the programs that talk to a daemon without the library: a published buffer, a file, a
 * request.  Arguments are MOUNTPOINT FILE; FILE, on the mount, is made and removed.
 */
#ifndef PST_TESTS_FOREIGN_CLIENT_H
#define PST_TESTS_FOREIGN_CLIENT_H

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "foreign_peer.h"
#include "t.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define WAIT_MS 60000 /* limit for answers that must come, ms */
#define BUF_SIZE (1 * MIB)
#define SEED 7

static char mnt[256], path[320];
/* Used by most cases: published memory, and FILE. */
static struct peer_iov buf;
static struct peer_file file;

static inline struct peer_io io_at(uint64_t buf_off, uint64_t file_off, uint64_t len)
{
	static uint64_t userdata = 0xfeed000000000000;

	return (struct peer_io){ .buf_id = buf.id,
				 .buf_off = buf_off,
				 .file_ino = file.ino,
				 .file_off = file_off,
				 .len = len,
				 .userdata = userdata++ };
}

/* Execute one request and return its result. */
static inline int64_t run(struct peer_ring *r, struct peer_io io)
{
	struct wire_cqe c;
	int slot = peer_prep(r, &io);

	T_CHECK(slot >= 0);
	peer_submit(r);
	T_EQ(peer_reap(r, &c, 1, 1, WAIT_MS), 1);
	T_EQ(c.index, slot);
	T_EQ(c.userdata, io.userdata);
	return c.result;
}

/* Write size bytes of the pattern to FILE through the mount. */
static inline void fill_file(uint64_t size)
{
	T_CHECK(size <= BUF_SIZE);
	T_EQ(ftruncate(file.fd, 0), 0);
	t_fill(buf.base, SEED, 0, size);
	T_EQ(pwrite(file.fd, buf.base, size, 0), size);
	memset(buf.base, 0xaa, BUF_SIZE);
}

static inline void expect_pattern(uint64_t buf_off, uint64_t file_off, uint64_t len)
{
	T_EQ(t_differs(buf.base + buf_off, SEED, file_off, len), len);
}

static inline bool is_all(const uint8_t *p, uint8_t byte, uint64_t len)
{
	return !len || (p[0] == byte && memcmp(p, p + 1, len - 1) == 0);
}

/* Make file and buffer.  Print the cause and return false if that fails. */
static inline bool set_up(const char *mountpoint, const char *name)
{
	char *real = realpath(mountpoint, NULL);

	if (!real || strlen(real) >= sizeof(mnt) || strlen(name) >= sizeof(path))
		return false;
	(void)strcpy(mnt, real);
	free(real);
	(void)strcpy(path, name);
	if (peer_open(&file, path, O_RDWR | O_CREAT | O_TRUNC) < 0)
		return false;
	if (peer_memory(&buf, mnt, BUF_SIZE) < 0)
		return false;
	errno = -peer_publish(&buf, "");
	return errno == 0;
}

static inline void tear_down(void)
{
	peer_iov_done(&buf);
	peer_close(&file);
	(void)unlink(path);
}

#endif
