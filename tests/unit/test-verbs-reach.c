/* SPDX-License-Identifier: MIT */
/*
 * Servers that are reached by RDMA: pauses after failures, on a clock of the test's own, and the
 * end of the device.
 */
#include <sys/un.h>

#include "remote/remote.h"
#include "verbs_rig.h"

#define S NSEC_PER_SEC
#define FIRST (5 * S)
#define MOST (640 * S)

/* ns on the test's clock; begins later than any time that a server here remembers */
static uint64_t now = 1000 * S;

static struct remote_server server_of(const char *name)
{
	struct remote_server s = { 0 };
	struct sockaddr_un *un = (struct sockaddr_un *)&s.addr.sa;

	un->sun_family = AF_UNIX;
	(void)snprintf(un->sun_path, sizeof(un->sun_path), "/nowhere/%s", name);
	s.addr.len = sizeof(*un);
	return s;
}

static struct reach *reach_of(const char *name)
{
	struct remote_server s = server_of(name);
	struct reach *r = NULL;

	T_OK(reach_get(&s, WIRE_FEATURE_RDMA, &r));
	return r;
}

/* Check that the pause that begins now has this length. */
static void pauses(const struct reach *r, uint64_t pause)
{
	T_EQ(reach_err(r, now), EIO);
	now += pause - 1;
	T_EQ(reach_err(r, now), EIO);
	now++;
	T_EQ(reach_err(r, now), 0);
}

static void pauses_grow(void)
{
	struct reach *r = reach_of("grow");
	uint64_t pause = FIRST;

	T_EQ(reach_err(r, now), 0);
	for (unsigned i = 0; i < 12; i++) {
		reach_failed(r, EIO, now);
		pauses(r, pause);
		pause = MIN(2 * pause, MOST);
	}
	T_EQ(pause, MOST);
	/* A success makes the next pause short again. */
	reach_worked(r, now);
	reach_failed(r, EIO, now);
	pauses(r, FIRST);
	reach_worked(r, now);
	reach_put(r);
}

/* Several queues find the same failure; and one of them still moves bytes. */
static void one_failure_counts_once(void)
{
	struct reach *r = reach_of("once");
	uint64_t before = now;

	now += S;
	for (unsigned i = 0; i < 10; i++)
		reach_failed(r, EIO, now);
	reach_worked(r, before);
	T_EQ(reach_err(r, now + FIRST - 1), EIO);
	T_EQ(reach_err(r, now + FIRST), 0);
	now += FIRST;
	reach_failed(r, EIO, now);
	pauses(r, 2 * FIRST);
	reach_worked(r, now);
	reach_put(r);
}

/* A program that opens a file for each request does not try RDMA each time. */
static void closed_files_are_remembered(void)
{
	struct reach *r = reach_of("file"), *other = reach_of("other");

	T_CHECK(r != other);
	reach_failed(r, EIO, now);
	T_EQ(reach_err(other, now), 0);
	reach_put(r);
	r = reach_of("file");
	pauses(r, FIRST);
	reach_failed(r, EIO, now);
	reach_put(r);
	r = reach_of("file");
	pauses(r, 2 * FIRST);
	reach_worked(r, now);
	reach_put(r);
	reach_put(other);
	r = reach_of("file");
	reach_failed(r, EIO, now);
	pauses(r, FIRST);
	reach_worked(r, now);
	reach_put(r);
}

static void no_more_than_64_are_remembered(void)
{
	struct reach *r;
	char name[20];

	for (unsigned i = 0; i < 200; i++) {
		(void)snprintf(name, sizeof(name), "many%u", i);
		r = reach_of(name);
		reach_failed(r, EIO, now_ns());
		reach_put(r);
	}
	r = reach_of("many0");
	T_EQ(reach_err(r, now_ns()), 0);
	reach_put(r);
	r = reach_of("many199");
	T_EQ(reach_err(r, now_ns()), EIO);
	reach_put(r);
}

static unsigned contexts(void)
{
	struct stub_ibverbs_state st;

	rig.state(&st);
	T_CHECK(!*st.broken);
	return st.contexts;
}

static void all_are_closed(void)
{
	uint64_t end = t_hang();

	while (contexts() && t_now() < end)
		(void)usleep(1000);
	T_EQ(contexts(), 0);
}

/* Files stay open and nobody makes a call: the device is closed, and opened again later. */
static void a_dead_device_is_given_back(void)
{
	struct reach *r = reach_of("dead"), *other = reach_of("alive");
	struct nic *n;

	T_EQ(contexts(), 1);
	for (unsigned i = 0; i < 3; i++) {
		rig.die(true, true);
		all_are_closed();
		T_EQ(reach_err(r, now_ns()), ENODEV);
		T_EQ(reach_err(other, now_ns()), ENODEV);
		rig.die(false, false);
		T_OK(reach_nic(r, &n));
		T_EQ(contexts(), 1);
		nics_put(n);
		/* The file keeps the device open. */
		T_EQ(contexts(), 1);
	}
	reach_put(r);
	reach_put(other);
	all_are_closed();
}

int main(void)
{
	if (verbs_load() < 0)
		return t_done();
	rig_stub();
	if (!rig.is_stub)
		return t_done();
	(void)setenv("PST_RDMA", "stub0", 1);
	T_RUN(pauses_grow);
	T_RUN(one_failure_counts_once);
	T_RUN(closed_files_are_remembered);
	T_RUN(no_more_than_64_are_remembered);
	T_RUN(a_dead_device_is_given_back);
	return t_done();
}
