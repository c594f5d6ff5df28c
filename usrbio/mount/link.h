/* SPDX-License-Identifier: MIT */
/*
 * Messages between the broker of a mount and the worker of a user, over a SOCK_SEQPACKET socket.
 * The broker asks one question at a time, and the worker answers each.  The socket closes when the
 * worker ends.
 *
 * The worker trusts the broker.  Of an answer, the broker uses only the result.  Both wipe messages
 * about device memory after use.
 */
#ifndef MOUNT_LINK_H
#define MOUNT_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "usrbio/proto/link.h"
#include "usrbio/proto/name.h"

enum link_op {
	LINK_HELLO = 1,  /* the worker's first message: its semaphores exist */
	LINK_FILE_ADD,   /* add a file; with a descriptor */
	LINK_BUFFER_ADD, /* add a buffer; with a descriptor of shared memory */
	LINK_RING_ADD,   /* add a ring; with a descriptor of shared memory */
	LINK_DEVICE_ADD, /* add device memory; with a descriptor if it is the software device's */
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
	int32_t result;          /* in an answer: 0 or -errno */
	uint64_t handle;         /* the broker's number for the file, buffer or ring */
	uint64_t number;         /* file: inode number on the mount */
	uint64_t size;           /* bytes of the shared memory */
	bool cached;             /* file: the kernel caches its bytes; see link_tell() */
	uint32_t how;            /* file that the worker opens: LINK_FILE_*; the descriptor is then
				  * a memfd with the name */
	struct usrbio_name name; /* name of a buffer or ring */
	struct usrbio_gdr gdr;   /* device memory; secret */
};

/* Send a message, with a descriptor unless fd is -1.  Return 0 or -errno. */
int mount_link_send(int sock, const struct link_msg *msg, int fd);

/*
 * Receive a message.  *ret_fd: its descriptor, or -1; ret_fd NULL: accept none.  Return 1; 0 at the
 * end; -errno; -EPROTO.
 */
int link_recv(int sock, struct link_msg *ret_msg, int *ret_fd);

/*
 * A range of a cached file that rings write.  The worker reports ranges before and after the write,
 * over a separate socket, and waits until the kernel has written back and dropped its cache of
 * them.
 */
struct link_range {
	uint64_t number, off, len;
	uint64_t ends; /* 1: after the write; 0: before */
};

#define LINK_RANGES_MAX 64u

/* Report up to LINK_RANGES_MAX ranges, and wait for the answer.  Return 0; -errno; -EPIPE at the
 * end. */
int link_tell(int sock, const struct link_range *ranges, unsigned nr);

/* Receive a report.  Return the number of ranges; 0 at the end; -errno; -EPROTO.  Then call
 * link_answer(). */
int link_listen(int sock, struct link_range ret[LINK_RANGES_MAX]);
int link_answer(int sock);

#endif
