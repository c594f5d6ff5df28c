/* SPDX-License-Identifier: MIT */
/*
 * One executor per priority: the semaphore that clients post; a watcher that looks for work in the
 * rings of its priority after a post or when a partial batch is due; a bounded queue; servers.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "foreign_daemon.h"

#define NR_WORKERS 4
#define MAX_BATCHES_PER_RING 32 /* maximum batches of a ring per round */

struct executor {
	enum prio prio;
	unsigned limit; /* maximum batches in the queue */
	sem_t *posted;
	char name[80];   /* name of the semaphore */
	char target[96]; /* path of the semaphore, for links */
	pthread_t watcher, workers[NR_WORKERS];
	atomic_bool stopping; /* claim no more batches */

	pthread_mutex_t lock; /* protects the members below */
	pthread_cond_t changed;
	struct batches queue;
	unsigned nr_queued;
	bool closed; /* queue no more batches */
};

static struct executor executors[NR_PRIOS] = {
	[PRIO_HIGH] = { .prio = PRIO_HIGH, .limit = 32 },
	[PRIO_NORMAL] = { .prio = PRIO_NORMAL, .limit = 1024 },
	[PRIO_LOW] = { .prio = PRIO_LOW, .limit = 4096 },
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* --------------------------------------------------------------- the queue */

static void push(struct executor *l, struct batch *b)
{
	(void)pthread_mutex_lock(&l->lock);
	while (l->nr_queued == l->limit)
		(void)pthread_cond_wait(&l->changed, &l->lock);
	STAILQ_INSERT_TAIL(&l->queue, b, link);
	l->nr_queued++;
	(void)pthread_cond_broadcast(&l->changed);
	(void)pthread_mutex_unlock(&l->lock);
}

/* Take a batch.  Return NULL if the queue is empty and closed. */
static struct batch *pop(struct executor *l)
{
	struct batch *b;

	(void)pthread_mutex_lock(&l->lock);
	while (!(b = STAILQ_FIRST(&l->queue)) && !l->closed)
		(void)pthread_cond_wait(&l->changed, &l->lock);
	if (b) {
		STAILQ_REMOVE_HEAD(&l->queue, link);
		l->nr_queued--;
		(void)pthread_cond_broadcast(&l->changed);
	}
	(void)pthread_mutex_unlock(&l->lock);
	return b;
}

static void *work(void *arg)
{
	struct executor *l = arg;
	struct batch *b, *next;
	uint64_t unused = 0; /* ring_claim() stores a due time here, which only the watcher needs */

	while ((b = pop(l))) {
		/* After each batch, try to claim another one of the same ring. */
		for (; b; b = next) {
			struct iov *iov = b->iov;

			iov_ref(iov);
			exec_batch(b);
			ring_complete(b);
			next = atomic_load(&l->stopping) ? NULL
							 : ring_claim(iov, now_ns(), &unused);
			iov_unref(iov);
		}
	}
	return NULL;
}

/* ------------------------------------------------------------- the watcher */

struct round {
	enum prio prio;
	uint64_t now_ns, wake_ns;
	struct batches found;
};

static int claim_some(struct iov *iov, void *arg)
{
	struct round *round = arg;

	if (!iov->ring || iov->key.prio != round->prio)
		return 0;
	for (int i = 0; i < MAX_BATCHES_PER_RING; i++) {
		struct batch *b = ring_claim(iov, round->now_ns, &round->wake_ns);

		if (!b)
			break;
		STAILQ_INSERT_TAIL(&round->found, b, link);
	}
	return 0;
}

/* Queue all batches that can be claimed.  Return when to look again without a post, ns; 0:
 * never. */
static uint64_t look(struct executor *l)
{
	struct round round = { .prio = l->prio };
	struct batch *b;
	bool more;

	do {
		STAILQ_INIT(&round.found);
		round.now_ns = now_ns();
		round.wake_ns = 0;
		(void)iov_each(claim_some, &round);
		more = !STAILQ_EMPTY(&round.found);
		/*
		 * Drop the table's lock: push() waits for servers if the queue is full, and servers
		 * take that lock.
		 */
		while ((b = STAILQ_FIRST(&round.found))) {
			STAILQ_REMOVE_HEAD(&round.found, link);
			push(l, b);
		}
	} while (more);
	return round.wake_ns;
}

static void wait_posted(struct executor *l, uint64_t wake_ns)
{
	struct timespec ts = { .tv_sec = (time_t)(wake_ns / 1000000000),
			       .tv_nsec = (long)(wake_ns % 1000000000) };

	if (wake_ns)
		(void)sem_clockwait(l->posted, CLOCK_MONOTONIC, &ts);
	else
		(void)sem_wait(l->posted);
}

static void *watch(void *arg)
{
	struct executor *l = arg;
	uint64_t wake_ns = 0;

	while (!atomic_load(&l->stopping)) {
		wait_posted(l, wake_ns);
		wake_ns = look(l);
	}
	return NULL;
}

/* -------------------------------------------------------------------- life */

static int open_semaphore(struct executor *l)
{
	char uuid[KEY_UUID_LEN + 1];
	uint8_t id[16];

	key_new_uuid(id);
	key_uuid_text(id, uuid);
	(void)snprintf(l->name, sizeof(l->name), "/hf3fs-submit-ios.%s", uuid);
	(void)snprintf(l->target, sizeof(l->target), "/dev/shm/sem.%s", l->name + 1);
	l->posted = sem_open(l->name, O_CREAT | O_EXCL, 0666, 0);
	if (l->posted == SEM_FAILED) {
		l->posted = NULL;
		return -errno;
	}
	return chmod(l->target, 0666) < 0 ? -errno : 0; /* independent of the umask */
}

static int start(struct executor *l)
{
	int r;

	(void)pthread_mutex_init(&l->lock, NULL);
	(void)pthread_cond_init(&l->changed, NULL);
	STAILQ_INIT(&l->queue);
	r = open_semaphore(l);
	if (r == 0)
		r = -pthread_create(&l->watcher, NULL, watch, l);
	for (int i = 0; r == 0 && i < NR_WORKERS; i++)
		r = -pthread_create(&l->workers[i], NULL, work, l);
	return r;
}

int executors_start(void)
{
	sigset_t all, before;
	int r = 0;

	/* Only the thread that serves the file system takes signals. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_BLOCK, &all, &before);
	for (int i = 0; r == 0 && i < NR_PRIOS; i++)
		r = start(&executors[i]);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}

static void stop(struct executor *l)
{
	/* Stop the watcher first: it may still queue batches for the servers. */
	atomic_store(&l->stopping, true);
	(void)sem_post(l->posted);
	(void)pthread_join(l->watcher, NULL);

	(void)pthread_mutex_lock(&l->lock);
	l->closed = true;
	(void)pthread_cond_broadcast(&l->changed);
	(void)pthread_mutex_unlock(&l->lock);
	for (int i = 0; i < NR_WORKERS; i++)
		(void)pthread_join(l->workers[i], NULL);
	(void)sem_close(l->posted);
}

void executors_stop(void)
{
	executors_unlink();
	for (int i = 0; i < NR_PRIOS; i++)
		stop(&executors[i]);
}

void executors_unlink(void)
{
	for (int i = 0; i < NR_PRIOS; i++)
		if (executors[i].posted)
			(void)sem_unlink(executors[i].name);
}

const char *executor_target(enum prio prio)
{
	return executors[prio].target;
}
