/* SPDX-License-Identifier: MIT */
#include "usrbio/proto/ipc.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"

#define PID_LIMIT (UINT32_C(1) << 22) /* PID_MAX_LIMIT of the kernel */

/* The layout of the software device's handle.  CUDA's handle has the PID at the same offset. */
struct words {
	char magic[8];
	uint32_t pid;
	int32_t fd;
	uint64_t size;
	uint64_t ino;
	uint64_t dev;
	uint8_t uuid[16];
	uint64_t zero;
};

_Static_assert(sizeof(struct words) == USRBIO_IPC_LEN, "the bytes of a handle");

static const char magic[8] = "pstsoft1";

pid_t usrbio_ipc_pid(const uint8_t ipc[USRBIO_IPC_LEN])
{
	uint32_t pid;

	memcpy(&pid, ipc + offsetof(struct words, pid), sizeof(pid));
	return pid <= PID_LIMIT ? (pid_t)pid : 0;
}

bool usrbio_ipc_is_soft(const uint8_t ipc[USRBIO_IPC_LEN])
{
	return !memcmp(ipc, magic, sizeof(magic));
}

int usrbio_soft_parse(const uint8_t ipc[USRBIO_IPC_LEN], struct usrbio_soft *ret)
{
	struct words w;

	memcpy(&w, ipc, sizeof(w));
	if (memcmp(w.magic, magic, sizeof(magic)) != 0 || !w.pid || w.pid > PID_LIMIT || w.fd < 0 ||
	    !w.size || w.size > INT64_MAX || w.zero)
		return -EINVAL;
	*ret = (struct usrbio_soft){
		.pid = (pid_t)w.pid,
		.fd = w.fd,
		.size = w.size,
		.dev = w.dev,
		.ino = w.ino,
	};
	memcpy(ret->uuid, w.uuid, sizeof(ret->uuid));
	return 0;
}

void usrbio_soft_format(const struct usrbio_soft *soft, uint8_t ret_ipc[USRBIO_IPC_LEN])
{
	struct words w = {
		.pid = (uint32_t)soft->pid,
		.fd = soft->fd,
		.size = soft->size,
		.ino = soft->ino,
		.dev = soft->dev,
	};

	memcpy(w.magic, magic, sizeof(magic));
	memcpy(w.uuid, soft->uuid, sizeof(w.uuid));
	memcpy(ret_ipc, &w, sizeof(w));
}

/* Return true if st describes the handle's file, and the file can be opened without side
 * effects. */
static bool is_it(const struct usrbio_soft *soft, const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_dev == soft->dev && st->st_ino == soft->ino;
}

int usrbio_soft_open(const struct usrbio_soft *soft, pid_t pid)
{
	_cleanup_(closep) int fd = -1;
	char path[48];
	struct stat st;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, soft->fd);
	if (stat(path, &st) < 0)
		return errno == EACCES || errno == EPERM ? -errno : -EINVAL;
	if (!is_it(soft, &st))
		return -EINVAL;
	fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return errno == ENOENT ? -EINVAL : -errno;
	return usrbio_soft_is(soft, fd) ? TAKE_FD(fd) : -EINVAL;
}

bool usrbio_soft_is(const struct usrbio_soft *soft, int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && is_it(soft, &st);
}
