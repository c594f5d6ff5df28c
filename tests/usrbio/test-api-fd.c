/* SPDX-License-Identifier: MIT */
/* U10: which file a descriptor's number means, from registration to its end. */
#include <pthread.h>
#include <stdatomic.h>

#include "api_rig.h"

static struct hf3fs_ior reads;
static struct hf3fs_iov iov;

static void make_ring(void)
{
	reads = api_ior(8, true);
	iov = api_iov(8192);
}

static void destroy_ring(void)
{
	hf3fs_iordestroy(&reads);
	hf3fs_iovdestroy(&iov);
}

/* Make a file that has one byte repeated. */
static int file_of(const char *name, char byte)
{
	char buf[4096];
	int fd = open(api_path(name), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	memset(buf, byte, sizeof(buf));
	T_CHECK(fd >= 0);
	T_EQ(pwrite(fd, buf, sizeof(buf), 0), sizeof(buf));
	T_EQ(fsync(fd), 0);
	return fd;
}

/*
 * Return true if the number still refers to the file.  Another thread may reuse a number as soon as
 * it is free, so fstat() would be a race.
 */
static bool still_names(int number, const struct stat *file)
{
	struct stat st;
	char path[40];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", number);
	return stat(path, &st) == 0 && st.st_ino == file->st_ino && st.st_dev == file->st_dev;
}

/* Return the byte of the file that a descriptor's number means to rings, or -errno. */
static int means(int fd)
{
	int64_t n;

	iov.base[0] = 0;
	n = api_io(&reads, &iov, 0, fd, 0, 4096);
	return n == 4096 ? iov.base[0] : (int)n;
}

static void U10_both_numbers_name_the_file(void)
{
	struct stat file;
	int fd, h;

	make_ring();
	fd = file_of("a", 'a');
	T_EQ(fstat(fd, &file), 0);
	T_EQ(means(fd), -EBADF);
	h = hf3fs_reg_fd(fd, 12345);
	T_CHECK(h <= 0);
	T_EQ(means(fd), 'a');
	T_EQ(means(h), 'a');
	T_EQ(means(-h), 'a');
	/* The registration holds its own descriptor, which exec() does not inherit. */
	T_CHECK(-h != fd && fcntl(-h, F_GETFD) == FD_CLOEXEC);
	hf3fs_dereg_fd(fd);
	T_EQ(means(fd), -EBADF);
	T_EQ(means(h), -EBADF);
	T_CHECK(!still_names(-h, &file));
	/* Register again. */
	h = hf3fs_reg_fd(fd, 0);
	T_CHECK(h <= 0);
	hf3fs_dereg_fd(h);
	T_EQ(means(fd), -EBADF);
	T_CHECK(!still_names(-h, &file));
	hf3fs_dereg_fd(fd);
	(void)close(fd);
	destroy_ring();
}

static void U10_usable_after_close(void)
{
	int fd, h;

	make_ring();
	fd = file_of("a", 'a');
	h = hf3fs_reg_fd(fd, 0);
	T_CHECK(h <= 0);
	T_EQ(close(fd), 0);
	T_EQ(means(fd), 'a');
	T_EQ(means(h), 'a');
	T_EQ(unlink(api_path("a")), 0);
	T_EQ(means(h), 'a');
	/* A closed descriptor can still be deregistered. */
	hf3fs_dereg_fd(fd);
	T_EQ(means(fd), -EBADF);
	T_EQ(means(h), -EBADF);
	destroy_ring();
}

/* The number of a closed descriptor is reused for another file. */
static void U10_a_number_that_comes_again(void)
{
	int fd, h, again, h2;

	make_ring();
	fd = file_of("a", 'a');
	h = hf3fs_reg_fd(fd, 0);
	T_CHECK(h <= 0);
	T_EQ(close(fd), 0);
	again = file_of("b", 'b');
	T_EQ(again, fd);
	/* Until it is registered again, the number means the old file. */
	T_EQ(means(fd), 'a');
	h2 = hf3fs_reg_fd(again, 0);
	T_CHECK(h2 <= 0 && h2 != h);
	T_EQ(means(again), 'b');
	T_EQ(means(h), 'a');
	hf3fs_dereg_fd(again);
	T_EQ(means(again), -EBADF);
	T_EQ(means(h), 'a');
	hf3fs_dereg_fd(h);
	T_EQ(means(h), -EBADF);
	(void)close(again);
	destroy_ring();
}

/* Another open of the same file is another registration; a duplicate is the same. */
static void U10_the_same_file_again(void)
{
	int fd, other, h, h2;

	make_ring();
	fd = file_of("a", 'a');
	h = hf3fs_reg_fd(fd, 0);
	T_CHECK(h <= 0);
	other = dup(fd);
	h2 = hf3fs_reg_fd(other, 0);
	T_CHECK(h2 <= 0);
	T_EQ(hf3fs_reg_fd(fd, 0), EINVAL);
	T_EQ(hf3fs_reg_fd(other, 0), EINVAL);
	T_EQ(close(fd), 0);
	T_EQ(open(api_path("a"), O_RDONLY | O_CLOEXEC), fd);
	T_CHECK(hf3fs_reg_fd(fd, 0) <= 0);
	T_EQ(means(fd), 'a');
	hf3fs_dereg_fd(h);
	T_EQ(means(fd), 'a');
	T_EQ(means(other), 'a');
	hf3fs_dereg_fd(other);
	hf3fs_dereg_fd(fd);
	(void)close(fd);
	(void)close(other);
	destroy_ring();
}

/*
 * A registered descriptor is closed, so its number is the lowest free one: the library's next
 * duplicate must not take it.
 */
static void U10_duplicates_take_no_registered_number(void)
{
	int low, a, b, h;

	make_ring();
	low = dup(0);
	a = file_of("a", 'a');
	b = file_of("b", 'b');
	T_CHECK(hf3fs_reg_fd(a, 0) <= 0);
	T_EQ(close(a), 0);
	h = hf3fs_reg_fd(b, 0);
	T_CHECK(h <= 0 && -h != a);
	T_EQ(means(a), 'a');
	T_EQ(means(b), 'b');
	T_EQ(means(h), 'b');
	hf3fs_dereg_fd(b);
	hf3fs_dereg_fd(a);
	(void)close(b);
	(void)close(low);
	destroy_ring();
}

static void U10_high_numbers(void)
{
	int fd = file_of("a", 'a'), high, h;

	make_ring();
	high = fcntl(fd, F_DUPFD_CLOEXEC, 9000);
	if (high < 0) {
		(void)close(fd);
		destroy_ring();
		T_SKIP("9000 descriptors (ulimit -n)");
	}
	h = hf3fs_reg_fd(high, 0);
	T_CHECK(h <= 0);
	T_EQ(means(high), 'a');
	T_EQ(means(high + 1), -EBADF);
	hf3fs_dereg_fd(high);
	T_EQ(means(high), -EBADF);
	(void)close(high);
	(void)close(fd);
	destroy_ring();
}

/* Rings use the access mode that the descriptor had at registration. */
static void U10_modes(void)
{
	struct hf3fs_ior writes;
	int fd, ro, h;

	make_ring();
	writes = api_ior(2, false);
	fd = file_of("a", 'a');
	ro = open(api_path("a"), O_RDONLY | O_CLOEXEC);
	h = hf3fs_reg_fd(ro, 0);
	T_CHECK(h <= 0);
	/* The number now is writable, but the registration is not. */
	T_EQ(dup3(fd, ro, O_CLOEXEC), ro);
	T_EQ(api_io(&writes, &iov, 0, ro, 0, 4096), -EACCES);
	T_EQ(means(ro), 'a');
	T_CHECK(hf3fs_reg_fd(ro, 0) <= 0);
	T_EQ(api_io(&writes, &iov, 0, ro, 0, 4096), 4096);
	T_EQ(api_io(&writes, &iov, 0, h, 0, 4096), -EACCES);
	hf3fs_dereg_fd(h);
	hf3fs_dereg_fd(ro);
	(void)close(ro);
	(void)close(fd);
	hf3fs_iordestroy(&writes);
	destroy_ring();
}

/* Requests that were prepared before deregistration complete as usual. */
static void U10_deregistered_with_requests_in_flight(void)
{
	struct hf3fs_cqe cqe[4];
	struct timespec until;
	struct stat file;
	int fd, h, n = 0;

	make_ring();
	fd = file_of("a", 'a');
	h = hf3fs_reg_fd(fd, 0);
	T_CHECK(h <= 0);
	memset(iov.base, 0, 8192);
	for (int i = 0; i < 4; i++)
		T_CHECK(hf3fs_prep_io(&reads, &iov, true, iov.base + i * 1024, h, 0, 1024, NULL) >=
			0);
	T_EQ(fstat(fd, &file), 0);
	hf3fs_dereg_fd(fd);
	(void)close(fd);
	T_EQ(hf3fs_prep_io(&reads, &iov, true, iov.base, h, 0, 1, NULL), -EBADF);
	T_EQ(hf3fs_submit_ios(&reads), 0);
	until = api_in_ms(API_WAIT_MS);
	while (n < 4) {
		int got = hf3fs_wait_for_ios(&reads, cqe + n, 4 - n, 1, &until);

		T_CHECK(got > 0);
		n += got;
	}
	for (int i = 0; i < 4; i++) {
		T_EQ(cqe[i].result, 1024);
		T_EQ(iov.base[i * 1024 + 1023], 'a');
	}
	/* The end of the last request closed the duplicate. */
	T_CHECK(!still_names(-h, &file));
	destroy_ring();
}

/* Many threads register and use files: a lookup finds the thread's own file or none. */
#define THREADS 4
#define ROUNDS 200

static _Atomic unsigned wrong;

static void *registers(void *arg)
{
	int i = (int)(intptr_t)arg;
	char name[16];
	struct hf3fs_ior ior;
	struct hf3fs_iov mem;
	int64_t n;
	int fd;

	(void)snprintf(name, sizeof(name), "t%d", i);
	fd = open(api_path(name), O_RDONLY | O_CLOEXEC);
	if (hf3fs_iorcreate(&ior, mnt, 2, true, 0, -1) || hf3fs_iovcreate(&mem, mnt, 64, 0, -1))
		return NULL;
	for (int k = 0; k < ROUNDS; k++) {
		int h = hf3fs_reg_fd(fd, 0);
		struct hf3fs_cqe c;

		mem.base[0] = 0;
		n = hf3fs_prep_io(&ior, &mem, true, mem.base, k % 2 ? h : fd, 0, 1, NULL);
		hf3fs_dereg_fd(k % 3 ? h : fd);
		(void)hf3fs_submit_ios(&ior);
		if (h > 0 || n < 0 || hf3fs_wait_for_ios(&ior, &c, 1, 1, NULL) != 1 ||
		    c.result != 1 || mem.base[0] != 'A' + i)
			wrong++;
	}
	hf3fs_iordestroy(&ior);
	hf3fs_iovdestroy(&mem);
	(void)close(fd);
	return NULL;
}

static void U10_threads(void)
{
	pthread_t t[THREADS];
	char name[16];

	wrong = 0;
	for (int i = 0; i < THREADS; i++) {
		(void)snprintf(name, sizeof(name), "t%d", i);
		T_EQ(close(file_of(name, (char)('A' + i))), 0);
	}
	for (int i = 0; i < THREADS; i++)
		T_EQ(pthread_create(&t[i], NULL, registers, (void *)(intptr_t)i), 0);
	for (int i = 0; i < THREADS; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	T_EQ(wrong, 0);
}

int main(void)
{
	api_init();
	API_RUN(U10_both_numbers_name_the_file);
	API_RUN(U10_usable_after_close);
	API_RUN(U10_a_number_that_comes_again);
	API_RUN(U10_the_same_file_again);
	API_RUN(U10_duplicates_take_no_registered_number);
	API_RUN(U10_high_numbers);
	API_RUN(U10_modes);
	API_RUN(U10_deregistered_with_requests_in_flight);
	API_RUN(U10_threads);
	return api_done();
}
