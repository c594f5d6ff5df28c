/* SPDX-License-Identifier: MIT */
/*
 * The wire format between peers, as docs/PEERS.md describes it.
 *
 * Pure format code: nothing here allocates, and nothing does I/O.  peer_get_msg() and the others
 * check what they read, so that their callers may trust the struct.  All integers on the wire are
 * little-endian.
 */
#ifndef PST_PEER_MSG_H
#define PST_PEER_MSG_H

#include <penstock.h>

#include "base/base.h"

#define PEER_VERSION 1u
#define PEER_HEAD 48u          /* bytes of a header */
#define PEER_DATA_MAX KIB(128) /* bytes of memory in one message */
#define PEER_HELLO_LEN 64u
#define PEER_HELLO_MAX 256u /* bytes of a hello's payload in any version */
#define PEER_GRANT_LEN 128u
#define PEER_KEY_LEN 64u      /* bytes of a key in this version */
#define PEER_REQUESTS_MAX 64u /* that wait for their reply, of each side */
#define PEER_MESSAGES_MAX 64u /* sent and not taken, of each side */

enum peer_type {
	PEER_HELLO = 1,
	PEER_OPEN = 2,
	PEER_OPENED = 3,
	PEER_CLOSE = 4,
	PEER_GET = 5,
	PEER_DATA = 6,
	PEER_PUT = 7,
	PEER_DONE = 8,
	PEER_MESSAGE = 9,
	PEER_OFFER = 10,
	PEER_TAKEN = 11,
	PEER_REVOKE = 12,
	PEER_REVOKED = 13,
	PEER_RDMA = 14,
	PEER_REACH = 15,
	PEER_REACHED = 16,
	PEER_UNREACH = 17,
	PEER_TYPE_MAX = 17,
};

struct peer_msg {
	uint32_t len; /* bytes of the message, header included */
	uint16_t type;
	uint64_t id;
	uint64_t share;
	uint64_t off;
	uint32_t count;
	uint32_t err; /* an errno of Linux, or 0 */
};

struct peer_hello {
	uint32_t version, oldest; /* this side speaks oldest to version */
	uint32_t data_max;
	uint32_t inline_max;
	uint32_t requests_max;
	uint32_t messages_max;
	uint32_t features; /* PEER_KNOWS_*; later ones are ignored */
};

#define PEER_KNOWS_RDMA (1u << 0)

struct peer_key {
	uint64_t share;
	uint64_t len; /* of the range */
	uint32_t rights;
	uint32_t kind; /* enum pst_kind */
	uint8_t nonce[16];
};

#define PEER_NIC_KEY_LEN 64u
#define PEER_BLOB_LEN 64u /* what describes an endpoint of RDMA, net/verbs/endpoint.h */

/* What a peer's device needs to reach a share. */
struct peer_nic_key {
	uint64_t share;
	uint64_t addr; /* of the share's first byte, for work requests */
	uint64_t len;
	uint64_t epoch; /* of the registration: never used twice in the process that made it */
	uint32_t rights;
	uint32_t rkey;
};

static inline uint32_t peer_payload(const struct peer_msg *m)
{
	return m->len - PEER_HEAD;
}

void peer_put_msg(const struct peer_msg *m, uint8_t to[PEER_HEAD]);
/*
 * Read a header.  On success every member is in the bounds that docs/PEERS.md gives for that type.
 *
 * Return: 0, or -EBADMSG: the stream cannot be read any further.
 */
int peer_get_msg(const uint8_t from[PEER_HEAD], struct peer_msg *ret);

/* -EBADMSG; -EPROTONOSUPPORT for versions that have none in common with this one. */
void peer_put_hello(const struct peer_hello *h, uint8_t to[PEER_HELLO_LEN]);
int peer_get_hello(const uint8_t *from, uint32_t len, struct peer_hello *ret);

/*
 * A key.  Longer ones of later versions are read as far as this version knows them: they add rkeys
 * for NICs before the checksum.
 *
 * Return: 0 or -EBADMSG.
 */
void peer_put_key(const struct peer_key *k, uint8_t to[PEER_KEY_LEN]);
int peer_get_key(const uint8_t *from, size_t len, struct peer_key *ret);

void peer_put_nic_key(const struct peer_nic_key *k, uint8_t to[PEER_NIC_KEY_LEN]);
/* 0 or -EBADMSG. */
int peer_get_nic_key(const uint8_t *from, size_t len, struct peer_nic_key *ret);

#endif
