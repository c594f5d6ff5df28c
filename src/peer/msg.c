/* SPDX-License-Identifier: MIT */
#include "peer/msg.h"

#include "base/crc32c.h"
#include "base/le.h"

#define HELLO_MAGIC UINT64_C(0x3152454550545350) /* "PSTPEER1" */
#define NIC_KEY_MAGIC 0x4e545350u                /* "PSTN" */
#define KEY_MAGIC 0x4b545350u                    /* "PSTK" */

/* ----------------------------------------------------------------- headers */

/* Bits: members that a message type uses; the others must be 0. */
#define HAS_ID (1u << 0)
#define HAS_SHARE (1u << 1)
#define HAS_OFF (1u << 2)
#define HAS_ERR (1u << 3)
#define HAS_COUNT (1u << 4)  /* count is 1 to PEER_DATA_MAX if err is 0, else 0 */
#define IS_COUNTED (1u << 5) /* the payload has count bytes */

static const struct {
	uint32_t has, min, max; /* has: HAS_* bits; min, max: payload bytes */
} types[PEER_TYPE_MAX + 1] = {
	[PEER_HELLO] = { 0, PEER_HELLO_LEN, PEER_HELLO_MAX },
	[PEER_OPEN] = { HAS_ID, PEER_KEY_LEN, PST_KEY_MAX },
	[PEER_OPENED] = { HAS_ID | HAS_ERR, 0, PEER_GRANT_LEN },
	[PEER_CLOSE] = { HAS_SHARE, 0, 0 },
	[PEER_GET] = { HAS_ID | HAS_SHARE | HAS_OFF | HAS_COUNT, 0, 0 },
	[PEER_DATA] = { HAS_ID | HAS_ERR | HAS_COUNT | IS_COUNTED, 0, PEER_DATA_MAX },
	[PEER_PUT] = { HAS_ID | HAS_SHARE | HAS_OFF | HAS_COUNT | IS_COUNTED, 1, PEER_DATA_MAX },
	[PEER_DONE] = { HAS_ID | HAS_ERR, 0, 0 },
	[PEER_MESSAGE] = { HAS_ID, 0, PST_MESSAGE_INLINE },
	[PEER_OFFER] = { HAS_ID | HAS_OFF, PEER_KEY_LEN, PST_KEY_MAX },
	[PEER_TAKEN] = { HAS_ID | HAS_ERR, 0, 0 },
	[PEER_REVOKE] = { HAS_SHARE, 0, 0 },
	[PEER_REVOKED] = { HAS_SHARE, 0, 0 },
	[PEER_RDMA] = { HAS_ERR, 0, PEER_BLOB_LEN },
	[PEER_REACH] = { HAS_ID | HAS_SHARE, 0, 0 },
	[PEER_REACHED] = { HAS_ID | HAS_ERR, 0, PEER_NIC_KEY_LEN },
	[PEER_UNREACH] = { 0, 0, 0 },
};

void peer_put_msg(const struct peer_msg *m, uint8_t to[PEER_HEAD])
{
	put32(to, m->len);
	put16(to + 4, m->type);
	put16(to + 6, 0);
	put64(to + 8, m->id);
	put64(to + 16, m->share);
	put64(to + 24, m->off);
	put32(to + 32, m->count);
	put32(to + 36, m->err);
	put32(to + 40, 0);
	put32(to + 44, crc32c(0, to, 44));
}

static bool count_ok(const struct peer_msg *m, uint32_t has)
{
	if (!(has & HAS_COUNT))
		return !m->count;
	if (m->count > PEER_DATA_MAX || (!m->count != !!m->err))
		return false;
	return !(has & IS_COUNTED) || peer_payload(m) == m->count;
}

int peer_get_msg(const uint8_t from[PEER_HEAD], struct peer_msg *ret)
{
	struct peer_msg m = {
		.len = get32(from),
		.type = get16(from + 4),
		.id = get64(from + 8),
		.share = get64(from + 16),
		.off = get64(from + 24),
		.count = get32(from + 32),
		.err = get32(from + 36),
	};
	uint32_t has;

	if (get32(from + 44) != crc32c(0, from, 44) || get16(from + 6) || get32(from + 40) ||
	    !m.type || m.type > PEER_TYPE_MAX || m.len < PEER_HEAD)
		return -EBADMSG;
	has = types[m.type].has;
	if (peer_payload(&m) < types[m.type].min || peer_payload(&m) > types[m.type].max)
		return -EBADMSG;
	if ((m.id && !(has & HAS_ID)) || (m.share && !(has & HAS_SHARE)) ||
	    (m.off && !(has & HAS_OFF)) || (m.err && !(has & HAS_ERR)))
		return -EBADMSG;
	/* Linux errnos end at 4095; offsets and lengths must fit int64_t. */
	if (m.err > 4095 || m.off > INT64_MAX - PEER_DATA_MAX || !count_ok(&m, has))
		return -EBADMSG;
	if (m.type == PEER_OPENED && peer_payload(&m) && peer_payload(&m) != PEER_GRANT_LEN)
		return -EBADMSG;
	if ((m.type == PEER_RDMA || m.type == PEER_REACHED) &&
	    peer_payload(&m) != (m.err ? 0 : types[m.type].max))
		return -EBADMSG;
	*ret = m;
	return 0;
}

/* ---------------------------------------------------------------- payloads */

void peer_put_hello(const struct peer_hello *h, uint8_t to[PEER_HELLO_LEN])
{
	memset(to, 0, PEER_HELLO_LEN);
	put64(to, HELLO_MAGIC);
	put32(to + 8, h->version);
	put32(to + 12, h->oldest);
	put32(to + 16, h->data_max);
	put32(to + 20, h->inline_max);
	put32(to + 24, h->requests_max);
	put32(to + 28, h->messages_max);
	put32(to + 32, h->features);
}

int peer_get_hello(const uint8_t *from, uint32_t len, struct peer_hello *ret)
{
	struct peer_hello h;

	if (len < PEER_HELLO_LEN || get64(from) != HELLO_MAGIC)
		return -EBADMSG;
	h = (struct peer_hello){
		.version = get32(from + 8),
		.oldest = get32(from + 12),
		.data_max = get32(from + 16),
		.inline_max = get32(from + 20),
		.requests_max = get32(from + 24),
		.messages_max = get32(from + 28),
		.features = get32(from + 32),
	};
	if (!h.oldest || h.oldest > h.version || !h.data_max || !h.inline_max || !h.requests_max ||
	    !h.messages_max)
		return -EBADMSG;
	if (h.oldest > PEER_VERSION || h.version < PEER_VERSION)
		return -EPROTONOSUPPORT;
	*ret = h;
	return 0;
}

void peer_put_key(const struct peer_key *k, uint8_t to[PEER_KEY_LEN])
{
	memset(to, 0, PEER_KEY_LEN);
	put32(to, KEY_MAGIC);
	put16(to + 4, PEER_VERSION);
	put16(to + 6, PEER_KEY_LEN);
	put64(to + 8, k->share);
	put64(to + 16, k->len);
	put32(to + 24, k->rights);
	put32(to + 28, k->kind);
	memcpy(to + 32, k->nonce, sizeof(k->nonce));
	put32(to + PEER_KEY_LEN - 4, crc32c(0, to, PEER_KEY_LEN - 4));
}

int peer_get_key(const uint8_t *from, size_t len, struct peer_key *ret)
{
	struct peer_key k;

	if (len < PEER_KEY_LEN || len > PST_KEY_MAX || get32(from) != KEY_MAGIC ||
	    !get16(from + 4) || get16(from + 6) != len ||
	    get32(from + len - 4) != crc32c(0, from, len - 4))
		return -EBADMSG;
	k = (struct peer_key){
		.share = get64(from + 8),
		.len = get64(from + 16),
		.rights = get32(from + 24),
		.kind = get32(from + 28),
	};
	memcpy(k.nonce, from + 32, sizeof(k.nonce));
	if (!k.len || k.len > INT64_MAX || !k.rights ||
	    k.rights & ~(PST_RIGHT_READ | PST_RIGHT_WRITE))
		return -EBADMSG;
	*ret = k;
	return 0;
}

void peer_put_nic_key(const struct peer_nic_key *k, uint8_t to[PEER_NIC_KEY_LEN])
{
	memset(to, 0, PEER_NIC_KEY_LEN);
	put32(to, NIC_KEY_MAGIC);
	put16(to + 4, PEER_VERSION);
	put16(to + 6, PEER_NIC_KEY_LEN);
	put64(to + 8, k->share);
	put64(to + 16, k->addr);
	put64(to + 24, k->len);
	put64(to + 32, k->epoch);
	put32(to + 40, k->rights);
	put32(to + 44, k->rkey);
	put32(to + PEER_NIC_KEY_LEN - 4, crc32c(0, to, PEER_NIC_KEY_LEN - 4));
}

int peer_get_nic_key(const uint8_t *from, size_t len, struct peer_nic_key *ret)
{
	struct peer_nic_key k;

	if (len != PEER_NIC_KEY_LEN || get32(from) != NIC_KEY_MAGIC ||
	    get16(from + 4) != PEER_VERSION || get16(from + 6) != len ||
	    get32(from + len - 4) != crc32c(0, from, len - 4))
		return -EBADMSG;
	k = (struct peer_nic_key){
		.share = get64(from + 8),
		.addr = get64(from + 16),
		.len = get64(from + 24),
		.epoch = get64(from + 32),
		.rights = get32(from + 40),
		.rkey = get32(from + 44),
	};
	if (!k.len || k.addr + k.len < k.addr)
		return -EBADMSG;
	*ret = k;
	return 0;
}
