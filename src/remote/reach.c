/* SPDX-License-Identifier: MIT */
/*
 * Servers that this process reaches by RDMA.
 *
 * The process keeps one struct reach for each server while a file of the server is open, so that a
 * failure that one queue finds holds for all of them.  After a failure there is no RDMA with the
 * server for AGAIN_NS.
 */
#include "base/err.h"
#include "base/list.h"
#include "base/log.h"
#include "net/verbs/nic.h"
#include "net/verbs/selftest.h"
#include "remote/remote.h"

#define AGAIN_NS (5 * NSEC_PER_SEC)

struct reach {
	struct list link;
	struct net_addr addr;
	unsigned refs;   /* the lock below covers it */
	struct nic *nic; /* stays open, so that links find it open */
	_Atomic int err; /* of the last failure; 0: none */
	_Atomic uint64_t until;
};

static struct {
	pthread_mutex_t lock;
	struct list list;
} reaches = { .lock = PTHREAD_MUTEX_INITIALIZER, .list = LIST_INIT(reaches.list) };

/* With the lock. */
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

/* 0; -errno with a sentence: RDMA is not possible or not wanted. */
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

static int reach_new(const struct net_addr *addr, struct nic **nic, struct reach **ret)
{
	struct reach *r = calloc(1, sizeof(*r));

	if (!r)
		return err_set(ENOMEM, "out of memory");
	r->addr = *addr;
	r->nic = TAKE_PTR(*nic);
	list_add_tail(&reaches.list, &r->link);
	*ret = r;
	return 0;
}

int reach_get(const struct remote_server *server, uint64_t features, struct reach **ret)
{
	struct nic *nic = NULL;
	struct reach *r;
	int err = reach_check(server, features);

	/* The first test of a device takes long: without the lock. */
	if (err == 0)
		err = nics_get(selftest_host, &nic);
	if (err < 0)
		return err;
	(void)pthread_mutex_lock(&reaches.lock);
	r = reach_find(&server->addr);
	if (!r)
		err = reach_new(&server->addr, &nic, &r);
	if (err == 0) {
		r->refs++;
		*ret = r;
	}
	(void)pthread_mutex_unlock(&reaches.lock);
	nics_put(nic);
	return err;
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
	bool last;

	if (!r)
		return;
	(void)pthread_mutex_lock(&reaches.lock);
	last = --r->refs == 0;
	if (last)
		list_del(&r->link);
	(void)pthread_mutex_unlock(&reaches.lock);
	if (!last)
		return;
	nics_put(r->nic);
	free(r);
}

int reach_err(const struct reach *r)
{
	int err = atomic_load_explicit(&r->err, memory_order_relaxed);

	return err && now_ns() < atomic_load(&r->until) ? err : 0;
}

void reach_failed(struct reach *r, int err)
{
	log_info("RDMA with a storage service ended, which is reached over the socket for %u s: %s",
		 (unsigned)(AGAIN_NS / NSEC_PER_SEC), err_name(err));
	atomic_store(&r->until, now_ns() + AGAIN_NS);
	atomic_store(&r->err, err);
}
