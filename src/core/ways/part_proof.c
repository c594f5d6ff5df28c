/* SPDX-License-Identifier: MIT */
/*
 * Proofs of parts: compare the bytes that an operation moved with a plain read, before the request
 * completes.  If they differ, trials find out why (trial.h), and the part starts again with another
 * hop.
 *
 * If a bus drops the bytes that a disk sends to peer-to-peer memory, the memory keeps its old
 * bytes.  If the old bytes happen to be the right ones, the comparison shows nothing.  So the old
 * bytes are kept, and the path is proven only by an operation that changed them.
 */
#include <string.h>

#include "base/uaccess.h"
#include "core/queue/req.h"
#include "core/ways/part.h"
#include "core/ways/plan.h"
#include "core/ways/proof.h"
#include "core/ways/trial.h"
#include "core/ways/way.h"

/* Maximum bytes that each part of a request except its first one compares while a proof is in
 * flight. */
#define PROOF_MORE KIB(64)

struct part_proof {
	struct proof *of;
	uint64_t off, len; /* compared range of the file, bytes */
	uint64_t got;      /* new value of part->got if the bytes are equal */
	bool proves;       /* enough bytes are compared to prove the path */
	const char *data;  /* the bytes that the operation moved */
	struct part_before *before;
	struct trial *trial;
	char buf[]; /* the bytes of the plain read */
};

/* The bytes that an operation replaces: in memory for a read, in the file for a write. */
struct part_before {
	struct io_op op; /* the write, which waits for the plain read of the old bytes */
	uint64_t len;    /* bytes in buf; fewer than the operation's at the end of the file */
	bool known;      /* len and buf are valid */
	char buf[];
};

void part_proof_free(struct part *p)
{
	struct part_proof *v = TAKE_PTR(p->proof);

	if (likely(!v))
		return;
	trial_free(v->trial);
	free(v->before);
	free(v);
	p->mover->nr_proving--;
}

/* Discard what the part has moved so far. */
static void part_forget(struct part *p)
{
	p->got = 0;
	memset(p->bytes, 0, sizeof(p->bytes));
}

/* End a part that was stopped before its bytes could be compared, and discard the bytes. */
static void part_unbelieved(struct part *p, int err)
{
	part_forget(p);
	p->err = err;
	part_continue(p);
}

/* Discard the part's bytes, which are not trusted, and move the whole part by another hop. */
static void part_again(struct part *p)
{
	part_proof_free(p);
	part_forget(p);
	p->err = 0;
	p->eof = false;
	part_event(p, p->hop, PST_WHY_NOT_PROVEN, 0);
	part_continue(p);
}

/* Return true if the request's memory belongs to another PCI device. */
static bool moves_peer_memory(const struct part *p)
{
	return mem_ops_of(req_mem(p->req))->caps & MEM_CAP_PEER;
}

/* Return true if the operation certainly moved the bytes: the new bytes differ from the old ones,
 * and are not one repeated byte, which a bus may return for dropped bytes. */
static bool has_moved(const struct part_proof *v)
{
	const struct part_before *b = v->before;

	if (!b || !b->known || v->len < 2 || memcmp(v->buf, v->buf + 1, v->len - 1) == 0)
		return false;
	return b->len < v->len || memcmp(b->buf, v->buf, v->len) != 0;
}

static void part_proven(struct part *p)
{
	p->got = p->proof->got;
	if (p->proof->proves && (!moves_peer_memory(p) || has_moved(p->proof))) {
		p->flags |= PST_DONE_PROOF;
		proof_good(p->proof->of);
	}
	part_proof_free(p);
	part_continue(p);
}

/* Return how many bytes to compare: up to PROOF_MAX for the first part of a request.  A request on
 * host memory may have hundreds of parts.  So its other parts compare fewer bytes while a proof is
 * in flight, and these comparisons prove nothing. */
static uint64_t proof_len(struct part *p)
{
	bool first = !atomic_exchange(&req_way(p->req)->compared, true);
	uint64_t max = first || p->user->roomy || !p->mover->nr_proving ? PROOF_MAX : PROOF_MORE;

	return MIN(p->op.moved, max);
}

/* Return true for a short write, which may have moved as little as one byte.  A short read is not
 * cut: it ended at the end of the file. */
static bool is_cut_short(const struct io_op *op)
{
	return op->kind == IO_WRITE && op->res != (int64_t)op->len;
}

void part_prove(struct part *p, uint64_t got)
{
	struct file *file = plan_reader(p->req->io.file);
	uint64_t len = proof_len(p);
	int err = p->user->stopped(p);
	struct part_proof *v;

	if (err < 0) {
		part_unbelieved(p, -err);
		return;
	}
	v = file ? malloc(sizeof(*v) + len) : NULL;
	if (!v) {
		part_again(p);
		return;
	}
	*v = (struct part_proof){
		.of = p->unproven,
		.off = p->op.off,
		.len = len,
		.got = got,
		.proves = len == MIN(p->op.moved, PROOF_MAX) && !is_cut_short(&p->op),
		.data = p->op.buf,
	};
	v->before = TAKE_PTR(p->before);
	p->proof = v;
	p->mover->nr_proving++;
	p->step = PART_PROOF;
	p->op.file = file;
	p->op.reg = NULL;
	p->op.kind = IO_READ;
	p->op.flags = 0;
	p->op.off = v->off;
	p->op.len = len;
	p->op.buf = v->buf;
	part_queue(p);
}

/* Start the trial's next operation.  Without a trial, start the part again. */
static void part_try(struct part *p)
{
	if (!p->proof->trial) {
		part_again(p);
		return;
	}
	p->step = PART_TRIAL;
	trial_op(p->proof->trial, &p->op);
	part_queue(p);
}

static void part_tried(struct part *p)
{
	enum trial_end end = trial_step(p->proof->trial, p->op.res);

	if (end == TRIAL_ON) {
		part_try(p);
		return;
	}
	if (end == TRIAL_LIE)
		proof_failed(p->proof->of);
	part_again(p);
}

/* Return true if the CPU may read the part's bytes: they are in a slot, or in memory that stays
 * mapped. */
static bool bytes_stay(const struct part *p)
{
	return p->user->roomy || req_stays(p->req);
}

/* Compare the operation's bytes with a plain read.  Return 1 if equal, 0 if not, -EFAULT if the
 * memory is gone. */
static int part_same(const struct part *p)
{
	const struct part_proof *v = p->proof;

	if (bytes_stay(p))
		return memcmp(v->buf, v->data, v->len) == 0;
	return uaccess_same(v->data, v->buf, v->len);
}

static void part_before_read(struct part *p, struct part_before *b)
{
	b->len = MIN(p->op.len, PROOF_MAX);
	if (bytes_stay(p))
		memcpy(b->buf, p->op.buf, b->len);
	b->known = bytes_stay(p) || uaccess_read(b->buf, p->op.buf, b->len) == 0;
}

void part_before_keep(struct part *p)
{
	struct file *file = plan_reader(p->req->io.file);
	uint64_t len = MIN(p->op.len, PROOF_MAX);
	struct part_before *b;

	if (!moves_peer_memory(p) || !file)
		return;
	b = malloc(sizeof(*b) + len);
	if (!b)
		return; /* the operation's proof is not possible */
	b->op = p->op;
	b->known = false;
	p->before = b;
	if (p->op.kind != IO_WRITE) {
		part_before_read(p, b);
		return;
	}
	p->step = PART_BEFORE;
	p->op.file = file;
	p->op.reg = NULL;
	p->op.kind = IO_READ;
	p->op.flags = 0;
	p->op.len = len;
	p->op.buf = b->buf;
}

void part_before_done(struct part *p)
{
	struct part_before *b = p->before;
	int err = p->user->stopped(p);

	if (err < 0) {
		p->err = -err;
		part_continue(p);
		return;
	}
	b->known = p->op.res >= 0;
	b->len = b->known ? (uint64_t)p->op.res : 0;
	p->op = b->op;
	p->step = PART_BODY;
	part_queue(p);
}

static void part_compared(struct part *p)
{
	struct part_proof *v = p->proof;
	int same;

	if (p->op.res != (int64_t)v->len) {
		/* A plain read that failed, or met a shrunk file, shows nothing about O_DIRECT. */
		part_again(p);
		return;
	}
	same = part_same(p);
	if (same < 0) {
		p->err = -same;
		part_continue(p);
	} else if (same) {
		part_proven(p);
	} else {
		v->trial = trial_new(p->req, v->off, v->len, v->data, bytes_stay(p), v->buf);
		if (!v->trial && moves_peer_memory(p))
			proof_doubt(v->of);
		part_try(p);
	}
}

void part_proof_op_done(struct part *p)
{
	int err = p->user->stopped(p);

	if (err < 0) {
		part_unbelieved(p, -err);
	} else if (p->step == PART_TRIAL) {
		part_tried(p);
	} else {
		part_compared(p);
	}
}
