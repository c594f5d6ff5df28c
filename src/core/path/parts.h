/* SPDX-License-Identifier: MIT */
/*
 * Parts: the file operations of requests on memory that the CPU reaches (parts.c).
 */
#ifndef PST_PARTS_H
#define PST_PARTS_H

#include "core/queue/req.h"

#define PART_MAX MIB(4)        /* bytes of one part */
#define SUBMIT_COPY_MAX MIB(1) /* out of the page cache within pst_queue_submit() */

/* One file operation of a request on host memory or, through a window, on device memory. */
struct part {
	struct io_op op;
	struct part *next; /* q->parts or q->parked */
	struct list link;  /* req->parts */
	struct req *req;
	struct cached_window *cached_window; /* whose window it uses, or NULL */
	uint64_t pos;                        /* of its first byte, in piece order */
	uint8_t hop;                         /* index in the plan */
	bool proving;                        /* a proof's, not the request's own */
	bool in_flight;                      /* in the I/O context */
};

/* Start as many parts as there is room for.  The request ends by itself. */
void parts_start(struct req *r);
/* A part came back from the I/O context. */
void part_done(struct part *p);
/* Start the request's fsync. */
void parts_sync(struct req *r);
/* Start the writes that had to wait for others, or end them where their request has ended. */
void parts_unpark(struct pst_queue *q);
/* Ask the I/O context to end the request's parts, when it is flushed. */
void parts_cancel(struct req *r);
/* Compare what the direct hop moved with a plain read; false when that cannot be. */
bool parts_prove(struct req *r);
/* Move everything again through the page cache, because the direct hop cannot be trusted. */
void parts_again(struct req *r);
/* A proof's part came back. */
void parts_proof_done(struct req *r, int64_t res);

/* A part for the request; NULL when there is none just now. */
struct part *part_new(struct req *r);
/* Give it to the I/O context, or keep it while it has to wait for other writes. */
void part_queue(struct part *p);

#endif
