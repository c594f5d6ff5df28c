/* SPDX-License-Identifier: MIT */
/*
 * The inodes of the source that the kernel knows.
 *
 * A node keeps its inode open (O_PATH): the inode stays the same when its names change, and its
 * number is not reused.  If too many are open, those not used for longest are closed, and opened
 * again by their handle (open_by_handle_at(2)).  Opening by handle needs root and a file system
 * that can be exported.
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

/* State of the kernel's knowledge of a node's attributes. */
enum node_told {
	TOLD_NOTHING, /* nothing since node_untell() */
	TOLD_SURELY,  /* the attributes of the last answer */
	TOLD_PERHAPS, /* two different answers were sent, and the kernel may have kept either */
};

struct node {
	struct node *next; /* next node in its hash bucket */
	dev_t dev;         /* device number of the inode in the source */
	ino_t ino;
	uint64_t mnt; /* mount of the inode: two mounts may differ in rights */
	mode_t type;  /* S_IFMT bits of the mode */
	int fd;       /* O_PATH descriptor; -1: closed, and no operation holds the node */
	unsigned nr_holds;
	struct list used;           /* link on nodes->used */
	struct file_handle *handle; /* opens the inode again; set when fd was closed */
	bool lost;                  /* the inode's number was reused, so the node is in no bucket */
	uint64_t lookups;
	uint64_t number; /* inode number on the mount */
	/* Name in the source.  Protected by the set's lock for a file of a set (set.h), and by lock
	 * for a file of a service. */
	char *path;
	struct service_node *remote; /* only for a storage service (service.h) */

	/* Protects the members below, which regular files use (backing.h). */
	pthread_mutex_t lock;
	struct stat told;        /* attributes in the last answer to the kernel; under lock */
	enum node_told how_told; /* under lock */
	atomic_uint nr_open;     /* open files of the kernel; changed under lock */
	atomic_uint nr_writers;  /* open files through which rings may write */
	int32_t backing;         /* the kernel's number of the backing file; 0: no passthrough */
	bool keeps_backing;      /* backing was made with fd, and lasts as long as fd */
	/* mtime at the last close: if it is unchanged at the next open, the kernel keeps its
	 * cache */
	struct timespec written;
	off_t size;
};

#define NODE_DEVS 63u /* file systems whose inode numbers are mapped without hashing */

#define NODE_MOUNTS 64u /* mounts whose nodes can be closed */

/* A descriptor by which handles of a mount can be opened; -1: impossible, or not known yet. */
struct node_mount {
	uint64_t mnt;
	int fd;
};

#define NODE_UNUSED 1024u /* maximum descriptors on the list to be closed */

/* Called before the node's descriptor is closed: ends passthrough. */
typedef void (*node_drop)(void *arg, struct node *n);

struct nodes {
	pthread_mutex_t lock;
	node_drop drop; /* called for nodes with a backing */
	void *drop_arg;
	struct node root;
	struct node **buckets;
	size_t nr_buckets, nr; /* nr_buckets is a power of two */
	dev_t devs[NODE_DEVS]; /* numbered file systems; devs[0] is the source's */
	unsigned nr_devs;

	struct list used; /* open nodes, the most recently used last */
	bool no_fds;      /* nodes have no descriptors: a storage service */
	unsigned nr_fds, max_fds;
	struct node_mount mounts[NODE_MOUNTS];
	unsigned nr_mounts;

	/* Descriptors to be closed by the thread closer. */
	int unused[NODE_UNUSED];
	unsigned nr_unused;
	pthread_cond_t put; /* signalled when a descriptor was added, or the thread must end */
	pthread_t closer;
	bool closes, ends;
};

/*
 * Initialize, taking over the root's descriptor, which is closed on failure.  If root_fd is -1, no
 * node has a descriptor, and root has the root's attributes.  Return 0 or -errno.
 */
int nodes_init(struct nodes *ns, int root_fd, const struct stat *root, unsigned max_fds);
void nodes_done(struct nodes *ns);

/*
 * Get the node of an inode on that mount, with one more lookup.  Takes over its O_PATH descriptor;
 * -1 if nodes have none.  Return 0 or -ENOMEM.
 */
int node_get(struct nodes *ns, int fd, uint64_t mnt, const struct stat *st, struct node **ret);

/*
 * Hold a node and its descriptor until node_release(), even if the kernel forgets the node.  The
 * thread may change to the server's rights here, so take a caller's rights afterwards.  Return 0;
 * -ESTALE if the inode is gone; -errno.
 */
int node_hold(struct nodes *ns, struct node *n);
void node_release(struct nodes *ns, struct node *n);

/* Record that these attributes are sent to the kernel. */
void node_tell(struct node *n, const struct stat *st);

/* Record that the answer with attributes did not reach the kernel. */
void node_tell_failed(struct node *n);

/*
 * Return true if the kernel must forget the node's attributes, because it may have others than *st,
 * or any at all if st is NULL. After that the node counts as TOLD_NOTHING.
 */
bool node_untell(struct node *n, const struct stat *st);

/* Return the mount of a descriptor; 0 if the kernel does not report it (before Linux 5.8). */
uint64_t node_mount(int fd);

/* Return the node with that inode number on the mount, with one more lookup; NULL if the kernel
 * knows none. */
struct node *node_by_number(struct nodes *ns, uint64_t number);

/* Drop lookups; the last one frees the node. */
void node_put(struct nodes *ns, struct node *n, uint64_t lookups);

/*
 * Return an inode's number on the mount: on the source's own file system, the source's number; on
 * file systems mounted below it, the source's number with a number of the file system in the upper
 * bits.
 */
uint64_t node_number(struct nodes *ns, dev_t dev, ino_t ino);

#endif
