/* SPDX-License-Identifier: MIT */
/*
 * Devices that fail, do not answer, or are not suitable: each request ends once and in time, and
 * nothing leaks.
 */
#include <sys/mman.h>

#include "verbs_rig.h"

#define LEN 65536u

static struct {
	struct endpoint *a, *b;
	uint8_t *mem;
	struct mem_reg *reg;
} pair;

static void pair_open(uint32_t deadline_ms)
{
	struct endpoint_opts o = { .send_slots = 8, .recv_slots = 8, .deadline_ms = deadline_ms };

	rig_open();
	pair.mem = aligned_alloc(4096, LEN);
	T_CHECK(pair.mem);
	memset(pair.mem, 0, LEN);
	T_OK(mr_reg_host(rig.domain, pair.mem, LEN, MEM_REG_REMOTE, &pair.reg));
	T_OK(endpoint_new(rig.domain, &o, &pair.a));
	T_OK(endpoint_new(rig.domain, &o, &pair.b));
	rig_join(pair.a, pair.b);
}

static void pair_close(void)
{
	endpoint_free(pair.a);
	endpoint_free(pair.b);
	mr_dereg(rig.domain, pair.reg);
	free(pair.mem);
	rig_close();
}

/* Post nr writes from the first half of the memory to the second. */
static void pair_post(unsigned nr)
{
	struct endpoint_io v[8];

	for (unsigned i = 0; i < nr; i++)
		v[i] = (struct endpoint_io){
			.op = ENDPOINT_WRITE,
			.len = 64,
			.local = pair.reg->addr + i * 64,
			.lkey = pair.reg->lkey,
			.remote = pair.reg->addr + LEN / 2 + i * 64,
			.rkey = pair.reg->rkey,
			.id = i,
		};
	T_EQ(endpoint_post(pair.a, v, nr), nr);
}

static void each_ends_with(unsigned nr, int res)
{
	struct endpoint_done d[8];

	rig_wait(pair.a, d, nr);
	for (unsigned i = 0; i < nr; i++) {
		T_EQ(d[i].id, i);
		T_EQ(d[i].res, res);
	}
	T_EQ(endpoint_poll(pair.a, d, 8), 0);
}

/* The kernel reports that the device is gone: requests end without completions. */
static void a_device_that_fails_ends_requests(void)
{
	struct endpoint_io io = { .op = ENDPOINT_SEND };
	struct endpoint_done d;

	rig_needs_stub();
	pair_open(0);
	rig.late(true);
	pair_post(4);
	T_OK(endpoint_recv(pair.a, pair.reg->addr, pair.reg->lkey, 64, 77));
	rig.die(true, true);
	rig_wait(pair.a, &d, 1);
	T_EQ(d.id, 0);
	T_EQ(d.res, -EIO);
	rig_wait(pair.a, &d, 1);
	rig_wait(pair.a, &d, 1);
	rig_wait(pair.a, &d, 1);
	T_EQ(d.id, 3);
	rig_wait(pair.a, &d, 1);
	T_EQ(d.id, 77);
	T_EQ(d.res, -ECANCELED);
	T_EQ(endpoint_post(pair.a, &io, 1), -ENOTCONN);
	rig.die(false, false);
	pair_close();
}

/* Neither a completion nor an event arrives: the deadline ends the requests. */
static void a_silent_device_is_given_up(void)
{
	rig_needs_stub();
	pair_open(30);
	rig.die(true, false);
	pair_post(3);
	each_ends_with(3, -ETIMEDOUT);
	rig.die(false, false);
	pair_close();
}

/* The completion queue breaks after it has returned some completions: those are reported, the
 * other requests end. */
static void no_completion_is_lost_with_its_queue(void)
{
	struct endpoint_done d[8];

	rig_needs_stub();
	pair_open(0);
	pair_post(2); /* both requests end by one completion */
	pair_post(2);
	/* The first poll fills the list, the second one fails. */
	rig.fail("ibv_poll_cq:2:5");
	T_EQ(endpoint_poll(pair.a, d, 1), 1);
	T_EQ(d[0].res, 64);
	rig_wait(pair.a, d, 3);
	for (unsigned i = 0; i < 3; i++)
		T_CHECK(d[i].res == 64 || d[i].res == -EIO);
	T_EQ(endpoint_poll(pair.a, d, 8), 0);
	rig.fail(NULL);
	pair_close();
}

/* A failed poll ends the requests; it does not hide completions. */
static void a_queue_that_breaks_ends_requests(void)
{
	rig_needs_stub();
	pair_open(0);
	rig.late(true);
	pair_post(5);
	rig.fail("ibv_poll_cq:1:5");
	each_ends_with(5, -EIO);
	pair_close();
}

static bool device_opens(void)
{
	struct nic *n;

	if (nic_open(NULL, NULL, &n) < 0)
		return false;
	nic_close(n);
	return true;
}

/* The kernel returns a table as a whole or not at all. */
static void a_long_table_of_gids_is_read(void)
{
	rig_needs_stub();
	(void)setenv("STUB_IBVERBS_GIDS", "1000", 1);
	rig_open();
	T_EQ(rig.nic->nr_gids, 1000);
	T_EQ(rig.nic->gid.index, 999);
	rig_close();
	(void)unsetenv("STUB_IBVERBS_GIDS");
}

/* iWARP runs on Ethernet, too, but connects in another way. */
static void iwarp_is_refused(void)
{
	struct vb_gid_entry e = { .type = VB_GID_IB, .gid.raw = { 1, 2, 3 } };

	rig_needs_stub();
	T_EQ(nic_gid_rank(&e, true), NIC_GID_NONE);
	e.type = VB_GID_ROCE_V1;
	T_EQ(nic_gid_rank(&e, true), NIC_GID_V1);
	(void)setenv("STUB_IBVERBS_IWARP", "1", 1);
	T_CHECK(!device_opens());
	T_CHECK(strstr(err_text(), "iWARP"));
	(void)unsetenv("STUB_IBVERBS_IWARP");
	T_CHECK(device_opens());
}

/* Check the stub itself: it must notice memory that is reused too early. */
static void memory_that_is_freed_early_is_found_out(void)
{
	struct stub_ibverbs_state st;
	struct endpoint_done d[8];

	rig_needs_stub();
	pair_open(0);
	rig.late(true);
	memset(pair.mem, 1, 64);
	pair_post(1);
	T_EQ(pair.mem[LEN / 2], 0); /* the bytes are not moved yet */
	/* changed before the completion, so the peer gets these bytes */
	memset(pair.mem, 2, 64);
	rig_wait(pair.a, d, 1);
	T_EQ(pair.mem[LEN / 2], 2);
	pair_post(1);
	mr_dereg(rig.domain, pair.reg);
	rig.state(&st);
	T_CHECK(strstr(st.broken, "that a request uses"));
	rig_wait(pair.a, d, 1);
	T_EQ(d[0].res, -EFAULT);
	endpoint_free(pair.a);
	endpoint_free(pair.b);
	free(pair.mem);
	T_OK(nic_domain_free(rig.domain));
	nic_close(rig.nic);
}

int main(void)
{
	T_RUN(a_device_that_fails_ends_requests);
	T_RUN(a_silent_device_is_given_up);
	T_RUN(no_completion_is_lost_with_its_queue);
	T_RUN(a_queue_that_breaks_ends_requests);
	T_RUN(a_long_table_of_gids_is_read);
	T_RUN(iwarp_is_refused);
	/* Run this case last: the stub remembers that a rule was broken. */
	T_RUN(memory_that_is_freed_early_is_found_out);
	return t_done();
}
