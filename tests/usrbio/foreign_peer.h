/* SPDX-License-Identifier: MIT */
/*
 * A usrbio client that uses no library, only system calls and shared memory.  Functions return 0 or
 * what their comment says, and -errno.  One thread prepares on a ring, and one thread, the same or
 * another, reaps; one thread does everything else.
 */
#ifndef PST_TESTS_FOREIGN_PEER_H
#define PST_TESTS_FOREIGN_PEER_H

#include <pthread.h>
#include <stdio.h>

#include "foreign_key.h"
#include "foreign_wire.h"

/* MOUNTPOINT/3fs-virt/iovs/NAME */
struct peer_path {
	char text[512];
};
struct peer_path peer_path(const char *mnt, const char *name);

/* Shared memory that was published, or is to be. */
struct peer_iov {
	char mnt[256];
	char name[128]; /* of the link; empty: not published */
	char shm[80];   /* of the memory, with its slash; empty: has none any more */
	uint8_t id[16];
	uint8_t *base;
	size_t size;
};

/* Memory with a new UUID as its id, not yet published. */
int peer_memory(struct peer_iov *iov, const char *mnt, size_t size);
/* Publish it under its UUID and attrs, such as ".b4096". */
int peer_publish(struct peer_iov *iov, const char *attrs);
/* Remove the name of the memory, as clients do straight after publishing. */
void peer_shm_unlink(struct peer_iov *iov);
/* Remove whatever is left of it; may be called again. */
void peer_iov_done(struct peer_iov *iov);

/* A file as it is registered: its number, and a duplicate that keeps it known. */
struct peer_file {
	int fd, dupfd;
	uint64_t ino;
};
int peer_open(struct peer_file *f, const char *path, int flags);
void peer_close(struct peer_file *f);
/* The ioctl that makes sizes and bytes visible to others. */
int peer_fsync(const struct peer_file *f);

struct peer_ring {
	struct peer_iov iov;
	struct wire_ring wire;
	sem_t *submit;
	bool for_read;

	pthread_mutex_t lock; /* of what is below: who prepares and who reaps share it */
	int32_t *free_slots;
	int32_t nr_free;
};

struct peer_ring_opts {
	int entries;
	bool for_read;
	int depth, timeout_ms;
	char prio;         /* 'h', 'l' or 0 */
	const char *flags; /* base 2, or NULL */
};

/* Make a ring, publish it and unlink its memory's name. */
int peer_ring_init(struct peer_ring *r, const char *mnt, const struct peer_ring_opts *opts);
void peer_ring_done(struct peer_ring *r);

struct peer_io {
	const uint8_t *buf_id;
	uint64_t buf_off, file_ino, file_off, len, userdata;
};

/* The slot, -EAGAIN when the ring is full. */
int peer_prep(struct peer_ring *r, const struct peer_io *io);
void peer_submit(struct peer_ring *r);
/*
 * Take up to max completions, and wait until there are min, for timeout_ms at most.  How many;
 * -EPROTO if one is not of an io that is under way.
 */
int peer_reap(struct peer_ring *r, struct wire_cqe *cqes, int max, int min, int timeout_ms);

#endif
