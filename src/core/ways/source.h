/* SPDX-License-Identifier: MIT */
/*
 * Sources: bytes of a file that a device copies from where they are, without a slot.
 *
 * A path that has such bytes has a struct source in its own struct, and sets plan.from in its
 * plan().  An engine asks for the bytes of each job.  Those that are not ready are staged.
 */
#ifndef PST_SOURCE_H
#define PST_SOURCE_H

#include "base/base.h"

struct source;

struct source_ops {
	uint32_t path;
	/* Are these bytes where the device finds them?  With now they are, if that can be done: the
	 * caller listed the path. */
	bool (*ready)(struct source *s, uint64_t off, uint64_t len, bool now);
	/* The address of the first.  Not for the CPU. */
	const void *(*at)(const struct source *s, uint64_t off);
	/* Are they still the file's?  Asked before and after each copy. */
	bool (*still)(struct source *s);
	/* These were staged; hops: the set of file hops that moved them. */
	void (*seen)(struct source *s, uint64_t off, uint64_t len, uint32_t hops);
};

struct source {
	const struct source_ops *ops;
};

#endif
