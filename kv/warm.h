/* SPDX-License-Identifier: MIT */
/*
 * Reading of files whose bytes are in memory already, by calls that never wait for a disk.  The
 * CRC-32C is computed in small pieces, while the CPU's caches still hold them.
 */
#ifndef KV_WARM_H
#define KV_WARM_H

#include <penstock.h>

#include "base/base.h"

/* How a directory's files may be read without waiting. */
enum warm_fs {
	WARM_NO,     /* opening a file may wait: a network or user space answers */
	WARM_NOWAIT, /* a local file system whose page cache can be asked with RWF_NOWAIT */
	WARM_MEMORY, /* tmpfs */
};

/* Find out for an open directory. */
enum warm_fs warm_fs_of(int dir);

/* Open a file for reading if its path is cached.  Return a descriptor; -EAGAIN if opening it may
 * wait; or -errno. */
int warm_open(int dir, const char *path);

/* As pread(2), but return what is in memory, or -errno if nothing is. */
ssize_t warm_pread(int fd, enum warm_fs fs, void *buf, size_t len, uint64_t at);

/*
 * Read the first len bytes of a file into the pieces of segs, which follow each other in the file,
 * or to base if nr_segs is 0.
 * @base: what mem_off of the pieces counts from
 * @crc:  continued by the bytes that were read
 *
 * Return: number of bytes read, which is less than len if the others are not in memory.
 */
uint64_t warm_read(int fd, enum warm_fs fs, char *base, const struct pst_seg *segs,
		   uint64_t nr_segs, uint64_t len, uint32_t *crc);

#endif
