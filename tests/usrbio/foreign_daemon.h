/* SPDX-License-Identifier: MIT */
/*
 * usrbio-foreign-daemon, a stand-in for 3FS's FUSE daemon: the interfaces between its files.
 *
 * foreign_daemon.c	options, the virtual links, ioctls
 * foreign_iov.c		the table of published memory
 * foreign_ring.c		one ring: forms batches and writes completions
 * foreign_lane.c		one executor per priority: semaphore, watcher, queue, servers
 * foreign_exec.c		executes a batch
 *
 * Clients cannot tell it from 3FS's daemon, including its limits: it trusts inode numbers, trusts
 * any client that knows a buffer's UUID, and assumes that shared memory keeps its size.  Where
 * 3FS's daemon crashes (junk in names, memory that is too small, markers out of range), it refuses
 * or ignores.
 *
 * Lock order: an executor's queue, the table, a ring.
 */
#ifndef PST_TESTS_FOREIGN_DAEMON_H
#define PST_TESTS_FOREIGN_DAEMON_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "foreign_key.h"
#include "foreign_wire.h"
#include "vfs.h"

/* Inode numbers of the virtual tree, counted down from here. */
#define INO_OUTER ((uint64_t)-2)
#define INO_IOVS ((uint64_t) - (1ll << 31))
#define INO_SEM(prio) (INO_IOVS - 1 - (uint64_t)(prio))
#define INO_IOV(idx) (INO_IOVS - 65535 - (uint64_t)(idx))

struct options {
	const char *name;   /* name of the mount */
	uint64_t chunk;     /* bytes of a file that exist together or are a hole together */
	uint64_t max_iovs;  /* maximum links */
	uint64_t slow_ms;   /* shortest duration of a request */
	uint64_t die_after; /* requests until the process ends; 0: never */
	bool readonly;      /* no writes through rings */
};

extern struct options options;

/* ------------------------------------------------------------- published memory */

struct iov {
	atomic_int refs;
	struct key key;
	char name[256];
	char target[256];
	struct vfs_caller creator;
	uint64_t ino, generation;
	uint8_t *base;
	size_t size;
	struct ring *ring; /* ring in the memory; NULL: a buffer */
};

/*
 * Map the memory that target names, and add it to the table by name, inode number and, for a
 * buffer, by UUID; the newest of a UUID is used.  *ret_iov is a reference.  Errors: -EINVAL,
 * -EMFILE, -EACCES, -ENOMEM.
 */
int iov_publish(const char *name, const char *target, const struct vfs_caller *who,
		struct iov **ret_iov);
/* Remove a link.  Errors: -ENOENT; -EPERM for another user's link. */
int iov_unpublish(const char *name, uid_t uid);
/* Remove everything that the thread with this id published. */
void iov_unpublish_of(pid_t tid);
void iov_unpublish_all(void);

/* Return a reference, or NULL. */
struct iov *iov_find_name(const char *name);
struct iov *iov_find_ino(uint64_t ino);
struct iov *iov_find_buffer(const uint8_t id[16]);
void iov_ref(struct iov *iov);
void iov_unref(struct iov *iov);

/* Call fn for each iov, with the table locked, until fn returns non-zero. */
int iov_each(int (*fn)(struct iov *iov, void *arg), void *arg);

/* ------------------------------------------------------------------------ rings */

/* A request of a batch. */
struct io {
	struct wire_args args; /* copied once from the ring */
	int32_t index;
	uint64_t userdata;
	int64_t result;  /* bytes or -errno; 0 before execution */
	struct iov *buf; /* buffer of the request; NULL: refused, see result */
	int fd;          /* the file, or -1 */
};

/* Requests that were claimed together.  Holds a reference to its ring's memory. */
struct batch {
	STAILQ_ENTRY(batch) link;
	struct iov *iov;
	int32_t first, n; /* positions in the submission queue */
	struct io io[];
};
STAILQ_HEAD(batches, batch);

/* Make a ring.  Errors: -EINVAL for unsuitable memory or depth; -ENOMEM. */
int ring_new(struct iov *iov, struct ring **ret_ring);
void ring_free(struct ring *r);
/*
 * Take a batch; NULL if none can be taken now.  If one will be due without another post, lower
 * *wake_ns to that time of CLOCK_MONOTONIC; 0 in *wake_ns means never.
 */
struct batch *ring_claim(struct iov *iov, uint64_t now_ns, uint64_t *wake_ns);
/* Publish results to the client, and free the batch. */
void ring_complete(struct batch *b);

/* ------------------------------------------------------------------------ executors */

/* Start all executors.  Return 0 or -errno; after an error call executors_unlink() and exit. */
int executors_start(void);
/* Finish batches that were claimed, and stop. */
void executors_stop(void);
/* Return the target of the priority's link. */
const char *executor_target(enum prio prio);
/* Remove the names of the semaphores. */
void executors_unlink(void);

/* The file system on which batches are executed. */
extern struct vfs *exec_vfs;
/* Execute all requests of a batch. */
void exec_batch(struct batch *b);

#endif
