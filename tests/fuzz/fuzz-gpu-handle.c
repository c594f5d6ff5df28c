/* SPDX-License-Identifier: MIT */
/*
 * Arbitrary 80 bytes as a handle of hf3fs_iov_export_gpu(): packing an accepted handle again
 * must give the same handle.  And arbitrary fields as a grant to pack: unpacking must return
 * them.
 */
#include <stdlib.h>
#include <string.h>

#include "gpu_handle.h"

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Abort unless @ok, also in release builds. */
static void must(int ok)
{
	if (!ok)
		abort();
}

static void as_handle(const uint8_t *data)
{
	struct pst_grant g = { .sz = sizeof(g), .len = 77 };
	hf3fs_gpu_ipc_handle_t h, again;

	memcpy(h.data, data, sizeof(h.data));
	if (gpu_handle_unpack(&h, &g) < 0) {
		must(g.len == 77 && !g.kind);
		return;
	}
	must(g.len && g.size == g.off + g.len && g.fd == -1 && g.kind == PST_KIND_CUDA);
	must(!memcmp(g.ipc, h.data, 64));
	/* Compare all bytes except the device's hash, from which the uuid cannot be computed. */
	must(gpu_handle_pack(&g, &again) == 0 && !memcmp(again.data, h.data, 64 + 5));
}

static void as_grant(const uint8_t *data)
{
	struct pst_grant g = { .sz = sizeof(g) }, out = { .sz = sizeof(out) };
	hf3fs_gpu_ipc_handle_t h;

	memcpy(g.ipc, data, sizeof(g.ipc));
	memcpy(&g.off, data + 64, 8);
	memcpy(&g.len, data + 72, 8);
	memcpy(g.uuid, data, sizeof(g.uuid));
	if (gpu_handle_pack(&g, &h) < 0)
		return;
	must(gpu_handle_is_on(&h, g.uuid));
	must(gpu_handle_unpack(&h, &out) == (g.len ? 0 : -EINVAL));
	must(!g.len || (out.off == g.off && out.len == g.len && !memcmp(out.ipc, g.ipc, 64)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	if (len < sizeof(hf3fs_gpu_ipc_handle_t))
		return 0;
	as_handle(data);
	as_grant(data);
	return 0;
}
