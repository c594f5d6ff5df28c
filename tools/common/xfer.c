/* SPDX-License-Identifier: MIT */
#include "tools/common/xfer.h"

#define BATCH 64

uint64_t io_bytes(const struct pst_io *io)
{
	uint64_t bytes = 0;

	if (io->op == PST_OP_SYNC)
		return 0;
	if (!io->segs)
		return io->len;
	for (uint64_t i = 0; i < io->nr_segs; i++)
		bytes += io->segs[i].len * MAX(io->segs[i].count, UINT64_C(1));
	return bytes;
}

static int check_done(const struct pst_done *d, const struct pst_io *io)
{
	char buf[512];

	if (d->res < 0)
		return fail((int)-d->res, "%s", pst_done_text(d, buf, sizeof(buf)));
	if ((uint64_t)d->res != io_bytes(io))
		return fail(EIO, "only %lld of %llu bytes came: the file ended early",
			    (long long)d->res, (unsigned long long)io_bytes(io));
	return 0;
}

void xfer_abandon(struct pst_queue *queue, size_t nr)
{
	uint64_t deadline = now_ns() + 5 * NSEC_PER_SEC;
	struct pst_done batch[BATCH];

	for (size_t i = 0; i < nr; i++)
		(void)pst_queue_cancel(queue, i);
	/* A short batch means that nothing is in flight, or that the kernel hangs. */
	while (pst_queue_reap(queue, batch, BATCH, BATCH, deadline) == BATCH)
		;
}

static int common_xfer_run(struct pst_queue *queue, unsigned depth, struct pst_io *ios, size_t nr,
			   struct xfer_stats *stats, struct pst_done *dones)
{
	_cleanup_(freep) uint64_t *begun = calloc(nr + 1, sizeof(*begun));
	struct pst_done batch[BATCH];
	size_t next = 0, done = 0;
	uint64_t t0 = now_ns(), t = t0;

	if (!begun)
		return fail(ENOMEM, "out of memory");
	while (done < nr) {
		size_t from = next;
		int n, r;

		while (next < nr && next - done < depth) {
			ios[next].user_data = next;
			r = pst_queue_prep(queue, &ios[next]);
			if (r == -EAGAIN)
				break;
			if (r < 0)
				return fail_pst(r, NULL);
			begun[next++] = t;
		}
		if (next > from) {
			r = pst_queue_submit(queue);
			if (r < 0)
				return fail_pst(r, NULL);
		}
		/* A signal does not end the wait, so wake up regularly. */
		n = pst_queue_reap(queue, batch, 1, BATCH, now_ns() + 100 * NSEC_PER_MSEC);
		if (n < 0)
			return fail_pst(n, NULL);
		t = now_ns();
		for (int i = 0; i < n; i++) {
			struct pst_done *d = &batch[i];

			r = check_done(d, &ios[d->user_data]);
			if (r < 0)
				return r;
			if (dones)
				dones[d->user_data] = *d;
			if (!stats)
				continue;
			stats->bytes += (uint64_t)d->res;
			stats->paths |= d->paths;
			whys_add(&stats->whys, d->why, d->detail);
			hist_add(&stats->hist, t - begun[d->user_data]);
			stats->nr++;
		}
		done += (size_t)n;
		if (stop_signal)
			return fail(EINTR, "interrupted");
	}
	if (stats)
		stats->ns += now_ns() - t0;
	return 0;
}

int xfer_run(struct pst_queue *queue, unsigned depth, struct pst_io *ios, size_t nr,
	     struct xfer_stats *stats, struct pst_done *dones)
{
	int r = common_xfer_run(queue, depth, ios, nr, stats, dones);

	if (r < 0)
		xfer_abandon(queue, nr);
	return r;
}
