/* SPDX-License-Identifier: MIT */
#include "base/crc32c.h"
#include "net/verbs/blob.h"
#include "net/verbs/verbs_types.h"

static const uint8_t magic[4] = { 'P', 'S', 'T', 'R' };

static void put_int(uint8_t *to, uint64_t v, unsigned len)
{
	for (unsigned i = 0; i < len; i++)
		to[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get_int(const uint8_t *from, unsigned len)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < len; i++)
		v |= (uint64_t)from[i] << 8 * i;
	return v;
}

void blob_put(const struct blob *b, uint8_t to[BLOB_LEN])
{
	memset(to, 0, BLOB_LEN);
	memcpy(to, magic, sizeof(magic));
	put_int(to + 4, BLOB_VERSION, 2);
	put_int(to + 6, BLOB_LEN, 2);
	put_int(to + 8, b->qpn, 4);
	put_int(to + 12, b->psn, 4);
	put_int(to + 16, b->lid, 2);
	to[18] = b->mtu;
	to[19] = b->link;
	put_int(to + 20, b->deadline_ms, 4);
	memcpy(to + 24, b->gid, sizeof(b->gid));
	to[44] = b->rd_atomic;
	put_int(to + 48, b->number, 8);
	put_int(to + 60, crc32c(0, to, 60), 4);
}

static bool is_sane(const struct blob *b)
{
	bool gid = false;

	for (unsigned i = 0; i < sizeof(b->gid); i++)
		gid = gid || b->gid[i];
	return b->qpn > 0 && b->qpn < 1u << 24 && b->psn < 1u << 24 && b->mtu >= 1 && b->mtu <= 5 &&
	       b->rd_atomic >= 1 && b->rd_atomic <= 128 && b->deadline_ms &&
	       ((b->link == VB_LINK_ETHERNET && gid && !b->lid) ||
		(b->link == VB_LINK_INFINIBAND && b->lid));
}

int blob_get(const uint8_t *from, size_t len, struct blob *ret)
{
	struct blob b;

	if (len < 8 || memcmp(from, magic, sizeof(magic)) != 0)
		return -EBADMSG;
	if (get_int(from + 4, 2) != BLOB_VERSION)
		return -EPROTONOSUPPORT;
	if (len != BLOB_LEN || get_int(from + 6, 2) != BLOB_LEN ||
	    get_int(from + 60, 4) != crc32c(0, from, 60) || get_int(from + 40, 4) ||
	    get_int(from + 45, 3) || get_int(from + 56, 4))
		return -EBADMSG;
	b = (struct blob){
		.qpn = (uint32_t)get_int(from + 8, 4),
		.psn = (uint32_t)get_int(from + 12, 4),
		.lid = (uint16_t)get_int(from + 16, 2),
		.mtu = from[18],
		.link = from[19],
		.deadline_ms = (uint32_t)get_int(from + 20, 4),
		.rd_atomic = from[44],
		.number = get_int(from + 48, 8),
	};
	memcpy(b.gid, from + 24, sizeof(b.gid));
	if (!is_sane(&b))
		return -EBADMSG;
	*ret = b;
	return 0;
}
