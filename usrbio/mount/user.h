/* SPDX-License-Identifier: MIT */
/*
 * Internals of the broker: users and their workers (user.c), publications (publish.c), open files
 * (broker.c).
 */
#ifndef MOUNT_USER_H
#define MOUNT_USER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "usrbio/mount/broker.h"
#include "usrbio/mount/log.h"
#include "usrbio/mount/worker_proc.h"

#define USER_CACHED 256u
#define USER_FDS 6u /* descriptors that a user with a worker needs */

/* A worker without publications and open files ends after this time. */
#define USER_IDLE_NS (5 * NSEC_PER_SEC)

/*
 * A user who has published something or used a file's number.  While the user has a worker, a
 * thread waits for the end of the worker and of the user's programs.  The thread is per user, so a
 * user who blocks the worker blocks nobody else.
 */
struct user {
	struct list link, in_bucket;
	uid_t uid;
	struct broker *b;
	/* Held while a worker starts, and while it is told of files; taken before all other
	 * locks. */
	pthread_mutex_t start;
	atomic_uint nr_waits;     /* server threads that wait for the worker */
	struct worker *worker;    /* the user's worker, or NULL; under the broker's lock */
	struct list told, untold; /* files that the worker knows, and files that it does not know */
	struct list cached[USER_CACHED]; /* hash by number: files of told that the kernel caches */
	struct list closed;              /* files of which the worker must be told that they are
					  * closed */
	/* The thread's epoll descriptor and eventfd, -1 without a thread; under the broker's
	 * lock. */
	int epfd, wake;
	atomic_bool ends; /* true: the thread must end */
	uint64_t used;    /* last use of the worker, ns */

	/* The next worker gets the semaphore names of a worker that ended because it was idle, so
	 * that programs need not notice.  Guarded by start. */
	bool has_sems;
	char sem[USRBIO_PRIORITIES][USRBIO_SHM_NAME_MAX];
	struct log_site says; /* rate limit for the workers' output */

	/* These members are for metrics, and protected by the broker's lock. */
	struct usrbio_sum past; /* sums of workers that have ended */
	uint64_t nr_starts, nr_failures;
	uint64_t nr_lies; /* readings of counters that were invalid */
};

/*
 * Most threads of the server that wait for one user's worker, which the user may stop.  Further
 * calls fail, or leave their work to these threads.
 */
#define USER_WAITS 32u

#define BROKER_BUCKETS 1024u

struct broker {
	struct broker_quota quota;
	broker_forget forget;
	void *forget_arg;
	pthread_mutex_t lock; /* protects all lists */
	struct list users, publications;
	struct list buckets[BROKER_BUCKETS]; /* users, by uid */
	unsigned nr_workers;
	unsigned nr_threads;       /* running threads of users */
	pthread_cond_t thread_end; /* signalled when a thread of a user ends */
	uint64_t next;             /* index of the next publication, handle of the next file */
};

static inline void broker_lock(struct broker *b)
{
	(void)pthread_mutex_lock(&b->lock);
}

static inline void broker_unlock(struct broker *b)
{
	(void)pthread_mutex_unlock(&b->lock);
}

/* ------------------------------------------------------------------ user.c */

int user_get(struct broker *b, uid_t uid, struct user **ret);
/* Begin to end the worker; the user makes no further calls. */
void user_end(struct user *u, uint64_t until_ns);
/* Make the thread end. */
void user_end_thread(struct user *u);
/* Free a user whose worker and thread have ended. */
void user_free(struct user *u);

/* Return a reference to the user's worker, or NULL. */
struct worker *user_worker(struct user *u);
/* Get a reference to the user's worker; start one if there is none. */
int user_need_worker(struct user *u, const struct caller *c, struct worker **ret);

/* Return true if another thread may wait; call user_waited() later. */
bool user_may_wait(struct user *u);
void user_waited(struct user *u);

/* Make the thread tell the worker about closed files. */
void user_wake(struct user *u);

/* Let the thread remove the publication when that process ends. */
int user_watch_client(const struct user *u, int pidfd, uint64_t index);
void user_unwatch(const struct user *u, int pidfd);

/* --------------------------------------------------------------- publish.c */

/* Remove the publication of a process that has ended. */
void publish_client_gone(struct broker *b, uint64_t index);
/* Remove the publications of a worker that has ended. */
void publish_worker_gone(struct user *u, const struct worker *w);

/* ---------------------------------------------------------------- broker.c */

/* Tell the worker about files that it does not know yet.  With user->start, so that none is
 * removed. */
int files_tell(struct user *u, struct worker *w);
/* Make the kernel drop its cache of ranges of files that the user may write to. */
void files_written(struct user *u, const struct link_range *ranges, unsigned nr);
/* Tell the worker about closed files. */
void files_closed(struct user *u);
/* Mark the files of a worker that has ended as unknown to the next one. */
void files_worker_gone(struct user *u, const struct worker *w);

#endif
