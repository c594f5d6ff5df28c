/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "gpu_soft.h"
#include "iov.h"
#include "log.h"
#include "usrbio/proto/ipc.h"

/* Keep a duplicate of fd in the iov.  If two threads do so at once, the iov keeps the first one. */
static int gpu_soft_keep(struct iov *iov, int fd)
{
	int mine = fcntl(fd, F_DUPFD_CLOEXEC, 0), none = -1;

	if (mine < 0)
		return log_fail(errno, "no free descriptor for device memory; raise "
				       "RLIMIT_NOFILE (ulimit -n)");
	if (!atomic_compare_exchange_strong(&iov->fd, &none, mine))
		(void)close(mine);
	return 0;
}

int gpu_soft_show(struct iov *iov, struct pst_grant *grant)
{
	struct usrbio_soft s = { .pid = getpid(), .size = grant->size };
	struct stat st;
	int r = 0;

	if (grant->kind != PST_KIND_SOFT)
		return 0;
	if (atomic_load(&iov->fd) < 0)
		r = gpu_soft_keep(iov, grant->fd);
	if (r == 0 && fstat(grant->fd, &st) < 0)
		r = log_fail(errno, "device memory cannot be looked at: %m");
	if (r < 0)
		return r;
	s.fd = atomic_load(&iov->fd);
	s.dev = st.st_dev;
	s.ino = st.st_ino;
	memcpy(s.uuid, grant->uuid, sizeof(s.uuid));
	usrbio_soft_format(&s, grant->ipc);
	return 0;
}

int gpu_soft_find(struct pst_grant *grant)
{
	struct usrbio_soft s;
	int r;

	if (!usrbio_ipc_is_soft(grant->ipc))
		return 0;
	r = usrbio_soft_parse(grant->ipc, &s);
	if (r == 0)
		r = usrbio_soft_open(&s, s.pid);
	if (r < 0)
		return r;
	grant->kind = PST_KIND_SOFT;
	grant->fd = r;
	grant->size = s.size;
	memcpy(grant->uuid, s.uuid, sizeof(s.uuid));
	explicit_bzero(grant->ipc, sizeof(grant->ipc));
	return 0;
}
