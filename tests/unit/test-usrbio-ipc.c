/* SPDX-License-Identifier: MIT */
/* The 64 bytes by which another process opens device memory. */
#include "t.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "usrbio/proto/ipc.h"

static struct usrbio_soft soft_of(int fd)
{
	struct usrbio_soft s = { .uuid = "0123456789abcde", .pid = getpid(), .fd = fd };
	struct stat st;

	T_EQ(fstat(fd, &st), 0);
	s.dev = st.st_dev;
	s.ino = st.st_ino;
	s.size = (uint64_t)st.st_size;
	return s;
}

static int memory(size_t len)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	T_CHECK(fd >= 0);
	T_EQ(ftruncate(fd, (off_t)len), 0);
	return fd;
}

static void there_and_back(void)
{
	int fd = memory(4096);
	struct usrbio_soft s = soft_of(fd), again;
	uint8_t ipc[USRBIO_IPC_LEN];

	usrbio_soft_format(&s, ipc);
	T_CHECK(usrbio_ipc_is_soft(ipc));
	T_EQ(usrbio_ipc_pid(ipc), getpid());
	T_EQ(usrbio_soft_parse(ipc, &again), 0);
	T_CHECK(again.pid == s.pid && again.fd == s.fd && again.size == s.size &&
		again.dev == s.dev && again.ino == s.ino && !memcmp(again.uuid, s.uuid, 16));
	T_EQ(close(fd), 0);
}

static void numbers_that_cannot_be(void)
{
	int fd = memory(4096);
	struct usrbio_soft s = soft_of(fd), none;
	uint8_t good[USRBIO_IPC_LEN], ipc[USRBIO_IPC_LEN] = { 0 };

	T_EQ(usrbio_soft_parse(ipc, &none), -EINVAL);
	T_CHECK(!usrbio_ipc_is_soft(ipc));
	T_EQ(usrbio_ipc_pid(ipc), 0);
	usrbio_soft_format(&s, good);
#define BAD(change)                                           \
	do {                                                  \
		s = soft_of(fd);                              \
		change;                                       \
		usrbio_soft_format(&s, ipc);                  \
		T_EQ(usrbio_soft_parse(ipc, &none), -EINVAL); \
	} while (0)
	BAD(s.pid = 0);
	BAD(s.pid = (1 << 22) + 1);
	BAD(s.pid = -1);
	BAD(s.fd = -1);
	BAD(s.size = 0);
	BAD(s.size = UINT64_MAX);
#undef BAD
	/* Flip a bit in each byte after the last number, and in the first bytes. */
	for (unsigned i = 56; i < USRBIO_IPC_LEN + 8; i++) {
		memcpy(ipc, good, sizeof(ipc));
		ipc[i % USRBIO_IPC_LEN] ^= 1;
		T_EQ(usrbio_soft_parse(ipc, &none), -EINVAL);
	}
	T_EQ(close(fd), 0);
}

/* The process id is one word of CUDA's handle, whatever the others are. */
static void the_process_of_a_handle(void)
{
	uint8_t ipc[USRBIO_IPC_LEN];
	const uint32_t pids[] = { 1, 4711, 1u << 22, (1u << 22) + 1, UINT32_MAX };

	t_fill(ipc, 3, 0, sizeof(ipc));
	for (unsigned i = 0; i < 5; i++) {
		memcpy(ipc + 8, &pids[i], 4);
		T_EQ(usrbio_ipc_pid(ipc), i < 3 ? (pid_t)pids[i] : 0);
		T_CHECK(!usrbio_ipc_is_soft(ipc));
	}
}

static void opening(void)
{
	int fd = memory(4096), again;
	struct usrbio_soft s = soft_of(fd), bad;
	char c = 7;

	again = usrbio_soft_open(&s, getpid());
	T_CHECK(again >= 0);
	T_EQ(pwrite(again, &c, 1, 5), 1);
	c = 0;
	T_EQ(pread(fd, &c, 1, 5), 1);
	T_EQ(c, 7);
	T_CHECK(fcntl(again, F_GETFD) & FD_CLOEXEC);
	T_EQ(close(again), 0);
	bad = s;
	bad.ino++;
	T_EQ(usrbio_soft_open(&bad, getpid()), -EINVAL);
	bad = s;
	bad.dev++;
	T_EQ(usrbio_soft_open(&bad, getpid()), -EINVAL);
	bad = s;
	bad.fd = 100000;
	T_EQ(usrbio_soft_open(&bad, getpid()), -EINVAL);
	T_EQ(usrbio_soft_open(&s, 0x7fffffff), -EINVAL);
	T_EQ(close(fd), 0);
	T_EQ(usrbio_soft_open(&s, getpid()), -EINVAL);
}

/* Only regular files are opened: a FIFO would wait for a writer, and opening a device may have
 * effects. */
static void only_files_are_opened(void)
{
	struct usrbio_soft s = { .pid = getpid(), .size = 1 };
	struct stat st;
	int p[2];

	T_EQ(pipe2(p, O_CLOEXEC), 0);
	T_EQ(fstat(p[0], &st), 0);
	s.fd = p[0];
	s.dev = st.st_dev;
	s.ino = st.st_ino;
	T_EQ(usrbio_soft_open(&s, getpid()), -EINVAL);
	T_EQ(close(p[0]) + close(p[1]), 0);
}

int main(void)
{
	T_RUN(there_and_back);
	T_RUN(numbers_that_cannot_be);
	T_RUN(the_process_of_a_handle);
	T_RUN(opening);
	T_RUN(only_files_are_opened);
	return t_done();
}
