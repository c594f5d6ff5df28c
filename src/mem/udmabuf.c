/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>

#include "base/err.h"
#include "mem/udmabuf.h"

int udmabuf_new(int memfd, uint64_t off, uint64_t len)
{
	struct udmabuf_create create = {
		.memfd = (uint32_t)memfd,
		.flags = UDMABUF_FLAGS_CLOEXEC,
		.offset = off,
		.size = len,
	};
	_cleanup_(closep) int dev = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	int fd;

	if (dev < 0)
		return err_set(EOPNOTSUPP,
			       "host memory becomes a dma-buf by /dev/udmabuf only: %s; load the "
			       "kernel module udmabuf, or get access to the device",
			       err_name(errno));
	fd = ioctl(dev, UDMABUF_CREATE, &create);
	if (fd < 0)
		return err_set(errno,
			       "the kernel makes no dma-buf of %" PRIu64
			       " bytes: %s; see the limits "
			       "of the module udmabuf",
			       len, err_name(errno));
	return fd;
}
