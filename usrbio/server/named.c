/* SPDX-License-Identifier: MIT */
#include "usrbio/server/named.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#define AGAIN_NS NSEC_PER_SEC /* time until a failed open is retried */
#define THREADS_MAX 16u       /* maximum threads that open files at once */

struct named {
	pthread_mutex_t lock;
	unsigned refs;
	uint32_t flags;
	struct pst_file *file; /* NULL: not opened yet */
	bool opening;          /* a thread is opening it */
	int err;               /* result of the last attempt, used until the time until */
	uint64_t until;        /* time of the next attempt, ns */
	char name[];
};

static atomic_uint nr_threads;

static void *named_open(void *arg)
{
	struct named *nd = arg;
	struct pst_file *file = NULL;
	int err;

	(void)pthread_setname_np(pthread_self(), "pst-open");
	err = pst_file_open(nd->name, nd->flags, NULL, &file);
	(void)atomic_fetch_sub(&nr_threads, 1);
	(void)pthread_mutex_lock(&nd->lock);
	nd->file = file;
	nd->err = err;
	nd->until = now_ns() + AGAIN_NS;
	nd->opening = false;
	(void)pthread_mutex_unlock(&nd->lock);
	named_unref(nd);
	return NULL;
}

/* Start the opening thread, with signals blocked.  Caller holds the lock. */
static int named_start(struct named *nd)
{
	pthread_attr_t attr;
	sigset_t set, old;
	pthread_t thread;
	int err;

	if (atomic_fetch_add(&nr_threads, 1) >= THREADS_MAX) {
		(void)atomic_fetch_sub(&nr_threads, 1);
		return 0;
	}
	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)sigfillset(&set);
	(void)pthread_sigmask(SIG_SETMASK, &set, &old);
	nd->refs++;
	err = pthread_create(&thread, &attr, named_open, nd);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	nd->opening = !err;
	if (err) {
		nd->refs--;
		(void)atomic_fetch_sub(&nr_threads, 1);
	}
	return -err;
}

int named_file(struct named *nd, struct pst_file **ret)
{
	int r = -EAGAIN;

	(void)pthread_mutex_lock(&nd->lock);
	if (nd->file) {
		*ret = nd->file;
		r = 0;
	} else if (!nd->opening && nd->err < 0 && now_ns() < nd->until) {
		r = nd->err;
	} else if (!nd->opening && named_start(nd) < 0) {
		r = -ENOMEM;
	}
	(void)pthread_mutex_unlock(&nd->lock);
	return r;
}

int named_new(const char *name, uint32_t flags, struct named **ret)
{
	size_t size = strlen(name) + 1;
	struct named *nd = calloc(1, sizeof(*nd) + size);

	if (!nd)
		return -ENOMEM;
	nd->refs = 1;
	nd->flags = flags;
	memcpy(nd->name, name, size);
	(void)pthread_mutex_init(&nd->lock, NULL);
	*ret = nd;
	return 0;
}

void named_unref(struct named *nd)
{
	bool last;

	(void)pthread_mutex_lock(&nd->lock);
	last = !--nd->refs;
	(void)pthread_mutex_unlock(&nd->lock);
	if (!last)
		return;
	(void)pst_file_close(nd->file);
	(void)pthread_mutex_destroy(&nd->lock);
	free(nd);
}
