/* SPDX-License-Identifier: MIT */
/*
 * The broker of a mount and the worker of a user talk to each other over a socket of
 * SOCK_SEQPACKET: the broker asks, one question at a time, and the worker answers each.  The end of
 * the socket is the end of the worker.
 *
 * The worker believes the broker.  The broker believes no more of an answer than its result.
 * Whoever has had a message about device memory wipes it.
 */
#ifndef MOUNT_LINK_H
#define MOUNT_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "usrbio/proto/link.h"
#include "usrbio/proto/name.h"

enum link_op {
	LINK_HELLO = 1,  /* the first answer, without a question: the semaphores are there */
	LINK_FILE_ADD,   /* a descriptor comes with it */
	LINK_BUFFER_ADD, /* likewise: of shared memory */
	LINK_RING_ADD,   /* likewise */
	LINK_DEVICE_ADD, /* likewise, of memory of the software device; of CUDA's none */
	LINK_FILE_REMOVE,
	LINK_BUFFER_REMOVE,
	LINK_RING_REMOVE,
	LINK_OPS,
};

struct link_msg {
	uint32_t op;
	int32_t result;          /* of an answer: 0 or -errno */
	uint64_t handle;         /* by which the broker calls the file, buffer or ring */
	uint64_t number;         /* of a file: its inode number on the mount */
	uint64_t size;           /* of the shared memory, in bytes */
	bool cached;             /* a file: the kernel keeps bytes of it; see link_tell() */
	struct usrbio_name name; /* of a buffer or a ring */
	struct usrbio_gdr gdr;   /* of device memory; secret */
};

/* fd: goes with it, or -1.  0 or -errno. */
int mount_link_send(int sock, const struct link_msg *msg, int fd);

/*
 * *ret_fd: the descriptor that came with it, or -1; NULL: none may come.  1; 0 at the end; -errno;
 * -EPROTO.
 */
int link_recv(int sock, struct link_msg *ret_msg, int *ret_fd);

/*
 * By a socket of its own the worker tells which bytes of cached files rings write, before and
 * after, and waits until the kernel has written and forgotten what it had of them.
 */
struct link_range {
	uint64_t number, off, len;
};

#define LINK_RANGES_MAX 64u

/* Tell of at most LINK_RANGES_MAX, and wait for the answer.  0; -errno; -EPIPE at the end. */
int link_tell(int sock, const struct link_range *ranges, unsigned nr);

/* What the worker tells: how many; 0 at the end; -errno; -EPROTO.  Then link_answer(). */
int link_listen(int sock, struct link_range ret[LINK_RANGES_MAX]);
int link_answer(int sock);

#endif
