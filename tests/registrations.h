/* SPDX-License-Identifier: MIT */
/*
 * Count registrations of memory with io_uring: the kernel reports each one to a thread of ours
 * first (seccomp_unotify(2)), which counts it and lets it continue or fail.  Unregistrations are
 * not counted.
 */
#ifndef PST_TESTS_REGISTRATIONS_H
#define PST_TESTS_REGISTRATIONS_H

#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "t.h"

static atomic_uint registrations;     /* count since registrations_count() */
static _Atomic int registrations_err; /* errno of registrations; 0: let them continue */

/* Return true for a registration.  The caller waits in the kernel, so its stack may be read; the
 * thread sanitizer does not know that it waits. */
__attribute__((noinline, no_sanitize("thread"))) static bool registrations_is(
	const struct seccomp_data *d)
{
	const struct io_uring_rsrc_update2 *u = (const void *)(uintptr_t)d->args[2];
	const struct iovec *v = (const void *)(uintptr_t)u->data;

	return v->iov_len != 0;
}

static void *registrations_main(void *arg)
{
	int fd = (int)(intptr_t)arg;

	for (;;) {
		struct seccomp_notif_resp answer = { 0 };
		struct seccomp_notif call = { 0 };

		if (ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &call) < 0) {
			if (errno == EINTR || errno == ENOENT)
				continue;
			return NULL;
		}
		answer.id = call.id;
		answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		if (registrations_is(&call.data)) {
			registrations++;
			answer.error = -registrations_err;
			answer.flags = answer.error ? 0 : SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		}
		(void)ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
}

/* Count registrations of this thread and of those that it starts, until the process ends. */
static inline void registrations_count(void)
{
	/* Mask the highest bit, which says that the ring is given by its registered index. */
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_register, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x7fffffff),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IORING_REGISTER_BUFFERS_UPDATE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };
	pthread_t thread;
	long fd = -1;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
		fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
			     &prog);
	if (fd < 0)
		T_SKIP("seccomp filters: %s", strerror(errno));
	T_EQ(pthread_create(&thread, NULL, registrations_main, (void *)fd), 0);
	T_EQ(pthread_detach(thread), 0);
}

#endif
