/* SPDX-License-Identifier: MIT */
/*
 * Functions of our libibverbs.so.1 stub that rdma-core lacks.  Tests find them by dlsym(); if
 * dlsym() finds none, the library is the real one.
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
 * A dma-buf is a memfd or a file of /dev/udmabuf.  Timeouts take real time: a request without an
 * answer fails after (retry_cnt + 1) timeouts of its queue pair.  No thread runs between calls:
 * a process has to poll to make progress on its requests.
 */
#ifndef PST_IBVERBS_STUB_H
#define PST_IBVERBS_STUB_H

#include <stdbool.h>
#include <stdint.h>

#define STUB_DEVICES_MAX 4

struct stub_ibverbs_state {
	/* Live objects of this process. */
	unsigned contexts, pds, mrs, cqs, channels, qps;
	/* Totals of this process. */
	uint64_t registered, deregistered, dmabufs;
	uint64_t writes, reads, sends; /* work requests executed */
	uint64_t doorbells;            /* calls of ibv_post_send */
	uint64_t completions;          /* completions returned by ibv_poll_cq */
	char broken[200];              /* the first rule that the program broke, or "" */
};

void stub_ibverbs_state(struct stub_ibverbs_state *ret);

/*
 * "NAME:N:CODE,...": the N-th call of NAME from now on fails with that errno, each one with N 0.
 * NAME "completion": the N-th work request ends with that status.  NAME "damage": a byte of the
 * N-th RDMA WRITE or READ arrives wrong.  NULL: nothing fails.
 */
void stub_ibverbs_fail(const char *spec);

/* Play nvidia-peermem: ibv_reg_mr() of the device addresses [va, va + len) registers the host
 * memory at @at.  NULL ends that. */
void stub_ibverbs_peermem(uint64_t va, uint64_t len, void *at);

/*
 * Execute work requests when completions are polled, not when they are posted.  Then a program
 * that frees or changes a request's memory too early moves wrong bytes or breaks a rule.
 */
void stub_ibverbs_late(bool on);

/* Make every device of this process fail: no request completes any more, and with @tell an event
 * reports it.  (false, false) repairs the devices. */
void stub_ibverbs_die(bool dead, bool tell);

/* Take the port of each device down (false) or up (true); requests get no answer while it is
 * down. */
void stub_ibverbs_port(bool up);

#endif
