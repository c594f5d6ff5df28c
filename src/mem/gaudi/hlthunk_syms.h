/* SPDX-License-Identifier: MIT */
/*
 * Every function of libhl-thunk.so that Penstock calls, once, under the exact name of the binary
 * interface.  Include this file with SYM(ret, name, args) and OPT(ret, name, args) defined; see
 * base/dl.h.  Functions that return int return 0 or a negative errno, or -1 with errno set.
 *
 * The library's file name has no version, so only its functions tell what it can do.
 *
 * The formatter is off because it would format `type *` as a product.
 */
/* clang-format off */
SYM(int, hlthunk_open, (int device_name, const char *busid))
SYM(int, hlthunk_close, (int fd))
SYM(int, hlthunk_get_device_name_from_fd, (int fd))
SYM(int, hlthunk_get_hw_ip_info, (int fd, struct hl_hw_ip *ret))

SYM(uint64_t, hlthunk_device_memory_alloc,
    (int fd, uint64_t size, uint64_t page_size, bool contiguous, bool shared))
SYM(int, hlthunk_device_memory_free, (int fd, uint64_t handle))
SYM(uint64_t, hlthunk_device_memory_map, (int fd, uint64_t handle, uint64_t hint))
SYM(int, hlthunk_memory_unmap, (int fd, uint64_t va))
/* Exists since the driver of Gaudi 2.  The older call, which takes physical addresses, is not
 * used. */
OPT(int, hlthunk_device_mapped_memory_export_dmabuf_fd,
    (int fd, uint64_t va, uint64_t size, uint64_t off, uint32_t flags))

#undef SYM
#undef OPT
