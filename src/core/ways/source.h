/* SPDX-License-Identifier: MIT */
/*
 * Sources: bytes of a file that a device reaches where they are, so that it copies without a slot.
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
	/* Most bytes of one piece that a job copies if they are ready; 0: what a slot holds.  Such
	 * bytes must then stay ready, as they could not be staged. */
	uint64_t job_max;
	/* Return true if the device can reach these bytes.  With now, the caller listed the path:
	 * make them reachable if possible. */
	bool (*ready)(struct source *s, uint64_t off, uint64_t len, bool now);
	/* Set the other side of a copy: host or other, for the byte at off.  The CPU must not use
	 * the address. */
	void (*aim)(const struct source *s, uint64_t off, struct mem_copy *c);
	/* A job begins: the bytes stay reachable until end().  Return 0, or -errno with which the
	 * job fails.  NULL, as is end(): they stay as long as the request. */
	int (*begin)(struct source *s);
	void (*end)(struct source *s);
	/* Return true if they are still the file's bytes.  Called before and after each copy. */
	bool (*still)(struct source *s);
	/* These bytes were staged; hops is the set of file hops that moved them. */
	void (*seen)(struct source *s, uint64_t off, uint64_t len, uint32_t hops);
};

struct source {
	const struct source_ops *ops;
};

#endif
