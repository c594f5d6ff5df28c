/* SPDX-License-Identifier: MIT */
/*
 * Run a list of requests through a full queue, and record bytes, time, paths, reasons, and each
 * request's latency.
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
 * Run the requests.
 * @ios: requests; only user_data is overwritten
 * @stats: results are added; may be NULL
 * @dones: NULL, or an array for each request's completion
 *
 * A failed or short request ends the run.  Return: 0, or -errno with a sentence; -EINTR if
 * stop_signal was set.
 */
int xfer_run(struct pst_queue *queue, unsigned depth, struct pst_io *ios, size_t nr,
	     struct xfer_stats *stats, struct pst_done *dones);

/*
 * Cancel requests in flight (user_data below nr) and wait for them, ignoring their results.  Until
 * then, the library may read their segment tables.
 */
void xfer_abandon(struct pst_queue *queue, size_t nr);

/* Return the bytes that a request asks for. */
uint64_t io_bytes(const struct pst_io *io);

#endif
