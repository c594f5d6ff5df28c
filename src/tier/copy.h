/* SPDX-License-Identifier: MIT */
/* Copy content and attributes of one file; compare two files. */
#ifndef PST_TIER_COPY_H
#define PST_TIER_COPY_H

#include "tier/catalog.h"

#define COPY_CHUNK_MAX MIB(1)

struct copy_job {
	int src, dst; /* descriptors; dst refers to an empty file */
	uint64_t size;
	/* Bytes until the next call of go_on, which may change this; 0: COPY_CHUNK_MAX. */
	size_t chunk;
	uint64_t rate; /* bytes per second; 0: no limit */
	/* Called between chunks: return 0 to continue, or -errno with a sentence to stop. */
	int (*go_on)(void *arg);
	void *arg;
	/* Results. */
	uint32_t crc;
	struct tier_measured src_measured, dst_measured;
};

/* Copy all data and keep holes.  The CRC is of the bytes read. */
int copy_data(struct copy_job *job);

/* Read len bytes, or up to the end of the file.  Return the count, or -errno without a sentence. */
ssize_t copy_read(int fd, void *buf, size_t len, uint64_t off);

/* Make the copy durable; its time counts as writing. */
int copy_sync(struct copy_job *job);

/* Copy mode, owner, extended attributes including ACLs, and times. */
int copy_attrs(int src, int dst, const struct stat *st);

/* Read dst back at the job's rate and chunk size.  Store the CRC-32C of its bytes. */
int copy_read_back(const struct copy_job *job, uint32_t *ret);

/*
 * Wait until the rate allows another chunk after one of that many bytes.  *due is the time at which
 * the rate allowed that chunk.  Lost time, for instance during other programs' I/O, is not made up
 * for: the burst would delay reads of all programs.
 */
void copy_pace(uint64_t rate, uint64_t bytes, uint64_t *due);

/* Write len bytes at off of the copy, and send them to the disk. */
int copy_store(struct copy_job *job, const void *buf, size_t len, uint64_t off);

/* Store the CRC-32C of a file's content. */
int copy_crc(int fd, uint64_t size, uint32_t *ret);

/* Return 1 if both files have the same size and bytes, 0 if not, -errno with a sentence. */
int copy_equal(int a, int b);

/* Drop a file's clean pages from the page cache, so that the next read uses the disk. */
void copy_uncache(int fd);

#endif
