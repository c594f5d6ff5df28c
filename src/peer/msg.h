/* SPDX-License-Identifier: MIT */
/*
 * The wire format between peers, described in docs/PEERS.md.
 *
 * Pure format code: nothing here allocates or does I/O.  Each peer_get_*() checks what it reads, so
 * its caller may trust the resulting struct.  All integers on the wire are little-endian.
 */
#ifndef PST_PEER_MSG_H
#define PST_PEER_MSG_H

#include <penstock.h>

#include "base/base.h"

#define PEER_VERSION 1u
#define PEER_HEAD 48u          /* bytes; header of a message */
#define PEER_DATA_MAX KIB(128) /* maximum bytes of memory in one message */
#define PEER_HELLO_LEN 64u
#define PEER_HELLO_MAX 256u /* maximum payload bytes of any version's hello */
#define PEER_GRANT_LEN 128u
#define PEER_KEY_LEN 64u      /* bytes; a key of this version */
#define PEER_REQUESTS_MAX 64u /* maximum requests of one side without a reply */
#define PEER_MESSAGES_MAX 64u /* maximum messages of one side that were sent but not received */

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
	uint32_t len; /* bytes of the whole message, including the header */
	uint16_t type;
	uint64_t id;
	uint64_t share;
	uint64_t off;
	uint32_t count;
	uint32_t err; /* positive Linux errno, or 0 */
};

struct peer_hello {
	uint32_t version, oldest; /* versions that the sender speaks: oldest to version */
	uint32_t data_max;
	uint32_t inline_max;
	uint32_t requests_max;
	uint32_t messages_max;
	uint32_t features; /* PEER_KNOWS_*; unknown bits are ignored */
};

#define PEER_KNOWS_RDMA (1u << 0)

struct peer_key {
	uint64_t share;
	uint64_t len; /* bytes of the shared range */
	uint32_t rights;
	uint32_t kind; /* enum pst_kind */
	uint8_t nonce[16];
};

#define PEER_NIC_KEY_LEN 64u
#define PEER_BLOB_LEN 64u /* bytes; description of an RDMA endpoint, net/verbs/endpoint.h */

/* Key by which a peer's NIC accesses a share. */
struct peer_nic_key {
	uint64_t share;
	uint64_t addr; /* address of the share's first byte, for work requests */
	uint64_t len;
	uint64_t epoch; /* id of the registration; unique in the process that made it */
	uint32_t rights;
	uint32_t rkey;
};

static inline uint32_t peer_payload(const struct peer_msg *m)
{
	return m->len - PEER_HEAD;
}

void peer_put_msg(const struct peer_msg *m, uint8_t to[PEER_HEAD]);
/*
 * Read a header.  On success every member is within the limits of docs/PEERS.md for its type.
 *
 * Return: 0, or -EBADMSG: the stream is unusable.
 */
int peer_get_msg(const uint8_t from[PEER_HEAD], struct peer_msg *ret);

/* Write and read hellos.  peer_get_hello() returns -EBADMSG, or -EPROTONOSUPPORT if no version is
 * common to both sides. */
void peer_put_hello(const struct peer_hello *h, uint8_t to[PEER_HELLO_LEN]);
int peer_get_hello(const uint8_t *from, uint32_t len, struct peer_hello *ret);

/*
 * Write and read keys.  Later versions have longer keys, with rkeys for NICs before the checksum;
 * the known part is read.
 *
 * Return: 0 or -EBADMSG.
 */
void peer_put_key(const struct peer_key *k, uint8_t to[PEER_KEY_LEN]);
int peer_get_key(const uint8_t *from, size_t len, struct peer_key *ret);

void peer_put_nic_key(const struct peer_nic_key *k, uint8_t to[PEER_NIC_KEY_LEN]);
/* Return 0 or -EBADMSG. */
int peer_get_nic_key(const uint8_t *from, size_t len, struct peer_nic_key *ret);

#endif
