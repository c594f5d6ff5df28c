/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/node.h"

#include <fcntl.h>
#include <string.h>

#include "base/base.h"

#define BUCKETS_MIN 1024u
#define INO_BITS 56 /* of a number; those above tell the file system */

static size_t bucket(const struct nodes *ns, dev_t dev, ino_t ino)
{
	uint64_t h = (uint64_t)ino * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)dev;

	return (h ^ h >> 32) & (ns->nr_buckets - 1);
}

/* Twice the buckets.  Without memory the chains get longer. */
static void grow(struct nodes *ns)
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
			struct node **to = &more[bucket(ns, n->dev, n->ino)];

			next = n->next;
			n->next = *to;
			*to = n;
		}
	}
	free(old);
}

/* mnt 0: as any mount has it. */
static struct node *find(struct nodes *ns, uint64_t mnt, const struct stat *st)
{
	struct node *n = ns->buckets[bucket(ns, st->st_dev, st->st_ino)];

	while (n && (n->dev != st->st_dev || n->ino != st->st_ino || (mnt && n->mnt != mnt)))
		n = n->next;
	return n;
}

uint64_t node_mount(int fd)
{
	struct statx st;

	/* Without asking the file system: it might be us. */
	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &st) == 0 &&
			       st.stx_mask & STATX_MNT_ID
		       ? st.stx_mnt_id
		       : 0;
}

/* The number of a file system; NODE_DEVS when there are too many. */
static unsigned dev_number(struct nodes *ns, dev_t dev)
{
	unsigned i = 0;

	while (i < ns->nr_devs && ns->devs[i] != dev)
		i++;
	if (i == ns->nr_devs && i < NODE_DEVS)
		ns->devs[ns->nr_devs++] = dev;
	return i;
}

static uint64_t number(struct nodes *ns, dev_t dev, ino_t ino)
{
	unsigned i = dev_number(ns, dev);

	return i < NODE_DEVS && ino >> INO_BITS == 0 ? (uint64_t)i << INO_BITS | ino : 0;
}

uint64_t node_number(struct nodes *ns, dev_t dev, ino_t ino)
{
	uint64_t ret;

	(void)pthread_mutex_lock(&ns->lock);
	ret = number(ns, dev, ino);
	(void)pthread_mutex_unlock(&ns->lock);
	return ret;
}

static void init(struct nodes *ns, struct node *n, int fd, uint64_t mnt, const struct stat *st)
{
	*n = (struct node){
		.dev = st->st_dev,
		.ino = st->st_ino,
		.mnt = mnt,
		.type = st->st_mode & S_IFMT,
		.fd = fd,
		.number = number(ns, st->st_dev, st->st_ino),
	};
	if (!n->number)
		n->number = (uint64_t)NODE_DEVS << INO_BITS | ns->fresh++;
	(void)pthread_mutex_init(&n->lock, NULL);
}

static void insert(struct nodes *ns, struct node *n)
{
	struct node **to;

	if (++ns->nr > ns->nr_buckets)
		grow(ns);
	to = &ns->buckets[bucket(ns, n->dev, n->ino)];
	n->next = *to;
	*to = n;
}

int node_get(struct nodes *ns, int fd, uint64_t mnt, const struct stat *st, struct node **ret)
{
	struct node *n;

	(void)pthread_mutex_lock(&ns->lock);
	n = find(ns, mnt, st);
	if (n) {
		(void)close(fd);
	} else {
		n = malloc(sizeof(*n));
		if (n) {
			init(ns, n, fd, mnt, st);
			insert(ns, n);
		} else {
			(void)close(fd);
		}
	}
	if (n)
		n->lookups++;
	(void)pthread_mutex_unlock(&ns->lock);
	if (!n)
		return -ENOMEM;
	*ret = n;
	return 0;
}

struct node *node_by_number(struct nodes *ns, uint64_t number)
{
	struct stat st = { .st_ino = number & ((UINT64_C(1) << INO_BITS) - 1) };
	struct node *n = NULL;

	(void)pthread_mutex_lock(&ns->lock);
	if (number >> INO_BITS < ns->nr_devs) {
		st.st_dev = ns->devs[number >> INO_BITS];
		n = find(ns, 0, &st);
	}
	if (n)
		n->lookups++;
	(void)pthread_mutex_unlock(&ns->lock);
	return n;
}

static void destroy(struct node *n)
{
	(void)close(n->fd);
	(void)pthread_mutex_destroy(&n->lock);
}

void node_put(struct nodes *ns, struct node *n, uint64_t lookups)
{
	struct node **at;

	(void)pthread_mutex_lock(&ns->lock);
	n->lookups -= MIN(lookups, n->lookups);
	if (n->lookups || n == &ns->root) {
		(void)pthread_mutex_unlock(&ns->lock);
		return;
	}
	at = &ns->buckets[bucket(ns, n->dev, n->ino)];
	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	ns->nr--;
	(void)pthread_mutex_unlock(&ns->lock);
	destroy(n);
	free(n);
}

int nodes_init(struct nodes *ns, int root_fd)
{
	struct stat st;
	int err = 0;

	*ns = (struct nodes){ .nr_buckets = BUCKETS_MIN, .fresh = 1 };
	ns->buckets = calloc(BUCKETS_MIN, sizeof(struct node *));
	if (!ns->buckets)
		err = -ENOMEM;
	else if (fstat(root_fd, &st) < 0)
		err = -errno;
	if (err < 0) {
		free(ns->buckets);
		(void)close(root_fd);
		return err;
	}
	(void)pthread_mutex_init(&ns->lock, NULL);
	init(ns, &ns->root, root_fd, node_mount(root_fd), &st);
	insert(ns, &ns->root);
	return 0;
}

void nodes_done(struct nodes *ns)
{
	for (size_t i = 0; i < ns->nr_buckets; i++) {
		struct node *next;

		for (struct node *n = ns->buckets[i]; n; n = next) {
			next = n->next;
			destroy(n);
			if (n != &ns->root)
				free(n);
		}
	}
	free(ns->buckets);
	(void)pthread_mutex_destroy(&ns->lock);
}
