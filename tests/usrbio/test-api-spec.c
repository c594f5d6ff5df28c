/* SPDX-License-Identifier: MIT */
/*
 * The example of the API's documentation, with host memory instead of a GPU's, and otherwise
 * unchanged: even the path /mnt/hf3fs, a plain directory in a mount namespace of this test.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/api/hf3fs_usrbio_gdr.h"

#include "own_mnt.h"
#include "usrbio/proto/plain.h"
#include "t.h"

#define SEED 7

static size_t buffer_size = 1 << 20;

static int spec_creating_an_iov(uint8_t *ret_bytes)
{
	// Create an iov - library allocates memory internally
	struct hf3fs_iov iov;
	int ret = hf3fs_iovcreate(&iov, "/mnt/hf3fs", buffer_size, 0, -1);
	if (ret != 0) {
		fprintf(stderr, "Failed to create iov: %d\n", ret);
		return ret;
	}

	// Create I/O ring (same as regular usrbio)
	struct hf3fs_ior ior;
	hf3fs_iorcreate4(&ior, "/mnt/hf3fs", 64, true, 0, 0, -1, 0);

	// Register file
	int fd = open("/mnt/hf3fs/data/file.bin", O_RDONLY);
	hf3fs_reg_fd(fd, 0);

	// Submit read to memory (same as regular usrbio)
	hf3fs_prep_io(&ior, &iov, true, iov.base, fd, 0, buffer_size, NULL);
	hf3fs_submit_ios(&ior);

	// Wait for completion
	struct hf3fs_cqe cqe;
	hf3fs_wait_for_ios(&ior, &cqe, 1, 1, NULL);

	// Use data...
	memcpy(ret_bytes, iov.base, buffer_size);

	// Cleanup
	hf3fs_iovdestroy(&iov);
	hf3fs_iordestroy(&ior);

	/* The example lacks this call. */
	hf3fs_dereg_fd(fd);
	(void)close(fd);
	return (int)cqe.result;
}

static void make_file(void)
{
	uint8_t *buf = malloc(buffer_size);
	int fd;

	T_CHECK(buf);
	t_fill(buf, SEED, 0, buffer_size);
	T_EQ(mkdir("/mnt/hf3fs", 0755), 0);
	T_EQ(usrbio_plain_make("/mnt/hf3fs"), 0);
	T_EQ(mkdir("/mnt/hf3fs/data", 0755), 0);
	fd = open("/mnt/hf3fs/data/file.bin", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	T_EQ(write(fd, buf, buffer_size), (ssize_t)buffer_size);
	(void)close(fd);
	free(buf);
}

static unsigned entries(const char *dir, const char *holds)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	unsigned n = 0;

	while (d && (e = readdir(d)))
		n += e->d_name[0] != '.' && strstr(e->d_name, holds);
	if (d)
		(void)closedir(d);
	return n;
}

static void the_example_of_the_specification(void)
{
	char pid[32];
	uint8_t *buf;

	if (!own_mnt())
		T_SKIP(OWN_MNT_LACKS);
	make_file();
	buf = malloc(buffer_size);
	T_CHECK(buf);
	for (int i = 0; i < 2; i++) {
		memset(buf, 0, buffer_size);
		T_EQ(spec_creating_an_iov(buf), buffer_size);
		T_EQ(t_differs(buf, SEED, 0, buffer_size), buffer_size);
		/* Threads that execute stay for the next ring. */
		if (i == 0)
			t_fds_at_start = t_count_fds();
	}
	free(buf);
	T_EQ(entries("/mnt/hf3fs/3fs-virt/iovs", ""), 0);
	/* Count only this process' memory. */
	(void)snprintf(pid, sizeof(pid), ".p%d.", (int)getpid());
	T_EQ(entries("/dev/shm", pid), 0);
}

int main(void)
{
	T_RUN(the_example_of_the_specification);
	return t_done();
}
