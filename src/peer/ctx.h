/* SPDX-License-Identifier: MIT */
/* The I/O context of peers' memory. */
#ifndef PST_PEER_CTX_H
#define PST_PEER_CTX_H

#include "file/op.h"
#include "peer/peer.h"

/* Maximum bytes that one turn copies before it looks for other work. */
#define PEER_COPY_MAX MIB(4)

/* Copy at most *budget bytes of an operation.  Return true if it is finished, with op->res set.
 * Defined in memory.c. */
bool memory_go_on(struct peer_file *f, struct io_op *op, uint64_t *budget);

/* Start an operation over the socket; it ends in the inbox.  Return 0, -EPIPE or -ENOMEM.  Defined
 * in socket.c. */
int socket_start(struct peer_file *f, struct io_inbox *in, struct io_op *op);
/* Start an operation by RDMA through the file's reach.  Return the same as socket_start(). */
int rdma_start(struct peer_file *f, struct io_inbox *in, struct io_op *op);
/* Cancel an operation of socket_start() or rdma_start(). */
void socket_cancel(struct peer_file *f, struct io_op *op);

#endif
