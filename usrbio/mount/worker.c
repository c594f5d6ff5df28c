/* SPDX-License-Identifier: MIT */
/*
 * penstock-worker SOCKET SEMAPHORE SEMAPHORE SEMAPHORE
 *
 * Executes the rings of one user of a mount, as that user.  The broker starts it, and hands it
 * files, shared memory and rings (link.h).  A thread for each priority sleeps on the semaphore
 * that clients post.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <penstock.h>

#include "base/base.h"
#include "base/list.h"
#include "usrbio/mount/link.h"
#include "usrbio/proto/link.h"
#include "usrbio/proto/sem.h"
#include "usrbio/server/server.h"

#define DRAIN_NS NSEC_PER_SEC
#define SEM_MODE 0600

/* A file, a buffer or a ring that the broker handed over. */
struct thing {
	struct list link;
	uint64_t handle;
	enum link_op op; /* by which it came */
	struct server_file *file;
	struct server_buffer *buffer;
	struct pst_mem *mem;
	struct server_ring *ring;
	enum usrbio_priority priority;
	void *map;
	size_t size;
};

static struct {
	struct server *server;
	pthread_rwlock_t lock; /* of the list, for the threads that kick rings */
	struct list things;
	sem_t *sem[USRBIO_PRIORITIES];
	const char *sem_name[USRBIO_PRIORITIES];
} my = { .lock = PTHREAD_RWLOCK_INITIALIZER };

static struct thing *find(uint64_t handle)
{
	struct list *e;

	list_for_each (e, &my.things)
		if (list_entry(e, struct thing, link)->handle == handle)
			return list_entry(e, struct thing, link);
	return NULL;
}

/* -------------------------------------------------------------- semaphores */

/* Rings of a priority may have entries. */
static void kick(enum usrbio_priority priority)
{
	struct list *e;

	(void)pthread_rwlock_rdlock(&my.lock);
	list_for_each (e, &my.things) {
		const struct thing *t = list_entry(e, struct thing, link);

		if (t->ring && t->priority == priority)
			server_ring_kick(t->ring);
	}
	(void)pthread_rwlock_unlock(&my.lock);
}

static void *watch(void *arg)
{
	enum usrbio_priority priority = (enum usrbio_priority)(uintptr_t)arg;
	sem_t *sem = my.sem[priority];

	for (;;) {
		usrbio_sem_wait(sem, UINT64_MAX);
		usrbio_sem_reset(sem);
		kick(priority);
	}
	return NULL;
}

static int open_sem(const char *name, sem_t **ret)
{
	char path[USRBIO_SHM_NAME_MAX + 8];
	_cleanup_(closep) int fd = -1;

	(void)snprintf(path, sizeof(path), "/sem.%s", name);
	fd = shm_open(path, O_RDWR | O_CREAT | O_EXCL, SEM_MODE);
	if (fd < 0 || ftruncate(fd, sizeof(sem_t)) < 0)
		return -errno;
	*ret = mmap(NULL, sizeof(sem_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (*ret == MAP_FAILED)
		return -errno;
	/* glibc's clients read there that others wait for it. */
	return sem_init(*ret, 1, 0) < 0 ? -errno : 0;
}

static int start_watch(enum usrbio_priority priority)
{
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	err = pthread_create(&thread, &attr, watch, (void *)(uintptr_t)priority);
	(void)pthread_attr_destroy(&attr);
	return -err;
}

static int open_sems(void)
{
	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++) {
		int err = open_sem(my.sem_name[p], &my.sem[p]);

		if (err == 0)
			err = start_watch((enum usrbio_priority)p);
		if (err < 0)
			return err;
	}
	return 0;
}

static void unlink_sems(void)
{
	char path[USRBIO_SHM_NAME_MAX + 8];

	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++) {
		(void)snprintf(path, sizeof(path), "/sem.%s", my.sem_name[p]);
		(void)shm_unlink(path);
	}
}

/* ------------------------------------------------------------------ things */

static int map(struct thing *t, uint64_t size, int fd)
{
	if (!size || size > SIZE_MAX)
		return -EINVAL;
	t->map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (t->map == MAP_FAILED) {
		t->map = NULL;
		return -errno;
	}
	t->size = size;
	return 0;
}

static int add_buffer(struct thing *t, const struct link_msg *msg, int fd)
{
	int err = map(t, msg->size, fd);

	if (err == 0)
		err = pst_mem_wrap((uintptr_t)t->map, t->size, NULL, &t->mem);
	return err < 0 ? err
		       : server_buffer_add(my.server, msg->name.id, t->mem, t->size,
					   msg->name.block_size, &t->buffer);
}

static int add_ring(struct thing *t, const struct link_msg *msg, int fd)
{
	int err = map(t, msg->size, fd);
	struct server_ring_opts o = {
		.base = t->map,
		.size = t->size,
		.for_read = msg->name.for_read,
		.io_depth = msg->name.io_depth,
		.priority = msg->name.priority,
		.timeout_ms = msg->name.timeout_ms,
		.flags = msg->name.flags,
	};

	t->priority = msg->name.priority;
	return err < 0 ? err : server_ring_add(my.server, &o, &t->ring);
}

/* Memory that requests may touch still stays mapped until the end. */
static void destroy(struct thing *t)
{
	bool quiet = true;

	if (t->ring)
		server_ring_remove(my.server, t->ring);
	if (t->file)
		server_file_remove(my.server, t->file);
	if (t->buffer)
		server_buffer_remove(my.server, t->buffer);
	if (t->mem) {
		quiet = pst_mem_drain(t->mem, now_ns() + DRAIN_NS) == 0;
		(void)pst_mem_free(t->mem);
	}
	if (t->map && quiet)
		(void)munmap(t->map, t->size);
	free(t);
}

static int add(const struct link_msg *msg, int fd)
{
	struct thing *t = calloc(1, sizeof(*t));
	int err;

	if (!t)
		return -ENOMEM;
	t->handle = msg->handle;
	t->op = (enum link_op)msg->op;
	if (msg->op == LINK_FILE_ADD)
		err = server_file_add(my.server, msg->number, fd, &t->file);
	else
		err = msg->op == LINK_RING_ADD ? add_ring(t, msg, fd) : add_buffer(t, msg, fd);
	if (err < 0) {
		destroy(t);
		return err;
	}
	(void)pthread_rwlock_wrlock(&my.lock);
	list_add_tail(&my.things, &t->link);
	(void)pthread_rwlock_unlock(&my.lock);
	return 0;
}

static int drop(uint64_t handle)
{
	struct thing *t = find(handle);

	if (!t)
		return -ENOENT;
	(void)pthread_rwlock_wrlock(&my.lock);
	list_del(&t->link);
	(void)pthread_rwlock_unlock(&my.lock);
	destroy(t);
	return 0;
}

static int answer(const struct link_msg *msg, int fd)
{
	switch (msg->op) {
	case LINK_FILE_ADD:
	case LINK_BUFFER_ADD:
	case LINK_RING_ADD:
		return fd < 0 ? -EBADF : add(msg, fd);
	case LINK_FILE_REMOVE:
	case LINK_BUFFER_REMOVE:
	case LINK_RING_REMOVE:
		return drop(msg->handle);
	default:
		return -EOPNOTSUPP;
	}
}

/* ------------------------------------------------------------------- life */

static int serve(int sock)
{
	struct link_msg msg = { .op = LINK_HELLO };
	int r = link_send(sock, &msg, -1), fd = -1;

	while (r == 0 && (r = link_recv(sock, &msg, &fd)) > 0) {
		msg.result = answer(&msg, fd);
		closep(&fd);
		r = link_send(sock, &msg, -1);
	}
	return r;
}

static int begin(char *const sems[])
{
	const struct server_opts o = { .guard = true };
	int err;

	list_init(&my.things);
	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++)
		my.sem_name[p] = sems[p];
	err = server_new(&o, &my.server);
	return err < 0 ? err : open_sems();
}

/* Rings first, so that nothing is under way. */
static void end(void)
{
	static const enum link_op order[] = { LINK_RING_ADD, LINK_BUFFER_ADD, LINK_FILE_ADD };

	unlink_sems();
	for (unsigned i = 0; i < ARRAY_SIZE(order); i++) {
		struct list *e, *n;

		list_for_each_safe (e, n, &my.things)
			if (list_entry(e, struct thing, link)->op == order[i])
				(void)drop(list_entry(e, struct thing, link)->handle);
	}
	(void)server_free(my.server);
}

int main(int argc, char *argv[])
{
	int sock, err;

	if (argc != 2 + USRBIO_PRIORITIES) {
		(void)fputs("penstock-worker is started by penstock-mount\n", stderr);
		return 2;
	}
	sock = atoi(argv[1]);
	/* The broker ends it; what a terminal sends is for the broker. */
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	err = begin(argv + 2);
	if (err == 0)
		err = serve(sock);
	else
		(void)link_send(sock, &(struct link_msg){ .op = LINK_HELLO, .result = err }, -1);
	end();
	return err < 0;
}
