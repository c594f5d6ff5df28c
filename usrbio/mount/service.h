/* SPDX-License-Identifier: MIT */
/*
 * A directory of a storage service as the source of a mount: penstock mount DIR --source
 * pst://HOST:PORT/, psts:// or pst+unix://.
 *
 * The tree.  A node has no descriptor.  The server's numbers of file system and inode are its key,
 * and its path is the one under which it was looked up last.  A path that leads to another file by
 * now gives ESTALE.
 *
 * Connections.  The mount has SERVICE_LINES of them, called lines.  A line carries one request at a
 * time, and a request waits for a free one.  A user has at most half of them, so that one whose
 * files hang does not stop the others.  All changes of a file go over one line, its home, which the
 * number of the file chooses: a write whose answer was lost cannot run after a later write, because
 * the server ends what an earlier connection of the line had begun (docs/PROTOCOL.md, channels).
 *
 * Time.  Each wait is limited: 10 s for a line, for a connection, for an answer.  A request whose
 * connection broke is sent again for 10 s; those that must not be done twice are sent once.  Then
 * the call fails with EIO, or with ETIMEDOUT if the server did not answer.
 *
 * Rings.  The worker of a user opens files by their names with libpenstock, as its user: it finds
 * the server's key only if the user may read it.
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
#define SERVICE_CLOSES 256u /* handles that wait to be closed, of a line */

/* A connection. */
struct service_line {
	unsigned idx;
	bool busy;                /* taken by a thread; busy and uid are under the service's lock */
	uid_t uid;                /* whose request it carries */
	struct remote_talk *talk; /* NULL: not connected; changed under the lock */
	uint64_t channel, epoch;  /* the epoch numbers the connections of the line */
	/* Handles of this connection to be closed, under the lock. */
	uint32_t closes[SERVICE_CLOSES];
	unsigned nr_closes;
};

struct service {
	struct remote_server server;
	char root[WIRE_NAME_MAX + 1]; /* path on the server; "": its root */
	char prefix[PATH_MAX];        /* what precedes paths of the server in names */
	uid_t uid;                    /* owner of every file at DIR */
	gid_t gid;
	bool read_only;
	uint64_t root_btime_ns; /* birth of the root, as of other files */
	pthread_mutex_t lock;
	pthread_cond_t change; /* a line was given back, or the mount ends */
	bool ends;
	struct service_line lines[SERVICE_LINES];
	struct list files; /* open files, under the lock */
};

/* An open file. */
struct service_file {
	struct list link;
	uid_t uid;                 /* whose share of descriptors it uses */
	uint32_t how;              /* WIRE_O_READ, WIRE_O_WRITE */
	struct wire_attr attr;     /* facts by which another file of the name is noticed */
	struct broker_file *rings; /* users whose rings may use it */
	pthread_mutex_t lock;      /* covers rings */
	/* Its handles, by lines; each belongs to the thread that has taken the line. */
	struct {
		_Atomic uint64_t epoch; /* of the line's connection; 0: no handle */
		uint32_t handle;
	} on[SERVICE_LINES];
};

/* What a node of a service has beside its path, under node->lock. */
struct service_node {
	uint64_t btime_ns;
	struct remote_writes writes;
};

/*
 * Do something on a connected line, which the caller has.  Return 0 or -errno; a broken connection
 * shows by remote_talk_is_broken().
 */
typedef int (*service_fn)(struct service *s, struct service_line *l, void *arg);

/*
 * Take a line for a request of that user, run fn on it, and give it back.
 * @home: the number of the line; SERVICE_LINES: any
 * @once: fn must not run again after its connection broke
 *
 * Return: what fn returned; -EIO, -ETIMEDOUT.
 */
int service_run(struct service *s, uid_t uid, unsigned home, bool once, service_fn fn, void *arg);

/* As service_run(), on the home line if it is free, else on any that is. */
int service_run_near(struct service *s, uid_t uid, unsigned home, service_fn fn, void *arg);

/* The home line of an inode. */
static inline unsigned service_home(uint64_t ino)
{
	return (unsigned)((ino * UINT64_C(0x9e3779b97f4a7c15)) >> 32) % SERVICE_LINES;
}

/* One request without a handle, on any line. */
struct service_ask {
	struct wire_request q;
	const void *bytes;
	size_t len;
	struct wire_reply rep;
	void *payload;
	uint32_t room;
};
int service_ask(struct service *s, uid_t uid, bool once, struct service_ask *a);

/* Ask for the attributes that a name has. */
int service_stat(struct service *s, uid_t uid, const char *path, struct wire_attr *ret,
		 uint64_t *ret_boot);

/* Close a handle of that connection of a line, now or when the line is free. */
void service_drop(struct service *s, unsigned line, uint64_t epoch, uint32_t handle);

/* Set up and end the lines. */
void service_init(struct service *s);
void service_stop(struct service *s);
void service_done(struct service *s);

/* Copy the path of a node.  Return 0; -ESTALE if it has none any more. */
int service_path(struct node *n, char ret[WIRE_NAME_MAX + 1]);

/* The attributes at DIR. */
struct stat service_attr(struct fs *fs, const struct wire_attr *a);

/* The entry of a file with that path, and those attributes. */
int service_entry(struct fs *fs, const char *path, const struct wire_attr *a,
		  struct fuse_entry_param *ret);

/* Path of a name in a directory. */
int service_path_in(struct node *dir, const char *name, char ret[WIRE_NAME_MAX + 1]);

/* Record that the file was changed by that start of the server. */
void service_changed(struct node *n, uint64_t boot);

/*
 * A worker's ring is about to write to the file, or has written (ends).  So a later fsync knows by
 * which start of the server.
 */
void service_ring_writes(struct fs *fs, struct node *n, bool ends);

/* Members of source_service. */
int service_announce(struct fs *fs, uid_t uid, struct node *n, const struct fuse_file_info *fi);
int service_sync(struct fs *fs, struct node *n, const struct fuse_file_info *fi, bool data);

/* Set the size of a file, by that open file or, if that is NULL, one of its own. */
int service_set_size(struct fs *fs, uid_t uid, struct node *n, uint64_t size,
		     struct service_file *open);

/* Operations on attributes, and refusals. */
void service_attr_ops(struct fuse_lowlevel_ops *ops);
/* The operations of open files, and those: source_ops.replace(). */
void service_file_ops(struct fuse_lowlevel_ops *ops);
void service_files_done(struct fs *fs);

#endif
