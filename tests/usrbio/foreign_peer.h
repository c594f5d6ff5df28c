/* SPDX-License-Identifier: MIT */
/*
 * A usrbio client that uses no library, only system calls and shared memory.  Functions return 0 or
 * -errno unless their comment says otherwise.  One thread may prepare on a ring while one reaps;
 * all other calls are for one thread.
 */
#ifndef PST_TESTS_FOREIGN_PEER_H
#define PST_TESTS_FOREIGN_PEER_H

#include <pthread.h>
#include <stdio.h>

#include "foreign_key.h"
#include "foreign_wire.h"

/* The path MOUNTPOINT/3fs-virt/iovs/NAME. */
struct peer_path {
	char text[512];
};
struct peer_path peer_path(const char *mnt, const char *name);

/* Shared memory, published or not. */
struct peer_iov {
	char mnt[256];
	char name[128]; /* name of the link; "": not published */
	char shm[80];   /* name of the memory, with its slash; "": unlinked */
	uint8_t id[16];
	uint8_t *base;
	size_t size;
};

/* Make memory with a new UUID, not published yet. */
int peer_memory(struct peer_iov *iov, const char *mnt, size_t size);
/* Publish memory under its UUID and attrs, such as ".b4096". */
int peer_publish(struct peer_iov *iov, const char *attrs);
/* Unlink the memory's name, as clients do right after publishing. */
void peer_shm_unlink(struct peer_iov *iov);
/* Free everything that is left; may be called again. */
void peer_iov_done(struct peer_iov *iov);

/* A registered file: its inode number, and a duplicate that keeps the inode known. */
struct peer_file {
	int fd, dupfd;
	uint64_t ino;
};
int peer_open(struct peer_file *f, const char *path, int flags);
void peer_close(struct peer_file *f);
/* Make sizes and bytes visible to others, by ioctl(2). */
int peer_fsync(const struct peer_file *f);

struct peer_ring {
	struct peer_iov iov;
	struct wire_ring wire;
	sem_t *submit;
	bool for_read;

	pthread_mutex_t lock; /* protects the free slots, which both threads use */
	int32_t *free_slots;
	int32_t nr_free;
};

struct peer_ring_opts {
	int entries;
	bool for_read;
	int depth, timeout_ms;
	char prio;         /* priority: 'h', 'l' or 0 */
	const char *flags; /* flags in base 2, or NULL */
};

/* Make a ring, publish it, and unlink its memory's name. */
int peer_ring_init(struct peer_ring *r, const char *mnt, const struct peer_ring_opts *opts);
void peer_ring_done(struct peer_ring *r);

struct peer_io {
	const uint8_t *buf_id;
	uint64_t buf_off, file_ino, file_off, len, userdata;
};

/* Prepare a request.  Return its slot; -EAGAIN if the ring is full. */
int peer_prep(struct peer_ring *r, const struct peer_io *io);
void peer_submit(struct peer_ring *r);
/*
 * Wait until there are min completions, for up to timeout_ms, and take up to max.  Return their
 * number; -EPROTO if one belongs to no request in flight.
 */
int peer_reap(struct peer_ring *r, struct wire_cqe *cqes, int max, int min, int timeout_ms);

#endif
