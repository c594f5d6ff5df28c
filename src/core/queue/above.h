/* SPDX-License-Identifier: MIT */
/*
 * Functions that queues call in the layers above: ways_ functions choose how bytes move, carry_
 * functions move them.
 *
 * The layers above include this folder's headers and not the reverse, so the functions that they
 * define are declared here.  A table of pointers is not needed: each function has one definition.
 */
#ifndef PST_ABOVE_H
#define PST_ABOVE_H

#include <stdbool.h>

#include <penstock.h>

struct req;

/* ------------------------------------------------------------------- ways */

/* Choose how a request runs, and who moves it (r->ops).  Return 0 or -errno. */
int ways_choose(struct req *r);
/* Tell the paths named in r->tell that the request completes. */
void ways_over(struct req *r);
/* Forget the plan of the queue's last request, so that the next request does not reuse it. */
void ways_forget(struct pst_queue *q);

/* --------------------------------------------------------------- carriers */

/* Allocate a zeroed queue, followed by the data that paths and carriers keep for it.  Return NULL
 * without memory. */
struct pst_queue *carry_queue_new(void);
/* Allocate q->reqs, each request followed by the data that paths and carriers keep for it, and put
 * q->depth requests on q->free.  The queue can move q->depth + nr_parts ranges at a time.  Return
 * false without memory. */
bool carry_init(struct pst_queue *q, unsigned nr_parts);
/* Release the engines of a queue that ends. */
void carry_leave(struct pst_queue *q);
/* Free what carry_init() allocated, and the queue. */
void carry_free(struct pst_queue *q);

/* Prepare a request on device memory, or one that is ordered by a stream.  Return 0, or -errno with
 * a sentence: -EBUSY or -EAGAIN if the limit of staging memory leaves no slots for the queue. */
int carry_prep(struct req *r, const struct pst_io *io);
/* Order a request after its stream, once its path is chosen.  Return 0, or -errno with a
 * sentence. */
int carry_order(struct req *r);
/* Give engines the requests that pst_queue_submit() has started for them so far. */
void carry_flush(struct pst_queue *q);
/* Finish pst_queue_submit(), which has started every request. */
void carry_submitted(struct pst_queue *q);
/* Release a request that has completed or never began. Nothing of the request is in flight. */
void carry_release(struct req *r);
/* Set r->res.crc.  Return false if the request has no checksum. */
bool carry_crc(struct req *r);
/* Compare a read's bytes in host memory with the caller's checksums, and set the error of the
 * request if a piece differs. */
void carry_verify(struct req *r);

#endif
