/* SPDX-License-Identifier: MIT */
/* Any bytes as what an RDMA endpoint tells its peer: what is taken is in its bounds, and is written
 * as the same bytes again. */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "net/verbs/blob.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* An assertion that release builds keep. */
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
	/* A right checksum is not found by chance. */
	memcpy(fixed, data, BLOB_LEN);
	crc = crc32c(0, fixed, 60);
	for (unsigned i = 0; i < 4; i++)
		fixed[60 + i] = (uint8_t)(crc >> 8 * i);
	try_bytes(fixed, BLOB_LEN);
	return 0;
}
