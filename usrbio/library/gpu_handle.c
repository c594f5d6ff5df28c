/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <string.h>

#include "gpu_handle.h"

#define NUMBER_BITS 44
#define NUMBER_MAX ((UINT64_C(1) << NUMBER_BITS) - 1)

/* The layout of a handle. */
struct words {
	uint8_t ipc[64];
	uint64_t len; /* low bits: bytes of the range; high bits: hash of the device's UUID */
	uint64_t off; /* low bits: offset of the range; high bits: check hash of the handle */
};

_Static_assert(sizeof(struct words) == sizeof(hf3fs_gpu_ipc_handle_t), "80 bytes for ever");

/* Hash by FNV-1a. */
static uint64_t hash(uint64_t h, const void *data, size_t len)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < len; i++)
		h = (h ^ p[i]) * UINT64_C(0x100000001b3);
	return h;
}

/* Fold a hash into the 20 bits above a 44-bit number. */
static uint64_t above(uint64_t h)
{
	return (h ^ h >> 22 ^ h >> 44) << NUMBER_BITS;
}

static uint64_t device_bits(const uint8_t uuid[16])
{
	return above(hash(UINT64_C(0xcbf29ce484222325), uuid, 16));
}

static uint64_t check_bits(const struct words *w)
{
	static const char layout[] = "penstock usrbio device memory 1";
	uint64_t off = w->off & NUMBER_MAX, h;

	h = hash(UINT64_C(0xcbf29ce484222325), layout, sizeof(layout));
	h = hash(h, w->ipc, sizeof(w->ipc));
	h = hash(h, &w->len, sizeof(w->len));
	return above(hash(h, &off, sizeof(off)));
}

static bool is_zero(const uint8_t ipc[64])
{
	static const uint8_t none[64];

	return !memcmp(ipc, none, sizeof(none));
}

int gpu_handle_pack(const struct pst_grant *grant, hf3fs_gpu_ipc_handle_t *ret)
{
	struct words w;

	if (is_zero(grant->ipc) || grant->len > NUMBER_MAX || grant->off > NUMBER_MAX)
		return -ENOTSUP;
	memcpy(w.ipc, grant->ipc, sizeof(w.ipc));
	w.len = grant->len | device_bits(grant->uuid);
	w.off = grant->off;
	w.off |= check_bits(&w);
	memcpy(ret->data, &w, sizeof(w));
	explicit_bzero(&w, sizeof(w));
	return 0;
}

int gpu_handle_unpack(const hf3fs_gpu_ipc_handle_t *handle, struct pst_grant *ret)
{
	struct words w;
	bool good;

	memcpy(&w, handle->data, sizeof(w));
	good = !is_zero(w.ipc) && (w.len & NUMBER_MAX) && (w.off & ~NUMBER_MAX) == check_bits(&w);
	if (good) {
		*ret = (struct pst_grant){
			.sz = ret->sz,
			.kind = PST_KIND_CUDA,
			.rights = PST_RIGHT_READ | PST_RIGHT_WRITE,
			.off = w.off & NUMBER_MAX,
			.len = w.len & NUMBER_MAX,
			.fd = -1,
		};
		/* The handle does not contain the allocation's size: assume the smallest possible
		 * one. */
		ret->size = ret->off + ret->len;
		memcpy(ret->ipc, w.ipc, sizeof(ret->ipc));
	}
	explicit_bzero(&w, sizeof(w));
	return good ? 0 : -EINVAL;
}

bool gpu_handle_is_on(const hf3fs_gpu_ipc_handle_t *handle, const uint8_t uuid[16])
{
	uint64_t len;

	memcpy(&len, handle->data + offsetof(struct words, len), sizeof(len));
	return (len & ~NUMBER_MAX) == device_bits(uuid);
}
