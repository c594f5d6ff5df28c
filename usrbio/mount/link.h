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
	LINK_FILE_ADD,   /* adds a file; a descriptor comes with it */
	LINK_BUFFER_ADD, /* adds a buffer; a descriptor of shared memory comes with it */
	LINK_RING_ADD,   /* adds a ring; a descriptor comes with it */
	LINK_DEVICE_ADD, /* adds device memory; a descriptor comes with it for the software
			  * device, none for CUDA */
	LINK_FILE_REMOVE,
	LINK_BUFFER_REMOVE,
	LINK_RING_REMOVE,
	LINK_OPS,
};

#define LINK_FILE_READ (1u << 0)
#define LINK_FILE_WRITE (1u << 1)
#define LINK_NAME_MAX 8192u /* bytes of a name */

struct link_msg {
	uint32_t op;
	int32_t result;          /* result of an answer: 0 or -errno */
	uint64_t handle;         /* the broker's number of the file, buffer or ring */
	uint64_t number;         /* for a file: its inode number on the mount */
	uint64_t size;           /* bytes of the shared memory */
	bool cached;             /* for a file: the kernel caches it; see link_tell() */
	uint32_t how;            /* for a file without a descriptor: LINK_FILE_*; the descriptor
				  * that comes with the message is memory with its name */
	struct usrbio_name name; /* for a buffer or a ring */
	struct usrbio_gdr gdr;   /* for device memory; secret */
};

/* fd: goes with it, or -1.  0 or -errno. */
int mount_link_send(int sock, const struct link_msg *msg, int fd);

/*
 * *ret_fd: the descriptor that came with it, or -1; NULL: none may come.  1; 0 at the end; -errno;
 * -EPROTO.
 */
int link_recv(int sock, struct link_msg *ret_msg, int *ret_fd);

/*
 * Ranges of cached files that rings write.  The worker reports them before and after the write,
 * over a socket of its own, and waits until the kernel has written and dropped its cache of them.
 */
struct link_range {
	uint64_t number, off, len;
	uint64_t ends; /* 1: written; 0: about to be */
};

#define LINK_RANGES_MAX 64u

/* Report at most LINK_RANGES_MAX ranges, and wait for the answer.  Return 0; -errno; -EPIPE at the
 * end. */
int link_tell(int sock, const struct link_range *ranges, unsigned nr);

/* Receive the worker's report.  Return the number of ranges; 0 at the end; -errno; -EPROTO.  Call
 * link_answer() next. */
int link_listen(int sock, struct link_range ret[LINK_RANGES_MAX]);
int link_answer(int sock);

#endif
