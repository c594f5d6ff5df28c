/* SPDX-License-Identifier: MIT */
/*
 * Servers that this process accesses by RDMA.
 *
 * The process keeps one struct reach for each server while a file of the server is open, so that
 * all queues know of a failure that one queue finds.  After a failure RDMA with the server is
 * paused.  Each attempt can cost requests the deadline of a connection, so each further failure
 * doubles the pause.  A server with failures is remembered when its last file is closed, because a
 * program that opens a file for each request would otherwise try RDMA each time.
 *
 * A thread waits until the device fails, because idle queues do not check it.  The thread then
 * releases the device, and makes all links release what they have of it.
 */
#include <poll.h>
#include <sys/eventfd.h>

#include "base/err.h"
#include "base/list.h"
#include "base/log.h"
#include "base/thread.h"
#include "net/verbs/near.h"
#include "net/verbs/nic.h"
#include "remote/attend.h"
#include "remote/remote.h"

#define PAUSE_NS (5 * NSEC_PER_SEC) /* pause after the first failure */
#define PAUSE_DOUBLES 7u            /* maximum doublings of the pause: up to 640 s */
#define REMEMBERED_MAX 64u          /* maximum servers without an open file */

struct reach {
	struct list link;
	struct net_addr addr;
	/* The lock covers the members below. */
	unsigned refs;
	struct nic *nic;    /* the open device, which links find here; NULL: no file is open, or
			     * the device failed */
	unsigned nr_failed; /* failures since the last success */
	uint64_t failed_at; /* now_ns() of the last failure */

	_Atomic int err; /* errno of the last failure; 0: none since a success */
	_Atomic uint64_t until;
};

static struct {
	pthread_mutex_t lock;
	struct list list;
	unsigned nr_remembered;
	struct watch *watch; /* the thread that waits for the end of the device, or NULL */
} reaches = { .lock = PTHREAD_MUTEX_INITIALIZER, .list = LIST_INIT(reaches.list) };

/* Find the server's entry.  The lock is held. */
static struct reach *reach_find(const struct net_addr *addr)
{
	struct list *e;

	list_for_each (e, &reaches.list) {
		struct reach *r = list_entry(e, struct reach, link);

		if (net_addr_is(&r->addr, addr))
			return r;
	}
	return NULL;
}

/* Record a failure, under the lock.  Several queues may find the same failure, so only the first
 * report within the pause counts. */
static void reach_note(struct reach *r, int err, uint64_t now)
{
	r->failed_at = now;
	if (!atomic_load(&r->err) || now >= atomic_load(&r->until)) {
		uint64_t pause = PAUSE_NS << MIN(r->nr_failed, PAUSE_DOUBLES);

		r->nr_failed++;
		atomic_store(&r->until, now + pause);
		log_info("RDMA with a storage service ended, which is reached over the socket for "
			 "%u s: %s",
			 (unsigned)(pause / NSEC_PER_SEC), err_name(err));
	}
	atomic_store(&r->err, err);
}

/* --------------------------------------------------------- end of the device */

struct watch {
	struct nic *nic;
	int stop; /* eventfd */
};

/* Take the device away from all servers, and from all links. */
static void reach_device_failed(struct watch *w)
{
	uint64_t now = now_ns();
	unsigned nr = 0;
	struct list *e;

	(void)pthread_mutex_lock(&reaches.lock);
	list_for_each (e, &reaches.list) {
		struct reach *r = list_entry(e, struct reach, link);

		if (r->nic != w->nic)
			continue;
		r->nic = NULL;
		reach_note(r, ENODEV, now);
		nr++;
	}
	if (reaches.watch == w)
		reaches.watch = NULL;
	(void)pthread_mutex_unlock(&reaches.lock);
	while (nr--)
		nics_put(w->nic);
	attend_turn_all();
}

static void *reach_watches(void *arg)
{
	const struct timespec pause = { .tv_nsec = NIC_EVENTS_NS };
	struct watch *w = arg;
	struct pollfd p[] = {
		{ .fd = w->stop, .events = POLLIN },
		{ .fd = w->nic->ctx->async_fd, .events = POLLIN },
		{ .fd = w->nic->dead_fd, .events = POLLIN },
	};

	(void)pthread_setname_np(pthread_self(), "pst-rdma-watch");
	while (poll(p, ARRAY_SIZE(p), -1) < 0 || !p[0].revents) {
		nic_events(w->nic);
		if (atomic_load(&w->nic->dead)) {
			reach_device_failed(w);
			break;
		}
		/* Limit how often the kernel is asked. */
		(void)nanosleep(&pause, NULL);
	}
	nics_put(w->nic);
	/* Wait for the thread that requested the stop: it may still hold the lock. */
	(void)pthread_mutex_lock(&reaches.lock);
	(void)close(w->stop);
	(void)pthread_mutex_unlock(&reaches.lock);
	free(w);
	return NULL;
}

/* Start the thread that waits for the end of the device, under the lock. */
static void reach_watch(void)
{
	struct watch *w = reaches.watch ? NULL : calloc(1, sizeof(*w));
	pthread_t thread;
	int r = -ENOMEM;

	if (reaches.watch)
		return;
	if (w) {
		w->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		r = w->stop < 0 ? -errno : nics_get(&near_untested, &w->nic);
	}
	if (r == 0)
		r = thread_start(&thread, reach_watches, w);
	if (r == 0) {
		(void)pthread_detach(thread);
		reaches.watch = w;
		return;
	}
	log_info("no thread for the end of the RDMA device (%s): an idle program keeps a device "
		 "open that has failed",
		 err_name(-r));
	if (!w)
		return;
	nics_put(w->nic);
	closep(&w->stop);
	free(w);
}

/* End the thread if no server has the device; under the lock. */
static void reach_watch_end(void)
{
	struct list *e;

	list_for_each (e, &reaches.list)
		if (list_entry(e, struct reach, link)->nic)
			return;
	/* The thread closes the descriptor and frees the rest. */
	if (reaches.watch)
		(void)eventfd_write(reaches.watch->stop, 1);
	reaches.watch = NULL;
}

/* ------------------------------------------------------------------- servers */

/* Return 0, or -errno with a sentence if RDMA is not possible or not wanted. */
static int reach_check(const struct remote_server *server, uint64_t features)
{
	const char *env = secure_getenv("PST_RDMA");
	bool named = env && *env;

	if (named && !strcmp(env, "off"))
		return err_set(ECANCELED, "PST_RDMA=off forbids RDMA");
	if (!(features & WIRE_FEATURE_RDMA))
		return err_set(EPROTONOSUPPORT, "the server offers no RDMA");
	if (!named && server->tls)
		return err_set(EPERM, "RDMA encrypts nothing, and the server is one of psts://; "
				      "name the device by PST_RDMA if the network is trusted");
	if (!named && net_addr_is_local(&server->addr))
		return err_set(EPERM, "the server is on this machine; name the device by PST_RDMA "
				      "to use it nevertheless");
	return 0;
}

/* Forget servers without an open file that can be tried again, or are too many; under the lock. */
static void reach_forget(uint64_t now)
{
	struct list *e, *n;

	list_for_each_safe (e, n, &reaches.list) {
		struct reach *r = list_entry(e, struct reach, link);

		if (r->refs || (reaches.nr_remembered < REMEMBERED_MAX &&
				now < atomic_load(&r->until) + PAUSE_NS * (1u << PAUSE_DOUBLES)))
			continue;
		list_del(&r->link);
		reaches.nr_remembered--;
		free(r);
	}
}

/* Create a server's entry, under the lock. */
static int reach_new(const struct net_addr *addr, struct reach **ret)
{
	struct reach *r = calloc(1, sizeof(*r));

	if (!r)
		return err_set(ENOMEM, "out of memory");
	r->addr = *addr;
	list_add_tail(&reaches.list, &r->link);
	reaches.nr_remembered++; /* counts as remembered until its reference is taken */
	*ret = r;
	return 0;
}

int reach_get(const struct remote_server *server, uint64_t features, struct reach **ret)
{
	struct nic *nic = NULL;
	struct reach *r;
	int err = reach_check(server, features);

	/* Drop the lock: the first test of a device takes long. */
	if (err == 0)
		err = nics_get(&near_tested, &nic);
	if (err < 0)
		return err;
	(void)pthread_mutex_lock(&reaches.lock);
	r = reach_find(&server->addr);
	if (!r) {
		reach_forget(now_ns());
		err = reach_new(&server->addr, &r);
	}
	if (err == 0) {
		reaches.nr_remembered -= !r->refs++;
		if (!r->nic)
			r->nic = TAKE_PTR(nic);
		reach_watch();
		*ret = r;
	}
	(void)pthread_mutex_unlock(&reaches.lock);
	nics_put(nic);
	return err;
}

int reach_nic(struct reach *r, struct nic **ret)
{
	int err = nics_get(&near_untested, ret);

	if (err < 0)
		return err;
	(void)pthread_mutex_lock(&reaches.lock);
	/* Take the new device if the old one has failed since the file was opened. */
	if (!r->nic && nics_get(&near_untested, &r->nic) == 0)
		reach_watch();
	(void)pthread_mutex_unlock(&reaches.lock);
	return 0;
}

struct reach *reach_again(struct reach *r)
{
	(void)pthread_mutex_lock(&reaches.lock);
	r->refs++;
	(void)pthread_mutex_unlock(&reaches.lock);
	return r;
}

void reach_put(struct reach *r)
{
	struct nic *nic = NULL;

	if (!r)
		return;
	(void)pthread_mutex_lock(&reaches.lock);
	if (--r->refs == 0) {
		nic = TAKE_PTR(r->nic);
		reaches.nr_remembered++;
		if (!r->nr_failed) {
			list_del(&r->link);
			reaches.nr_remembered--;
			free(r);
		}
		reach_watch_end();
	}
	(void)pthread_mutex_unlock(&reaches.lock);
	nics_put(nic);
}

/* ------------------------------------------------------------------ failures */

int reach_err(const struct reach *r, uint64_t now)
{
	int err = atomic_load_explicit(&r->err, memory_order_relaxed);

	return err && now < atomic_load(&r->until) ? err : 0;
}

void reach_failed(struct reach *r, int err, uint64_t now)
{
	(void)pthread_mutex_lock(&reaches.lock);
	reach_note(r, err, now);
	(void)pthread_mutex_unlock(&reaches.lock);
}

void reach_worked(struct reach *r, uint64_t since)
{
	if (likely(!atomic_load_explicit(&r->err, memory_order_relaxed)))
		return;
	(void)pthread_mutex_lock(&reaches.lock);
	/* Ignore a queue pair from before the failure: its success says nothing about the next
	 * queue pair. */
	if (since > r->failed_at) {
		r->nr_failed = 0;
		atomic_store(&r->err, 0);
	}
	(void)pthread_mutex_unlock(&reaches.lock);
}
