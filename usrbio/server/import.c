/* SPDX-License-Identifier: MIT */
#include "usrbio/server/import.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/thread.h"

#define AGAIN_NS NSEC_PER_SEC /* time until a failed import is retried */
#define DEVICES_MAX 64u       /* maximum devices of a kind that are tried */
#define LOOK_NS NSEC_PER_MSEC /* interval for checking whether requests have ended, ns */

struct import {
	pthread_mutex_t lock;
	pthread_cond_t quiet; /* signalled when a reference is dropped */
	unsigned refs;
	struct pst_grant grant; /* secret; its descriptor belongs to this object */
	unsigned number;
	struct pst_window *window; /* window on the memory, or NULL; constant */
	struct pst_mem *mem;       /* imported memory; NULL: not imported yet */
	bool opening;              /* a thread is importing the memory */
	int err;                   /* result of the last attempt, used until the time until */
	uint64_t until;            /* time of the next attempt, ns */
};

/* -------------------------------------------------------------------- open */

/* Import on CUDA device @number, if it exists.  A handle opens only on the memory's own device. */
static int open_on(const struct import *im, unsigned number, struct pst_mem **ret)
{
	struct pst_device d = { .sz = sizeof(d) };
	struct pst_grant g = im->grant;
	char name[PST_DEVICE_NAME_MAX];
	int r;

	(void)snprintf(name, sizeof(name), "cuda:%u", number);
	r = pst_device_find(name, &d);
	if (r == 0) {
		memcpy(g.uuid, d.uuid, sizeof(g.uuid));
		r = pst_mem_import(&g, ret);
	}
	explicit_bzero(&g, sizeof(g));
	return r;
}

/*
 * Import CUDA memory without a device UUID. The device's number in the owner may differ from its
 * number here, so try the owner's number first and then all others.
 */
static int open_somewhere(const struct import *im, struct pst_mem **ret)
{
	int err = open_on(im, im->number, ret), r = err;

	for (unsigned n = 0; r < 0 && n < DEVICES_MAX; n++) {
		if (n == im->number)
			continue;
		r = open_on(im, n, ret);
		if (r == -ENODEV)
			break;
	}
	return r < 0 ? err : 0;
}

static int open_mem(const struct import *im, struct pst_mem **ret)
{
	static const uint8_t none[16];

	if (im->grant.kind == PST_KIND_CUDA && !memcmp(im->grant.uuid, none, sizeof(none)))
		return open_somewhere(im, ret);
	return pst_mem_import(&im->grant, ret);
}

static void *open_it(void *arg)
{
	struct import *im = arg;
	struct pst_mem *mem = NULL;
	int err;

	(void)pthread_setname_np(pthread_self(), "pst-import");
	err = open_mem(im, &mem);
	(void)pthread_mutex_lock(&im->lock);
	im->mem = mem;
	im->err = err;
	im->until = now_ns() + AGAIN_NS;
	im->opening = false;
	(void)pthread_mutex_unlock(&im->lock);
	import_unref(im);
	return NULL;
}

/* Start the importing thread, with signals blocked.  Caller holds the lock. */
static int import_start(struct import *im)
{
	pthread_attr_t attr;
	sigset_t set, old;
	pthread_t thread;
	int err;

	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)sigfillset(&set);
	(void)pthread_sigmask(SIG_SETMASK, &set, &old);
	im->refs++;
	err = pthread_create(&thread, &attr, open_it, im);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	if (err)
		im->refs--;
	im->opening = !err;
	return -err;
}

int import_mem(struct import *im, struct pst_mem **ret)
{
	int r = -EAGAIN;

	(void)pthread_mutex_lock(&im->lock);
	if (im->mem) {
		*ret = im->mem;
		r = 0;
	} else if (!im->opening && im->err < 0 && now_ns() < im->until) {
		r = im->err;
	} else if (!im->opening && import_start(im) < 0) {
		r = -ENOMEM;
	}
	(void)pthread_mutex_unlock(&im->lock);
	return r;
}

/* ------------------------------------------------------------------ window */

bool import_fits(struct import *im, bool for_read, uint64_t len)
{
	bool small = len <= (for_read ? IMPORT_PIECE : IMPORT_LOAD);

	if (!small || !im->window)
		return false;
	(void)pthread_mutex_lock(&im->lock);
	small = !im->mem;
	(void)pthread_mutex_unlock(&im->lock);
	return small;
}

int import_store(struct import *im, uint64_t off, const void *from, uint64_t len)
{
	return pst_window_store(im->window, off, from, len);
}

int import_load(struct import *im, uint64_t off, void *to, uint64_t len)
{
	return pst_window_load(im->window, off, to, len);
}

/* -------------------------------------------------------------------- life */

static void import_destroy(struct import *im)
{
	(void)pst_window_close(im->window);
	(void)pst_mem_free(im->mem);
	pst_grant_done(&im->grant);
	(void)pthread_cond_destroy(&im->quiet);
	(void)pthread_mutex_destroy(&im->lock);
	free(im);
}

struct import *import_ref(struct import *im)
{
	(void)pthread_mutex_lock(&im->lock);
	im->refs++;
	(void)pthread_mutex_unlock(&im->lock);
	return im;
}

void import_unref(struct import *im)
{
	bool last;

	(void)pthread_mutex_lock(&im->lock);
	last = !--im->refs;
	(void)pthread_cond_broadcast(&im->quiet);
	(void)pthread_mutex_unlock(&im->lock);
	if (last)
		import_destroy(im);
}

static void import_init(struct import *im, unsigned number)
{
	*im = (struct import){ .refs = 1, .number = number, .grant = { .fd = -1 } };
	(void)pthread_mutex_init(&im->lock, NULL);
	cond_init_monotonic(&im->quiet);
}

static int take_grant(struct import *im, const struct pst_grant *grant)
{
	int fd = -1;

	if (grant->fd >= 0) {
		fd = fcntl(grant->fd, F_DUPFD_CLOEXEC, 0);
		if (fd < 0)
			return -errno;
	}
	im->grant = *grant;
	im->grant.fd = fd;
	return 0;
}

/* Check that the software device exists: an import needs it, a window does not. */
static int check_soft(const struct pst_grant *grant)
{
	struct pst_device d = { .sz = sizeof(d) };
	char name[PST_DEVICE_NAME_MAX];
	int r = 0;

	for (unsigned n = 0; r == 0 && n < DEVICES_MAX; n++) {
		(void)snprintf(name, sizeof(name), "soft:%u", n);
		r = pst_device_find(name, &d);
		if (r == 0 && !memcmp(d.uuid, grant->uuid, sizeof(d.uuid)))
			return 0;
	}
	return -ENODEV;
}

int import_new(const struct pst_grant *grant, unsigned number, struct import **ret)
{
	struct import *im = malloc(sizeof(*im));
	int err;

	if (!im)
		return -ENOMEM;
	import_init(im, number);
	err = grant->kind == PST_KIND_SOFT ? check_soft(grant) : 0;
	if (err == 0)
		err = take_grant(im, grant);
	if (err == 0 && pst_window_open_grant(&im->grant, NULL, &im->window) < 0)
		err = open_mem(im, &im->mem);
	if (err < 0)
		import_destroy(im);
	else
		*ret = im;
	return err;
}

/* Return true if no request uses the memory.  Requests through the window hold references;
 * libpenstock counts all others. */
static bool is_quiet(const struct import *im)
{
	return im->refs == (im->opening ? 2 : 1) && (!im->mem || pst_mem_drain(im->mem, 0) == 0);
}

void import_end(struct import *im, uint64_t until_ns)
{
	(void)pthread_mutex_lock(&im->lock);
	while (!is_quiet(im) && now_ns() < until_ns) {
		uint64_t at = now_ns() + LOOK_NS;
		const struct timespec ts = { .tv_sec = (time_t)(at / NSEC_PER_SEC),
					     .tv_nsec = (long)(at % NSEC_PER_SEC) };

		(void)pthread_cond_timedwait(&im->quiet, &im->lock, &ts);
	}
	(void)pthread_mutex_unlock(&im->lock);
	import_unref(im);
}
