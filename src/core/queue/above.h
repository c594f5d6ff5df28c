/* SPDX-License-Identifier: MIT */
/*
 * What queues ask of the rooms above them, which choose ways for bytes (ways_) and move bytes
 * (carry_).
 *
 * Those rooms include the headers of this one, and not the other way round.  So the functions are
 * declared here, where they are needed, and are those rooms'.  They are no table of pointers,
 * because there is one of each, and each request calls some.
 */
#ifndef PST_ABOVE_H
#define PST_ABOVE_H

#include <stdbool.h>

#include <penstock.h>

struct req;

/* ------------------------------------------------------------------- ways */

/* Choose how a request runs, and who moves it (r->ops).  0 or -errno. */
int ways_choose(struct req *r);
/* The request completes: r->tell says who wanted to hear of it. */
void ways_over(struct req *r);
/* What was chosen for the queue's last request does not hold for the next. */
void ways_forget(struct pst_queue *q);

/* --------------------------------------------------------------- carriers */

/* A zeroed queue, with all that ways and carriers keep of it behind it; NULL: out of memory. */
struct pst_queue *carry_queue_new(void);
/* Allocate q->reqs, with all that ways and carriers keep of each behind it, and have q->depth of
 * them on q->free.  nr_parts: ranges that the queue moves at a time beside one of each request.
 * False: out of memory. */
bool carry_init(struct pst_queue *q, unsigned nr_parts);
/* Let go of engines: the queue ends. */
void carry_leave(struct pst_queue *q);
/* Free what carry_init() has made, and the queue. */
void carry_free(struct pst_queue *q);

/* The request is going to be that, on a device's memory or ordered by a stream of the program.  0;
 * -errno with a sentence: -EBUSY and -EAGAIN where staging memory has no room for the queue. */
int carry_prep(struct req *r, const struct pst_io *io);
/* The request names a stream, and its way is chosen: order it.  0 or -errno with a sentence. */
int carry_order(struct req *r);
/* Engines get what pst_queue_submit() has started for them so far. */
void carry_flush(struct pst_queue *q);
/* pst_queue_submit() has started all that it had. */
void carry_submitted(struct pst_queue *q);
/* The request completed, or never began, and nothing of it is under way. */
void carry_release(struct req *r);
/* Set r->res.crc; false: there is none. */
bool carry_crc(struct req *r);

#endif
