/* SPDX-License-Identifier: MIT */
/*
 * usrbio-foreign-daemon, a stand-in for the FUSE daemon of 3FS: what its parts say to each other.
 *
 *	foreign_daemon.c	options, the virtual links, ioctls
 *	foreign_iov.c		the table of published memory
 *	foreign_ring.c		one ring: which ios make a batch, and their completions
 *	foreign_lane.c		one executor per priority: semaphore, watcher, queue, servers
 *	foreign_exec.c		a batch is executed
 *
 * It behaves as the reference does where clients can tell, with its limits: it trusts inode
 * numbers and whoever names a buffer's UUID, and believes that shared memory keeps its size.
 * Where the reference crashes (junk in names, memory that is too small, markers out of range) it
 * refuses or ignores instead.
 *
 * Locks, in this order: an executor's queue, the table, a ring.
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

/* Numbers of inodes count down from here. */
#define INO_OUTER ((uint64_t)-2)
#define INO_IOVS ((uint64_t) - (1ll << 31))
#define INO_SEM(prio) (INO_IOVS - 1 - (uint64_t)(prio))
#define INO_IOV(idx) (INO_IOVS - 65535 - (uint64_t)(idx))

struct options {
	const char *name;   /* of the mount */
	uint64_t chunk;     /* bytes of a file that exist or are a hole together */
	uint64_t max_iovs;  /* links */
	uint64_t slow_ms;   /* what each io takes at least */
	uint64_t die_after; /* ios; the next one ends the process; 0: none */
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
	struct ring *ring; /* NULL: a buffer */
};

/*
 * Map what target names, and have it found by name, number and, if it is a buffer, by UUID; of
 * several the newest.  *ret_iov is a reference.  -EINVAL, -EMFILE, -EACCES, -ENOMEM.
 */
int iov_publish(const char *name, const char *target, const struct vfs_caller *who,
		struct iov **ret_iov);
/* -ENOENT, -EPERM for the link of another user. */
int iov_unpublish(const char *name, uid_t uid);
/* Remove everything that the thread with this id published. */
void iov_unpublish_of(pid_t tid);
void iov_unpublish_all(void);

/* References, or NULL. */
struct iov *iov_find_name(const char *name);
struct iov *iov_find_ino(uint64_t ino);
struct iov *iov_find_buffer(const uint8_t id[16]);
void iov_ref(struct iov *iov);
void iov_unref(struct iov *iov);

/* Call fn for each, with the table locked, until it returns something other than 0. */
int iov_each(int (*fn)(struct iov *iov, void *arg), void *arg);

/* ------------------------------------------------------------------------ rings */

/* One io of a batch. */
struct io {
	struct wire_args args; /* copied once */
	int32_t index;
	uint64_t userdata;
	int64_t result;  /* bytes or -errno; 0 while it waits */
	struct iov *buf; /* NULL: refused, result says why */
	int fd;          /* the file, or -1 */
};

/* Ios that were claimed together.  Holds a reference to its ring's memory. */
struct batch {
	STAILQ_ENTRY(batch) link;
	struct iov *iov;
	int32_t first, n; /* submissions, modulo the slots of the ring */
	struct io io[];
};
STAILQ_HEAD(batches, batch);

/* -EINVAL for memory or a depth that does not fit, -ENOMEM. */
int ring_new(struct iov *iov, struct ring **ret_ring);
void ring_free(struct ring *r);
/*
 * Take a batch, NULL if there is none to be taken now.  If one will be due although nobody posts,
 * *wake_ns becomes that time of CLOCK_MONOTONIC unless it is an earlier one; 0 counts as never.
 */
struct batch *ring_claim(struct iov *iov, uint64_t now_ns, uint64_t *wake_ns);
/* Hand results to the client, and free the batch. */
void ring_complete(struct batch *b);

/* ------------------------------------------------------------------------ executors */

/* 0 or -errno; after a failure the process can but end, after executors_unlink(). */
int executors_start(void);
/* Finishes batches that were claimed. */
void executors_stop(void);
/* The target of the priority's link. */
const char *executor_target(enum prio prio);
/* Remove the names of the semaphores. */
void executors_unlink(void);

/* The file system that batches are executed on. */
extern struct vfs *exec_vfs;
/* Execute all ios of a batch. */
void exec_batch(struct batch *b);

#endif
