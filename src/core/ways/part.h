/* SPDX-License-Identifier: MIT */
/*
 * Parts: the one machine for file operations (part.c).
 *
 * A part is a range that is contiguous in a file and in memory that the CPU reaches: the memory of
 * a request, a window, or a staging slot.  It moves its range by the file hops of its request's
 * plan, one operation at a time, until every byte has arrived, the file ends, or an error comes.
 *
 * A part belongs to one mover, which is one thread's I/O context: the caller of a queue
 * (caller.c), or the worker of an engine (carry/job.c).  Only that thread touches it.
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
	PART_PROOF, /* a plain read of the body's bytes */
	PART_TRIAL, /* that differed: more of both */
	PART_SYNC,
};

/* Whose parts these are. */
struct part_user {
	/* 0, or the -errno that its request was stopped with: no further operation starts. */
	int (*stopped)(const struct part *p);
	/* It is over.  got bytes arrived, then err; p is the user's again. */
	void (*done)(struct part *p);
	/* NULL, or: a part of the same request for an edge; NULL if there is none just now. */
	struct part *(*edge)(struct part *p);
	bool roomy; /* the memory around the range takes whole blocks of the file */
};

/* A slot has hundreds: what each of them needs comes first, in two lines of the cache. */
struct part {
	const struct part_user *user;
	struct mover *mover;
	struct req *req;

	/* Set by the user before part_start(). */
	uint64_t pos; /* of its first byte in the request, in piece order */
	uint64_t off; /* in the file */
	uint64_t len;
	char *data;
	struct io_buf *reg; /* registered memory that data lies in, or NULL */

	/* Results. */
	uint64_t got;             /* bytes that arrived, from the first on */
	uint64_t bytes[HOPS_MAX]; /* moved by each hop of the plan */
	int err;      /* positive errno of the byte after them; 0 with got < len: the file ends */
	uint32_t why; /* by reason_wanted() */
	int detail;
	uint32_t flags; /* PST_DONE_* */
	bool left;      /* no hop is left for that byte */
	bool eof;       /* the file ends there */

	uint8_t out;     /* bits of hops in the plan that serve it no more */
	uint8_t hop;     /* of the operation, index in the plan */
	uint8_t step;    /* enum part_step */
	bool in_flight;  /* in the I/O context */
	struct job *job; /* the user's own, as link and hold */

	struct io_op op;          /* the operation under way */
	struct proof *unproven;   /* of the operation's hop, or NULL */
	struct part_proof *proof; /* under way */
	struct part *next;        /* on a list of its mover, or of its user's free ones */
	struct list link;
	struct hold *hold; /* kept open by a path for it, or NULL */
} __attribute__((aligned(CACHE_LINE)));

/* Ready for part_choose(), once its user has set the user's members. */
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

/* Choose the hop and the bytes of the next operation; false if no hop is left. */
bool part_choose(struct part *p);
/* A write, or an operation on the file of a provider. */
void part_queue_other(struct part *p);
/* The I/O context is full (-EAGAIN), or cannot take the operation. */
void part_not_queued(struct part *p, int err);

/* Start the operation that part_choose() chose, or p->op as it stands for a sync. */
static inline void part_queue(struct part *p)
{
	struct io_ctx *ctx = p->mover->ctx;
	int r;

	if (p->op.kind == IO_WRITE || unlikely(p->op.file->ops->backend)) {
		part_queue_other(p);
		return;
	}
	p->in_flight = true;
	r = ctx->ops->queue(ctx, &p->op);
	if (unlikely(r < 0))
		part_not_queued(p, r);
}

/* No hop is left: the part is over. */
void part_leave(struct part *p);

/* Choose and queue.  The part may be over when it returns. */
static inline void part_start(struct part *p)
{
	if (likely(part_choose(p)))
		part_queue(p);
	else
		part_leave(p);
}

/* The I/O context has finished its operation. */
void part_op_done(struct part *p);
/* part_proof.c: compare the moved bytes with a plain read; p->got is got if they are good. */
void part_prove(struct part *p, uint64_t got);
/* part_proof.c: an operation of the proof came back. */
void part_proof_op_done(struct part *p);
void part_proof_free(struct part *p);
/* part.c: go on after an operation, a proof included. */
void part_continue(struct part *p);
/* part.c: the hop serves the part no longer. */
void part_event(struct part *p, unsigned hop, uint32_t why, int detail);

#endif
