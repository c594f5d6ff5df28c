/* SPDX-License-Identifier: MIT */
/*
 * Requests on memory that the CPU can use, moved by the caller's thread (caller.c).
 */
#ifndef PST_CALLER_H
#define PST_CALLER_H

#include "core/sched/share.h"
#include "core/ways/part.h"

/* The data of a request that the caller's thread moves in parts.  The queue's lock covers it. */
struct req_caller {
	bool starting;   /* parts_start() may start more parts, so no part may end the request */
	bool left;       /* the engine must move the whole request; see restage() */
	bool first_used; /* the member first is in use */
	struct part first;
	struct list more;
};

struct caller_req {
	struct engine_req base;
	struct req_caller caller;
};

struct caller_queue {
	struct engine_queue base;
	struct part *part_array;
	struct part *parts; /* free parts, for requests whose member first is in use */
};

static inline struct req_caller *req_caller(const struct req *r)
{
	return &container_of(r, struct caller_req, base.base.req)->caller;
}

static inline struct caller_queue *queue_caller(const struct pst_queue *q)
{
	return container_of(q, struct caller_queue, base.base.q);
}

#endif
