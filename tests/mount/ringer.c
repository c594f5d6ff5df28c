/* SPDX-License-Identifier: MIT */
/*
 * mount-ringer DIR NAME READS [UID [write]]
 *
 * A program with a ring on a mount, as that user: makes READS reads of the first 4096 bytes of
 * NAME, or writes of the letter r, and one more request on a file that it has not opened, which
 * must fail.  It prints "done" and keeps ring and buffer until its standard input ends.  A failure
 * is printed to standard output, with status 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hf3fs_usrbio.h>

#include "usrbio/proto/ring.h"

#define SIZE 4096u

static struct hf3fs_iov iov;
static struct hf3fs_ior ior;
static bool writes;

static _Noreturn void fail(const char *what, int err)
{
	(void)printf("%s: %s\n", what, strerror(err < 0 ? -err : err));
	exit(1);
}

static void become(uid_t uid)
{
	if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
		fail("setuid", errno);
}

/* Execute a request and return its result. */
static int64_t request(int fd, bool strange)
{
	struct usrbio_ring at;
	struct hf3fs_cqe c;
	int r = hf3fs_prep_io(&ior, &iov, !writes, iov.base, fd, 0, SIZE, NULL);

	if (r < 0)
		fail("prep", r);
	/* Change the file's number in the ring: the library would refuse it. */
	if (strange && usrbio_ring_at(ior.iov.base, ior.iov.size, &at) == 0)
		at.args[r].file ^= UINT64_C(1) << 40;
	r = hf3fs_submit_ios(&ior);
	if (r < 0)
		fail("submit", r);
	r = hf3fs_wait_for_ios(&ior, &c, 1, 1, NULL);
	if (r != 1)
		fail("wait", r);
	return c.result;
}

int main(int argc, char **argv)
{
	char path[PATH_MAX], c;
	int64_t got;
	int fd, r;

	if (argc < 4)
		return 2;
	(void)setvbuf(stdout, NULL, _IONBF, 0);
	if (argc > 4)
		become((uid_t)atoi(argv[4]));
	writes = argc > 5 && !strcmp(argv[5], "write");
	(void)snprintf(path, sizeof(path), "%s/%s", argv[1], argv[2]);
	fd = open(path, (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	if (fd < 0)
		fail(path, errno);
	r = hf3fs_iovcreate(&iov, argv[1], 2 * SIZE, 0, -1);
	if (r)
		fail("iov", r);
	memset(iov.base, 'r', SIZE);
	r = hf3fs_iorcreate4(&ior, argv[1], 4, !writes, 0, 0, -1, 0);
	if (r)
		fail("ior", r);
	r = hf3fs_reg_fd(fd, 0);
	if (r > 0)
		fail("reg", r);
	for (int i = 0; i < atoi(argv[3]); i++) {
		got = request(fd, false);
		if (got != SIZE)
			fail(writes ? "write" : "read", (int)got);
	}
	got = request(fd, true);
	if (got != -EBADF)
		fail("a file that is not open", (int)got);
	(void)puts("done");
	(void)!read(STDIN_FILENO, &c, 1);
	hf3fs_dereg_fd(fd);
	(void)close(fd);
	hf3fs_iordestroy(&ior);
	hf3fs_iovdestroy(&iov);
	return 0;
}
