/* SPDX-License-Identifier: MIT */
/*
 * The 64 bytes by which an endpoint describes itself to its peer.
 *
 *	0	"PSTR"			24	GID, 16 bytes
 *	4	version, 2 bytes	40	flags, 4 bytes: 0
 *	6	total bytes: 64		44	READs in flight that this end accepts
 *	8	queue pair, 4 bytes	45	zero, 3 bytes
 *	12	first packet number	48	number of the connection, 8 bytes
 *	16	LID, 2 bytes		56	zero, 4 bytes
 *	18	MTU, 1 byte		60	CRC-32C of the bytes before
 *	19	link, 1 byte
 *	20	deadline, ms, 4 bytes
 *
 * Integers are little-endian.  This file is pure format code.
 */
#ifndef PST_VERBS_BLOB_H
#define PST_VERBS_BLOB_H

#include "base/base.h"

#define BLOB_LEN 64u
#define BLOB_VERSION 1u

struct blob {
	uint32_t qpn; /* queue pair number; 24 bits, not 0 */
	uint32_t psn; /* first packet number; 24 bits */
	uint16_t lid; /* 0 on Ethernet */
	uint8_t mtu;  /* enum ibv_mtu, 1 to 5 */
	uint8_t link; /* VB_LINK_INFINIBAND or VB_LINK_ETHERNET */
	uint32_t deadline_ms;
	uint8_t gid[16];
	uint8_t rd_atomic; /* READs in flight that this end accepts, 1 to 128 */
	uint64_t number;   /* random; differs from that of earlier connections */
};

void blob_put(const struct blob *b, uint8_t to[BLOB_LEN]);
/* Parse and check a blob.  Return 0; -EBADMSG for malformed bytes; -EPROTONOSUPPORT for another
 * version. */
int blob_get(const uint8_t *from, size_t len, struct blob *ret);

#endif
