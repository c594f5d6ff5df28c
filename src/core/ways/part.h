/* SPDX-License-Identifier: MIT */
/*
 * Parts: the state machine of all file operations (part.c).
 *
 * A part is a range that is contiguous in a file and in memory that the CPU can use: the memory of
 * a request, a window, or a staging slot.  A part moves its range by the file hops of its request's
 * plan, one operation at a time, until all bytes have arrived, the file ends, or an error occurs.
 *
 * A part belongs to one mover, which is one thread's I/O context.  That thread is a queue's owner
 * (caller.c) or a worker of an engine (carry/job.c).  Only that thread uses the part.
 */
#ifndef PST_PART_H
#define PST_PART_H

#include "base/list.h"
#include "core/queue/mover.h"
#include "core/ways/way.h"
#include "file/file.h"
#include "file/io.h"

struct hold;
struct job;
struct part;
struct proof;
struct req;

enum part_step {
	PART_BODY,
	PART_BEFORE, /* a proof's plain read of the bytes that a write will replace */
	PART_PROOF,  /* a proof's plain read of the bytes that were moved */
	PART_TRIAL,  /* an operation that repeats bytes whose proof found a difference: trial.h */
	PART_SYNC,
};

/* Callbacks of the part's user: the code that starts parts. */
struct part_user {
	/* Return 0, or the -errno with which the part's request was stopped.  After that no further
	 * operation starts. */
	int (*stopped)(const struct part *p);
	/* Take back the part, which has ended: p->got bytes arrived, and p->err is the error of the
	 * next byte. */
	void (*done)(struct part *p);
	/* Return a free part of the same request, for the bytes before or after a middle that a hop
	 * can move; NULL if none is free.  May be NULL. */
	struct part *(*edge)(struct part *p);
	bool roomy; /* the memory around the range has room for whole blocks */
};

/* A slot has hundreds of parts.  The members that every part needs come first, in two cache
 * lines. */
struct part {
	const struct part_user *user;
	struct mover *mover;
	struct req *req;

	/* Members that the user sets before part_start(). */
	uint64_t pos; /* bytes of the request before the part, in piece order */
	uint64_t off; /* offset in the file, bytes */
	uint64_t len;
	char *data;
	struct io_buf *reg; /* registered memory that contains data, or NULL */

	/* Results. */
	uint64_t got;             /* bytes that arrived, without a gap from the first one on */
	uint64_t bytes[HOPS_MAX]; /* bytes that each hop of the plan moved */
	int err;      /* positive errno of the byte after got; 0 and got < len: end of file */
	uint32_t why; /* PST_WHY_* that reason_wanted() kept */
	int detail;
	uint32_t flags; /* PST_DONE_* */
	bool left;      /* no hop can move the byte after got */
	bool eof;       /* the file ends after got */

	uint8_t out;     /* bit set of the plan's hops that the part does not use any more */
	uint8_t hop;     /* hop of the current operation, as an index in the plan */
	uint8_t step;    /* enum part_step */
	bool in_flight;  /* the I/O context has op */
	struct job *job; /* for the part's user; part.c does not use job, link and hold */

	struct io_op op;            /* the current operation on the file */
	struct proof *unproven;     /* the proof that the current hop still needs, or NULL */
	struct part_proof *proof;   /* the comparison that is running, or NULL */
	struct part_before *before; /* bytes that the unproven operation replaces, or NULL */
	struct part *next;          /* next on a list of the mover, or on the user's free list */
	struct list link;
	struct hold *hold; /* resource that a path keeps open for the part, or NULL */
} __attribute__((aligned(CACHE_LINE)));

/* Initialize a part for part_choose(); the user then sets the user's members. */
static inline void part_init(struct part *p, struct req *r, struct mover *m,
			     const struct part_user *user)
{
	p->user = user;
	p->mover = m;
	p->req = r;
	p->got = 0;
	p->err = 0;
	p->out = 0;
	p->step = PART_BODY;
	p->left = p->eof = false;
	p->why = p->flags = 0;
	p->detail = 0;
	for (unsigned i = 0; i < HOPS_MAX; i++)
		p->bytes[i] = 0;
}

/* Choose the hop and the bytes of the next operation.  Return false if no hop is left. */
bool part_choose(struct part *p);
/* part_queue() for writes, unproven operations, and files of providers with their own back end. */
void part_queue_other(struct part *p);
/* Handle an operation that the I/O context did not accept: it is full (-EAGAIN), or cannot do
 * it. */
void part_not_queued(struct part *p, int err);

/* Start the operation that part_choose() prepared, or a sync that the caller prepared in p->op. */
static inline void part_queue(struct part *p)
{
	struct io_ctx *ctx = p->mover->ctx;
	int r;

	if (p->op.kind == IO_WRITE || unlikely(p->op.file->ops->backend) ||
	    unlikely(p->step == PART_BODY && p->unproven)) {
		part_queue_other(p);
		return;
	}
	p->in_flight = true;
	r = ctx->ops->queue(ctx, &p->op);
	if (unlikely(r < 0))
		part_not_queued(p, r);
}

/* End the part, because no hop is left. */
void part_leave(struct part *p);

/* Choose and queue the next operation.  The part may have ended on return. */
static inline void part_start(struct part *p)
{
	if (likely(part_choose(p)))
		part_queue(p);
	else
		part_leave(p);
}

/* Handle the end of the part's operation. */
void part_op_done(struct part *p);
/* part_proof.c: compare the moved bytes with a plain read.  If they are equal, set p->got to
 * got. */
void part_prove(struct part *p, uint64_t got);
/* part_proof.c: handle the end of a proof's operation. */
void part_proof_op_done(struct part *p);
void part_proof_free(struct part *p);
/* part_proof.c: keep the bytes that an unproven operation will replace, if its proof needs them.
 * For a write, change p->op to a plain read of those bytes. */
void part_before_keep(struct part *p);
/* part_proof.c: handle the end of the read that part_before_keep() prepared, and queue the
 * write. */
void part_before_done(struct part *p);
/* part.c: continue after an operation or a proof. */
void part_continue(struct part *p);
/* part.c: stop using the hop for this part. */
void part_event(struct part *p, unsigned hop, uint32_t why, int detail);

#endif
