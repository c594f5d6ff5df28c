/* SPDX-License-Identifier: MIT */
/*
 * The parts of the broker: users and their workers (user.c), publications (publish.c), open files
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
#define USER_FDS 6u /* descriptors of a user with a worker */

/* After which a worker ends for which nothing is published and no file open. */
#define USER_IDLE_NS (5 * NSEC_PER_SEC)

/*
 * A user who has published something, or used a file's number.  While the user has a worker, a
 * thread waits for the end of the worker and of the user's programs: a user who blocks that worker
 * blocks nobody else.
 */
struct user {
	struct list link, in_bucket;
	uid_t uid;
	struct broker *b;
	pthread_mutex_t start;    /* held while a worker starts, and while it is told of files; the
				* first lock */
	atomic_uint nr_waits;     /* threads that wait for the worker, or are about to */
	struct worker *worker;    /* the worker, or NULL; under the broker's lock */
	struct list told, untold; /* files that the worker knows, and others */
	struct list cached[USER_CACHED]; /* files of told, by number, that the kernel caches */
	struct list closed;              /* files that the worker is to forget */
	/* Of the thread; under the broker's lock, -1 while there is none. */
	int epfd, wake;
	atomic_bool ends; /* the thread must end */
	uint64_t used;    /* when the worker was last used */

	/* Names of semaphores of a worker that ended because it was idle: those of the next one, so
	 * that a program sees no other server.  Under start. */
	bool has_sems;
	char sem[USRBIO_PRIORITIES][USRBIO_SHM_NAME_MAX];
	struct log_site says; /* log site of what the workers write */

	/* For numbers; under the broker's lock. */
	struct usrbio_sum past; /* of workers that have ended */
	uint64_t nr_starts, nr_failures;
	uint64_t nr_lies; /* readings of tallies that were inconsistent */
};

/*
 * So many of the server's threads may wait for one user's worker, which he may stop.  More of his
 * calls fail, or leave it to those that wait.
 */
#define USER_WAITS 32u

#define BROKER_BUCKETS 1024u

struct broker {
	struct broker_quota quota;
	broker_forget forget;
	void *forget_arg;
	pthread_mutex_t lock; /* covers all lists */
	struct list users, publications;
	struct list buckets[BROKER_BUCKETS]; /* users by uid */
	unsigned nr_workers;
	unsigned nr_threads;       /* threads of users */
	pthread_cond_t thread_end; /* signalled when such a thread has ended */
	uint64_t next;             /* index of a publication, handle of a file */
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
/* The end of the worker has begun; the user makes no calls any more. */
void user_end(struct user *u, uint64_t until_ns);
/* The thread ends. */
void user_end_thread(struct user *u);
/* Worker and thread have ended. */
void user_free(struct user *u);

/* A reference of the user's worker, or NULL. */
struct worker *user_worker(struct user *u);
/* Return a reference to the user's worker, and start one if there is none. */
int user_need_worker(struct user *u, const struct caller *c, struct worker **ret);

/* Return true if another thread may wait; call user_waited() later. */
bool user_may_wait(struct user *u);
void user_waited(struct user *u);

/* Make the thread handle closed files. */
void user_wake(struct user *u);

/* Wake the thread when that process ends, so that it removes the publication. */
int user_watch_client(const struct user *u, int pidfd, uint64_t index);
void user_unwatch(const struct user *u, int pidfd);

/* --------------------------------------------------------------- publish.c */

/* The process that published it has ended. */
void publish_client_gone(struct broker *b, uint64_t index);
/* The worker that served them has ended. */
void publish_worker_gone(struct user *u, const struct worker *w);

/* ---------------------------------------------------------------- broker.c */

/* Tell the worker of files that it does not know.  Under user->start, so that none goes. */
int files_tell(struct user *u, struct worker *w);
/* The kernel forgets ranges of files that the user may write to. */
void files_written(struct user *u, const struct link_range *ranges, unsigned nr);
/* Tell the worker of files that were closed. */
void files_closed(struct user *u);
/* The worker that knew them has ended. */
void files_worker_gone(struct user *u, const struct worker *w);

#endif
