/* SPDX-License-Identifier: MIT */
/*
 * usrbio-server-host BACKING MOUNTPOINT
 *
 * Our ring server behind a mount: what clients publish is mapped and handed to a server of their
 * user, with the files that this user has open through the mount.  Prints "ready" and serves until
 * it is unmounted or gets SIGTERM.  It has no more of a daemon than foreign clients need.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock.h>

#include "usrbio/proto/ioctl.h"
#include "usrbio/proto/link.h"
#include "usrbio/proto/name.h"
#include "vfs.h"
#include "usrbio/server/server.h"

#define USERS_MAX 16
#define CHUNK (UINT64_C(1) << 20) /* holes are multiples of it */
#define INO_IOVS (UINT64_C(1) << 62)
#define INO_SEM(prio) (INO_IOVS + 1 + (uint64_t)(prio))
#define INO_FIRST (INO_IOVS + 65535)

static const char *const sem_names[] = USRBIO_SEM_NAMES;

struct user {
	uid_t uid;
	struct server *server;
};

/* A published link. */
struct entry {
	struct entry *next;
	char name[USRBIO_NAME_MAX];
	char target[USRBIO_SHM_NAME_MAX + sizeof(USRBIO_SHM_DIR)];
	uint64_t ino;
	uid_t uid;
	struct user *user;
	enum usrbio_priority priority;
	void *base;
	size_t size;
	struct pst_mem *mem;
	struct server_buffer *buffer;
	struct server_ring *ring;
};

/* An open file, from open to release. */
struct opened {
	struct opened *next;
	const void *key;
	struct user *user;
	struct server_file *file;
};

static struct {
	pthread_mutex_t lock; /* of everything here */
	struct vfs *vfs;
	struct user users[USERS_MAX];
	unsigned nr_users;
	struct entry *entries;
	struct opened *opened;
	uint64_t next_ino;
	struct {
		char name[64]; /* without its slash */
		sem_t *sem;
	} submit[USRBIO_PRIORITIES];
} host = { .lock = PTHREAD_MUTEX_INITIALIZER, .next_ino = INO_FIRST };

/* ------------------------------------------------------------------- users */

static struct user *user_get(uid_t uid)
{
	struct server_opts o = { .threads = 2, .guard = true };
	struct user *u;

	for (unsigned i = 0; i < host.nr_users; i++)
		if (host.users[i].uid == uid)
			return &host.users[i];
	if (host.nr_users == USERS_MAX)
		return NULL;
	u = &host.users[host.nr_users];
	u->uid = uid;
	if (server_new(&o, &u->server) < 0)
		return NULL;
	host.nr_users++;
	return u;
}

/* ----------------------------------------------------------------- entries */

static void entry_free(struct entry *e)
{
	if (e->ring)
		server_ring_remove(e->user->server, e->ring);
	if (e->buffer)
		server_buffer_remove(e->user->server, e->buffer);
	if (e->mem) {
		(void)pst_mem_drain(e->mem, PST_NO_DEADLINE);
		e->mem = pst_mem_free(e->mem);
	}
	if (e->base)
		(void)munmap(e->base, e->size);
	free(e);
}

/* Memory beneath /dev/shm that belongs to the user. */
static int entry_map(struct entry *e, const char *shm)
{
	char path[sizeof(e->target)];
	struct stat st;
	int fd;

	(void)snprintf(path, sizeof(path), USRBIO_SHM_DIR "%s", shm);
	fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !st.st_size) {
		(void)close(fd);
		return -EINVAL;
	}
	if (st.st_uid != e->uid) {
		(void)close(fd);
		return -EPERM;
	}
	e->size = (size_t)st.st_size;
	e->base = mmap(NULL, e->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)close(fd);
	if (e->base != MAP_FAILED)
		return 0;
	e->base = NULL;
	return -EACCES;
}

static int entry_add(struct entry *e, const struct usrbio_name *n)
{
	struct server_ring_opts o = {
		.base = e->base,
		.size = e->size,
		.for_read = n->for_read,
		.io_depth = n->io_depth,
		.priority = n->priority,
		.timeout_ms = n->timeout_ms,
		.flags = n->flags,
	};
	int r;

	if (n->kind == USRBIO_RING) {
		e->priority = n->priority;
		return server_ring_add(e->user->server, &o, &e->ring);
	}
	if (n->block_size > e->size)
		return -EINVAL;
	r = pst_mem_wrap((uintptr_t)e->base, e->size, NULL, &e->mem);
	if (r < 0)
		return r;
	return server_buffer_add(e->user->server, n->id, e->mem, e->size, n->block_size,
				 &e->buffer);
}

static struct entry *entry_by_name(const char *name)
{
	struct entry *e;

	for (e = host.entries; e && strcmp(e->name, name) != 0; e = e->next)
		;
	return e;
}

static struct entry *entry_by_ino(uint64_t ino)
{
	struct entry *e;

	for (e = host.entries; e && e->ino != ino; e = e->next)
		;
	return e;
}

static void entry_stat(const struct entry *e, struct vfs_link *l)
{
	*l = (struct vfs_link){ .ino = e->ino, .mode = 0400, .uid = e->uid };
	l->size = strlen(e->target);
}

/* -------------------------------------------------------------- semaphores */

static int sem_by_name(const char *name)
{
	for (int i = 0; i < USRBIO_PRIORITIES; i++)
		if (strcmp(name, sem_names[i]) == 0)
			return i;
	return -1;
}

static void sem_target(int prio, char *buf, size_t size)
{
	(void)snprintf(buf, size, USRBIO_SHM_DIR "sem.%s", host.submit[prio].name);
}

static void sem_stat(int prio, struct vfs_link *l)
{
	char target[128];

	sem_target(prio, target, sizeof(target));
	*l = (struct vfs_link){ .ino = INO_SEM(prio), .mode = 0666, .size = strlen(target) };
}

/* Somebody posted: every ring of that priority may have entries. */
static void *watch(void *arg)
{
	unsigned prio = (unsigned)(uintptr_t)arg;

	for (;;) {
		while (sem_wait(host.submit[prio].sem) < 0)
			;
		(void)pthread_mutex_lock(&host.lock);
		for (struct entry *e = host.entries; e; e = e->next)
			if (e->ring && e->priority == prio)
				server_ring_kick(e->ring);
		(void)pthread_mutex_unlock(&host.lock);
	}
	return NULL;
}

/* Signals are for the thread that serves the mount. */
static int watch_start(unsigned prio)
{
	sigset_t all, old;
	pthread_t t;
	int err;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&t, NULL, watch, (void *)(uintptr_t)prio);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err)
		(void)pthread_detach(t);
	return -err;
}

static int sems_open(void)
{
	for (unsigned i = 0; i < USRBIO_PRIORITIES; i++) {
		char name[80];
		int r;

		(void)snprintf(host.submit[i].name, sizeof(host.submit[i].name),
			       "hf3fs-submit-ios.host-%d-%u", (int)getpid(), i);
		(void)snprintf(name, sizeof(name), "/%s", host.submit[i].name);
		host.submit[i].sem = sem_open(name, O_CREAT | O_EXCL, 0666, 0);
		if (host.submit[i].sem == SEM_FAILED)
			return -errno;
		r = watch_start(i);
		if (r < 0)
			return r;
	}
	return 0;
}

static void sems_unlink(void)
{
	for (unsigned i = 0; i < USRBIO_PRIORITIES; i++) {
		char name[80];

		(void)snprintf(name, sizeof(name), "/%s", host.submit[i].name);
		(void)sem_unlink(name);
	}
}

/* ---------------------------------------------------------- the virtual tree */

static int on_lookup(void *owner, const struct vfs_caller *who, const char *name,
		     struct vfs_link *ret)
{
	int prio = sem_by_name(name), r = -ENOENT;
	struct entry *e;

	(void)owner;
	if (prio >= 0) {
		sem_stat(prio, ret);
		return 0;
	}
	(void)pthread_mutex_lock(&host.lock);
	e = entry_by_name(name);
	if (e && e->uid != who->uid) {
		r = -EPERM;
	} else if (e) {
		entry_stat(e, ret);
		r = 0;
	}
	(void)pthread_mutex_unlock(&host.lock);
	return r;
}

static int on_getattr(void *owner, const struct vfs_caller *who, uint64_t ino, struct vfs_link *ret)
{
	struct entry *e;
	int r = -ENOENT;

	(void)owner;
	(void)who;
	if (ino >= INO_SEM(0) && ino < INO_SEM(USRBIO_PRIORITIES)) {
		sem_stat((int)(ino - INO_SEM(0)), ret);
		return 0;
	}
	(void)pthread_mutex_lock(&host.lock);
	e = entry_by_ino(ino);
	if (e) {
		entry_stat(e, ret);
		r = 0;
	}
	(void)pthread_mutex_unlock(&host.lock);
	return r;
}

static int on_readlink(void *owner, const struct vfs_caller *who, uint64_t ino, char *buf,
		       size_t size)
{
	struct entry *e;
	int r = -ENOENT;

	(void)owner;
	if (ino >= INO_SEM(0) && ino < INO_SEM(USRBIO_PRIORITIES)) {
		sem_target((int)(ino - INO_SEM(0)), buf, size);
		return 0;
	}
	(void)pthread_mutex_lock(&host.lock);
	e = entry_by_ino(ino);
	if (e && e->uid != who->uid) {
		r = -EPERM;
	} else if (e) {
		(void)snprintf(buf, size, "%s", e->target);
		r = 0;
	}
	(void)pthread_mutex_unlock(&host.lock);
	return r;
}

/* Under the lock: everything that can be wrong is found before the reply. */
static int publish(struct entry *e, const char *target)
{
	char shm[USRBIO_SHM_NAME_MAX];
	struct usrbio_name n;
	int r = usrbio_name_parse(e->name, &n);

	if (!r && n.kind == USRBIO_DEVICE)
		r = -EOPNOTSUPP;
	if (!r)
		r = usrbio_link_shm(target, shm);
	if (!r && entry_by_name(e->name))
		r = -EEXIST;
	if (!r)
		r = entry_map(e, shm);
	if (!r) {
		e->user = user_get(e->uid);
		r = e->user ? entry_add(e, &n) : -ENOMEM;
	}
	return r < 0 ? r : 0;
}

static int on_symlink(void *owner, const struct vfs_caller *who, const char *target,
		      const char *name, struct vfs_link *ret)
{
	struct entry *e;
	int r;

	(void)owner;
	if (sem_by_name(name) >= 0)
		return -EEXIST;
	if (strlen(name) >= sizeof(e->name) || strlen(target) >= sizeof(e->target))
		return -EINVAL;
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	(void)strcpy(e->name, name);
	(void)strcpy(e->target, target);
	e->uid = who->uid;
	(void)pthread_mutex_lock(&host.lock);
	r = publish(e, target);
	if (!r) {
		e->ino = host.next_ino++;
		e->next = host.entries;
		host.entries = e;
		entry_stat(e, ret);
	}
	(void)pthread_mutex_unlock(&host.lock);
	if (r < 0)
		entry_free(e);
	return r;
}

static int on_unlink(void *owner, const struct vfs_caller *who, const char *name)
{
	struct entry **at, *e = NULL;
	int r = -ENOENT;

	(void)owner;
	if (sem_by_name(name) >= 0)
		return -EPERM;
	(void)pthread_mutex_lock(&host.lock);
	for (at = &host.entries; *at; at = &(*at)->next)
		if (strcmp((*at)->name, name) == 0)
			break;
	if (*at && (*at)->uid != who->uid) {
		r = -EPERM;
	} else if (*at) {
		e = *at;
		*at = e->next;
		r = 0;
	}
	(void)pthread_mutex_unlock(&host.lock);
	if (e)
		entry_free(e);
	return r;
}

static int on_list(void *owner, const struct vfs_caller *who, uint64_t id, struct vfs_list *list)
{
	int r = 0;

	(void)owner;
	(void)id;
	for (int i = 0; i < USRBIO_PRIORITIES && r >= 0; i++)
		r = vfs_list_add(list, sem_names[i], INO_SEM(i), S_IFLNK);
	(void)pthread_mutex_lock(&host.lock);
	for (struct entry *e = host.entries; e && r >= 0; e = e->next)
		if (e->uid == who->uid)
			r = vfs_list_add(list, e->name, e->ino, S_IFLNK);
	(void)pthread_mutex_unlock(&host.lock);
	return r;
}

static int punch(const struct vfs_file *file, const struct usrbio_punch *p)
{
	if (file->fd < 0 || p->n < 0 || p->n > USRBIO_PUNCH_RANGES)
		return -EINVAL;
	for (int i = 0; i < p->n; i++)
		if (p->start[i] % CHUNK || p->end[i] % CHUNK || p->start[i] >= p->end[i] ||
		    p->end[i] > INT64_MAX)
			return -EINVAL;
	for (int i = 0; i < p->n; i++)
		if (fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			      (off_t)p->start[i], (off_t)(p->end[i] - p->start[i])) < 0)
			return -errno;
	return vfs_invalidate(host.vfs, file->ino, 0, 0);
}

static int on_ioctl(void *owner, const struct vfs_caller *who, const struct vfs_file *file,
		    unsigned cmd, const void *in, size_t in_len, void *out, size_t out_len)
{
	const uint32_t magic = USRBIO_MAGIC, version = USRBIO_IOCTL_VERSION;

	(void)owner;
	(void)who;
	(void)in_len; /* the number of the ioctl says what it is */
	switch (cmd) {
	case USRBIO_IOC_MAGIC:
		memcpy(out, &magic, sizeof(magic));
		return 0;
	case USRBIO_IOC_VERSION:
		memcpy(out, &version, sizeof(version));
		return 0;
	case USRBIO_IOC_MOUNT_NAME:
		(void)snprintf(out, out_len, "host");
		return 0;
	case USRBIO_IOC_FSYNC:
		return fsync(file->fd) < 0 ? -errno : vfs_invalidate(host.vfs, file->ino, 0, 0);
	case USRBIO_IOC_PUNCH:
		return punch(file, in);
	default:
		return -ENOTTY;
	}
}

/* ------------------------------------------------------------------- files */

static void on_open(void *owner, const struct vfs_caller *who, const struct vfs_file *file,
		    const void *key)
{
	struct opened *o = calloc(1, sizeof(*o));

	(void)owner;
	if (!o)
		return;
	(void)pthread_mutex_lock(&host.lock);
	o->key = key;
	o->user = user_get(who->uid);
	if (o->user && server_file_add(o->user->server, file->ino, file->fd, &o->file) == 0) {
		o->next = host.opened;
		host.opened = o;
		o = NULL;
	}
	(void)pthread_mutex_unlock(&host.lock);
	free(o);
}

static void on_release(void *owner, const void *key)
{
	struct opened **at, *o;

	(void)owner;
	(void)pthread_mutex_lock(&host.lock);
	for (at = &host.opened; *at && (*at)->key != key; at = &(*at)->next)
		;
	o = *at;
	if (o)
		*at = o->next;
	(void)pthread_mutex_unlock(&host.lock);
	if (!o)
		return;
	server_file_remove(o->user->server, o->file);
	free(o);
}

int main(int argc, char **argv)
{
	static const struct vfs_ops ops = {
		.lookup = on_lookup,
		.getattr = on_getattr,
		.readlink = on_readlink,
		.symlink = on_symlink,
		.unlink = on_unlink,
		.list = on_list,
		.ioctl = on_ioctl,
		.open = on_open,
		.release = on_release,
	};
	struct vfs_config c = {
		.fsname = "host",
		.subtype = "hf3fs",
		.outer = "3fs-virt",
		.inner = "iovs",
		.outer_ino = INO_IOVS - 1,
		.inner_ino = INO_IOVS,
		.outer_mode = 0555,
		.inner_mode = 0777,
	};
	int r;

	if (argc < 3) {
		(void)fprintf(stderr, "usage: usrbio-worker-host BACKING MOUNTPOINT\n");
		return 2;
	}
	c.backing = argv[1];
	c.mountpoint = argv[2];
	r = vfs_mount(&c, &ops, NULL, &host.vfs);
	if (r < 0) {
		(void)fprintf(stderr, "usrbio-worker-host: %s\n", strerror(-r));
		return 1;
	}
	r = sems_open();
	if (r == 0) {
		(void)puts("ready");
		(void)fflush(stdout);
		r = vfs_serve(host.vfs);
	}
	sems_unlink();
	while (host.entries) {
		struct entry *e = host.entries;

		host.entries = e->next;
		entry_free(e);
	}
	/* Watchers, servers and what is open go with the process. */
	return r < 0;
}
