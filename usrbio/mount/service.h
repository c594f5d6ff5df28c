/* SPDX-License-Identifier: MIT */
/*
 * A directory of a storage service as the source of a mount: penstock mount DIR --source
 * pst://HOST:PORT/, psts:// or pst+unix://.
 *
 * The tree.  A node has no descriptor.  Its key is the server's device and inode number, and its
 * path is the path of its latest look-up.  If the path now leads to another file, operations fail
 * with ESTALE.
 *
 * Connections.  The mount has SERVICE_LINES connections, called lines.  A line carries one request
 * at a time, and a request waits for a free line.  A user may use at most half of the lines, so a
 * user whose files hang does not block others.  All changes of a file use the same line, its home,
 * which is chosen by the file's number: a write whose answer was lost cannot run after a later
 * write, because the server first ends requests of an earlier connection of the line
 * (docs/PROTOCOL.md, channels).
 *
 * Time.  Each wait for a line, a connection or an answer is limited to 10 s.  A request whose
 * connection broke is sent again for 10 s; a request that must not be executed twice is sent once.
 * After that the call fails with EIO, or with ETIMEDOUT if the server did not answer.
 *
 * Rings.  The worker of a user opens files by their names with libpenstock, as that user, so it
 * finds the server's key only if the user may read it.
 *
 * Locks: node->lock -> service->lock.  No lock is held while a request waits.
 */
#ifndef MOUNT_SERVICE_H
#define MOUNT_SERVICE_H

#include <limits.h>
#include <pthread.h>

#include "remote/talk.h"
#include "usrbio/mount/source.h"

#define SERVICE_LINES 8u
#define SERVICE_CLOSES 256u /* maximum handles of a line that wait to be closed */

/* A connection. */
struct service_line {
	unsigned idx;
	/* a thread uses it; busy and uid are protected by the service's lock */
	bool busy;
	uid_t uid;                /* user of the request */
	struct remote_talk *talk; /* NULL: not connected; changed under the lock */
	uint64_t channel, epoch;  /* channel of the line; epoch of its connection */
	/* Handles of this connection to be closed; under the lock. */
	uint32_t closes[SERVICE_CLOSES];
	unsigned nr_closes;
};

struct service {
	struct remote_server server;
	char root[WIRE_NAME_MAX + 1]; /* path on the server; "": its root */
	/* part of a file's full name that precedes its path on the server */
	char prefix[PATH_MAX];
	uid_t uid; /* owner of every file at DIR */
	gid_t gid;
	bool read_only;
	uint64_t root_btime_ns; /* btime of the root, ns */
	pthread_mutex_t lock;
	pthread_cond_t change; /* signalled when a line becomes free or the mount ends */
	bool ends;
	struct service_line lines[SERVICE_LINES];
	struct list files; /* open files, under the lock */
};

/* An open file. */
struct service_file {
	struct list link;
	uid_t uid;                 /* user who is charged for the open file */
	uint32_t how;              /* WIRE_O_READ, WIRE_O_WRITE */
	struct wire_attr attr;     /* attributes at the first open, to recognise the file */
	struct broker_file *rings; /* users whose rings may use it */
	pthread_mutex_t lock;      /* protects rings */
	/* Handles by line; the thread that uses the line owns its entry. */
	struct {
		_Atomic uint64_t epoch; /* of the connection that opened it; 0: none */
		uint32_t handle;
	} on[SERVICE_LINES];
};

/* Members that only nodes of a service have, under node->lock. */
struct service_node {
	uint64_t btime_ns;
	struct remote_writes writes;
};

/*
 * Do something on a connected line, which the caller uses.  Return 0 or -errno; if the connection
 * broke, remote_talk_is_broken() is true.
 */
typedef int (*service_fn)(struct service *s, struct service_line *l, void *arg);

/*
 * Take a line for a request of that user, run fn on it, and free the line.
 * @home: the number of the line; SERVICE_LINES: any line
 * @once: do not run fn again after its connection broke
 *
 * Return: the result of fn; -EIO, -ETIMEDOUT.
 */
int service_run(struct service *s, uid_t uid, unsigned home, bool once, service_fn fn, void *arg);

/* As service_run(), on the home line if it is free, else on any free line. */
int service_run_near(struct service *s, uid_t uid, unsigned home, service_fn fn, void *arg);

/* Return the home line of an inode. */
static inline unsigned service_home(uint64_t ino)
{
	return (unsigned)((ino * UINT64_C(0x9e3779b97f4a7c15)) >> 32) % SERVICE_LINES;
}

/* A request without a handle, for any line. */
struct service_ask {
	struct wire_request q;
	const void *bytes;
	size_t len;
	struct wire_reply rep;
	void *payload;
	uint32_t room;
};
int service_ask(struct service *s, uid_t uid, bool once, struct service_ask *a);

/* Get the attributes of a name from the server. */
int service_stat(struct service *s, uid_t uid, const char *path, struct wire_attr *ret,
		 uint64_t *ret_boot);

/* Close a handle of that connection of a line, immediately or when the line is free. */
void service_drop(struct service *s, unsigned line, uint64_t epoch, uint32_t handle);

/* Set up and end the lines. */
void service_init(struct service *s);
void service_stop(struct service *s);
void service_done(struct service *s);

/* Copy the path of a node.  Return 0; -ESTALE if the node has no path any more. */
int service_path(struct node *n, char ret[WIRE_NAME_MAX + 1]);

/* Convert the server's attributes to those at DIR. */
struct stat service_attr(struct fs *fs, const struct wire_attr *a);

/* Fill in the entry of a file with that path and those attributes. */
int service_entry(struct fs *fs, const char *path, const struct wire_attr *a,
		  struct fuse_entry_param *ret);

/* Make the path of a name in a directory. */
int service_path_in(struct node *dir, const char *name, char ret[WIRE_NAME_MAX + 1]);

/* Record that the file was changed while the server had that boot id. */
void service_changed(struct node *n, uint64_t boot);

/*
 * Record that a worker's ring is about to write to the file, or has written (ends), so that a later
 * fsync knows the boot id of the server.
 */
void service_ring_writes(struct fs *fs, struct node *n, bool ends);

/* Members of source_service. */
int service_announce(struct fs *fs, uid_t uid, struct node *n, const struct fuse_file_info *fi);
int service_sync(struct fs *fs, struct node *n, const struct fuse_file_info *fi, bool data);

/* Set the size of a file through the open file; with NULL, open the file for the call. */
int service_set_size(struct fs *fs, uid_t uid, struct node *n, uint64_t size,
		     struct service_file *open);

/* Set the operations on attributes, and those that are refused. */
void service_attr_ops(struct fuse_lowlevel_ops *ops);
/* Set the operations on open files and on attributes: source_ops.replace(). */
void service_file_ops(struct fuse_lowlevel_ops *ops);
void service_files_done(struct fs *fs);

#endif
