/* SPDX-License-Identifier: MIT */
/*
 * Access to memory of the program, which may disappear at any time: another process truncates the
 * file behind it, or another thread unmaps or protects it.
 *
 * A CPU that accesses such memory gets a signal, and the library does not own the process' signal
 * handlers.  So the kernel makes the copies for checksums, proofs, pst_mem_copy_in() and
 * pst_mem_copy_out(), and memory that is gone gives -EFAULT with a sentence.  The library's own
 * memory stays mapped and is accessed directly: slots, bounce buffers, and shared or imported
 * memory, which is a sealed memfd (mem/memfd.h). pst_window_store() and pst_window_load() access
 * the caller's buffer as memcpy(3) does.
 */
#ifndef PST_UACCESS_H
#define PST_UACCESS_H

#include <sys/uio.h>

#include "base/base.h"

/* Copy len bytes between the program's memory at addr and memory of the library.  Return 0 or
 * -errno. */
int uaccess_read(void *ours, const void *addr, uint64_t len);
int uaccess_write(void *addr, const void *ours, uint64_t len);

/*
 * Write several pieces by one system call: from[i] to to[i], which has as many bytes.
 *
 * Return: 0; -errno without a sentence: some may be written, and uaccess_write() says which cannot
 * be.
 */
int uaccess_write_all(const struct iovec *to, const struct iovec *from, unsigned nr);

/* As uaccess_read(), for a string and what follows it in its page, which the address sanitizer
 * would treat as an overflow.  Not for device mappings. */
int uaccess_read_page(void *ours, const void *addr, uint64_t len);

/* memmove() with both sides in the program's memory. */
int uaccess_move(void *to, const void *from, uint64_t len);

/* As crc32c(), with the result so far in *crc. */
int uaccess_crc32c(uint32_t *crc, const void *addr, uint64_t len);

/* Compare with memory of the library.  Return 1 if equal, 0 if not, or -errno. */
int uaccess_same(const void *addr, const void *ours, uint64_t len);

#endif
