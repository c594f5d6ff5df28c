/* SPDX-License-Identifier: MIT */
/*
 * The threads of an engine (worker.c).
 */
#ifndef PST_WORKER_H
#define PST_WORKER_H

#include "core/sched/engine.h"

/* worker_init() creates what a worker's thread needs, worker_start() starts the thread, and
 * worker_done() ends both, even if only worker_init() was called or failed. */
int worker_init(struct worker *w, struct engine *e);
int worker_start(struct worker *w, void *(*run)(void *arg));
void worker_done(struct worker *w);

/* Create the worker's I/O context; called on its thread.  Return 0 or -errno. */
int worker_ctx(struct worker *w);

/* The main function of a worker's thread.  The first worker reports when it is ready. */
void *worker_main(void *arg);

/* Process operations, copies and completions.  Return true if anything changed. */
bool worker_progress(struct worker *w);

#endif
