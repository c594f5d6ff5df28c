/* SPDX-License-Identifier: MIT */
/*
 * The size of a request's next job.
 */
#include "core/queue/cursor.h"
#include "core/queue/req.h"
#include "core/sched/above.h"
#include "core/sched/job_size.h"
#include "core/sched/single.h"
#include "core/ways/plan.h"
#include "core/ways/source.h"
#include "core/ways/way.h"

#define EVEN_MAX KIB(64) /* bytes of the longest piece that counts as small */
#define SMALL_PIECE KIB(64)
#define SCATTERED_PIECES 64u
/* Least number of workers with which jobs are short: one worker is slower with short jobs, fourteen
 * are faster. */
#define SCATTERED_WORKERS 8u
/* Pieces in each of the first and last jobs of a request with scattered pieces. */
#define EDGE_PIECES 32u

/* If the next piece, begun or not, is small and not the only one, return its full length, else
 * 0. */
static uint64_t scattered_piece(const struct req *r)
{
	struct piece pc;
	uint64_t len;

	if (r->one_piece || !cursor_peek(&r->cur, &pc))
		return 0;
	len = r->cur.off + pc.len;
	return len <= SMALL_PIECE ? len : 0;
}

bool req_is_scattered(const struct req *r)
{
	uint64_t piece = scattered_piece(r);

	return piece && r->total - r->cur.pos >= SCATTERED_PIECES * piece;
}

/* Return true if the next piece has at least min bytes, and the device can copy it from its
 * source. */
static bool next_is_ready(const struct req *r, uint64_t min)
{
	struct source *s = req_plan(r)->from;
	struct piece pc;

	return s && cursor_peek(&r->cur, &pc) && pc.len >= min &&
	       s->ops->ready(s, pc.file_off, MIN(pc.len, MIB(1)), false);
}

bool req_is_ready(const struct req *r)
{
	return next_is_ready(r, 1);
}

bool req_is_long(const struct req *r)
{
	return next_is_ready(r, LONG_PIECE);
}

uint64_t engine_part_beyond_slot(const struct req *r)
{
	struct source *s = req_plan(r)->from;
	struct piece pc;
	uint64_t n;

	if (likely(!s) || !s->ops->job_max || !cursor_peek(&r->cur, &pc))
		return 0;
	n = MIN(pc.len, s->ops->job_max);
	return n > req_engine(r)->share->engine->slot_size &&
			       s->ops->ready(s, pc.file_off, n, false)
		       ? n
		       : 0;
}

/* Return true if no other request has anything to start. */
static bool is_alone(const struct req *r)
{
	const struct engine *e = req_engine(r)->share->engine;
	const struct list *active = &e->active, *first = active->next;

	return list_empty(&e->parking) &&
	       (first == active || (first == &req_engine(r)->active && first->next == active));
}

/*
 * Return how many bytes of small scattered pieces a job takes if many workers share the copier's
 * batches.  A worker fills about three slots in turn; if they are half full, all three stay in its
 * CPU's cache.  The first and last jobs are short, because the device is idle before the first job,
 * and workers are idle after the last one.
 */
static uint64_t scattered_part(const struct req *r, uint64_t piece)
{
	const struct engine *e = req_engine(r)->share->engine;
	uint64_t most = e->slot_size / 2, edge = EDGE_PIECES * piece;
	uint64_t round = e->nr_workers * edge;

	if (is_alone(r) && (r->cur.pos < round || r->total - r->cur.pos < 2 * round))
		return MIN(most, edge);
	return most;
}

uint64_t engine_part(const struct req *r)
{
	const struct engine *e = req_engine(r)->share->engine;
	uint64_t left = r->total - r->cur.pos;
	uint64_t piece = scattered_piece(r);
	uint64_t least = engine_waits_for_disk(e) ? PART_COLD : PART_MIN;
	unsigned idle = 1; /* counts the worker that takes the job */

	if (unlikely(req_engine(r)->feed))
		return feed_part(r);
	if (r->io.op != PST_OP_READ || req_plan(r)->source_now || r->total <= SHARED_MIN ||
	    req_is_ready(r))
		return e->slot_size;
	if (piece && r->total >= SCATTERED_PIECES * piece && e->nr_workers >= SCATTERED_WORKERS)
		return scattered_part(r, piece);
	if (!r->one_piece || !is_alone(r))
		return e->slot_size;
	for (unsigned i = 0; i < e->nr_usual; i++)
		idle += e->workers[i].nr_jobs == e->workers[i].nr_copying;
	idle = MIN(idle, single_free_cpus(e));
	return MIN(e->slot_size, MAX(least, align_up(left / idle, KIB(64))));
}

/* Return how many bytes of a slot each piece takes at most. */
static uint64_t even_room(const struct req *r)
{
	uint64_t blk = req_block(r), lead = r->shape.off_bits & (blk - 1) ? blk - 1 : 0;

	return align_up(r->shape.even + lead, blk);
}

unsigned job_even_pieces(const struct req *r)
{
	uint64_t slot = req_engine(r)->share->engine->slot_size;

	if (r->one_piece || !r->shape.even || r->shape.even > EVEN_MAX || req_plan(r)->pieces)
		return 0;
	return (unsigned)MIN(slot / even_room(r), (uint64_t)JOB_PIECES);
}
