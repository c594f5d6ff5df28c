/* SPDX-License-Identifier: MIT */
/* A copy and its two files. */
#ifndef CLI_CP_H
#define CLI_CP_H

#include <sys/stat.h>

#include "tools/common/util.h"

struct options {
	bool verify, strict, sync, quiet;
	const char *device; /* NULL: host */
	uint32_t depth;
	uint64_t block;
	uint64_t policy;
	uint32_t store;
};

/* The operations whose paths are recorded separately. */
enum { PATHS_READ, PATHS_WRITE, PATHS_REREAD, PATHS_NR };

struct copy {
	const struct options *o;
	const char *src;  /* name for messages, without the query of a URL */
	const char *name; /* full name of the source */
	struct stat src_stat;
	int src_fd;
	struct pst_file *in;
	uint64_t size;
	uint64_t nr_blocks;

	char *dst; /* NULL when the target is device memory */
	char *base;
	char *tmp; /* name of the file being written, NULL while it has none */
	int dir_fd, dst_fd;
	char *part;           /* a service's file before it has the name dst; or NULL */
	bool half;            /* the service has a part of the bytes by the name dst */
	struct cp_tier *tier; /* NULL: the target is not in a set of tiers */
	bool in_place;        /* the target existed; else it is new and gets this mode */
	mode_t mode;
	off_t old_size;
	bool torn; /* a target in place now has neither all old bytes nor all new ones */
	struct pst_file *out;

	struct pst_device dev;
	struct pst_mem *mem;
	uint32_t slots; /* blocks in flight */
	struct pst_queue *queue;
	uint32_t *crcs;           /* CRC-32C of each block, with --verify */
	uint32_t paths[PATHS_NR]; /* bits of the paths of requests */
	struct whys whys;

	bool bar;
	uint64_t bar_next_ns;
	uint64_t begun_ns;
};

/*
 * Return 1 if a target names a device, as pst_device_find() would take it (soft:0, host), whether
 * that device exists or not; a file of such a name is written ./soft:0.  Return 0 for a file, and
 * -EINVAL with a sentence for a text that looks like a device's name but is neither.
 */
int cp_names_device(const char *s);

/* Each returns 0, or -errno with a sentence. */
int cp_open_source(struct copy *c);
int cp_check_unchanged(const struct copy *c);
/* Read all of these bytes, to compare with. */
int cp_read_source(const struct copy *c, void *buf, uint64_t len, uint64_t off);

/* In tier.c: targets named tier://SET/NAME, and attributes of such sources. */
bool cp_names_tier(const char *name);
int cp_tier_stat(const char *name, struct stat *ret);
/* Fill in c->dst, and lock the set until cp_tier_resolved(). */
int cp_tier_resolve(struct copy *c, const char *dst);
void cp_tier_resolved(struct copy *c);
int cp_tier_publish(struct copy *c);
void cp_tier_done(struct copy *c);

/* Find the target's full name and open its file if it exists; the file is not changed yet. */
int cp_resolve_target(struct copy *c, const char *dst);
int cp_open_target(struct copy *c);
/* service.c: targets s3://BUCKET/KEY and pst://HOST:PORT/PATH, which are always written anew. */
bool cp_names_service(const char *name);
int cp_service_resolve(struct copy *c, const char *dst);
int cp_service_open(struct copy *c);
/* Open it again after its sync, so that c->out reads what others read. */
int cp_service_reopen(struct copy *c);
/* Give a file that is complete its name. */
int cp_service_publish(struct copy *c);
/* Remove a file that is not complete. */
void cp_service_give_up(struct copy *c);

/* All bytes are there: a new file gets its name. */
int cp_publish(struct copy *c);
/* Remove the part of a target that another program could take for the whole of it. */
void cp_give_up(struct copy *c);

#endif
