/* SPDX-License-Identifier: MIT */
/*
 * The inodes of the source that the kernel knows.
 *
 * A node keeps its inode open (O_PATH), so that it stays the same whatever happens to its names,
 * and its number is not used again meanwhile.  Where there are too many, those that were not used
 * for longest are closed and known by a handle of their file system (open_by_handle_at(2)), as far
 * as this works: root's server, and a file system that can be exported.
 */
#ifndef MOUNT_NODE_H
#define MOUNT_NODE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/list.h"

struct file_handle;
struct service_node;

/* What the kernel knows of a node's attributes. */
enum node_told {
	TOLD_NOTHING, /* nothing since it was told to forget them */
	TOLD_SURELY,  /* the attributes of the last answer */
	TOLD_PERHAPS, /* the kernel may have taken an earlier one of two different answers */
};

struct node {
	struct node *next; /* in its bucket */
	dev_t dev;         /* of the source */
	ino_t ino;
	uint64_t mnt; /* mount of the inode: one may be read-only and another not */
	mode_t type;  /* S_IFMT of its mode */
	int fd;       /* O_PATH descriptor; -1: closed, and no operation holds the node */
	unsigned nr_holds;
	struct list used;           /* on nodes->used */
	struct file_handle *handle; /* its handle, once it was closed */
	bool lost;                  /* its number belongs to another inode now, so it is in no
				     * bucket */
	uint64_t lookups;
	uint64_t number; /* st_ino on the mount */
	/* Its name in the source: of a set's file (set.h), under the set's lock; of a service,
	 * under the lock. */
	char *path;
	struct service_node *remote; /* of a storage service (service.h) */

	/* For regular files: how they are open (backing.h). */
	pthread_mutex_t lock;
	struct stat told;        /* attributes that the kernel was told last; under the lock */
	enum node_told how_told; /* how the kernel was told; under the lock */
	atomic_uint nr_open;     /* changed under the lock */
	atomic_uint nr_writers;  /* open files to which rings may write */
	int32_t backing;         /* the kernel's name of it while it passes bytes on; 0: none */
	bool keeps_backing;      /* backing was made by fd, so it lasts as long as fd */
	struct timespec written; /* change time at the last close, for the kernel's cache */
	off_t size;
};

#define NODE_DEVS 63u /* file systems whose numbers are a pure function of theirs */

#define NODE_MOUNTS 64u /* mounts whose nodes may be closed */

/* A descriptor by which handles of a mount are opened; -1: they cannot be, or not yet. */
struct node_mount {
	uint64_t mnt;
	int fd;
};

#define NODE_UNUSED 1024u /* descriptors that wait to be closed; then no more are put away */

/* The node's descriptor is about to be closed: the kernel passes its bytes on no longer. */
typedef void (*node_drop)(void *arg, struct node *n);

struct nodes {
	pthread_mutex_t lock;
	node_drop drop; /* of nodes with a backing */
	void *drop_arg;
	struct node root;
	struct node **buckets;
	size_t nr_buckets, nr; /* a power of two */
	dev_t devs[NODE_DEVS]; /* the first is the source's */
	unsigned nr_devs;

	struct list used; /* nodes that are open, the one that was used last at the end */
	bool no_fds;      /* no node has a descriptor: those of a storage service */
	unsigned nr_fds, max_fds;
	struct node_mount mounts[NODE_MOUNTS];
	unsigned nr_mounts;

	/* Descriptors that were put away, and the thread that closes them. */
	int unused[NODE_UNUSED];
	unsigned nr_unused;
	pthread_cond_t put; /* there is one more, or the end */
	pthread_t closer;
	bool closes, ends;
};

/*
 * Take over the descriptor of the root.  If it is -1, root has the attributes of the root, and no
 * node has a descriptor.  Return 0 or -errno; then the descriptor is closed.
 */
int nodes_init(struct nodes *ns, int root_fd, const struct stat *root, unsigned max_fds);
void nodes_done(struct nodes *ns);

/*
 * Return the node of an inode on that mount, with one more lookup.  Takes over its O_PATH
 * descriptor, or closes it; -1 if nodes have none.  Return 0 or -ENOMEM.
 */
int node_get(struct nodes *ns, int fd, uint64_t mnt, const struct stat *st, struct node **ret);

/*
 * Hold a node and its descriptor until node_release(), even if the kernel forgets it meanwhile.
 * The thread may lose a caller's rights, so take them afterwards.  Return 0; -ESTALE if the inode
 * is gone; -errno.
 */
int node_hold(struct nodes *ns, struct node *n);
void node_release(struct nodes *ns, struct node *n);

/* Record that the kernel is told these attributes. */
void node_tell(struct node *n, const struct stat *st);

/* The answer with attributes did not reach the kernel. */
void node_tell_failed(struct node *n);

/*
 * Return true if the kernel may know other attributes of the node than these, or, without st, any:
 * it is to forget them, and from now on counts as told nothing.
 */
bool node_untell(struct node *n, const struct stat *st);

/* Return the mount of a descriptor; 0 if the kernel does not report it (before Linux 5.8). */
uint64_t node_mount(int fd);

/* The node with that number on the mount, looked up once more; NULL: the kernel knows none. */
struct node *node_by_number(struct nodes *ns, uint64_t number);

/* Drop lookups; the last one frees the node. */
void node_put(struct nodes *ns, struct node *n, uint64_t lookups);

/*
 * Return the number of an inode on the mount: its own number on the source's file system; on file
 * systems mounted below the source, that number with a number of the file system in the upper bits.
 */
uint64_t node_number(struct nodes *ns, dev_t dev, ino_t ino);

#endif
