/* SPDX-License-Identifier: MIT */
/* Create the io_uring that the kernel and the limits of the process allow. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/err.h"
#include "base/fault.h"
#include "file/uring_ring.h"

static int read_sysctl(const char *path)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	char c;

	return fd >= 0 && read(fd, &c, 1) == 1 ? c - '0' : -1;
}

int uring_ring_err(int err)
{
	struct rlimit rl = { 0 };

	switch (err) {
	case EPERM:
		switch (read_sysctl("/proc/sys/kernel/io_uring_disabled")) {
		case 1:
			return err_set(err,
				       "io_uring is only for privileged processes here: set the "
				       "sysctl kernel.io_uring_disabled to 0, or join the group "
				       "in kernel.io_uring_group");
		case 2:
			return err_set(err, "io_uring is switched off here: set the sysctl "
					    "kernel.io_uring_disabled to 0");
		default:
			return err_set(err,
				       "io_uring is forbidden here, by a seccomp filter as "
				       "containers have: allow io_uring_setup, io_uring_enter and "
				       "io_uring_register in its profile");
		}
	case ENOSYS:
		return err_set(err,
			       "this kernel has no io_uring of 5.11 or later, or a seccomp filter "
			       "as containers have hides it: allow io_uring_setup, "
			       "io_uring_enter and io_uring_register in its profile");
	case ENOMEM:
		(void)getrlimit(RLIMIT_MEMLOCK, &rl);
		return err_set(err,
			       "no memory for an io_uring; if RLIMIT_MEMLOCK (ulimit -l), now "
			       "%llu KiB, is small, raise it",
			       (unsigned long long)(rl.rlim_cur >> 10));
	case EMFILE:
		(void)getrlimit(RLIMIT_NOFILE, &rl);
		return err_set(err,
			       "no free descriptor for an io_uring; raise RLIMIT_NOFILE (ulimit "
			       "-n), now %llu",
			       (unsigned long long)rl.rlim_cur);
	default:
		return err_set(err, "io_uring cannot be set up: %s", err_name(err));
	}
}

int uring_ring_new(unsigned entries, struct io_uring *ret)
{
	/* In order of preference: older kernels refuse flags they do not know. */
	static const unsigned flags[] = {
		/* 5.19: completions do not interrupt a thread that is not waiting for them. */
		IORING_SETUP_CLAMP | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN |
			IORING_SETUP_TASKRUN_FLAG,
		IORING_SETUP_CLAMP,
	};
	int r = fault_hit(FAULT_FILE_URING);

	if (r)
		return -r;
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		(void)memset(ret, 0, sizeof(*ret));
		r = io_uring_queue_init(entries, ret, flags[i]);
		if (r != -EINVAL)
			break;
	}
	if (r < 0)
		return r;
	/* wait() needs timeouts without an entry (EXT_ARG), and completions must not be dropped. */
	if (!(ret->features & IORING_FEAT_EXT_ARG) || !(ret->features & IORING_FEAT_NODROP)) {
		io_uring_queue_exit(ret);
		return -ENOSYS;
	}
	return 0;
}

int uring_ring_check(void)
{
	/* errno of the check; -1: unknown.  Only permanent answers are cached: 0, EPERM and
	 * ENOSYS. */
	static _Atomic int known = -1;
	struct io_uring ring;
	int err = fault_active ? -1 : known;

	if (err < 0) {
		err = -uring_ring_new(1, &ring);
		if (!err)
			io_uring_queue_exit(&ring);
		if (!fault_active && (!err || err == EPERM || err == ENOSYS))
			known = err;
	}
	return err ? uring_ring_err(err) : 0;
}

/* Make the system call directly: liburing's function would raise RLIMIT_NOFILE. */
int uring_ring_sparse(const struct io_uring *ring, unsigned opcode, unsigned nr)
{
	struct io_uring_rsrc_register reg = { .nr = nr, .flags = IORING_RSRC_REGISTER_SPARSE };

	if (syscall(__NR_io_uring_register, ring->ring_fd, opcode, &reg, sizeof(reg)) < 0)
		return -errno;
	return 0;
}

/*
 * Allow more kernel threads than the default of four per CPU: blocking operations run on them, and
 * a file system that hangs keeps its threads.
 */
void uring_ring_may_hang(struct io_uring *ring)
{
	unsigned max[2] = { 64, 0 }; /* [0] for files; [1] for sockets: 0 keeps the default */

	(void)io_uring_register_iowq_max_workers(ring, max);
}
