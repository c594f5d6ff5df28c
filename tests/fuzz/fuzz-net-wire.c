/* SPDX-License-Identifier: MIT */
/*
 * Arbitrary bytes as messages of the storage service, parsed as both the client and the server
 * do.  An accepted message must be the same after it is written and read again, and the parsers
 * must not read beyond the message.
 */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "net/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Abort unless @ok, also in release builds. */
static void must(int ok)
{
	if (!ok)
		abort();
}

static void try_request(const uint8_t *head, const uint8_t *body, uint32_t left)
{
	uint8_t again[WIRE_HEAD], put[WIRE_HELLO_LEN];
	struct wire_hello h, h2;
	struct wire_request q;

	if (wire_get_request(head, &q) < 0)
		return;
	wire_put_request(&q, again);
	must(!memcmp(head, again, WIRE_HEAD));
	must(q.op >= WIRE_HELLO && q.op <= WIRE_OP_MAX);
	must(q.len >= WIRE_HEAD && wire_payload(q.len) <= WIRE_DATA_MAX);
	must(q.op != WIRE_WRITE || wire_payload(q.len) == q.count);
	must((q.op != WIRE_READ && q.op != WIRE_WRITE && q.op != WIRE_LIST) ||
	     (q.count && q.count <= WIRE_DATA_MAX));
	must(q.op != WIRE_READ || q.off + q.count <= INT64_MAX);
	if (q.op == WIRE_HELLO && wire_get_hello(body, left, &h) == 0) {
		wire_put_hello(&h, put);
		must(wire_get_hello(put, sizeof(put), &h2) == 0);
		must(!memcmp(h.client, h2.client, sizeof(h.client)) && h.epoch == h2.epoch);
	}
	(void)wire_name_ok((const char *)body, left, true);
}

static void try_entries(const uint8_t *body, uint32_t left)
{
	struct wire_entry e;
	uint32_t at = 0, before = 0;
	int r;

	while ((r = wire_get_entry(body, left, &at, &e)) > 0) {
		must(at > before && at <= left && e.name_len);
		must(!memchr(e.name, '/', e.name_len) && !memchr(e.name, '\0', e.name_len));
		before = at;
	}
	must(r == -EBADMSG || at == left);
}

static void try_reply(const uint8_t *head, const uint8_t *body, uint32_t left)
{
	uint8_t again[WIRE_HEAD], put[WIRE_ATTR_LEN];
	struct wire_welcome w;
	struct wire_attr a, a2;
	struct wire_reply r;

	if (wire_get_reply(head, &r) < 0)
		return;
	wire_put_reply(&r, again);
	must(!memcmp(head, again, WIRE_HEAD));
	must(r.boot && r.len >= WIRE_HEAD && wire_payload(r.len) <= WIRE_DATA_MAX);
	must(!r.err || r.len == WIRE_HEAD);
	must((r.op != WIRE_READ && r.op != WIRE_LIST) || r.err || wire_payload(r.len) == r.count);
	if (wire_get_welcome(body, left, &w) == 0)
		must(w.version == WIRE_VERSION && w.requests_max && w.data_max);
	if (wire_get_attr(body, left, &a) == 0) {
		wire_put_attr(&a, put);
		must(wire_get_attr(put, sizeof(put), &a2) == 0 && a.size == a2.size);
	}
	try_entries(body, left);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	uint8_t head[WIRE_HEAD], *body;
	uint32_t crc, left;

	if (len < WIRE_HEAD || len > WIRE_HEAD + WIRE_DATA_MAX)
		return 0;
	left = (uint32_t)(len - WIRE_HEAD);
	/* An exact allocation, so that a sanitizer sees reads past its end. */
	body = malloc(left ? left : 1);
	must(body != NULL);
	memcpy(head, data, WIRE_HEAD);
	memcpy(body, data + WIRE_HEAD, left);
	try_request(head, body, left);
	try_reply(head, body, left);
	/* Repeat with a right checksum, which random bytes do not have. */
	crc = crc32c(0, head, 44);
	for (unsigned i = 0; i < 4; i++)
		head[44 + i] = (uint8_t)(crc >> 8 * i);
	try_request(head, body, left);
	try_reply(head, body, left);
	try_entries(body, left);
	free(body);
	return 0;
}
