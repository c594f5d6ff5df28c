/* SPDX-License-Identifier: MIT */
/*
 * penstock-worker SOCKET SOCKET TALLY SEMAPHORE SEMAPHORE SEMAPHORE UID
 *
 * Executes the rings of one user of a mount, as that user.  The broker starts it and sends it
 * files, shared memory and rings (link.h). Its counters are in the memory of descriptor TALLY.
 *
 * Each priority has watchers.  One of them waits for the semaphore that clients post.  After a post
 * this watcher executes the requests itself, because waking another thread takes longer than a
 * small request.  If recent posts came while it was working, it has another watcher wait before it
 * begins longer work.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <penstock.h>

#include "base/base.h"
#include "base/list.h"
#include "usrbio/mount/link.h"
#include "usrbio/proto/ipc.h"
#include "usrbio/proto/link.h"
#include "usrbio/proto/sem.h"
#include "usrbio/proto/spin.h"
#include "usrbio/server/server.h"

#define DRAIN_NS NSEC_PER_SEC
#define SEM_MODE 0600
#define SPIN_NS 20000u /* time for which a watcher polls before sleeping, ns */
#define MUCH_NS 30000u /* amount of work before which another watcher takes over waiting, ns */
#define WATCHERS_MAX 4u
#define CROSSED_MAX 16u

/* A file, buffer or ring that the broker sent. */
struct thing {
	struct list link;
	struct list watched; /* a ring's link on watch->rings */
	uint64_t handle;
	enum link_op op; /* LINK_*_ADD */
	struct server_file *file;
	struct server_buffer *buffer;
	struct pst_mem *mem;
	struct server_ring *ring;
	struct watch *watch; /* watch of a ring */
	void *map;
	size_t size;
};

/* A priority's semaphore, and the rings whose clients post it. */
struct watch {
	const char *name;
	sem_t *sem;
	pthread_mutex_t wait; /* held by the watcher that waits; the first lock */
	struct spin spin;     /* guarded by wait */
	/* guarded by wait: incremented when a post comes while another watcher works */
	unsigned crossed;
	atomic_uint at_work; /* watchers that execute requests */
	pthread_rwlock_t lock;
	struct list rings;
};

static struct {
	struct server *server;
	struct list things; /* used by the thread that answers the broker */
	struct watch watches[USRBIO_PRIORITIES];
	int tell; /* socket for link_tell(); under telling */
	pthread_mutex_t telling;
} my = { .telling = PTHREAD_MUTEX_INITIALIZER };

static struct thing *worker_find(uint64_t handle)
{
	struct list *e;

	list_for_each (e, &my.things)
		if (list_entry(e, struct thing, link)->handle == handle)
			return list_entry(e, struct thing, link);
	return NULL;
}

/* -------------------------------------------------------------- semaphores */

static bool is_posted(const void *arg)
{
	return usrbio_sem_is_posted(((const struct watch *)arg)->sem);
}

static void worker_await(struct watch *w)
{
	bool crossed = is_posted(w);

	if (!spin_until(&w->spin, SPIN_NS, is_posted, w))
		usrbio_sem_wait(w->sem, UINT64_MAX);
	/* Reset before reading the rings, so that no later entry is missed. */
	usrbio_sem_reset(w->sem);
	crossed |= atomic_load(&w->at_work);
	w->crossed = crossed ? MIN(w->crossed + 2, CROSSED_MAX) : w->crossed - !!w->crossed;
}

/* Serve rings that may have entries.  Return true if the caller is still the watcher that waits. */
static bool serve_rings(struct watch *w)
{
	bool waits = true, alone = !w->crossed;
	uint64_t ns = 0;
	struct list *e;

	(void)atomic_fetch_add(&w->at_work, 1);
	(void)pthread_rwlock_rdlock(&w->lock);
	/* With a single ring no other watcher is needed: the thread that serves the ring also finds
	 * later entries. */
	alone |= w->rings.next == w->rings.prev;
	list_for_each (e, &w->rings) {
		struct server_ring *r = list_entry(e, struct thing, watched)->ring;
		uint64_t more = server_ring_work(r);

		if (!more)
			continue;
		ns += more;
		if (waits && !alone && ns >= MUCH_NS) {
			(void)pthread_mutex_unlock(&w->wait);
			waits = false;
		}
		server_ring_serve(r);
	}
	(void)pthread_rwlock_unlock(&w->lock);
	(void)atomic_fetch_sub(&w->at_work, 1);
	return waits;
}

static void *worker_watch(void *arg)
{
	struct watch *w = arg;
	bool waits = false;

	for (;;) {
		if (!waits)
			(void)pthread_mutex_lock(&w->wait);
		worker_await(w);
		waits = serve_rings(w);
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
	/* Initialise the semaphore: glibc's clients read there that it is shared. */
	return sem_init(*ret, 1, 0) < 0 ? -errno : 0;
}

static int start_watcher(struct watch *w)
{
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	err = pthread_create(&thread, &attr, worker_watch, w);
	(void)pthread_attr_destroy(&attr);
	return -err;
}

/* Start a watcher per CPU, up to WATCHERS_MAX; one is enough to work. */
static int start_watchers(struct watch *w)
{
	cpu_set_t set;
	unsigned nr = 1;
	int err;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		nr = MIN((unsigned)CPU_COUNT(&set), WATCHERS_MAX);
	err = start_watcher(w);
	for (unsigned i = 1; i < nr && err == 0; i++)
		if (start_watcher(w) < 0)
			break;
	return err;
}

/* Prefer writers: readers that lock again and again would starve them. */
static int init_lock(pthread_rwlock_t *lock)
{
	pthread_rwlockattr_t attr;
	int err;

	(void)pthread_rwlockattr_init(&attr);
	(void)pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	err = pthread_rwlock_init(lock, &attr);
	(void)pthread_rwlockattr_destroy(&attr);
	return -err;
}

static int open_watch(struct watch *w)
{
	int err = init_lock(&w->lock);

	(void)pthread_mutex_init(&w->wait, NULL);
	list_init(&w->rings);
	if (err == 0)
		err = open_sem(w->name, &w->sem);
	return err < 0 ? err : start_watchers(w);
}

static void unlink_sems(void)
{
	char path[USRBIO_SHM_NAME_MAX + 8];

	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++) {
		(void)snprintf(path, sizeof(path), "/sem.%s", my.watches[p].name);
		(void)shm_unlink(path);
	}
}

/* ------------------------------------------------------------------ things */

static int worker_map(struct thing *t, uint64_t size, int fd)
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

/* Add a file that this process opens by its name, with the user's rights. */
static int worker_add_name(struct thing *t, const struct link_msg *msg, int fd)
{
	uint32_t flags = (msg->how & LINK_FILE_READ ? PST_FILE_READ : 0) |
			 (msg->how & LINK_FILE_WRITE ? PST_FILE_WRITE : 0);
	char name[LINK_NAME_MAX];
	ssize_t n = pread(fd, name, sizeof(name) - 1, 0);

	if (n <= 0)
		return n < 0 ? -errno : -EINVAL;
	name[n] = '\0';
	return server_file_add_name(my.server, msg->number, name, flags, msg->cached, &t->file);
}

static int worker_add_file(struct thing *t, const struct link_msg *msg, int fd)
{
	if (msg->how)
		return worker_add_name(t, msg, fd);
	if (msg->cached)
		return server_file_add_told(my.server, msg->number, fd, &t->file);
	return server_file_add(my.server, msg->number, fd, &t->file);
}

static int add_buffer(struct thing *t, const struct link_msg *msg, int fd)
{
	int err = worker_map(t, msg->size, fd);

	if (err == 0)
		err = pst_mem_wrap((uintptr_t)t->map, t->size, NULL, &t->mem);
	return err < 0 ? err
		       : server_buffer_add(my.server, msg->name.id, t->mem, t->size,
					   msg->name.block_size, &t->buffer);
}

static int add_ring(struct thing *t, const struct link_msg *msg, int fd)
{
	int err = worker_map(t, msg->size, fd);
	struct server_ring_opts o = {
		.base = t->map,
		.size = t->size,
		.for_read = msg->name.for_read,
		.io_depth = msg->name.io_depth,
		.priority = msg->name.priority,
		.timeout_ms = msg->name.timeout_ms,
		.flags = msg->name.flags,
	};

	if (err == 0)
		err = server_ring_add(my.server, &o, &t->ring);
	if (err == 0) {
		t->watch = &my.watches[msg->name.priority];
		(void)pthread_rwlock_wrlock(&t->watch->lock);
		list_add_tail(&t->watch->rings, &t->watched);
		(void)pthread_rwlock_unlock(&t->watch->lock);
	}
	return err;
}

/* Fill in a grant of the software device, whose memory the broker has opened. */
static int soft_grant(struct pst_grant *g, int fd)
{
	struct usrbio_soft s;
	int err = fd < 0 ? -EBADF : usrbio_soft_parse(g->ipc, &s);

	if (err < 0)
		return err;
	g->kind = PST_KIND_SOFT;
	g->size = s.size;
	g->fd = fd;
	memcpy(g->uuid, s.uuid, sizeof(g->uuid));
	explicit_bzero(g->ipc, sizeof(g->ipc));
	return 0;
}

/* Add device memory.  The grant has no UUID, because only CUDA knows which GPU the number means. */
static int add_device(struct thing *t, const struct link_msg *msg, int fd)
{
	struct pst_grant g = {
		.sz = sizeof(g),
		.kind = PST_KIND_CUDA,
		.rights = PST_RIGHT_READ | PST_RIGHT_WRITE,
		.size = msg->gdr.allocation,
		.off = msg->gdr.off,
		.len = msg->gdr.size,
		.fd = -1,
	};
	int err = 0;

	memcpy(g.ipc, msg->gdr.ipc, sizeof(g.ipc));
	if (usrbio_ipc_is_soft(g.ipc))
		err = soft_grant(&g, fd);
	if (err == 0)
		err = server_buffer_add_grant(my.server, msg->name.id, &g,
					      (unsigned)msg->gdr.device, &t->buffer);
	explicit_bzero(&g, sizeof(g));
	return err;
}

/* Free a thing.  Memory that requests may still touch stays mapped until the process ends. */
static void worker_destroy(struct thing *t)
{
	bool quiet = true;

	if (t->ring) {
		(void)pthread_rwlock_wrlock(&t->watch->lock);
		list_del(&t->watched);
		(void)pthread_rwlock_unlock(&t->watch->lock);
		server_ring_remove(my.server, t->ring);
	}
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

static int worker_add(const struct link_msg *msg, int fd)
{
	struct thing *t = calloc(1, sizeof(*t));
	int err;

	if (!t)
		return -ENOMEM;
	t->handle = msg->handle;
	t->op = (enum link_op)msg->op;
	switch (t->op) {
	case LINK_FILE_ADD:
		err = worker_add_file(t, msg, fd);
		break;
	case LINK_RING_ADD:
		err = add_ring(t, msg, fd);
		break;
	case LINK_DEVICE_ADD:
		err = add_device(t, msg, fd);
		break;
	default:
		err = add_buffer(t, msg, fd);
	}
	if (err < 0) {
		worker_destroy(t);
		return err;
	}
	list_add_tail(&my.things, &t->link);
	return 0;
}

static int worker_drop(uint64_t handle)
{
	struct thing *t = worker_find(handle);

	if (!t)
		return -ENOENT;
	list_del(&t->link);
	worker_destroy(t);
	return 0;
}

static int worker_answer(const struct link_msg *msg, int fd)
{
	switch (msg->op) {
	case LINK_FILE_ADD:
	case LINK_BUFFER_ADD:
	case LINK_RING_ADD:
		return fd < 0 ? -EBADF : worker_add(msg, fd);
	case LINK_DEVICE_ADD:
		return worker_add(msg, fd);
	case LINK_FILE_REMOVE:
	case LINK_BUFFER_REMOVE:
	case LINK_RING_REMOVE:
		return worker_drop(msg->handle);
	default:
		return -EOPNOTSUPP;
	}
}

/* ------------------------------------------------------------------- life */

static int worker_serve(int sock)
{
	struct link_msg msg = { .op = LINK_HELLO };
	int r = mount_link_send(sock, &msg, -1), fd = -1;

	while (r == 0 && (r = link_recv(sock, &msg, &fd)) > 0) {
		msg.result = worker_answer(&msg, fd);
		closep(&fd);
		explicit_bzero(&msg.gdr, sizeof(msg.gdr));
		r = mount_link_send(sock, &msg, -1);
	}
	return r;
}

/*
 * Make the kernel write back and drop its cache of these ranges.  Otherwise it could write old
 * pages back later, or show them to a reader after the completion.  Returns soon if the broker has
 * ended.
 */
static void writes(const struct server_range *ranges, unsigned nr)
{
	struct link_range r[LINK_RANGES_MAX];
	unsigned n;

	(void)pthread_mutex_lock(&my.telling);
	for (; nr; nr -= n, ranges += n) {
		n = MIN(nr, LINK_RANGES_MAX);
		for (unsigned i = 0; i < n; i++)
			r[i] = (struct link_range){ ranges[i].number, ranges[i].off, ranges[i].len,
						    ranges[i].ends };
		(void)link_tell(my.tell, r, n);
	}
	(void)pthread_mutex_unlock(&my.telling);
}

static int map_tally(int fd, struct usrbio_tally **ret)
{
	void *map = mmap(NULL, sizeof(**ret), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		return -errno;
	(void)close(fd);
	*ret = map;
	return 0;
}

static int mount_worker_begin(int tally, char *const sems[])
{
	struct server_opts o = { .guard = true, .writes = writes };
	int err;

	list_init(&my.things);
	err = map_tally(tally, &o.tally);
	if (err < 0)
		return err;
	for (unsigned p = 0; p < USRBIO_PRIORITIES; p++)
		my.watches[p].name = sems[p];
	err = server_new(&o, &my.server);
	for (unsigned p = 0; p < USRBIO_PRIORITIES && err == 0; p++)
		err = open_watch(&my.watches[p]);
	return err;
}

/* Free everything, rings first, so that no requests are in flight. */
static void mount_worker_end(void)
{
	static const enum link_op order[] = { LINK_RING_ADD, LINK_BUFFER_ADD, LINK_DEVICE_ADD,
					      LINK_FILE_ADD };

	unlink_sems();
	for (unsigned i = 0; i < ARRAY_SIZE(order); i++) {
		struct list *e, *n;

		list_for_each_safe (e, n, &my.things)
			if (list_entry(e, struct thing, link)->op == order[i])
				(void)worker_drop(list_entry(e, struct thing, link)->handle);
	}
	(void)server_free(my.server);
}

/* Drop all capabilities: securebits(7) may keep some when the user changes. */
static int drop_capabilities(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = { { 0 } };

	return syscall(SYS_capset, &head, none) < 0 ? -errno : 0;
}

/*
 * Become the user's process.  No other process of the user may trace or inspect it, because it may
 * have files that one process of the user opened and others may not open.  Before this call nobody
 * can trace the worker, because it ran as root and has not called exec since.  If the server runs
 * as the user, the user could trace the server instead, so there is nothing to protect.
 */
static int become_user(const char *text)
{
	uid_t uid = (uid_t)strtoul(text, NULL, 10);
	int err = 0;

	/* Check the effective user, as the broker does. */
	if (geteuid() != 0)
		return 0;
	if (uid && setresuid(uid, uid, uid) < 0)
		return -errno;
	if (uid)
		err = drop_capabilities();
	if (err < 0)
		return err;
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0;
}

int main(int argc, char *argv[])
{
	int sock, err;

	if (argc != 5 + USRBIO_PRIORITIES) {
		(void)fputs("penstock-worker is started by penstock-mount\n", stderr);
		return 2;
	}
	sock = atoi(argv[1]);
	my.tell = atoi(argv[2]);
	/* Ignore a terminal's signals, which are for the broker; the broker ends the worker. */
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	err = become_user(argv[4 + USRBIO_PRIORITIES]);
	if (err < 0) {
		(void)mount_link_send(sock, &(struct link_msg){ .op = LINK_HELLO, .result = err },
				      -1);
		return 1;
	}
	err = mount_worker_begin(atoi(argv[3]), argv + 4);
	/* SIGCONT: when the server is killed, a stopped worker continues, and then ends. */
	(void)prctl(PR_SET_PDEATHSIG, SIGCONT);
	if (err == 0)
		err = worker_serve(sock);
	else
		(void)mount_link_send(sock, &(struct link_msg){ .op = LINK_HELLO, .result = err },
				      -1);
	/* A worker that ends by itself needs no SIGCONT, which would disturb a tracer such as a
	 * leak check at exit. */
	(void)prctl(PR_SET_PDEATHSIG, 0);
	mount_worker_end();
	return err < 0;
}
