/* SPDX-License-Identifier: MIT */
/*
 * Descriptors of files that a thread opens for itself: each is closed once, when its file is
 * freed, and refers to that file until then.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/err.h"
#define T_ERROR_TEXT() err_text()
#include "scratch.h"
#include "t.h"

#include "child.h"
#include "file/local.h"
#include "file/own.h"

#define NR (2 * OWN_FILES)
#define SEED 7
#define LEN 8192

static char dir[64];
static struct own_files own;

static const char *path_of(unsigned i)
{
	static char name[160];

	(void)snprintf(name, sizeof(name), "%s/own-%u", dir, i);
	return name;
}

static void make_file(const char *name, uint64_t seed)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	uint8_t buf[LEN];

	t_fill(buf, seed, 0, LEN);
	T_CHECK(fd >= 0 && write(fd, buf, LEN) == LEN);
	(void)close(fd);
}

static struct file *open_file(unsigned i)
{
	struct file *f = NULL;

	make_file(path_of(i), SEED + i);
	T_OK(file_open(path_of(i), PST_FILE_READ, 0, &f));
	return f;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* Check that the descriptor reads the bytes of file i. */
static void check_bytes(int fd, unsigned i)
{
	uint8_t buf[4096];

	T_CHECK(fd >= 0);
	T_EQ(own_file_read(fd, buf, 1000, sizeof(buf)), sizeof(buf));
	T_EQ(t_differs(buf, SEED + i, 1000, sizeof(buf)), sizeof(buf));
}

static void one_for_each(void)
{
	struct file *f[OWN_FILES];
	int fd[OWN_FILES];
	uint8_t buf[4096];

	own_files_init(&own);
	for (unsigned i = 0; i < OWN_FILES; i++) {
		f[i] = open_file(i);
		fd[i] = own_files_get(&own, f[i]);
		T_CHECK(fd[i] != file_local(f[i])->fd);
	}
	for (unsigned i = 0; i < OWN_FILES; i++) {
		T_EQ(own_files_get(&own, f[i]), fd[i]);
		check_bytes(fd[i], i);
	}
	T_EQ(own_file_read(fd[0], buf, LEN - 10, sizeof(buf)), 10);
	T_EQ(own_file_read(fd[0], buf, LEN, sizeof(buf)), 0);
	T_EQ(own_file_read(fd[0], NULL, 0, sizeof(buf)), -EFAULT);
	own_files_done(&own);
	for (unsigned i = 0; i < OWN_FILES; i++) {
		T_CHECK(!is_open(fd[i]));
		file_free(f[i]);
	}
}

/* Once a descriptor is closed, its number may belong to another file, which must not be closed. */
static void closed_once(void)
{
	struct file *f = open_file(0), *g[OWN_FILES];
	int fd, stranger;

	own_files_init(&own);
	fd = own_files_get(&own, f);
	check_bytes(fd, 0);
	file_free(f);
	T_CHECK(!is_open(fd));
	stranger = fcntl(0, F_DUPFD_CLOEXEC, fd);
	T_EQ(stranger, fd);
	/* Other files fill the table. */
	for (unsigned i = 0; i < OWN_FILES; i++) {
		g[i] = open_file(i);
		check_bytes(own_files_get(&own, g[i]), i);
		T_CHECK(is_open(stranger));
	}
	own_files_done(&own);
	T_CHECK(is_open(stranger));
	(void)close(stranger);
	for (unsigned i = 0; i < OWN_FILES; i++)
		file_free(g[i]);
}

/* The file is freed before the table: the table must not close the descriptor again. */
static void closed_once_at_the_end(void)
{
	struct file *f = open_file(0);
	int fd, stranger;

	own_files_init(&own);
	fd = own_files_get(&own, f);
	T_CHECK(fd >= 0);
	file_free(f);
	stranger = fcntl(0, F_DUPFD_CLOEXEC, fd);
	T_EQ(stranger, fd);
	own_files_done(&own);
	T_CHECK(is_open(stranger));
	(void)close(stranger);
}

/* The next file gets the same index as the closed one. */
static void another_file_at_its_place(void)
{
	struct file *f = open_file(0);
	uint32_t idx = file_local(f)->idx;

	own_files_init(&own);
	check_bytes(own_files_get(&own, f), 0);
	file_free(f);
	f = open_file(1);
	T_EQ(file_local(f)->idx, idx);
	check_bytes(own_files_get(&own, f), 1);
	file_free(f);
	own_files_done(&own);
}

/* More files than the table has room for: each is read right, and the number of descriptors is
 * bounded. */
static void many(void)
{
	unsigned before, kept = 0;
	struct file *f[NR];

	own_files_init(&own);
	for (unsigned i = 0; i < NR; i++)
		f[i] = open_file(i);
	before = t_count_fds();
	for (unsigned k = 0; k < 100; k++) {
		unsigned i = (unsigned)(t_now() + k * k) % NR;
		int fd = own_files_get(&own, f[i]);

		if (fd >= 0)
			check_bytes(fd, i);
	}
	kept = t_count_fds() - before;
	T_CHECK(kept > 0 && kept <= OWN_FILES);
	/* Closed files leave room for others. */
	for (unsigned i = 0; i < NR - 1; i++)
		file_free(f[i]);
	check_bytes(own_files_get(&own, f[NR - 1]), NR - 1);
	file_free(f[NR - 1]);
	own_files_done(&own);
}

/*
 * Closing any descriptor of a file ends the process' record locks on it, so none may be closed
 * while the file is open.
 */
static void record_locks_stay(void)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct file *f[NR];
	int mine, fd;
	pid_t pid;
	int status;

	own_files_init(&own);
	for (unsigned i = 0; i < NR; i++)
		f[i] = open_file(i);
	mine = open(path_of(0), O_RDWR | O_CLOEXEC);
	T_CHECK(mine >= 0);
	T_EQ(fcntl(mine, F_SETLK, &l), 0);
	for (unsigned i = 0; i < NR; i++) {
		fd = own_files_get(&own, f[i]);
		if (fd >= 0)
			check_bytes(fd, i);
	}
	pid = fork();
	if (pid == 0) {
		struct flock other = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

		_exit(fcntl(mine, F_GETLK, &other) == 0 && other.l_type == F_WRLCK ? 0 : 1);
	}
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	T_EQ(status, 0);
	own_files_done(&own);
	(void)close(mine);
	for (unsigned i = 0; i < NR; i++)
		file_free(f[i]);
}

/* An unlinked file is read correctly, even if its name now belongs to another file. */
static void unlinked(void)
{
	struct file *f = open_file(0), *g;

	T_EQ(unlink(path_of(0)), 0);
	make_file(path_of(0), SEED + 5);
	T_OK(file_open(path_of(0), PST_FILE_READ, 0, &g));
	own_files_init(&own);
	check_bytes(own_files_get(&own, f), 0);
	check_bytes(own_files_get(&own, g), 5);
	file_free(f);
	file_free(g);
	own_files_done(&own);
}

/* No descriptor is free, so the file gets none.  Later some are free. */
static void no_descriptor(void)
{
	struct rlimit rl, none;
	struct file *f = open_file(0), *g = open_file(1);
	int fd;

	T_EQ(getrlimit(RLIMIT_NOFILE, &rl), 0);
	none = rl;
	none.rlim_cur = 0;
	own_files_init(&own);
	T_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
	fd = own_files_get(&own, f);
	T_EQ(setrlimit(RLIMIT_NOFILE, &rl), 0);
	T_CHECK(fd < 0);
	T_CHECK(own_files_get(&own, f) < 0); /* not tried again for each read */
	check_bytes(own_files_get(&own, g), 1);
	file_free(f);
	file_free(g);
	own_files_done(&own);
}

static void as_another(void)
{
	struct file *f = open_file(0);

	own_files_init(&own);
	T_EQ(chmod(path_of(0), 0), 0);
	T_EQ(setresuid(t_stranger(), t_stranger(), 0), 0);
	T_CHECK(own_files_get(&own, f) < 0);
	T_CHECK(own_files_get(&own, f) < 0);
	T_EQ(setresuid(0, 0, 0), 0);
	file_free(f);
	own_files_done(&own);
}

static void no_permission(void)
{
	if (geteuid() != 0)
		T_SKIP("root");
	child_run(as_another);
}

/* A file without an index gets no descriptor: the table would not learn that it is freed. */
static void without_a_place(void)
{
	struct file *f = open_file(0);
	struct local_file *l = container_of(f, struct local_file, file);
	uint32_t idx = l->idx;

	own_files_init(&own);
	l->idx = IO_NO_IDX;
	T_CHECK(own_files_get(&own, f) < 0);
	l->idx = idx;
	own_files_done(&own);
	file_free(f);
}

/* ---------------------------------------------------------------- threads */

static char shared[160];
static atomic_bool stop;
static atomic_uint wrong;

/* Open and free files in a loop, and check each opened one. */
static void *opens(void *arg)
{
	struct stat a, b;

	(void)arg;
	while (!stop) {
		struct file *f = NULL;
		int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

		if (file_open(shared, PST_FILE_READ, 0, &f) < 0 || fd < 0 || fstat(fd, &a) < 0)
			wrong++;
		if (f)
			file_free(f);
		if (fstat(fd, &b) < 0 || a.st_ino != b.st_ino || close(fd) < 0)
			wrong++;
	}
	return NULL;
}

static void freed_by_others(void)
{
	pthread_t t;

	(void)snprintf(shared, sizeof(shared), "%s", path_of(0));
	make_file(shared, SEED);
	stop = false;
	own_files_init(&own);
	T_EQ(pthread_create(&t, NULL, opens, NULL), 0);
	for (unsigned i = 0; i < 2000; i++) {
		struct file *f = NULL;

		T_OK(file_open(shared, PST_FILE_READ, 0, &f));
		check_bytes(own_files_get(&own, f), 0);
		file_free(f);
	}
	stop = true;
	T_EQ(pthread_join(t, NULL), 0);
	own_files_done(&own);
	T_EQ(wrong, 0);
}

int main(void)
{
	/* Only files in memory use such descriptors. */
	if (scratch_new("/dev/shm", dir, sizeof(dir)) < 0) {
		printf("Bail out! no scratch directory in /dev/shm\n");
		return 1;
	}
	T_RUN(one_for_each);
	T_RUN(closed_once);
	T_RUN(closed_once_at_the_end);
	T_RUN(another_file_at_its_place);
	T_RUN(many);
	T_RUN(record_locks_stay);
	T_RUN(unlinked);
	T_RUN(no_descriptor);
	T_RUN(no_permission);
	T_RUN(without_a_place);
	T_RUN(freed_by_others);
	(void)scratch_remove(dir);
	return t_done();
}
