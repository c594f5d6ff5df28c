/* SPDX-License-Identifier: MIT */
/*
 * Reads of files whose bytes are in memory, by calls that never wait for a disk.  The CRC-32C is
 * computed in small pieces, while they are in the CPU's caches.
 */
#ifndef KV_WARM_H
#define KV_WARM_H

#include <penstock.h>

#include "base/base.h"

/* How the files of a directory can be read without waiting. */
enum warm_fs {
	WARM_NO,     /* not at all: opening a file may wait for a network or a user-space server */
	WARM_NOWAIT, /* a local file system that supports RWF_NOWAIT */
	WARM_MEMORY, /* tmpfs */
};

/* Return the kind of an open directory. */
enum warm_fs warm_fs_of(int dir);

/* Open a file for reading if its path is cached.  Return a descriptor; -EAGAIN if opening it may
 * wait; or -errno. */
int warm_open(int dir, const char *path);

/* pread(2) of bytes that are in memory.  Return how many bytes were read, or -errno if none are. */
ssize_t warm_pread(int fd, enum warm_fs fs, void *buf, size_t len, uint64_t at);

/*
 * Read the first len bytes of a file into the pieces of segs, which are consecutive in the file, or
 * to base if nr_segs is 0.
 * @base: address to which mem_off of the pieces is added
 * @crc: CRC-32C of earlier bytes; updated
 *
 * Return: number of bytes read; less than len if the other bytes are not in memory.
 */
uint64_t warm_read(int fd, enum warm_fs fs, char *base, const struct pst_seg *segs,
		   uint64_t nr_segs, uint64_t len, uint32_t *crc);

#endif
