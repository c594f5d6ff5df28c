/* SPDX-License-Identifier: MIT */
/*
 * The RDMA device of this process's connections.
 *
 * All connections share one open device, which is closed with the last of them.  Before its first
 * use, a device is tested with real bytes over a connection to itself.
 */
#include <stdatomic.h>
#include <stdio.h>

#include "base/err.h"
#include "net/verbs/nic.h"

#define AGAIN_NS (5 * NSEC_PER_SEC) /* delay before devices are searched again */

static struct {
	pthread_mutex_t lock;
	struct nic *nic; /* the open device, or NULL */
	unsigned users;
	char tested[NIC_NAME_MAX]; /* name of the device that passed the test */
	int err;                   /* cached error, valid before the time until */
	uint64_t until;
	struct err_kept why;
} nics = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int nics_test(struct nic *n, int (*test)(struct nic *n))
{
	int r;

	if (!test || !strcmp(nics.tested, n->name))
		return 0;
	r = test(n);
	if (r < 0)
		return err_set(r, "the RDMA device %s failed its test: %s", n->name, err_text());
	(void)snprintf(nics.tested, sizeof(nics.tested), "%s", n->name);
	return 0;
}

static int nics_open(const struct nic_choice *how)
{
	const char *env = secure_getenv("PST_RDMA");
	struct nic *n = NULL;
	int r;

	if (env && !strcmp(env, "off"))
		return err_set(ECANCELED, "PST_RDMA=off forbids RDMA");
	r = nic_open(env && *env ? env : NULL, how ? how->far : NULL, &n);
	/* Report unusable ports, such as one without a cable, as a missing device. */
	if (r == -ENETDOWN || r == -EADDRNOTAVAIL || r == -EPROTONOSUPPORT)
		r = err_set(ENODEV, "%s", err_text());
	if (r == 0)
		r = nics_test(n, how ? how->test : NULL);
	if (r < 0) {
		nic_close(n);
		return r;
	}
	nics.nic = n;
	return 0;
}

int nics_get(const struct nic_choice *how, struct nic **ret)
{
	int r = 0;

	(void)pthread_mutex_lock(&nics.lock);
	if (nics.nic && atomic_load(&nics.nic->dead)) {
		r = err_set(ENODEV, "the RDMA device %s has failed", nics.nic->name);
	} else if (!nics.nic && nics.err && now_ns() < nics.until) {
		r = err_set(nics.err, "%s", nics.why.text);
	} else if (!nics.nic) {
		r = nics_open(how);
		if (r < 0)
			err_keep(&nics.why);
		/* Cache the lack of a device; other failures may be temporary. */
		nics.err = r == -ENODEV ? r : 0;
		nics.until = now_ns() + AGAIN_NS;
	}
	if (r == 0) {
		nics.users++;
		*ret = nics.nic;
	}
	(void)pthread_mutex_unlock(&nics.lock);
	return r;
}

void nics_put(struct nic *n)
{
	if (!n)
		return;
	(void)pthread_mutex_lock(&nics.lock);
	if (--nics.users == 0)
		nic_close(TAKE_PTR(nics.nic));
	(void)pthread_mutex_unlock(&nics.lock);
}
