/* SPDX-License-Identifier: MIT */
/*
 * Access to memory of the program, which may disappear at any time: another process truncates the
 * mapped file, or another thread unmaps or protects the memory.
 *
 * A CPU that accesses such memory gets a signal, and the library does not own the process' signal
 * handlers.  So the kernel makes the copies for checksums, proofs, pst_mem_copy_in() and
 * pst_mem_copy_out(), and returns -EFAULT, with a sentence, for memory that is gone.  The library's
 * own memory stays mapped and is accessed directly: slots, bounce buffers, and shared or imported
 * memory, which is a sealed memfd (mem/memfd.h). pst_window_store() and pst_window_load() access
 * the caller's buffer as memcpy(3) does.
 */
#ifndef PST_UACCESS_H
#define PST_UACCESS_H

#include <sys/uio.h>

#include "base/base.h"

/* Copy len bytes from or to the program's memory at addr; ours is memory of the library.  Return 0
 * or -errno. */
int uaccess_read(void *ours, const void *addr, uint64_t len);
int uaccess_write(void *addr, const void *ours, uint64_t len);

/*
 * Write several pieces by one system call: from[i] to to[i], which have equal lengths.
 *
 * Return: 0; -errno without a sentence if some pieces may not have been written.  Calling
 * uaccess_write() for each piece then shows which.
 */
int uaccess_write_all(const struct iovec *to, const struct iovec *from, unsigned nr);

/* uaccess_read() for a string and the bytes after it in its page, which the address sanitizer would
 * report as an overflow.  Not for device mappings. */
int uaccess_read_page(void *ours, const void *addr, uint64_t len);

/* memmove() between two ranges of the program's memory. */
int uaccess_move(void *to, const void *from, uint64_t len);

/* crc32c() of the program's memory, with the result so far in *crc. */
int uaccess_crc32c(uint32_t *crc, const void *addr, uint64_t len);

/* Compare the program's memory with memory of the library.  Return 1 if equal, 0 if not, or
 * -errno. */
int uaccess_same(const void *addr, const void *ours, uint64_t len);

#endif
