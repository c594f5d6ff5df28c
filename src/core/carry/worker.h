/* SPDX-License-Identifier: MIT */
/*
 * The threads of an engine (worker.c).
 */
#ifndef PST_WORKER_H
#define PST_WORKER_H

#include "core/sched/engine.h"

/* Create what the thread needs; start the thread; end both, also if half-made. */
int worker_init(struct worker *w, struct engine *e);
int worker_start(struct worker *w, void *(*run)(void *arg));
void worker_done(struct worker *w);

/* Create an I/O context in the worker's thread.  Return 0 or -errno. */
int worker_ctx(struct worker *w);

/* The thread of a worker; it reports when it is ready. */
void *worker_main(void *arg);

/* Reap, copy and complete; true if anything changed. */
bool worker_progress(struct worker *w);

#endif
