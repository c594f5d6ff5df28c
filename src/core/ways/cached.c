/* SPDX-License-Identifier: MIT */
/*
 * CACHED: move bytes only if the page cache holds them.
 *
 * An IO_OP_NOWAIT read that misses may start read-ahead, and then the disk reads the same bytes
 * twice.  So file_resident() is called first, until WARM_SURE consecutive reads have hit.  After a
 * miss, the next small requests skip both the call and CACHED: each further miss doubles their
 * number, up to WARM_BACKOFF_MAX.
 */
#include "core/queue/req.h"
#include "core/ways/ahead.h"
#include "core/ways/cached.h"
#include "core/ways/part.h"
#include "core/ways/path.h"
#include "core/ways/plan.h"
#include "core/ways/warm.h"
#include "core/ways/way.h"

#define WARM_BACKOFF_MAX 64
#define WARM_ASK_LEN KIB(64)

/* The bytes of file.warm; the first member is the lowest byte. */
struct warm {
	uint8_t hits;    /* consecutive hits; from WARM_SURE on, file_resident() is not called */
	uint8_t skip;    /* next requests that do not call file_resident() */
	uint8_t backoff; /* value of skip after the last miss */
};

static struct warm warm_get(const struct file *file)
{
	int v = atomic_load_explicit(&file->warm, memory_order_relaxed);

	return (struct warm){ (uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16) };
}

static void warm_set(struct file *file, struct warm w)
{
	atomic_store_explicit(&file->warm, w.hits | w.skip << 8 | w.backoff << 16,
			      memory_order_relaxed);
}

static void cached_told(const struct req *r, bool hit)
{
	struct file *file = req_file(r);
	struct warm w = warm_get(file);

	/* Bytes that were read ahead do not show whether the rest of the file is resident. */
	if (req_plan(r)->ahead || (hit && w.hits >= WARM_SURE))
		return;
	if (hit) {
		w = (struct warm){ .hits = (uint8_t)(w.hits + 1) };
	} else {
		w.backoff = w.hits ? 1 : (uint8_t)MIN(w.backoff * 2 + 1, WARM_BACKOFF_MAX);
		w.hits = 0;
		w.skip = w.backoff;
	}
	warm_set(file, w);
}

bool cached_worth(const struct req *r, uint64_t off, uint64_t len)
{
	struct file *file = req_file(r);
	struct warm w = warm_get(file);
	bool skip = w.skip && !req_plan(r)->listed;
	int res;

	if ((file->caps & FILE_RESIDENT) || w.hits >= WARM_SURE)
		return true;
	/* Try NOWAIT without asking first: such a read may start read-ahead, which does no harm
	 * here.  Ask first only if the file system may hang. */
	if (req_plan(r)->ahead && (file->caps & (FILE_NOWAIT | FILE_MAY_HANG)) == FILE_NOWAIT)
		return true;
	/* Never skip the call for many bytes: the call is cheap compared with copying them, and the
	 * page cache may hold the file by now. */
	res = skip && len < WARM_ASK_LEN ? -1 : file_resident(file, off, len);
	if (res < 0 && skip) {
		w.skip--;
		warm_set(file, w);
		return false;
	}
	/* CACHED must not wait: without NOWAIT, do not read bytes of unknown residency. */
	if (res < 0 && !(file->caps & FILE_NOWAIT))
		return false;
	if (res == 0 && !(req_plan(r)->listed && file_ends_at(file, off))) {
		cached_told(r, false);
		return false;
	}
	return true;
}

static enum pst_why cached_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			       int *ret_detail)
{
	(void)m;
	(void)ret_detail;
	if (op != PST_OP_READ)
		return PST_WHY_DIRECTION;
	return f->file->caps & FILE_CACHE ? PST_WHY_NONE : PST_WHY_NO_PROVIDER;
}

static _noinline_ enum pst_why cached_ask(struct part *p)
{
	return cached_worth(p->req, p->op.off, p->op.len) ? PST_WHY_NONE : PST_WHY_NOT_RESIDENT;
}

static enum pst_why cached_fit(struct part *p, int *ret_detail)
{
	const struct file *file = req_file(p->req);

	(void)ret_detail;
	/* Read resident bytes without NOWAIT if the file does not support it. */
	if (likely(file->caps & FILE_NOWAIT))
		p->op.flags = IO_OP_NOWAIT;
	return likely(cached_is_warm(file)) ? PST_WHY_NONE : cached_ask(p);
}

/* Return true if earlier requests found the file warm. */
static bool cached_now(const struct file *f)
{
	return cached_is_warm(f) && (f->caps & (FILE_NOWAIT | FILE_MAY_HANG)) == FILE_NOWAIT;
}

static void cached_hit(const struct part *p)
{
	if (p->op.flags & IO_OP_NOWAIT)
		cached_told(p->req, true);
}

static enum pst_why cached_miss(const struct part *p, int err, int *ret_detail)
{
	const struct io_op *op = &p->op;
	bool at_end;

	(void)ret_detail;
	/* Other errors, and cancellation, do not show whether the bytes were resident. */
	if (!(op->flags & IO_OP_NOWAIT) || (err && err != EAGAIN && err != EOPNOTSUPP))
		return PST_WHY_NONE;
	at_end = !err && file_ends_at(op->file, op->off + op->moved);
	/* The read may have been short because the kernel cannot write to the memory, so check that
	 * bytes are missing from the page cache. */
	if (err || at_end || file_resident(op->file, op->off + op->moved, op->len - op->moved) != 1)
		cached_told(p->req, at_end);
	return at_end ? PST_WHY_NONE : PST_WHY_NOT_RESIDENT;
}

const struct path_ops path_cached = {
	.path = PST_PATH_CACHED,
	.quiet = true,
	.copies = true,
	.choose = ahead_choose,
	.over = ahead_over,
	.why = cached_why,
	.fit = cached_fit,
	.now = cached_now,
	.hit = cached_hit,
	.miss = cached_miss,
};
