/* SPDX-License-Identifier: MIT */
/* A user's worker, as the broker uses it: the process and the sockets to it. */
#ifndef MOUNT_WORKER_PROC_H
#define MOUNT_WORKER_PROC_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "usrbio/mount/broker.h"
#include "usrbio/mount/link.h"
#include "usrbio/proto/tally.h"

struct worker {
	atomic_uint refs;
	uid_t uid;
	pid_t pid;
	int pidfd;
	char sem[USRBIO_PRIORITIES][USRBIO_SHM_NAME_MAX];

	pthread_mutex_t lock; /* held for a question and its answer */
	int sock;
	atomic_bool dead; /* the worker does not answer any more */
	int heard;        /* socket for reports: link_listen() */
	bool listens;     /* a thread receives reports */
	pthread_t listener;
	uint64_t until; /* deadline of worker_end(), ns */
	int says;       /* read end of its standard error */
	const struct usrbio_tally *tally;

	/* Under the broker's lock. */
	unsigned nr_links, nr_rings;
	uint64_t bytes;
	struct usrbio_sum sum; /* sums of its counters that were accepted */
};

/*
 * Start a worker for the caller's user.  sems: names for its semaphores; NULL: make new names.
 * Return 0 with a reference in *ret; -errno, with the cause in the log.
 */
int worker_start(const struct caller *c, char (*sems)[USRBIO_SHM_NAME_MAX], struct worker **ret);

/* Ask the worker.  Return its result; -EREMOTEIO if it did not answer, and the worker is then
 * ended. */
int worker_ask(struct worker *w, const struct link_msg *msg, int fd);

/* Start a thread that receives the worker's reports.  Call this once, while no other thread
 * knows the worker. */
int worker_listen(struct worker *w, void *(*thread)(void *), void *arg);

/* Begin to end the worker.  Dropping the last reference waits for the end of its process until
 * that time of now_ns(). */
void worker_end(struct worker *w, uint64_t until_ns);

/* Return true if the worker is stopped by a signal (SIGSTOP). */
bool worker_is_stopped(const struct worker *w);

/* Write how the process ended, for the log: "exit=1", "signal=KILL".  Return false while it
 * runs. */
bool worker_status(const struct worker *w, char ret[32]);

/* Read some of the worker's standard error.  Return the number of bytes. */
size_t worker_said(const struct worker *w, char *ret, size_t len);

struct worker *worker_ref(struct worker *w);
/* Drop a reference; the last one waits for the end of the process.  Return true if it was the
 * last. */
bool worker_unref(struct worker *w);

#endif
