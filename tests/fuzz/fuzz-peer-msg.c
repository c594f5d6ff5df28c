/* SPDX-License-Identifier: MIT */
/*
 * Arbitrary bytes as peer messages, hellos and keys.  Accepted values must be within their
 * bounds and the same after they are written and read again; the parsers must not read beyond
 * the bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/le.h"
#include "mem/mem.h"
#include "peer/msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Abort unless @ok, also in release builds. */
static void must(int ok)
{
	if (!ok)
		abort();
}

static void try_msg(const uint8_t *head)
{
	uint8_t again[PEER_HEAD];
	struct peer_msg m;

	if (peer_get_msg(head, &m) < 0)
		return;
	peer_put_msg(&m, again);
	must(!memcmp(head, again, PEER_HEAD));
	must(m.type >= PEER_HELLO && m.type <= PEER_TYPE_MAX);
	must(m.len >= PEER_HEAD && peer_payload(&m) <= PEER_DATA_MAX);
	must(m.count <= PEER_DATA_MAX && m.err <= 4095);
	must(m.off + m.count <= INT64_MAX);
	must((m.type != PEER_PUT && m.type != PEER_DATA) || peer_payload(&m) == m.count);
	must((m.type != PEER_GET && m.type != PEER_PUT) || m.count);
}

static void try_key(const uint8_t *body, size_t len)
{
	uint8_t again[PEER_KEY_LEN];
	struct peer_key k, k2;

	if (peer_get_key(body, len, &k) < 0)
		return;
	must(k.len && k.len <= INT64_MAX && k.rights);
	peer_put_key(&k, again);
	must(peer_get_key(again, sizeof(again), &k2) == 0);
	must(k.share == k2.share && k.len == k2.len && k.rights == k2.rights);
	must(!memcmp(k.nonce, k2.nonce, sizeof(k.nonce)));
}

static void try_payloads(uint8_t *body, size_t len)
{
	struct pst_grant g = { .sz = sizeof(g) };
	struct peer_hello h;
	int r = peer_get_hello(body, (uint32_t)len, &h);

	must(r < 0 || (h.data_max && h.inline_max && h.requests_max && h.messages_max));
	try_key(body, len);
	if (len >= PEER_KEY_LEN && len <= PST_KEY_MAX) {
		/* Repeat with the right length and checksum, which random bytes do not have. */
		put16(body + 6, (uint16_t)len);
		put32(body + len - 4, crc32c(0, body, len - 4));
		try_key(body, len);
	}
	if (len < GRANT_LEN)
		return;
	put32(body + GRANT_LEN - 4, crc32c(0, body, GRANT_LEN - 4));
	if (grant_get(body, grant_has_fd(body) ? 0 : -1, &g) == 0)
		must(g.len && g.off <= g.size && g.len <= g.size - g.off);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	uint8_t head[PEER_HEAD], *body;
	size_t left;

	if (len < PEER_HEAD || len > PEER_HEAD + 4096)
		return 0;
	left = len - PEER_HEAD;
	/* An exact allocation, so that a sanitizer sees reads past its end. */
	body = malloc(left ? left : 1);
	must(body != NULL);
	memcpy(head, data, PEER_HEAD);
	memcpy(body, data + PEER_HEAD, left);
	try_msg(head);
	put32(head + 44, crc32c(0, head, 44));
	try_msg(head);
	try_payloads(body, left);
	free(body);
	return 0;
}
