/* SPDX-License-Identifier: MIT */
/*
 * Sources: bytes of a file that a device can copy directly, without a slot.
 *
 * A path with such bytes embeds a struct source in its own struct, and sets plan.from in its
 * plan().  An engine asks for the bytes of each job, and stages those that are not ready.  Writes
 * copy to the source in the same way, if the path sets plan.from for them.
 */
#ifndef PST_SOURCE_H
#define PST_SOURCE_H

#include "base/base.h"

struct mem_copy;
struct source;

struct source_ops {
	uint32_t path;
	/* Maximum bytes of one piece that a job copies if they are ready; 0: as many as a slot
	 * holds.  If not 0, bytes that were ready must stay ready, because staging is impossible
	 * for more bytes than a slot holds. */
	uint64_t job_max;
	/* Return true if the device can reach these bytes.  now is true if the caller listed the
	 * path: make the bytes reachable if possible. */
	bool (*ready)(struct source *s, uint64_t off, uint64_t len, bool now);
	/* Set the source's side of a copy, c->host or c->other, to the byte at off.  The CPU must
	 * not use the address. */
	void (*aim)(const struct source *s, uint64_t off, struct mem_copy *c);
	/* Keep the bytes reachable until end(); called when a job begins.  Return 0, or -errno with
	 * which the job fails.  If begin and end are NULL, the bytes stay reachable until the
	 * request ends. */
	int (*begin)(struct source *s);
	void (*end)(struct source *s);
	/* Return true if the bytes are still those of the file.  Called before and after each
	 * copy. */
	bool (*still)(struct source *s);
	/* Note that bytes were staged; hops is the bit set of file hops that moved them. */
	void (*seen)(struct source *s, uint64_t off, uint64_t len, uint32_t hops);
};

struct source {
	const struct source_ops *ops;
};

#endif
