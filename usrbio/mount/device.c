/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/device.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>

#include "base/base.h"
#include "usrbio/proto/ipc.h"

bool device_owner_lives(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return pidfd >= 0 && poll(&p, 1, 0) == 0;
}

int device_check(const struct usrbio_gdr *gdr, const struct caller *c, pid_t process, int pidfd)
{
	pid_t pid = usrbio_ipc_pid(gdr->ipc);

	if (!pid)
		return -EINVAL;
	/* Check the PID last: if the process had ended, another process could have its PID. */
	if (!caller_is(c, process, pid))
		return -EPERM;
	return device_owner_lives(pidfd) ? 0 : -ESRCH;
}

/*
 * Take the process' own descriptor, which needs root and keeps its access mode.  Otherwise open the
 * file again; the kernel refuses that for a process that has changed its user.
 */
static int open_soft(const struct usrbio_soft *s, const struct caller *c, pid_t process, int pidfd)
{
	int fd = (int)syscall(SYS_pidfd_getfd, pidfd, s->fd, 0), err;

	if (fd >= 0 && usrbio_soft_is(s, fd))
		return fd;
	if (fd >= 0) {
		(void)close(fd);
		return -EINVAL;
	}
	err = caller_begin(c);
	if (err < 0)
		return err;
	fd = usrbio_soft_open(s, process);
	caller_end();
	return fd;
}

int device_open(const struct usrbio_gdr *gdr, const struct caller *c, pid_t process, int pidfd,
		int *ret_fd)
{
	struct usrbio_soft s;
	int fd, err;

	*ret_fd = -1;
	if (!usrbio_ipc_is_soft(gdr->ipc))
		return 0;
	err = usrbio_soft_parse(gdr->ipc, &s);
	if (err == 0 && s.size != gdr->allocation)
		err = -EINVAL;
	if (err < 0)
		return err;
	fd = open_soft(&s, c, process, pidfd);
	if (fd < 0)
		return fd;
	/* Only a memfd has seals; the worker checks the rest. */
	if (fcntl(fd, F_GET_SEALS) < 0) {
		(void)close(fd);
		return -EINVAL;
	}
	*ret_fd = fd;
	return 0;
}
