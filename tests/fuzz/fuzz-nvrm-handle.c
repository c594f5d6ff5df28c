/* SPDX-License-Identifier: MIT */
/*
 * Arbitrary bytes as a CUDA IPC handle: 64 bytes of handle, 8 of the allocation's size, the rest
 * are pids of the owner.  An accepted handle must match the size and an owner, and name a
 * possible client and object.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "window/nvrm/nvrm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Abort unless @ok, also in release builds. */
static void must(int ok)
{
	if (!ok)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct nvrm_handle h = { .object = 1 };
	uint32_t pids[4] = { 0 }, w[NVRM_IPC_WORDS];
	uint64_t size, said;
	unsigned nr;
	bool known;
	int r;

	if (len < 72)
		return 0;
	memcpy(w, data, 64);
	memcpy(&size, data + 64, 8);
	nr = (unsigned)MIN((len - 72) / 4, 4u);
	memcpy(pids, data + 72, 4 * nr);
	r = nvrm_handle_parse(data, size, pids, nr, &h);
	if (r < 0) {
		must((r == -EINVAL || r == -EOPNOTSUPP) && err_text()[0] && h.object == 1 &&
		     !h.client);
		return 0;
	}
	memcpy(&said, &w[NVRM_IPC_SIZE], 8);
	must(r == 0 && size && said >= size && said - size <= MIB(64));
	must(h.client == w[NVRM_IPC_CLIENT] && h.client >> 20 == 0xc1d);
	must(h.object && h.object == w[NVRM_IPC_OBJECT]);
	must(h.off == w[NVRM_IPC_OFFSET] && h.off % 256 == 0);
	known = !nr && w[NVRM_IPC_PID] && w[NVRM_IPC_PID] <= 1u << 22;
	for (unsigned i = 0; i < nr; i++)
		known |= pids[i] == w[NVRM_IPC_PID];
	must(known);
	return 0;
}
