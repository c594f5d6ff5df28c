/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/node.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "usrbio/mount/caller.h"

#define BUCKETS_MIN 1024u
#define MAKE_ROOM 64u /* maximum nodes to check for closing if too many are open */
#define INO_BITS 56   /* bits of the source's inode number; higher bits: file system */

static size_t node_bucket(const struct nodes *ns, dev_t dev, ino_t ino)
{
	uint64_t h = (uint64_t)ino * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)dev;

	return (h ^ h >> 32) & (ns->nr_buckets - 1);
}

/* Double the buckets.  If out of memory, keep them, with longer chains. */
static void node_grow(struct nodes *ns)
{
	struct node **old = ns->buckets, **more = calloc(2 * ns->nr_buckets, sizeof(struct node *));
	size_t nr = ns->nr_buckets;

	if (!more)
		return;
	ns->buckets = more;
	ns->nr_buckets = 2 * nr;
	for (size_t i = 0; i < nr; i++) {
		struct node *next;

		for (struct node *n = old[i]; n; n = next) {
			struct node **to = &more[node_bucket(ns, n->dev, n->ino)];

			next = n->next;
			n->next = *to;
			*to = n;
		}
	}
	free(old);
}

/* Find a node.  mnt 0: on any mount. */
static struct node *node_find(struct nodes *ns, uint64_t mnt, const struct stat *st)
{
	struct node *n = ns->buckets[node_bucket(ns, st->st_dev, st->st_ino)];

	while (n && (n->dev != st->st_dev || n->ino != st->st_ino || (mnt && n->mnt != mnt)))
		n = n->next;
	return n;
}

uint64_t node_mount(int fd)
{
	struct statx st;

	/* Do not send a request to the file system, which might be this server's. */
	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &st) == 0 &&
			       st.stx_mask & STATX_MNT_ID
		       ? st.stx_mnt_id
		       : 0;
}

/* Return a number for a file system; NODE_DEVS if there are too many. */
static unsigned dev_number(struct nodes *ns, dev_t dev)
{
	unsigned i = 0;

	while (i < ns->nr_devs && ns->devs[i] != dev)
		i++;
	if (i == ns->nr_devs && i < NODE_DEVS)
		ns->devs[ns->nr_devs++] = dev;
	return i;
}

static uint64_t node_mix(dev_t dev, ino_t ino)
{
	return ((uint64_t)ino ^ (uint64_t)dev << 32) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Make an inode number for the mount.  If both parts do not fit, hash them: a collision is
 * practically impossible. */
static uint64_t mount_node_number(struct nodes *ns, dev_t dev, ino_t ino)
{
	unsigned i = dev_number(ns, dev);

	if (i < NODE_DEVS && ino >> INO_BITS == 0)
		return (uint64_t)i << INO_BITS | ino;
	return (uint64_t)NODE_DEVS << INO_BITS | node_mix(dev, ino) >> (64 - INO_BITS);
}

uint64_t node_number(struct nodes *ns, dev_t dev, ino_t ino)
{
	uint64_t ret;

	(void)pthread_mutex_lock(&ns->lock);
	ret = mount_node_number(ns, dev, ino);
	(void)pthread_mutex_unlock(&ns->lock);
	return ret;
}

/* ----------------------------------------------------------------- handles */

/* Return an inode's handle in its file system, or NULL. */
static struct file_handle *node_handle_of(int fd)
{
	struct file_handle *h = malloc(sizeof(*h) + MAX_HANDLE_SZ);
	int id;

	if (!h)
		return NULL;
	h->handle_bytes = MAX_HANDLE_SZ;
	if (name_to_handle_at(fd, "", h, &id, AT_EMPTY_PATH) < 0) {
		free(h);
		return NULL;
	}
	return h;
}

static bool same_handle(const struct file_handle *a, const struct file_handle *b)
{
	return a && b && a->handle_type == b->handle_type && a->handle_bytes == b->handle_bytes &&
	       !memcmp(a->f_handle, b->f_handle, a->handle_bytes);
}

/*
 * Check whether file handles can be opened with the descriptor of this directory; any directory of
 * the same mount would do.  Return the descriptor if they can; otherwise close it and return -1.
 */
static int try_handles(int fd)
{
	_cleanup_(freep) struct file_handle *h = node_handle_of(fd);
	int again = h ? open_by_handle_at(fd, h, O_PATH | O_CLOEXEC) : -1;

	if (again >= 0) {
		(void)close(again);
		return fd;
	}
	(void)close(fd);
	return -1;
}

/* Return the entry of that mount, or NULL. */
static struct node_mount *find_mount(struct nodes *ns, uint64_t mnt)
{
	for (unsigned i = 0; i < ns->nr_mounts; i++)
		if (ns->mounts[i].mnt == mnt)
			return &ns->mounts[i];
	return NULL;
}

/*
 * Add an entry for the mount of a directory, which does not open handles yet.  NULL if the mount
 * has one or there is no room.  Entries never move.  With the lock.
 */
static struct node_mount *new_mount(struct nodes *ns, const struct node *n)
{
	if (n->type != S_IFDIR || ns->nr_mounts == NODE_MOUNTS || find_mount(ns, n->mnt))
		return NULL;
	ns->mounts[ns->nr_mounts] = (struct node_mount){ n->mnt, -1 };
	return &ns->mounts[ns->nr_mounts++];
}

/*
 * Find out whether handles of a directory's mount can be opened.  The caller holds the node but not
 * the lock, because the file system may hang.  Ends with the server's own rights.
 */
static void know_mount(struct nodes *ns, const struct node *n, struct node_mount *m)
{
	char path[32];
	int fd;

	caller_end();
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", n->fd);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		fd = try_handles(fd);
	(void)pthread_mutex_lock(&ns->lock);
	m->fd = fd;
	(void)pthread_mutex_unlock(&ns->lock);
}

/* Return the descriptor for opening handles of the node's mount, or -1. */
static int mount_fd(struct nodes *ns, const struct node *n)
{
	const struct node_mount *m = find_mount(ns, n->mnt);

	return m ? m->fd : -1;
}

/*
 * Thread: close the descriptors on the unused list.  The last close of a deleted file frees its
 * blocks, which is slow, so no request and no lock should wait for it.  Closing needs no special
 * rights.
 */
static void *close_unused(void *arg)
{
	struct nodes *ns = arg;

	(void)pthread_mutex_lock(&ns->lock);
	while (!ns->ends || ns->nr_unused) {
		int fd;

		if (!ns->nr_unused) {
			(void)pthread_cond_wait(&ns->put, &ns->lock);
			continue;
		}
		fd = ns->unused[--ns->nr_unused];
		(void)pthread_mutex_unlock(&ns->lock);
		(void)close(fd);
		(void)pthread_mutex_lock(&ns->lock);
	}
	(void)pthread_mutex_unlock(&ns->lock);
	return NULL;
}

/* Return true if the unused list has room and a thread closes its descriptors.  The caller holds
 * the lock. */
static bool may_put(struct nodes *ns)
{
	sigset_t all, before;

	if (ns->nr_unused == NODE_UNUSED)
		return false;
	if (ns->closes)
		return true;
	/* The main thread waits for signals; block them here. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	ns->closes = pthread_create(&ns->closer, NULL, close_unused, ns) == 0;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ns->closes;
}

/* End the node's passthrough, if it is active. */
static void drop_backing(struct nodes *ns, struct node *n)
{
	if (n->backing && ns->drop)
		ns->drop(ns->drop_arg, n);
}

/* Close the node's descriptor, and end passthrough before that. */
static void close_fd(struct nodes *ns, struct node *n)
{
	drop_backing(ns, n);
	closep(&n->fd);
	n->fd = -1;
}

/* Put a node's descriptor on the unused list if the node can be opened again by handle; otherwise
 * return false.  The caller holds the lock. */
static bool put_away(struct nodes *ns, struct node *n)
{
	int fd = mount_fd(ns, n);

	if (fd >= 0 && !n->handle)
		n->handle = node_handle_of(n->fd);
	if (fd < 0 || !n->handle || !may_put(ns))
		return false;
	drop_backing(ns, n);
	ns->unused[ns->nr_unused++] = n->fd;
	(void)pthread_cond_signal(&ns->put);
	n->fd = -1;
	ns->nr_fds--;
	list_del(&n->used);
	return true;
}

/* Close descriptors of the least recently used nodes.  The caller holds the lock. */
static void node_make_room(struct nodes *ns)
{
	unsigned left = MAKE_ROOM;
	struct list *e, *next;

	list_for_each_safe (e, next, &ns->used) {
		struct node *n = list_entry(e, struct node, used);

		if (!left--)
			return;
		/* Move a node that stays open to the end, so that others are checked next time. */
		if (n->nr_holds || n->nr_open || n->path || !put_away(ns, n))
			list_move_tail(&ns->used, &n->used);
	}
}

static void now_open(struct nodes *ns, struct node *n, int fd)
{
	n->fd = fd;
	if (ns->no_fds)
		return;
	list_add_tail(&ns->used, &n->used);
	if (++ns->nr_fds > ns->max_fds)
		node_make_room(ns);
}

/*
 * Open a node's file again by its handle.  Call this without ns->lock, because opening may be slow.
 */
static int open_again(struct nodes *ns, struct node *n)
{
	int fd = -1, by;

	(void)pthread_mutex_lock(&n->lock);
	(void)pthread_mutex_lock(&ns->lock);
	by = n->fd < 0 ? mount_fd(ns, n) : -1;
	(void)pthread_mutex_unlock(&ns->lock);
	caller_end();
	if (by >= 0)
		fd = open_by_handle_at(by, n->handle, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	by = fd < 0 ? -errno : 0;
	(void)pthread_mutex_lock(&ns->lock);
	if (n->fd < 0 && fd >= 0)
		now_open(ns, n, fd);
	else
		closep(&fd);
	if (n->fd >= 0)
		by = 0;
	(void)pthread_mutex_unlock(&ns->lock);
	(void)pthread_mutex_unlock(&n->lock);
	return by;
}

int node_hold(struct nodes *ns, struct node *n)
{
	struct node_mount *m = NULL;
	bool open;
	int err;

	(void)pthread_mutex_lock(&ns->lock);
	n->nr_holds++;
	open = n->fd >= 0 || ns->no_fds;
	if (n->fd >= 0) {
		list_move_tail(&ns->used, &n->used);
		m = new_mount(ns, n);
	}
	(void)pthread_mutex_unlock(&ns->lock);
	if (m)
		know_mount(ns, n, m);
	if (open)
		return 0;
	err = open_again(ns, n);
	if (err < 0)
		node_release(ns, n);
	return err;
}

static void remove_from_bucket(struct nodes *ns, const struct node *n)
{
	struct node **at = &ns->buckets[node_bucket(ns, n->dev, n->ino)];

	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	ns->nr--;
}

static void node_destroy(struct nodes *ns, struct node *n)
{
	close_fd(ns, n);
	free(n->handle);
	free(n->path);
	free(n->remote);
	(void)pthread_mutex_destroy(&n->lock);
}

/* Unlock, and free the node if neither the kernel nor an operation uses it.  The caller holds the
 * lock. */
static void unlock_put(struct nodes *ns, struct node *n)
{
	bool last = !n->lookups && !n->nr_holds && n != &ns->root;

	if (last && !n->lost)
		remove_from_bucket(ns, n);
	if (last && n->fd >= 0) {
		list_del(&n->used);
		ns->nr_fds--;
	}
	(void)pthread_mutex_unlock(&ns->lock);
	if (!last)
		return;
	node_destroy(ns, n);
	free(n);
}

void node_release(struct nodes *ns, struct node *n)
{
	(void)pthread_mutex_lock(&ns->lock);
	n->nr_holds--;
	unlock_put(ns, n);
}

/* ------------------------------------------------------------------- nodes */

static void node_init(struct nodes *ns, struct node *n, int fd, uint64_t mnt, const struct stat *st)
{
	*n = (struct node){
		.dev = st->st_dev,
		.ino = st->st_ino,
		.mnt = mnt,
		.type = st->st_mode & S_IFMT,
		.number = mount_node_number(ns, st->st_dev, st->st_ino),
	};
	list_init(&n->used);
	now_open(ns, n, fd);
	(void)pthread_mutex_init(&n->lock, NULL);
}

static void insert(struct nodes *ns, struct node *n)
{
	struct node **to;

	if (++ns->nr > ns->nr_buckets)
		node_grow(ns);
	to = &ns->buckets[node_bucket(ns, n->dev, n->ino)];
	n->next = *to;
	*to = n;
}

/*
 * Return true if a found node still is the descriptor's inode; the node then takes over the
 * descriptor.  A node without a descriptor does not keep its inode, so the number may have been
 * reused: such a node is marked as lost.  The caller holds the lock.
 */
static bool is_still(struct nodes *ns, struct node *n, int fd)
{
	_cleanup_(freep) struct file_handle *h = n->fd < 0 ? node_handle_of(fd) : NULL;

	if (ns->no_fds)
		return true;
	if (n->fd >= 0) {
		(void)close(fd);
		return true;
	}
	if (same_handle(h, n->handle)) {
		now_open(ns, n, fd);
		return true;
	}
	remove_from_bucket(ns, n);
	n->lost = true;
	return false;
}

int node_get(struct nodes *ns, int fd, uint64_t mnt, const struct stat *st, struct node **ret)
{
	struct node *n;

	(void)pthread_mutex_lock(&ns->lock);
	n = node_find(ns, mnt, st);
	if (n && !is_still(ns, n, fd))
		n = NULL;
	else if (n)
		fd = -1;
	if (!n) {
		n = malloc(sizeof(*n));
		if (n) {
			node_init(ns, n, TAKE_FD(fd), mnt, st);
			insert(ns, n);
		}
	}
	if (n)
		n->lookups++;
	(void)pthread_mutex_unlock(&ns->lock);
	closep(&fd);
	if (!n)
		return -ENOMEM;
	*ret = n;
	return 0;
}

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* Compare all attributes that an answer contains. */
static bool same_attr(const struct stat *a, const struct stat *b)
{
	return a->st_mode == b->st_mode && a->st_nlink == b->st_nlink && a->st_uid == b->st_uid &&
	       a->st_gid == b->st_gid && a->st_size == b->st_size && a->st_blocks == b->st_blocks &&
	       same_time(a->st_atim, b->st_atim) && same_time(a->st_mtim, b->st_mtim) &&
	       same_time(a->st_ctim, b->st_ctim);
}

void node_tell(struct node *n, const struct stat *st)
{
	(void)pthread_mutex_lock(&n->lock);
	if (n->how_told == TOLD_NOTHING || same_attr(&n->told, st))
		n->how_told = TOLD_SURELY;
	else
		n->how_told = TOLD_PERHAPS;
	n->told = *st;
	(void)pthread_mutex_unlock(&n->lock);
}

void node_tell_failed(struct node *n)
{
	(void)pthread_mutex_lock(&n->lock);
	n->how_told = TOLD_PERHAPS;
	(void)pthread_mutex_unlock(&n->lock);
}

bool node_untell(struct node *n, const struct stat *st)
{
	bool ret;

	(void)pthread_mutex_lock(&n->lock);
	ret = n->how_told == TOLD_PERHAPS ||
	      (n->how_told == TOLD_SURELY && !(st && same_attr(&n->told, st)));
	if (ret)
		n->how_told = TOLD_NOTHING;
	(void)pthread_mutex_unlock(&n->lock);
	return ret;
}

struct node *node_by_number(struct nodes *ns, uint64_t number)
{
	struct stat st = { .st_ino = number & ((UINT64_C(1) << INO_BITS) - 1) };
	struct node *n = NULL;

	(void)pthread_mutex_lock(&ns->lock);
	if (number >> INO_BITS < ns->nr_devs) {
		st.st_dev = ns->devs[number >> INO_BITS];
		n = node_find(ns, 0, &st);
	}
	if (n)
		n->lookups++;
	(void)pthread_mutex_unlock(&ns->lock);
	return n;
}

void node_put(struct nodes *ns, struct node *n, uint64_t lookups)
{
	(void)pthread_mutex_lock(&ns->lock);
	n->lookups -= MIN(lookups, n->lookups);
	unlock_put(ns, n);
}

int nodes_init(struct nodes *ns, int root_fd, const struct stat *root, unsigned max_fds)
{
	struct stat st;
	int err = 0;

	*ns = (struct nodes){ .nr_buckets = BUCKETS_MIN,
			      .no_fds = root_fd < 0,
			      .max_fds = max_fds };
	list_init(&ns->used);
	ns->buckets = calloc(BUCKETS_MIN, sizeof(struct node *));
	if (!ns->buckets)
		err = -ENOMEM;
	else if (root_fd < 0)
		st = *root;
	else if (fstat(root_fd, &st) < 0)
		err = -errno;
	if (err < 0) {
		free(ns->buckets);
		closep(&root_fd);
		return err;
	}
	(void)pthread_mutex_init(&ns->lock, NULL);
	(void)pthread_cond_init(&ns->put, NULL);
	node_init(ns, &ns->root, root_fd, root_fd < 0 ? 0 : node_mount(root_fd), &st);
	insert(ns, &ns->root);
	ns->root.nr_holds = 1;
	return 0;
}

static void end_closer(struct nodes *ns)
{
	(void)pthread_mutex_lock(&ns->lock);
	ns->ends = true;
	(void)pthread_cond_signal(&ns->put);
	(void)pthread_mutex_unlock(&ns->lock);
	if (ns->closes)
		(void)pthread_join(ns->closer, NULL);
}

void nodes_done(struct nodes *ns)
{
	end_closer(ns);
	for (size_t i = 0; i < ns->nr_buckets; i++) {
		struct node *next;

		for (struct node *n = ns->buckets[i]; n; n = next) {
			next = n->next;
			node_destroy(ns, n);
			if (n != &ns->root)
				free(n);
		}
	}
	for (unsigned i = 0; i < ns->nr_mounts; i++)
		closep(&ns->mounts[i].fd);
	free(ns->buckets);
	(void)pthread_cond_destroy(&ns->put);
	(void)pthread_mutex_destroy(&ns->lock);
}
