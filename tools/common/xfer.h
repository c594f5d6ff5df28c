/* SPDX-License-Identifier: MIT */
/*
 * Run a list of requests through a queue that is kept full, and note the results: the
 * bytes, the time, the paths, the reasons, the latency of each.
 */
#ifndef CLI_XFER_H
#define CLI_XFER_H

#include "tools/common/hist.h"
#include "tools/common/util.h"

struct xfer_stats {
	uint64_t bytes;
	uint64_t nr;
	uint64_t ns;
	uint32_t paths;
	struct whys whys;
	struct hist hist;
};

/*
 * @ios:   requests; user_data and nothing else is overwritten
 * @stats: added to; may be NULL
 * @dones: NULL, or room for the completion of each request, at its place
 *
 * A request that fails or comes back short ends the run.
 * Return: 0 or -errno with a sentence; -EINTR when stop_signal was set.
 */
int xfer_run(struct pst_queue *queue, unsigned depth, struct pst_io *ios, size_t nr,
	     struct xfer_stats *stats, struct pst_done *dones);

/*
 * End requests in flight, their results unseen: those whose user_data is below nr.  Until
 * then the library may read their tables of segments.
 */
void xfer_abandon(struct pst_queue *queue, size_t nr);

/* The bytes that a request asks for. */
uint64_t io_bytes(const struct pst_io *io);

#endif
