/* SPDX-License-Identifier: MIT */
/* The I/O context of peers' memory. */
#ifndef PST_PEER_CTX_H
#define PST_PEER_CTX_H

#include "file/op.h"
#include "peer/peer.h"

#define PEER_COPY_MAX MIB(4) /* bytes that a turn copies before it looks for other work */

/* memory.c: copy at most *budget bytes of an operation.  True: it is over, and op->res is set. */
bool memory_go_on(struct peer_file *f, struct io_op *op, uint64_t *budget);

/* socket.c: take an operation, which ends in the inbox.  0; -EPIPE; -ENOMEM. */
int socket_start(struct peer_file *f, struct io_inbox *in, struct io_op *op);
/* The same by RDMA, to the reach of the file. */
int rdma_start(struct peer_file *f, struct io_inbox *in, struct io_op *op);
/* Of either. */
void socket_cancel(struct peer_file *f, struct io_op *op);

#endif
