/* SPDX-License-Identifier: MIT */
/* U4, U5, U6: each wrong argument gives the error that the header documents. */
#include <stddef.h>
#include <sys/resource.h>

#include "api_rig.h"
#include "usrbio/proto/ring.h"
#include "trip.h"

static const uint8_t some_id[16] = { 1, 2, 3 };
static void U4_iovcreate_arguments(void)
{
	struct hf3fs_iov iov = { .iovh = &iov };

	T_EQ(hf3fs_iovcreate(NULL, mnt, 4096, 0, -1), -EINVAL);
	T_EQ(hf3fs_iovcreate(&iov, NULL, 4096, 0, -1), -EINVAL);
	T_EQ(hf3fs_iovcreate(&iov, "", 4096, 0, -1), -EINVAL);
	T_EQ(hf3fs_iovcreate(&iov, api_dir, 4096, 0, -1), -ENOENT);
	T_EQ(hf3fs_iovcreate(&iov, "/", 4096, 0, -1), -ENOENT);
	T_EQ(hf3fs_iovcreate(&iov, api_path("none"), 4096, 0, -1), -ENOENT);
	/* A failed call writes nothing. */
	T_CHECK(iov.iovh == &iov);
}

static void U4_other_iov_arguments(void)
{
	struct hf3fs_iov iov = { .base = (uint8_t *)&iov };

	T_EQ(hf3fs_iovopen(NULL, some_id, mnt, 4096, 0, -1), -EINVAL);
	T_EQ(hf3fs_iovopen(&iov, NULL, mnt, 4096, 0, -1), -EINVAL);
	T_EQ(hf3fs_iovopen(&iov, some_id, NULL, 4096, 0, -1), -EINVAL);
	T_EQ(hf3fs_iovopen(&iov, some_id, mnt, 4096, 0, -1), -ENOENT);
	T_EQ(hf3fs_iovopen(&iov, some_id, api_dir, 4096, 0, -1), -ENOENT);
	T_EQ(hf3fs_iovwrap(NULL, &iov, some_id, mnt, 4096, 0, -1), -EINVAL);
	T_EQ(hf3fs_iovwrap(&iov, NULL, some_id, mnt, 4096, 0, -1), -EINVAL);
	T_EQ(hf3fs_iovwrap(&iov, &iov, NULL, mnt, 4096, 0, -1), -EINVAL);
	T_EQ(hf3fs_iovwrap(&iov, &iov, some_id, NULL, 4096, 0, -1), -EINVAL);
	T_EQ(hf3fs_iovwrap(&iov, &iov, some_id, api_dir, 4096, 0, -1), -ENOENT);
	hf3fs_iovunlink(NULL);
	hf3fs_iovdestroy(NULL);
	/* Structures that were never filled in. */
	hf3fs_iovunlink(&iov);
	hf3fs_iovdestroy(&iov);
	iov.iovh = &iov;
	hf3fs_iovunlink(&iov);
	hf3fs_iovdestroy(&iov);
	T_CHECK(!iov.iovh);
}

static void U5_sizes(void)
{
	struct hf3fs_iov iov;

	T_EQ(hf3fs_iovcreate(&iov, mnt, 0, 0, -1), -EINVAL);
	T_EQ(hf3fs_iovcreate(&iov, mnt, 4096, 4097, -1), -EINVAL);
	T_EQ(hf3fs_iovopen(&iov, some_id, mnt, 0, 0, -1), -EINVAL);
	T_EQ(hf3fs_iovopen(&iov, some_id, mnt, 4096, 4097, -1), -EINVAL);
	T_EQ(hf3fs_iovwrap(&iov, &iov, some_id, mnt, 0, 0, -1), -EINVAL);
	T_EQ(hf3fs_iovwrap(&iov, &iov, some_id, mnt, 4096, 4097, -1), -EINVAL);
	T_EQ(hf3fs_iovcreate(&iov, mnt, SIZE_MAX, 0, -1), -ENOSPC);
	T_EQ(hf3fs_iovcreate(&iov, mnt, (size_t)INT64_MAX + 1, 0, -1), -ENOSPC);
	T_EQ(hf3fs_iovcreate(&iov, mnt, (size_t)1 << 50, 0, -1), -ENOSPC);
	T_EQ(api_shm(), 0);
	/* A block of 4097 bytes fits, to its last byte. */
	T_EQ(hf3fs_iovcreate(&iov, mnt, 4097, 4097, -1), 0);
	iov.base[4096] = 1;
	T_EQ((uintptr_t)iov.base % 4096, 0);
	T_EQ(iov.size, 4097);
	T_EQ(iov.block_size, 4097);
	T_EQ(iov.numa, -1);
	T_CHECK(!strcmp(iov.mount_point, mnt));
	hf3fs_iovdestroy(&iov);
	T_CHECK(!iov.iovh);
}

static void U6_long_mount_points(void)
{
	static char ring[16384] __attribute__((aligned(4096)));
	char name[257];
	struct hf3fs_iov iov;
	struct hf3fs_ior ior;

	memset(name, 'x', sizeof(name) - 1);
	name[0] = '/';
	name[256] = '\0';
	T_EQ(hf3fs_iovcreate(&iov, name, 4096, 0, -1), -EINVAL);
	T_EQ(hf3fs_iovopen(&iov, some_id, name, 4096, 0, -1), -EINVAL);
	T_EQ(hf3fs_iovwrap(&iov, &iov, some_id, name, 4096, 0, -1), -EINVAL);
	T_EQ(hf3fs_iorcreate(&ior, name, 8, true, 0, -1), -EINVAL);
	T_EQ(hf3fs_iorcreate2(&ior, name, 8, true, 0, 0, -1), -EINVAL);
	T_EQ(hf3fs_iorcreate3(&ior, name, 8, true, 0, 0, 0, -1), -EINVAL);
	T_EQ(hf3fs_iorcreate4(&ior, name, 8, true, 0, 0, -1, 0), -EINVAL);
	T_EQ(hf3fs_iorwrap(&ior, ring, name, hf3fs_ior_size(8), true, 0, 0, 0, 0), -EINVAL);
	/* A path that is one byte shorter is accepted, but does not exist. */
	name[255] = '\0';
	T_EQ(hf3fs_iovcreate(&iov, name, 4096, 0, -1), -ENOENT);
	T_EQ(hf3fs_iorcreate(&ior, name, 8, true, 0, -1), -ENOENT);
}

static void U4_iorcreate_arguments(void)
{
	struct hf3fs_ior ior = { .iorh = &ior };

	T_EQ(hf3fs_iorcreate(NULL, mnt, 8, true, 0, -1), -EINVAL);
	T_EQ(hf3fs_iorcreate2(NULL, mnt, 8, true, 0, 0, -1), -EINVAL);
	T_EQ(hf3fs_iorcreate3(NULL, mnt, 8, true, 0, 0, 0, -1), -EINVAL);
	T_EQ(hf3fs_iorcreate4(NULL, mnt, 8, true, 0, 0, -1, 0), -EINVAL);
	T_EQ(hf3fs_iorcreate(&ior, NULL, 8, true, 0, -1), -EINVAL);
	T_EQ(hf3fs_iorcreate(&ior, "", 8, true, 0, -1), -EINVAL);
	T_EQ(hf3fs_iorcreate(&ior, api_dir, 8, true, 0, -1), -ENOENT);
	T_EQ(hf3fs_iorcreate(&ior, mnt, 0, true, 0, -1), -EINVAL);
	T_EQ(hf3fs_iorcreate(&ior, mnt, -1, true, 0, -1), -EINVAL);
	T_EQ(hf3fs_iorcreate(&ior, mnt, INT32_MAX, true, 0, -1), -EINVAL);
	T_EQ(hf3fs_iorcreate(&ior, mnt, 8, true, 9, -1), -EINVAL);
	T_EQ(hf3fs_iorcreate3(&ior, mnt, 8, true, -2, 0, -1, -1), -EINVAL);
	T_EQ(hf3fs_iorcreate4(&ior, mnt, 8, true, 0, -1, -1, 0), -EINVAL);
	T_EQ(hf3fs_iorcreate4(&ior, mnt, 8, true, 0, 0, -1, 4), -EINVAL);
	T_CHECK(ior.iorh == &ior);
	hf3fs_iordestroy(NULL);
	hf3fs_iordestroy(&ior);
	T_CHECK(!ior.iorh);
}

static void U4_iorcreate_keeps_what_it_was_given(void)
{
	struct hf3fs_ior ior;

	T_EQ(hf3fs_iorcreate3(&ior, mnt, 8, true, -4, 1, 20, -1), 0);
	T_CHECK(ior.for_read && ior.io_depth == -4 && ior.priority == 1 && ior.timeout == 20);
	T_CHECK(ior.flags == 0 && ior.iov.numa == -1 && !strcmp(ior.mount_point, mnt));
	T_EQ(ior.iov.size, hf3fs_ior_size(8));
	T_EQ(hf3fs_io_entries(&ior), 8);
	hf3fs_iordestroy(&ior);
	T_EQ(hf3fs_iorcreate2(&ior, mnt, 1, false, 1, -1, -1), 0);
	T_CHECK(!ior.for_read && ior.io_depth == 1 && ior.priority == -1 && ior.timeout == 0);
	T_EQ(hf3fs_io_entries(&ior), 1);
	hf3fs_iordestroy(&ior);
	T_EQ(hf3fs_io_entries(&ior), 0);
}

static void U4_iorwrap_arguments(void)
{
	static char buf[16384] __attribute__((aligned(4096)));
	size_t size = hf3fs_ior_size(8);
	struct hf3fs_ior ior;

	T_EQ(hf3fs_iorwrap(NULL, buf, mnt, size, true, 0, 0, 0, 0), -EINVAL);
	T_EQ(hf3fs_iorwrap(&ior, NULL, mnt, size, true, 0, 0, 0, 0), -EINVAL);
	T_EQ(hf3fs_iorwrap(&ior, buf + 4, mnt, size, true, 0, 0, 0, 0), -EINVAL);
	T_EQ(hf3fs_iorwrap(&ior, buf, mnt, hf3fs_ior_size(1) - 1, true, 0, 0, 0, 0), -EINVAL);
	T_EQ(hf3fs_iorwrap(&ior, buf, mnt, size, true, 9, 0, 0, 0), -EINVAL);
	T_EQ(hf3fs_iorwrap(&ior, buf, mnt, size, true, 0, 0, -1, 0), -EINVAL);
	T_EQ(hf3fs_iorwrap(&ior, buf, mnt, size, true, 0, 0, 0, 4), -EINVAL);
	buf[3] = 1; /* a head far beyond the ring */
	T_EQ(hf3fs_iorwrap(&ior, buf, mnt, size, true, 0, 0, 0, 0), -EINVAL);
	buf[3] = 0;
}

static void U4_calls_on_rings(void)
{
	struct hf3fs_iov iov = api_iov(8192), none = { 0 };
	struct hf3fs_ior ior = api_ior(2, true), copy = ior, zero = { 0 };
	struct hf3fs_cqe cqe;
	int fd = api_open("data", 8192);

	T_EQ(hf3fs_prep_io(NULL, &iov, true, iov.base, fd, 0, 1, NULL), -EINVAL);
	T_EQ(hf3fs_prep_io(&zero, &iov, true, iov.base, fd, 0, 1, NULL), -EINVAL);
	T_EQ(hf3fs_prep_io(&ior, NULL, true, iov.base, fd, 0, 1, NULL), -EINVAL);
	T_EQ(hf3fs_prep_io(&ior, &none, true, iov.base, fd, 0, 1, NULL), -EINVAL);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, NULL, fd, 0, 1, NULL), -EINVAL);
	T_EQ(hf3fs_prep_io(&ior, &iov, false, iov.base, fd, 0, 1, NULL), -EINVAL);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, 0, NULL), -EINVAL);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base, fd + 500, 0, 1, NULL), -EBADF);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base, INT32_MIN, 0, 1, NULL), -EBADF);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base, INT32_MAX, 0, 1, NULL), -EBADF);
	T_EQ(hf3fs_submit_ios(NULL), -EINVAL);
	T_EQ(hf3fs_submit_ios(&zero), -EINVAL);
	T_EQ(hf3fs_wait_for_ios(NULL, &cqe, 1, 0, NULL), -EINVAL);
	T_EQ(hf3fs_wait_for_ios(&zero, &cqe, 1, 0, NULL), -EINVAL);
	T_EQ(hf3fs_wait_for_ios(&ior, NULL, 1, 0, NULL), -EINVAL);
	T_EQ(hf3fs_wait_for_ios(&ior, &cqe, 0, 0, NULL), -EINVAL);
	T_EQ(hf3fs_wait_for_ios(&ior, &cqe, -1, 0, NULL), -EINVAL);
	T_EQ(hf3fs_wait_for_ios(&ior, &cqe, 1, 0, NULL), 0);

	/* A copy of a destroyed ring stays invalid when a new ring exists. */
	hf3fs_iordestroy(&ior);
	ior = api_ior(2, true);
	T_EQ(hf3fs_prep_io(&copy, &iov, true, iov.base, fd, 0, 1, NULL), -EINVAL);
	T_EQ(hf3fs_submit_ios(&copy), -EINVAL);
	T_EQ(hf3fs_wait_for_ios(&copy, &cqe, 1, 0, NULL), -EINVAL);
	hf3fs_iordestroy(&copy);
	T_EQ(api_io(&ior, &iov, 0, fd, 0, 8192), 8192);
	hf3fs_iordestroy(&ior);
	hf3fs_iovdestroy(&iov);
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, 1, NULL), -EINVAL);
	api_close(fd);
}

static void U4_directions_of_files(void)
{
	struct hf3fs_iov iov = api_iov(4096);
	struct hf3fs_ior reads = api_ior(2, true), writes = api_ior(2, false);
	int ro, wo;

	T_EQ(close(api_file("data", 4096)), 0);
	ro = open(api_path("data"), O_RDONLY | O_CLOEXEC);
	wo = open(api_path("data"), O_WRONLY | O_CLOEXEC);
	T_CHECK(hf3fs_reg_fd(ro, 0) <= 0 && hf3fs_reg_fd(wo, 0) <= 0);
	T_EQ(api_io(&reads, &iov, 0, wo, 0, 4096), -EACCES);
	T_EQ(api_io(&writes, &iov, 0, ro, 0, 4096), -EACCES);
	T_EQ(api_io(&writes, &iov, 0, wo, 0, 4096), 4096);
	T_EQ(api_io(&reads, &iov, 0, ro, 0, 4096), 4096);
	api_close(ro);
	api_close(wo);
	hf3fs_iordestroy(&reads);
	hf3fs_iordestroy(&writes);
	hf3fs_iovdestroy(&iov);
}

/* A daemon's mount numbers files by inode, a plain directory by registration: they must not mix. */
static void U4_kinds_of_mounts_do_not_mix(void)
{
	struct hf3fs_iov iov = api_iov(4096);
	struct hf3fs_ior ior = api_ior(2, true);
	const char *daemon = mnt;
	int fd;

	mnt = api_plain;
	fd = api_open("data", 4096);
	mnt = daemon;
	T_EQ(hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, 4096, NULL), -EBADF);
	api_close(fd);
	hf3fs_iordestroy(&ior);
	hf3fs_iovdestroy(&iov);
}

int main(void)
{
	api_init();
	API_RUN(U4_iovcreate_arguments);
	API_RUN(U4_other_iov_arguments);
	API_RUN(U5_sizes);
	API_RUN(U6_long_mount_points);
	API_RUN(U4_iorcreate_arguments);
	API_RUN(U4_iorcreate_keeps_what_it_was_given);
	API_RUN(U4_iorwrap_arguments);
	API_RUN(U4_calls_on_rings);
	API_RUN(U4_directions_of_files);
	API_ON_DAEMON(U4_kinds_of_mounts_do_not_mix);
	return api_done();
}
