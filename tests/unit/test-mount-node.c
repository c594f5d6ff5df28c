/* SPDX-License-Identifier: MIT */
/* While a file system takes long to open or close one inode, other inodes can be looked up. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "scratch.h"
#include "t.h"
#include "usrbio/mount/node.h"

#define FILES 100u

static struct nodes nodes;
static char dir[128];
static atomic_int fds[FILES];
static struct node *found[FILES];

/* State of calls that hang until they are released. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t change;
	bool opens, closes; /* open or close calls hang */
	bool hangs;
} gate = { .lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER };

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __real_close(int fd);
int __wrap_close(int fd);

static void hang(const bool *armed)
{
	(void)pthread_mutex_lock(&gate.lock);
	while (*armed) {
		gate.hangs = true;
		(void)pthread_cond_broadcast(&gate.change);
		(void)pthread_cond_wait(&gate.change, &gate.lock);
	}
	(void)pthread_mutex_unlock(&gate.lock);
}

/* Replaces open64().  None of the calls here creates a file. */
int __wrap_open64(const char *path, int flags, ...)
{
	if (strncmp(path, "/proc/self/fd/", sizeof("/proc/self/fd/") - 1) == 0)
		hang(&gate.opens);
	return __real_open64(path, flags);
}

static bool is_file(int fd)
{
	for (unsigned i = 0; i < FILES; i++)
		if (fds[i] == fd)
			return true;
	return false;
}

int __wrap_close(int fd)
{
	if (is_file(fd))
		hang(&gate.closes);
	return __real_close(fd);
}

static void arm(bool *which, bool is)
{
	(void)pthread_mutex_lock(&gate.lock);
	*which = is;
	gate.hangs = false;
	(void)pthread_cond_broadcast(&gate.change);
	(void)pthread_mutex_unlock(&gate.lock);
}

/* Wait until a call hangs. */
static void hangs(void)
{
	uint64_t until = t_hang();
	bool is = false;

	while (!is && t_now() < until) {
		(void)pthread_mutex_lock(&gate.lock);
		is = gate.hangs;
		(void)pthread_mutex_unlock(&gate.lock);
		(void)usleep(100);
	}
	T_CHECK(is);
}

/* Look up file i, in the main thread. */
static int look_up(unsigned i)
{
	char name[200];
	struct stat st;

	(void)snprintf(name, sizeof(name), "%s/%u", dir, i);
	fds[i] = open(name, O_PATH | O_CLOEXEC);
	if (fds[i] < 0 || fstat(fds[i], &st) < 0)
		return -errno;
	return node_get(&nodes, fds[i], node_mount(fds[i]), &st, &found[i]);
}

static void *look_up_all(void *ret)
{
	int *err = ret;

	for (unsigned i = 1; i < FILES && *err == 0; i++)
		*err = look_up(i);
	return NULL;
}

static void *hold_root(void *ret)
{
	*(int *)ret = node_hold(&nodes, &nodes.root);
	return NULL;
}

/* Check that the thread ends while the call hangs, then release the call. */
static void ends(pthread_t thread, bool *armed)
{
	uint64_t until = t_hang();
	int err;

	while ((err = pthread_tryjoin_np(thread, NULL)) == EBUSY && t_now() < until)
		(void)usleep(100);
	arm(armed, false);
	if (err == EBUSY)
		(void)pthread_join(thread, NULL);
	T_EQ(err, 0);
}

static void begin(unsigned max_fds)
{
	int root;

	T_EQ(scratch_new(NULL, dir, sizeof(dir)), 0);
	for (unsigned i = 0; i < FILES; i++) {
		char name[200];
		int fd;

		fds[i] = -1;
		(void)snprintf(name, sizeof(name), "%s/%u", dir, i);
		fd = open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
		T_CHECK(fd >= 0);
		T_EQ(close(fd), 0);
	}
	root = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	T_CHECK(root >= 0);
	T_EQ(nodes_init(&nodes, root, NULL, max_fds), 0);
}

static void end(void)
{
	nodes_done(&nodes);
	T_EQ(scratch_remove(dir), 0);
}

/* The first use of a mount opens its directory, which hangs. */
static void opening_hangs(void)
{
	int held = -1, looked = 0;
	pthread_t holds, looks;

	begin(1000);
	arm(&gate.opens, true);
	T_EQ(pthread_create(&holds, NULL, hold_root, &held), 0);
	hangs();
	T_EQ(pthread_create(&looks, NULL, look_up_all, &looked), 0);
	ends(looks, &gate.opens);
	T_EQ(looked, 0);
	T_EQ(pthread_join(holds, NULL), 0);
	T_EQ(held, 0);
	node_release(&nodes, &nodes.root);
	end();
}

/* Closing the last descriptor of a deleted file frees its blocks, which takes long. */
static void closing_hangs(void)
{
	pthread_t looks;
	int looked = 0;

	begin(2);
	/* Open the mount's directory first, so that it does not count below. */
	T_EQ(node_hold(&nodes, &nodes.root), 0);
	node_release(&nodes, &nodes.root);
	if (nodes.mounts[0].fd < 0) {
		end();
		T_SKIP("root, and a file system whose handles can be opened");
	}
	T_EQ(look_up(0), 0);
	arm(&gate.closes, true);
	T_EQ(pthread_create(&looks, NULL, look_up_all, &looked), 0);
	hangs();
	ends(looks, &gate.closes);
	T_EQ(looked, 0);
	/* Inodes that were closed to make room are opened again. */
	for (unsigned i = 0; i < FILES; i++) {
		struct stat st;

		T_EQ(node_hold(&nodes, found[i]), 0);
		T_EQ(fstat(found[i]->fd, &st), 0);
		T_EQ(st.st_ino, found[i]->ino);
		node_release(&nodes, found[i]);
	}
	end();
}

int main(void)
{
	T_RUN(opening_hangs);
	T_RUN(closing_hangs);
	return t_done();
}
