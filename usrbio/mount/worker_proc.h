/* SPDX-License-Identifier: MIT */
/* A worker, as the broker has it: a process of a user, and the socket to it. */
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

	pthread_mutex_t lock; /* of the conversation */
	int sock;
	atomic_bool dead; /* it does not answer */
	int heard;        /* what it tells comes here: link_listen() */
	bool listens;     /* there is a thread for that */
	pthread_t listener;
	uint64_t until; /* worker_end() */
	int says;       /* what it writes to standard error */
	const struct usrbio_tally *tally;

	/* Under the broker's lock. */
	unsigned nr_links, nr_rings;
	uint64_t bytes;
	struct usrbio_sum sum; /* of the tally, as far as it was believed */
};

/*
 * Start one for the caller's user, with these names of its semaphores, or NULL for new ones.  0 or
 * -errno, and then the log says why.  One reference is the caller's.
 */
int worker_start(const struct caller *c, char (*sems)[USRBIO_SHM_NAME_MAX], struct worker **ret);

/* Ask, and take the answer.  Its result; -EREMOTEIO without an answer: the worker is ended then. */
int worker_ask(struct worker *w, const struct link_msg *msg, int fd);

/* Have a thread hear what it tells.  Once; not before anybody else knows the worker. */
int worker_listen(struct worker *w, void *(*thread)(void *), void *arg);

/* Its end has begun, and is waited for until then (now_ns()) when the last reference goes. */
void worker_end(struct worker *w, uint64_t until_ns);

/* Does a signal keep it from running (SIGSTOP)? */
bool worker_is_stopped(const struct worker *w);

/* How a process ended, for the log: "exit=1", "signal=KILL".  False: it did not. */
bool worker_status(const struct worker *w, char ret[32]);

/* Some of what it has written, or nothing: the length. */
size_t worker_said(const struct worker *w, char *ret, size_t len);

struct worker *worker_ref(struct worker *w);
/* The last one waits for the end of the process.  True: this was the last one. */
bool worker_unref(struct worker *w);

#endif
