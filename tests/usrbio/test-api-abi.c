/* SPDX-License-Identifier: MIT */
/* U1: the ABI, with sizes that programs compute themselves. */
#include <stddef.h>

#include <hf3fs_usrbio.h>
#include <hf3fs_usrbio_gdr.h>

#include "usrbio/proto/ring.h"
#include "t.h"

#define AT(type, member, offset) \
	_Static_assert(offsetof(struct type, member) == (offset), #type "." #member)

_Static_assert(sizeof(struct hf3fs_iov) == 312, "iov");
AT(hf3fs_iov, base, 0);
AT(hf3fs_iov, iovh, 8);
AT(hf3fs_iov, id, 16);
AT(hf3fs_iov, mount_point, 32);
AT(hf3fs_iov, size, 288);
AT(hf3fs_iov, block_size, 296);
AT(hf3fs_iov, numa, 304);

_Static_assert(sizeof(struct hf3fs_ior) == 600, "ior");
AT(hf3fs_ior, iov, 0);
AT(hf3fs_ior, iorh, 312);
AT(hf3fs_ior, mount_point, 320);
AT(hf3fs_ior, for_read, 576);
AT(hf3fs_ior, io_depth, 580);
AT(hf3fs_ior, priority, 584);
AT(hf3fs_ior, timeout, 588);
AT(hf3fs_ior, flags, 592);

_Static_assert(sizeof(struct hf3fs_cqe) == 24, "cqe");
AT(hf3fs_cqe, index, 0);
AT(hf3fs_cqe, reserved, 4);
AT(hf3fs_cqe, result, 8);
AT(hf3fs_cqe, userdata, 16);

_Static_assert(sizeof(hf3fs_gpu_ipc_handle_t) == 80, "handle");
_Static_assert(HF3FS_SUPER_MAGIC == 0x8f3f5fff, "magic");
_Static_assert(HF3FS_IOR_ALLOW_READ_UNCOMMITTED == 1 && HF3FS_IOR_FORBID_READ_HOLES == 2, "flags");
_Static_assert(HF3FS_MEM_HOST == 0 && HF3FS_MEM_DEVICE == 1 && HF3FS_MEM_MANAGED == 2, "types");

static void U1_sizes_of_rings(void)
{
	struct hf3fs_ior ior = { .iorh = &ior };

	T_EQ(hf3fs_ior_size(1024), 102544);
	T_EQ(hf3fs_ior_size(1), 16 + 32 + 96 * 2 + 4096);
	for (int n = 1; n < 3000; n++) {
		ior.iov.size = hf3fs_ior_size(n);
		T_EQ(hf3fs_io_entries(&ior), n);
	}
	T_EQ(hf3fs_ior_size(0), 0);
	T_EQ(hf3fs_ior_size(-1), 0);
	T_EQ(hf3fs_ior_size(INT32_MIN), 0);
	T_EQ(hf3fs_ior_size(INT32_MAX), 0);
	T_CHECK(hf3fs_ior_size(USRBIO_RING_ENTRIES_MAX) <= INT32_MAX);
	T_EQ(hf3fs_ior_size(USRBIO_RING_ENTRIES_MAX + 1), 0);
	ior.iov.size = 100;
	T_EQ(hf3fs_io_entries(&ior), 0);
	ior.iorh = NULL;
	ior.iov.size = hf3fs_ior_size(8);
	T_EQ(hf3fs_io_entries(&ior), 0);
	T_EQ(hf3fs_io_entries(NULL), 0);
}

int main(void)
{
	T_RUN(U1_sizes_of_rings);
	return t_done();
}
