/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of device iovs: a plain directory, a directory that looks like a daemon's
 * mount but only stores links, rings, and access to the bytes of device memory without the library
 * under test.
 */
#ifndef PST_TESTS_GPU_RIG_H
#define PST_TESTS_GPU_RIG_H

#include <hf3fs_usrbio.h>
#include <hf3fs_usrbio_gdr.h>
#include <sys/wait.h>

#include "usrbio/proto/id.h"
#include "usrbio/proto/link.h"
#include "usrbio/proto/name.h"
#include "usrbio/proto/plain.h"
#include "rig.h"

static char gpu_plain[128], gpu_daemon[128];

static inline void gpu_rig_dir(char *ret, const char *name, const char *below)
{
	char path[192];

	(void)snprintf(ret, 128, "%s/%s", rig_dir, name);
	(void)mkdir(ret, 0755);
	if (below) {
		(void)snprintf(path, sizeof(path), "%s/3fs-virt", ret);
		(void)mkdir(path, 0755);
		(void)snprintf(path, sizeof(path), "%s/%s", ret, below);
		(void)mkdir(path, 0755);
	}
}

static inline void gpu_rig_init(void)
{
	rig_init();
	/* Accept a file system of any type as a mount. */
	(void)setenv("HF3FS_USRBIO_DONT_CHECKFS_FOR_MP", "yes", 1);
	gpu_rig_dir(gpu_plain, "plain", NULL);
	gpu_rig_dir(gpu_daemon, "daemon", "3fs-virt/iovs");
	if (usrbio_plain_make(gpu_plain) < 0) {
		printf("Bail out! %s cannot be made a plain directory\n", gpu_plain);
		exit(1);
	}
}

/* Check what t_done() checks, except descriptors: the server keeps some until the process ends. */
static inline int gpu_rig_done(void)
{
	printf("1..%d\n", t_cases);
	return t_failed ? 1 : 0;
}

/* Count the links in a directory, and return the name of one. */
static inline unsigned gpu_links(const char *mount, char ret_name[256])
{
	char path[192];
	struct dirent *e;
	unsigned n = 0;
	DIR *d;

	(void)snprintf(path, sizeof(path), "%s/3fs-virt/iovs", mount);
	d = opendir(path);
	T_CHECK(d);
	while ((e = readdir(d)) != NULL) {
		if (e->d_name[0] == '.')
			continue;
		n++;
		if (ret_name)
			(void)snprintf(ret_name, 256, "%s", e->d_name);
	}
	(void)closedir(d);
	return n;
}

static inline const char *gpu_file(const char *name)
{
	static char path[192];

	(void)snprintf(path, sizeof(path), "%s/%s", gpu_plain, name);
	return path;
}

/* Return the path of an iov's link. */
static inline void gpu_path_of(const struct hf3fs_iov *iov, int device, char ret[400])
{
	struct usrbio_name name = { .kind = USRBIO_DEVICE, .device = device };
	char text[USRBIO_NAME_MAX];

	memcpy(name.id, iov->id, sizeof(name.id));
	usrbio_name_format(&name, text);
	(void)snprintf(ret, 400, "%s/3fs-virt/iovs/%s", iov->mount_point, text);
}

static inline struct usrbio_gdr gpu_published(const struct hf3fs_iov *iov, int device)
{
	char path[400], target[USRBIO_GDR_MAX] = "";
	struct usrbio_gdr g;

	gpu_path_of(iov, device, path);
	T_CHECK(readlink(path, target, sizeof(target) - 1) > 0);
	T_OK(usrbio_gdr_parse(target, &g));
	return g;
}

/* Return a new id for each wrap. */
static inline const uint8_t *gpu_id(void)
{
	static uint8_t id[16];
	static uint64_t last;

	last++;
	t_fill(id, last, 0, sizeof(id));
	return id;
}

/* ------------------------------------------------------------------- bytes */

static inline struct pst_mem *gpu_view(const void *addr, size_t len)
{
	struct pst_mem *m = NULL;

	T_OK(pst_mem_wrap((uintptr_t)addr, len, NULL, &m));
	return m;
}

static inline void gpu_fill(const void *addr, size_t len, uint64_t seed, uint64_t at)
{
	struct pst_mem *m = gpu_view(addr, len);

	rig_mem_fill(m, 0, len, seed, at);
	(void)pst_mem_free(m);
}

static inline size_t gpu_differs(const void *addr, size_t len, uint64_t seed, uint64_t at)
{
	struct pst_mem *m = gpu_view(addr, len);
	size_t n = rig_mem_differs(m, 0, len, seed, at);

	(void)pst_mem_free(m);
	return n;
}

/* ------------------------------------------------------------------- rings */

struct gpu_req {
	const struct hf3fs_iov *iov;
	uint64_t at; /* offset in the memory */
	uint64_t off, len;
	int64_t result;
};

/* Send all requests in one batch, on a new ring and a file of the plain directory. */
static inline void gpu_batch(const char *path, bool read, struct gpu_req *v, int nr, uint64_t flags)
{
	struct hf3fs_cqe cqes[64];
	struct hf3fs_ior ior;
	int fd = open(path, read ? O_RDONLY : O_RDWR | O_CREAT, 0644), got = 0;

	T_CHECK(fd >= 0 && nr <= 64);
	T_OK(hf3fs_iorcreate4(&ior, gpu_plain, nr, read, 0, 0, -1, flags));
	T_CHECK(hf3fs_reg_fd(fd, 0) <= 0);
	for (int i = 0; i < nr; i++) {
		v[i].result = INT64_MIN;
		T_CHECK(hf3fs_prep_io(&ior, v[i].iov, read, v[i].iov->base + v[i].at, fd, v[i].off,
				      v[i].len, &v[i]) >= 0);
	}
	T_OK(hf3fs_submit_ios(&ior));
	while (got < nr) {
		int n = hf3fs_wait_for_ios(&ior, cqes, nr, 1, NULL);

		T_CHECK(n > 0);
		for (int i = 0; i < n; i++)
			((struct gpu_req *)(uintptr_t)cqes[i].userdata)->result = cqes[i].result;
		got += n;
	}
	hf3fs_dereg_fd(fd);
	hf3fs_iordestroy(&ior);
	(void)close(fd);
}

static inline int64_t gpu_read(const struct hf3fs_iov *iov, uint64_t at, const char *path,
			       uint64_t off, uint64_t len)
{
	struct gpu_req v = { .iov = iov, .at = at, .off = off, .len = len };

	gpu_batch(path, true, &v, 1, 0);
	return v.result;
}

static inline int64_t gpu_write(const struct hf3fs_iov *iov, uint64_t at, const char *path,
				uint64_t off, uint64_t len)
{
	struct gpu_req v = { .iov = iov, .at = at, .off = off, .len = len };

	gpu_batch(path, false, &v, 1, 0);
	return v.result;
}

/* --------------------------------------------------------- another process */

static const char *gpu_self;

/* Run this program again, and pass on its standard error. */
static inline int gpu_other(const char *what, const struct hf3fs_iov *iov, const void *bytes,
			    size_t len)
{
	char id[USRBIO_ID_TEXT];
	int p[2], status;
	pid_t pid;

	usrbio_id_format((const uint8_t *)iov->id, id);
	/* The output fits into the pipe's buffer. */
	T_EQ(pipe(p), 0);
	T_CHECK(write(p[1], bytes, len) == (ssize_t)len);
	(void)close(p[1]);
	(void)fflush(stdout);
	pid = fork();
	if (!pid) {
		(void)dup2(p[0], 0);
		(void)execl(gpu_self, gpu_self, what, gpu_plain, gpu_daemon, id, (char *)NULL);
		_exit(127);
	}
	(void)close(p[0]);
	T_EQ(waitpid(pid, &status, 0), pid);
	return status;
}

#define GPU_CHILD(cond)                                                                      \
	do {                                                                                 \
		if (!(cond)) {                                                               \
			(void)fprintf(stderr, "# child, line %d: %s: %s\n", __LINE__, #cond, \
				      pst_error_text());                                     \
			return 1;                                                            \
		}                                                                            \
	} while (0)

#endif
