/* SPDX-License-Identifier: MIT */
/*
 * Memory of the program, which may vanish at any time: another process shrinks the file behind
 * it, another thread unmaps or protects it.  A CPU that follows an address into it gets a signal
 * then, and the signal handlers of the process are not ours.  So the kernel makes the copies for
 * checksums, proofs, pst_mem_copy_in() and pst_mem_copy_out(), and memory that is gone gives
 * -EFAULT with a sentence.
 *
 * Memory of ours stays and is touched directly: slots, bounce buffers, and shared or imported
 * memory, which is a sealed memfd (mem/memfd.h).  pst_window_store() and pst_window_load() follow
 * the caller's buffer as memcpy(3) does.
 */
#ifndef PST_UACCESS_H
#define PST_UACCESS_H

#include <sys/uio.h>

#include "base/base.h"

/* len bytes at addr, which is the program's, to and from memory of ours.  0 or -errno. */
int uaccess_read(void *ours, const void *addr, uint64_t len);
int uaccess_write(void *addr, const void *ours, uint64_t len);

/*
 * Write several pieces by one system call: from[i] to to[i], which has as many bytes.
 *
 * Return: 0; -errno without a sentence: some may be written, and uaccess_write() says which cannot
 * be.
 */
int uaccess_write_all(const struct iovec *to, const struct iovec *from, unsigned nr);

/* As uaccess_read(), of a string and what follows it in its page.  The address sanitizer would take
 * that for an access beyond an object.  Not for mappings of devices. */
int uaccess_read_page(void *ours, const void *addr, uint64_t len);

/* memmove() where both sides are the program's. */
int uaccess_move(void *to, const void *from, uint64_t len);

/* As crc32c(), with the result so far in *crc. */
int uaccess_crc32c(uint32_t *crc, const void *addr, uint64_t len);

/* Does memory of ours hold the same?  1; 0; -errno. */
int uaccess_same(const void *addr, const void *ours, uint64_t len);

#endif
