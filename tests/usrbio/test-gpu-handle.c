/* SPDX-License-Identifier: MIT */
/*
 * The 80 bytes of hf3fs_iov_export_gpu(): unpacking returns what was packed, and refuses all else.
 */
#include <errno.h>

#include "gpu_handle.h"
#include "t.h"

#define TERA44 ((UINT64_C(1) << 44) - 1)

static const uint8_t uuid[16] = "one of a device";

static struct pst_grant grant(uint64_t off, uint64_t len)
{
	struct pst_grant g = { .sz = sizeof(g), .off = off, .len = len, .size = TERA44, .fd = -1 };

	memcpy(g.uuid, uuid, 16);
	t_fill(g.ipc, 5, 0, sizeof(g.ipc));
	return g;
}

static hf3fs_gpu_ipc_handle_t handle(uint64_t off, uint64_t len)
{
	struct pst_grant g = grant(off, len);
	hf3fs_gpu_ipc_handle_t h;

	T_OK(gpu_handle_pack(&g, &h));
	return h;
}

static int unpack(const void *bytes)
{
	struct pst_grant g = { .sz = sizeof(g), .rights = 77 };
	hf3fs_gpu_ipc_handle_t h;
	int r;

	memcpy(&h, bytes, sizeof(h));
	r = gpu_handle_unpack(&h, &g);
	T_CHECK(r == 0 ? g.len > 0 : g.rights == 77 && g.sz == sizeof(g) && !g.len);
	return r;
}

static void there_and_back(void)
{
	static const uint64_t ranges[][2] = { { 0, 1 },      { 0, 4096 },        { 1, 1 },
					      { 123457, 9 }, { TERA44, TERA44 }, { 0, TERA44 } };

	T_EQ(sizeof(hf3fs_gpu_ipc_handle_t), 80);
	for (unsigned i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		struct pst_grant in = grant(ranges[i][0], ranges[i][1]),
				 out = { .sz = sizeof(out) };
		hf3fs_gpu_ipc_handle_t h = handle(ranges[i][0], ranges[i][1]);

		T_OK(gpu_handle_unpack(&h, &out));
		T_EQ(out.kind, PST_KIND_CUDA);
		T_EQ(out.rights, PST_RIGHT_READ | PST_RIGHT_WRITE);
		T_EQ(out.off, in.off);
		T_EQ(out.len, in.len);
		T_EQ(out.size, in.off + in.len);
		T_EQ(out.fd, -1);
		T_EQ(out.reserved, 0);
		T_CHECK(!memcmp(out.ipc, in.ipc, sizeof(in.ipc)));
		T_CHECK(!memcmp(h.data, in.ipc, sizeof(in.ipc)));
	}
}

/* The UUID identifies a device, whatever its number. */
static void devices(void)
{
	hf3fs_gpu_ipc_handle_t h = handle(0, 1);
	uint8_t other[16];

	T_CHECK(gpu_handle_is_on(&h, uuid));
	for (unsigned i = 0; i < 128; i++) {
		memcpy(other, uuid, 16);
		other[i / 8] ^= (uint8_t)(1 << i % 8);
		T_CHECK(!gpu_handle_is_on(&h, other));
	}
}

static void R2a_memory_without_a_handle(void)
{
	struct pst_grant g = grant(0, 1);
	hf3fs_gpu_ipc_handle_t h, before;

	memset(&before, 0x5a, sizeof(before));
	h = before;
	memset(g.ipc, 0, sizeof(g.ipc));
	T_EQ(gpu_handle_pack(&g, &h), -ENOTSUP);
	g = grant(0, TERA44 + 1);
	T_EQ(gpu_handle_pack(&g, &h), -ENOTSUP);
	g = grant(TERA44 + 1, 1);
	T_EQ(gpu_handle_pack(&g, &h), -ENOTSUP);
	T_CHECK(!memcmp(&h, &before, sizeof(h)));
}

static void R2c_garbage(void)
{
	uint8_t bytes[80] = { 0 };
	uint64_t words[2] = { 1 << 20, 0 };

	T_EQ(unpack(bytes), -EINVAL);
	memset(bytes, 0xff, sizeof(bytes));
	T_EQ(unpack(bytes), -EINVAL);
	/* A handle in the first version of the interface: handle, size and device number. */
	t_fill(bytes, 5, 0, 64);
	for (words[1] = 0; words[1] < 16; words[1]++) {
		memcpy(bytes + 64, words, 16);
		T_EQ(unpack(bytes), -EINVAL);
	}
	for (unsigned i = 0; i < 10000; i++) {
		t_fill(bytes, i, 0, sizeof(bytes));
		T_EQ(unpack(bytes), -EINVAL);
	}
}

static void R2c_truncated_and_changed(void)
{
	hf3fs_gpu_ipc_handle_t h = handle(4096, 65536), cut;

	for (unsigned n = 0; n < sizeof(h); n++) {
		cut = h;
		memset(cut.data + n, 0, sizeof(h) - n);
		if (memcmp(&cut, &h, sizeof(h)) != 0)
			T_EQ(unpack(&cut), -EINVAL);
	}
	for (unsigned i = 0; i < 8 * sizeof(h); i++) {
		cut = h;
		cut.data[i / 8] ^= (uint8_t)(1 << i % 8);
		T_EQ(unpack(&cut), -EINVAL);
	}
	T_OK(unpack(&h));
	/* A handle with a valid hash and a length of 0. */
	h = handle(0, 1);
	cut = handle(0, 0);
	T_OK(unpack(&h));
	T_EQ(unpack(&cut), -EINVAL);
}

int main(void)
{
	T_RUN(there_and_back);
	T_RUN(devices);
	T_RUN(R2a_memory_without_a_handle);
	T_RUN(R2c_garbage);
	T_RUN(R2c_truncated_and_changed);
	return t_done();
}
