/* SPDX-License-Identifier: MIT */
/* Arbitrary bytes as an RDMA endpoint's description for its peer.  Accepted values must be
 * within their bounds, and written again must give the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "net/verbs/blob.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Abort unless @ok, also in release builds. */
static void must(int ok)
{
	if (!ok)
		abort();
}

static void try_bytes(const uint8_t *data, size_t len)
{
	uint8_t again[BLOB_LEN];
	struct blob b;

	if (blob_get(data, len, &b) < 0)
		return;
	must(len == BLOB_LEN);
	must(b.qpn && b.qpn < 1u << 24 && b.psn < 1u << 24 && b.mtu >= 1 && b.mtu <= 5);
	must(b.rd_atomic && b.rd_atomic <= 128 && b.deadline_ms);
	blob_put(&b, again);
	must(!memcmp(again, data, BLOB_LEN));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	uint8_t fixed[BLOB_LEN];
	uint32_t crc;

	try_bytes(data, len);
	if (len != BLOB_LEN)
		return 0;
	/* Repeat with a right checksum, which random bytes do not have. */
	memcpy(fixed, data, BLOB_LEN);
	crc = crc32c(0, fixed, 60);
	for (unsigned i = 0; i < 4; i++)
		fixed[60 + i] = (uint8_t)(crc >> 8 * i);
	try_bytes(fixed, BLOB_LEN);
	return 0;
}
