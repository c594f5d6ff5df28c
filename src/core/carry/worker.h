/* SPDX-License-Identifier: MIT */
/*
 * The threads of an engine (worker.c).
 */
#ifndef PST_WORKER_H
#define PST_WORKER_H

#include "core/sched/engine.h"

/* What the thread needs; the thread; the end of both, also of a half-made one. */
int worker_init(struct worker *w, struct engine *e);
int worker_start(struct worker *w, void *(*run)(void *arg));
void worker_done(struct worker *w);

/* Have an I/O context in the worker's thread: 0 or -errno. */
int worker_ctx(struct worker *w);

/* The thread of a worker, which tells when it has begun. */
void *worker_main(void *arg);

/* Reap, copy, complete: true when something moved. */
bool worker_progress(struct worker *w);

#endif
