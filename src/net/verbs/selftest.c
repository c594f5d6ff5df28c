/* SPDX-License-Identifier: MIT */
#include <poll.h>
#include <stdio.h>

#include "base/err.h"
#include "net/verbs/endpoint.h"
#include "net/verbs/mr.h"
#include "net/verbs/selftest.h"

#define LEN KIB(64)
#define DEADLINE_MS 2000u
#define GIVE_UP_MS 10000 /* milliseconds, for a device that does not even report a failure */

struct loop {
	struct nic *nic;
	struct nic_domain *domain;
	struct endpoint *ends[2];
	uint8_t *host; /* LEN bytes to send, then LEN bytes to receive */
	struct mem_reg *host_reg, *target;
	struct mem_alloc *alloc;
};

static void loop_done(struct loop *l)
{
	for (unsigned i = 0; i < 2; i++)
		endpoint_free(l->ends[i]);
	if (l->target)
		mr_dereg(l->domain, l->target);
	mr_dereg(l->domain, l->host_reg);
	(void)nic_domain_free(l->domain);
	if (l->alloc)
		mem_free(l->alloc);
	free(l->host);
}

static int selftest_join(struct loop *l)
{
	struct endpoint_opts o = {
		.send_slots = 4, .recv_slots = 4, .deadline_ms = DEADLINE_MS, .events = true
	};
	uint8_t blobs[2][ENDPOINT_BLOB];
	int r = 0;

	for (unsigned i = 0; i < 2 && r == 0; i++) {
		r = endpoint_new(l->domain, &o, &l->ends[i]);
		if (r == 0)
			endpoint_blob(l->ends[i], blobs[i]);
	}
	for (unsigned i = 0; i < 2 && r == 0; i++)
		r = endpoint_connect(l->ends[i], blobs[!i], ENDPOINT_BLOB);
	return r;
}

static int loop_open(struct loop *l, const struct mem_ops *ops, unsigned device)
{
	int r = mem_alloc(ops, device, LEN, 0, &l->alloc);

	if (r == 0)
		r = nic_domain_new(l->nic, &l->domain);
	if (r < 0)
		return r;
	l->host = aligned_alloc(KIB(4), 2 * LEN);
	if (!l->host)
		return err_set(ENOMEM, "out of memory");
	r = mr_reg_host(l->domain, l->host, 2 * LEN, 0, &l->host_reg);
	if (r == 0)
		r = mr_registrar_ops.reg(&l->domain->reg, l->alloc, 0, LEN,
					 MEM_REG_REMOTE_READ | MEM_REG_REMOTE_WRITE, &l->target);
	return r < 0 ? r : selftest_join(l);
}

/* Wait for one completion.  Poll regularly, because not every device sends events. */
static int finish(struct endpoint *ep, struct endpoint_done *ret)
{
	uint64_t until = now_ns() + GIVE_UP_MS * NSEC_PER_MSEC;
	struct pollfd p = { .fd = endpoint_fd(ep), .events = POLLIN };
	int n = endpoint_arm(ep);

	while (n == 0) {
		n = endpoint_poll(ep, ret, 1);
		if (n == 0 && now_ns() > until)
			n = err_set(ETIMEDOUT, "no completion came within %u s", GIVE_UP_MS / 1000);
		if (n == 0)
			(void)poll(&p, 1, 10);
	}
	return MIN(n, 0);
}

static int move(struct loop *l, enum endpoint_op op)
{
	struct endpoint_io io = {
		.op = op,
		.len = LEN,
		.local = l->host_reg->addr + (op == ENDPOINT_READ ? LEN : 0),
		.lkey = l->host_reg->lkey,
		.remote = l->target->addr,
		.rkey = l->target->rkey,
	};
	struct endpoint_done d;
	int r = endpoint_post(l->ends[0], &io, 1);

	if (r == 1)
		r = finish(l->ends[0], &d);
	if (r < 0)
		return r;
	if (d.res < 0)
		return err_set(d.res, "%s", verbs_status_name(d.status));
	return 0;
}

static int try_both(struct loop *l, const char *what, struct selftest *ret)
{
	uint64_t seed = now_ns();

	for (uint64_t i = 0; i < LEN; i++)
		l->host[i] = (uint8_t)((seed >> i % 8 * 8) + i * 31);
	memset(l->host + LEN, 0, LEN);
	ret->how = l->target->how;
	ret->write = move(l, ENDPOINT_WRITE);
	if (ret->write < 0)
		return err_set(ret->write, "%s does not write into %s memory: %s", l->nic->name,
			       what, err_text());
	ret->read = move(l, ENDPOINT_READ);
	if (ret->read < 0)
		return err_set(ret->read, "%s writes into %s memory but does not read it: %s",
			       l->nic->name, what, err_text());
	if (memcmp(l->host, l->host + LEN, LEN) != 0) {
		ret->read = -EBADMSG;
		return err_set(EBADMSG, "%s gave other bytes than it wrote into %s memory",
			       l->nic->name, what);
	}
	return 0;
}

int selftest_run(struct nic *n, const struct mem_ops *ops, unsigned device, struct selftest *ret)
{
	_cleanup_(loop_done) struct loop l = { .nic = n };
	int r;

	*ret = (struct selftest){ .write = -ECANCELED, .read = -ECANCELED };
	r = loop_open(&l, ops, device);
	return r < 0 ? r : try_both(&l, ops->name, ret);
}

int selftest_host(struct nic *n)
{
	struct selftest st;

	return selftest_run(n, &mem_host_ops, 0, &st);
}
