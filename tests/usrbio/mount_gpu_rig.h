/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of device memory on a mount of penstock-mount, which PST_TEST_MOUNT names:
 * one mount per case, whose path is gpu_plain of gpu_rig.h.
 */
#ifndef PST_TESTS_MOUNT_GPU_RIG_H
#define PST_TESTS_MOUNT_GPU_RIG_H

#include "gpu_rig.h"
#include "mount_procs.h"
#include "mount_rig.h"
#include "usrbio/proto/ipc.h"
#include "usrbio/proto/ring.h"

#define MG_NOBODY 65534u

static struct mount_rig mg;

/*
 * Start a mount whose worker has that number of software devices.  This process keeps its own
 * number.
 */
static inline void mg_begin_with(const char *devices)
{
	char had[16] = "";

	if (!getenv("PST_TEST_MOUNT"))
		T_SKIP("PST_TEST_MOUNT, which names penstock-mount");
	if (getenv("PST_SOFT_DEVICES"))
		(void)snprintf(had, sizeof(had), "%s", getenv("PST_SOFT_DEVICES"));
	(void)setenv("PST_SOFT_DEVICES", devices, 1);
	if (mount_rig_start(&mg, "penstock-mount", NULL) < 0)
		T_SKIP("%s", mg.why);
	(void)setenv("PST_SOFT_DEVICES", had, 1);
	(void)snprintf(gpu_plain, sizeof(gpu_plain), "%s", mg.mnt);
	T_EQ(chmod(mg.back, 0777), 0);
}

static inline void mg_begin(void)
{
	mg_begin_with("2");
}

/* Check that nothing is published and no process is left, and end the mount. */
static inline void mg_end(void)
{
	T_EQ(gpu_links(gpu_plain, NULL), USRBIO_PRIORITIES);
	T_EQ(mount_rig_stop(&mg), 0);
}

static inline struct hf3fs_iov mg_create(size_t size)
{
	struct hf3fs_iov iov = { 0 };

	T_OK(hf3fs_iovcreate_device(&iov, gpu_plain, size, 0, 0));
	return iov;
}

/* A ring and an open, registered file. */
struct mg_ring {
	struct hf3fs_ior ior;
	int fd;
};

static inline struct mg_ring mg_ring(const char *path, int entries, bool for_read)
{
	struct mg_ring r = { .fd = open(path, for_read ? O_RDONLY : O_RDWR | O_CREAT, 0644) };

	T_CHECK(r.fd >= 0);
	T_CHECK(hf3fs_reg_fd(r.fd, 0) <= 0);
	T_OK(hf3fs_iorcreate4(&r.ior, gpu_plain, entries, for_read, 0, 0, -1, 0));
	return r;
}

static inline void mg_ring_end(struct mg_ring *r)
{
	hf3fs_iordestroy(&r->ior);
	hf3fs_dereg_fd(r->fd);
	T_EQ(close(r->fd), 0);
}

/* Execute one request and return its result. */
static inline int64_t mg_io(const struct mg_ring *r, const struct hf3fs_iov *iov, size_t at,
			    size_t off, size_t len)
{
	struct hf3fs_cqe c = { .result = INT64_MIN };
	int index = hf3fs_prep_io(&r->ior, iov, r->ior.for_read, iov->base + at, r->fd, off, len,
				  NULL);

	if (index < 0)
		return index;
	T_OK(hf3fs_submit_ios(&r->ior));
	T_EQ(hf3fs_wait_for_ios(&r->ior, &c, 1, 1, NULL), 1);
	return c.result;
}

/* Read the target of an iov's link. */
static inline void mg_target(const struct hf3fs_iov *iov, int device, char ret[USRBIO_GDR_MAX])
{
	char path[400];
	ssize_t n;

	gpu_path_of(iov, device, path);
	n = readlink(path, ret, USRBIO_GDR_MAX - 1);
	T_CHECK(n > 0);
	ret[n] = '\0';
}

#endif
