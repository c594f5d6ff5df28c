/* SPDX-License-Identifier: MIT */
/* Copy the content and the attributes of one file, compare two. */
#ifndef PST_TIER_COPY_H
#define PST_TIER_COPY_H

#include "tier/catalog.h"

#define COPY_CHUNK_MAX MIB(1)

struct copy_job {
	int src, dst; /* descriptors; dst is empty */
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

/* Copy all data and keep holes.  The CRC is of what was read. */
int copy_data(struct copy_job *job);

/* Make the copy durable; the time that this takes is counted as writing. */
int copy_sync(struct copy_job *job);

/* Mode, owner, extended attributes with ACLs, and times. */
int copy_attrs(int src, int dst, const struct stat *st);

/* CRC-32C of what dst has now, read at the job's rate and in its chunks. */
int copy_read_back(const struct copy_job *job, uint32_t *ret);

/* CRC-32C of a file's content. */
int copy_crc(int fd, uint64_t size, uint32_t *ret);

/* 1 if both files have the same size and bytes, 0 if not, -errno with a sentence. */
int copy_equal(int a, int b);

/* Drop a file's clean pages from the page cache, so that the next read uses the disk. */
void copy_uncache(int fd);

#endif
