/* SPDX-License-Identifier: MIT */
/*
 * DIRECT: O_DIRECT between the disk and memory.
 *
 * O_DIRECT moves whole blocks of the file.  If the memory around the range of a read has room, the
 * read takes the whole blocks around its range.  If not, it moves the aligned middle, and the next
 * hop reads exactly the bytes of the edges.  A write that is not aligned as a whole takes another
 * hop (plan.c), so that bytes outside the request are never read, modified and written back.
 */
#include <pthread.h>

#include "base/err.h"
#include "base/log.h"
#include "base/size.h"
#include "core/queue/req.h"
#include "core/ways/direct.h"
#include "core/ways/part.h"
#include "core/ways/path.h"
#include "core/ways/plan.h"
#include "core/ways/proof.h"
#include "core/ways/way.h"

_Static_assert(ARRAY_SIZE(((struct pst_file *)0)->direct) == PROOF_DIR_NR, "by enum proof_dir");

static struct proof *proof_of(const struct pst_file *f, uint32_t op)
{
	return f->direct[op == PST_OP_WRITE ? PROOF_WRITE : PROOF_READ];
}

enum pst_why direct_of_file(const struct pst_file *f, int *ret_detail)
{
	const struct file *file = f->file;

	if (file->flags & PST_FILE_PLAIN)
		return PST_WHY_NO_DIRECT;
	if (!(file->caps & FILE_DIRECT)) {
		*ret_detail = file->detail;
		return file->why ? file->why : PST_WHY_NO_DIRECT;
	}
	return PST_WHY_NONE;
}

enum pst_why direct_trust(const struct pst_file *f, const struct proof *proof)
{
	if (proof_is_bad(proof) || (proof_state(proof) != PST_STATE_PROVEN && !plan_reader(f)))
		return PST_WHY_NOT_PROVEN;
	return f->file->direct_bad ? PST_WHY_DIRECT_ERROR : PST_WHY_NONE;
}

/* Return true for pages of another PCI device, which only the path P2P serves. */
static bool is_peer(const struct pst_mem *m)
{
	return mem_ops_of(m)->caps & MEM_CAP_PEER;
}

static enum pst_why direct_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			       int *ret_detail)
{
	enum pst_why why = is_peer(m) ? PST_WHY_NO_PROVIDER : direct_of_file(f, ret_detail);

	return why ? why : direct_trust(f, proof_of(f, op));
}

static bool direct_proven(const struct pst_file *f, const struct pst_mem *m, uint32_t op)
{
	(void)m;
	return proof_state(proof_of(f, op)) == PST_STATE_PROVEN;
}

/* Request a reader if writes are not proven yet: a proof reads the written bytes back. */
static int direct_file_begin(struct pst_file *f, bool *ret_reader)
{
	f->direct[PROOF_READ] = proof_direct(f->file, PROOF_READ);
	f->direct[PROOF_WRITE] = proof_direct(f->file, PROOF_WRITE);
	if (!f->direct[PROOF_READ] || !f->direct[PROOF_WRITE])
		return err_set(ENOMEM, "out of memory");
	if ((f->file->caps & FILE_DIRECT) &&
	    proof_state(f->direct[PROOF_WRITE]) != PST_STATE_PROVEN)
		*ret_reader = true;
	return 0;
}

/*
 * PST_SMALL_WRITE: bytes up to which writes use the page cache.  A single small write then
 * completes sooner, even with the sync that follows.  But another process may write the file by
 * O_DIRECT, which this process cannot detect.  So the page cache is used only if the user sets this
 * variable.
 */
static uint64_t small_write_max;

static void small_write_env(void)
{
	const char *text = secure_getenv("PST_SMALL_WRITE");
	uint64_t max;

	if (!text || !*text)
		return;
	if (size_parse(text, &max) < 0)
		log_warn("PST_SMALL_WRITE: %s, ignoring", err_text());
	else
		small_write_max = max;
}

/* Return true if the size of this write decides between O_DIRECT and the page cache. */
static bool small_writes(const struct req *r)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (r->io.op != PST_OP_WRITE || r->io.policy)
		return false;
	(void)pthread_once(&once, small_write_env);
	return small_write_max > 0;
}

static bool is_small_write(const struct req *r)
{
	return small_writes(r) && !(req_file(r)->caps & FILE_SHARED) && r->total <= small_write_max;
}

/* Return false if the file has no page cache to bypass, or the page cache is preferred. */
static bool direct_wanted(const struct req *r)
{
	const struct file *file = req_file(r);

	return !(file->caps & FILE_RESIDENT) && (file->caps & FILE_DIRECT || file->why) &&
	       !is_small_write(r) && !is_peer(req_mem(r));
}

/* Cut the rest of a part to its middle: the range whose ends are aligned in the file and in
 * memory. */
static enum pst_why fit_middle(struct part *p, uint64_t unit, int *ret_detail)
{
	struct io_op *op = &p->op;
	uint64_t mem_mask = req_file(p->req)->mem_align - 1;
	uint64_t mem = (uintptr_t)p->data - p->off; /* address of a byte minus its file offset */
	uint64_t start = align_up(op->off, unit), end = align_down(op->off + op->len, unit);

	if (likely(start == op->off && end == op->off + op->len && !((mem + start) & mem_mask)))
		return PST_WHY_NONE;
	*ret_detail = (int)unit;
	if ((mem + start) & mem_mask) {
		*ret_detail = (int)mem_mask + 1;
		return PST_WHY_UNALIGNED;
	}
	/* A write can be unaligned here if an earlier hop stopped inside a block. */
	if (start >= end || p->req->io.op == PST_OP_WRITE)
		return PST_WHY_UNALIGNED;
	op->off = start;
	op->len = end - start;
	return PST_WHY_NONE;
}

/* Widen a part to whole blocks.  The memory around the part must have room. */
static enum pst_why fit_blocks(struct part *p, uint64_t unit, int *ret_detail)
{
	struct io_op *op = &p->op;
	uint64_t start = align_down(op->off, unit), end = align_up(op->off + op->len, unit);

	*ret_detail = (int)unit;
	op->off = start;
	op->len = end - start;
	return end > INT64_MAX ? PST_WHY_UNALIGNED : PST_WHY_NONE;
}

enum pst_why direct_cut(struct part *p, struct proof *proof, int *ret_detail)
{
	const struct file *file = req_file(p->req);
	bool write = p->req->io.op == PST_OP_WRITE;

	if (unlikely(!proof_is_good(proof))) {
		if (proof_is_bad(proof))
			return PST_WHY_NOT_PROVEN;
		p->unproven = proof;
	}
	p->op.flags = IO_OP_DIRECT;
	if (p->req->one_part && req_plan(p->req)->off_mask && !p->got)
		return PST_WHY_NONE; /* the planner has checked the alignment */
	if (write)
		return fit_middle(p, MAX(PAGE, file->off_align), ret_detail);
	return p->user->roomy ? fit_blocks(p, file->off_align, ret_detail)
			      : fit_middle(p, file->off_align, ret_detail);
}

static enum pst_why direct_fit(struct part *p, int *ret_detail)
{
	if (unlikely(req_file(p->req)->direct_bad))
		return PST_WHY_DIRECT_ERROR;
	return direct_cut(p, proof_of(p->req->io.file, p->req->io.op), ret_detail);
}

/* Return true if the kernel refused O_DIRECT, and false for an I/O error. */
static bool is_refusal(int err)
{
	return err == EINVAL || err == EOPNOTSUPP || err == ENOTBLK;
}

static enum pst_why direct_miss(const struct part *p, int err, int *ret_detail)
{
	if (!is_refusal(err))
		return PST_WHY_NONE;
	atomic_store(&req_file(p->req)->direct_bad, true);
	path_changed();
	log_info("O_DIRECT refused with %s, going on without", err_name(err));
	*ret_detail = err;
	return PST_WHY_DIRECT_ERROR;
}

const struct path_ops path_direct = {
	.path = PST_PATH_DIRECT,
	.aligned = true,
	.wanted = direct_wanted,
	.varies = small_writes,
	.why = direct_why,
	.proven = direct_proven,
	.file_begin = direct_file_begin,
	.fit = direct_fit,
	.miss = direct_miss,
};
