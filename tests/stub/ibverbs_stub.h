/* SPDX-License-Identifier: MIT */
/*
 * Calls of tests to the libibverbs.so.1 that is built here, beyond the interface of rdma-core.
 * Tests find these functions by dlsym(); where there is none, the library is a real one.
 *
 * Environment:
 *	STUB_IBVERBS_DEVICES	devices, 1 without it, at most STUB_DEVICES_MAX
 *	STUB_IBVERBS_LINK	"ib": the ports are InfiniBand; else Ethernet
 *	STUB_IBVERBS_FABRIC	a file; processes that name the same one are joined.  Without it a
 *				process has a fabric of its own.  PST_TEST_IBVERBS_FABRIC
 *				does the same: a mount passes on to its worker what begins
 *				with PST
 *	STUB_IBVERBS_DMABUF	errno that every registration of a dma-buf gives
 *	STUB_IBVERBS_FAIL	as stub_ibverbs_fail()
 *	STUB_IBVERBS_HOLD	a file: while it exists, queue pairs and registrations do not
 *				end; FILE.held is made when one waits
 *	STUB_IBVERBS_DEATH	a file: once it exists, the devices fail, which
 *				ibv_get_async_event() tells
 *	STUB_IBVERBS_GIDS	entries of each device's table, 4 without it; the fit ones are last
 *	STUB_IBVERBS_IWARP	the devices are iWARP
 *	STUB_IBVERBS_LATE	as stub_ibverbs_late(true)
 *
 * A dma-buf is a memfd or what /dev/udmabuf makes.  Time is real: a request that nobody answers
 * ends after (retry_cnt + 1) waits of the queue pair's timeout.  Nothing happens between calls: a
 * process whose requests wait for a peer has to poll.
 */
#ifndef PST_IBVERBS_STUB_H
#define PST_IBVERBS_STUB_H

#include <stdbool.h>
#include <stdint.h>

#define STUB_DEVICES_MAX 4

struct stub_ibverbs_state {
	/* Live objects of this process. */
	unsigned contexts, pds, mrs, cqs, channels, qps;
	/* Ever, in this process. */
	uint64_t registered, deregistered, dmabufs;
	uint64_t writes, reads, sends; /* work requests that were executed */
	uint64_t doorbells;            /* calls of ibv_post_send */
	uint64_t completions;          /* that ibv_poll_cq gave */
	char broken[200];              /* the first rule that the program broke, or "" */
};

void stub_ibverbs_state(struct stub_ibverbs_state *ret);

/*
 * "NAME:N:CODE,...": the N-th call of NAME from now on fails with that errno, each one with N 0.
 * NAME "completion": the N-th work request ends with that status.  NAME "damage": a byte of the
 * N-th RDMA WRITE or READ arrives wrong.  NULL: nothing fails.
 */
void stub_ibverbs_fail(const char *spec);

/* Peer memory, as nvidia-peermem gives it: ibv_reg_mr() of device addresses from va on, len bytes,
 * takes the host memory at @at for them.  NULL ends it. */
void stub_ibverbs_peermem(uint64_t va, uint64_t len, void *at);

/*
 * Execute work requests not when they are posted but when completions are polled: so a program that
 * frees or changes memory of a request before its completion is found out, by wrong bytes or by the
 * rule that it broke.
 */
void stub_ibverbs_late(bool on);

/* Every device of this process fails: an event says so, and nothing completes any more.  Without
 * @tell the devices fall silent and no event comes.  false, false: they work again. */
void stub_ibverbs_die(bool dead, bool tell);

/* The port of each device goes down, or up again; requests are not answered meanwhile. */
void stub_ibverbs_port(bool up);

#endif
