/* SPDX-License-Identifier: MIT */
#include "cli/bench/walk.h"

#include "cli/bench/turns.h"
#include "tools/common/numbers.h"

/* Return the start of part idx, when n things are divided into nr parts.  n * idx may exceed 64
 * bits. */
static uint64_t walk_part_start(uint64_t n, unsigned idx, unsigned nr)
{
	return n / nr * idx + n % nr * idx / nr;
}

/* Return the most pieces that a thread may read, if its part of the file has nr pieces; UINT64_MAX
 * if only time ends its turns. */
static uint64_t limit(const struct bench_job *job, uint64_t nr, bool once)
{
	uint64_t most = once ? nr : UINT64_MAX;

	if (job->bytes)
		most = MIN(most, MAX(job->bytes / job->size / job->threads, UINT64_C(1)));
	return most;
}

static uint64_t requests(const struct bench_job *job, uint64_t pieces)
{
	return pieces / job->pieces + (pieces % job->pieces != 0);
}

uint64_t walk_requests(const struct bench_job *job, bool once)
{
	uint64_t pieces = limit(job, job->file_size / job->size / job->threads, once);

	return pieces == UINT64_MAX ? UINT64_MAX : requests(job, pieces);
}

unsigned walk_turns(const struct bench_job *job, bool once, unsigned wanted)
{
	uint64_t each = walk_requests(job, once), all;

	all = each > UINT64_MAX / job->threads ? UINT64_MAX : each * job->threads;
	each = MIN(each, all / TURN_OPS_MIN);
	return each ? (unsigned)MIN(each, wanted) : 1;
}

void walk_init(struct walk *w, const struct bench_job *job, unsigned thread, unsigned turn,
	       bool other, bool once)
{
	uint64_t all = job->file_size / job->size, random = UINT64_C(0x1234567) + thread, most,
		 skip;
	unsigned part = (job->turns - 1 - turn + (other ? job->turns / 2 : 0)) % job->turns;

	*w = (struct walk){
		.first = walk_part_start(all, thread, job->threads),
		.nr = walk_part_start(all, thread + 1, job->threads) -
		      walk_part_start(all, thread, job->threads),
		.stride = 1,
		.left = UINT64_MAX,
	};
	if (job->random && w->nr > 2) {
		do {
			w->stride = random_next(&random) % w->nr;
		} while (gcd(w->stride, w->nr) != 1);
		w->at = random_next(&random) % w->nr;
	}

	most = limit(job, w->nr, once);
	if (most == UINT64_MAX) {
		skip = walk_part_start(w->nr, part, job->turns);
	} else {
		uint64_t nr = requests(job, most);

		skip = walk_part_start(nr, part, job->turns) * job->pieces;
		w->left = MIN(walk_part_start(nr, part + 1, job->turns) * job->pieces, most) - skip;
	}
	w->at = (uint64_t)((w->at + (unsigned __int128)skip * w->stride) % w->nr);
}

bool walk_next(struct walk *w, uint64_t size, uint64_t *ret_off)
{
	if (!w->left)
		return false;
	w->left--;
	*ret_off = (w->first + w->at) * size;
	w->at += w->stride;
	if (w->at >= w->nr)
		w->at -= w->nr;
	return true;
}
