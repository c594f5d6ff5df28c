/* SPDX-License-Identifier: MIT */
/* Messages between client and server of penstock perf, sent by pst_peer_send(). */
#ifndef CLI_PERF_H
#define CLI_PERF_H

#include "tools/common/util.h"

#define PERF_BYTES_MAX GIB(4) /* maximum bytes that a client can make the server allocate */
#define PERF_DEPTH_MAX 256u
#define PERF_ITERS_MAX 100000000u
#define PERF_WAIT_NS (60 * NSEC_PER_SEC)
#define PERF_SEED 0x70657266u

enum perf_op {
	PERF_PUT = 1,
	PERF_GET,
	PERF_SEND,
	PERF_RECV,
	PERF_PINGPONG,
	PERF_CHECK, /* after PUT: check that the server has the client's bytes */
};

/* A request.  All members are little-endian, also in the answer. */
struct perf_ask {
	uint64_t magic, op, size, iters, depth, grant;
};

struct perf_answer {
	uint64_t magic;
	int64_t err;      /* 0 or a positive errno */
	uint64_t key_len; /* bytes of a share's key, or 0 */
	uint8_t key[PST_KEY_MAX];
	char text[200]; /* error text for err */
};

#define PERF_MAGIC UINT64_C(0x3146524550545350) /* "PSTPERF1" */

int perf_serve(const char *addr, const struct pst_peer_opts *o, const char *device);

static inline uint64_t perf_deadline(void)
{
	return now_ns() + PERF_WAIT_NS;
}

static inline void pst_peerp(struct pst_peer **p)
{
	(void)pst_peer_close(*p);
}

#endif
