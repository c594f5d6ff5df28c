/* SPDX-License-Identifier: MIT */
/* A worker, as the broker sees it: a process of a user, and a socket to it. */
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

	pthread_mutex_t lock; /* covers a question and its answer */
	int sock;
	atomic_bool dead; /* the worker does not answer */
	int heard;        /* socket on which it reports: link_listen() */
	bool listens;     /* a thread listens on heard */
	pthread_t listener;
	uint64_t until; /* worker_end() */
	int says;       /* pipe of its standard error */
	const struct usrbio_tally *tally;

	/* Under the broker's lock. */
	unsigned nr_links, nr_rings;
	uint64_t bytes;
	struct usrbio_sum sum; /* sums of the tally that were accepted */
};

/*
 * Start a worker for the caller's user, with these names of its semaphores, or NULL for new ones.
 * Return 0 with a reference, or -errno, and the log says why.
 */
int worker_start(const struct caller *c, char (*sems)[USRBIO_SHM_NAME_MAX], struct worker **ret);

/* Ask the worker, and return its result; -EREMOTEIO without an answer, and then the worker is
 * ended. */
int worker_ask(struct worker *w, const struct link_msg *msg, int fd);

/* Start a thread that receives its reports; once, and not before anybody else knows the worker. */
int worker_listen(struct worker *w, void *(*thread)(void *), void *arg);

/* Begin to end the worker; the last reference waits for its end until then (now_ns()). */
void worker_end(struct worker *w, uint64_t until_ns);

/* Return true if a signal keeps it from running (SIGSTOP). */
bool worker_is_stopped(const struct worker *w);

/* Describe how the process ended, for the log: "exit=1", "signal=KILL".  Return false if it has not
 * ended. */
bool worker_status(const struct worker *w, char ret[32]);

/* Read some of what it wrote to standard error, and return the length. */
size_t worker_said(const struct worker *w, char *ret, size_t len);

struct worker *worker_ref(struct worker *w);
/* Drop a reference; the last one waits for the end of the process.  Return true if it was the
 * last. */
bool worker_unref(struct worker *w);

#endif
