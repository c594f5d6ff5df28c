/* SPDX-License-Identifier: MIT */
/* A copy and its two files. */
#ifndef CLI_CP_H
#define CLI_CP_H

#include <sys/stat.h>

#include "tools/common/util.h"

struct options {
	bool verify, strict, sync, quiet;
	const char *device; /* NULL: host memory */
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
	const char *name; /* full name of the source, with the query */
	struct stat src_stat;
	int src_fd;
	struct pst_file *in;
	uint64_t size;
	uint64_t nr_blocks;

	char *dst; /* NULL when the target is device memory */
	char *base;
	char *tmp; /* temporary name of the file being written, or NULL */
	int dir_fd, dst_fd;
	char *part;           /* temporary name of the file on the service, or NULL */
	bool half;            /* the service has an incomplete file under the name dst */
	struct cp_tier *tier; /* NULL: the target is not in a set of tiers */
	bool in_place;        /* the target existed and is overwritten */
	mode_t mode;
	off_t old_size;
	bool torn; /* the overwritten target has a mixture of old and new bytes */
	struct pst_file *out;

	struct pst_device dev;
	struct pst_mem *mem;
	uint32_t slots; /* maximum blocks in flight */
	struct pst_queue *queue;
	uint32_t *crcs;           /* CRC-32C of each block, with --verify */
	uint32_t paths[PATHS_NR]; /* PST_PATH_* bits that requests took */
	struct whys whys;

	bool bar;
	uint64_t bar_next_ns;
	uint64_t begun_ns;
};

/*
 * Return 1 if a target has the form of a device's name (soft:0, host), whether the device exists or
 * not; a file of such a name must be given as ./soft:0. Return 0 for a file's name, and -EINVAL
 * with a sentence for a text that looks like a device's name but is malformed.
 */
int cp_names_device(const char *s);

/* These functions return 0, or -errno with a sentence. */
int cp_open_source(struct copy *c);
int cp_check_unchanged(const struct copy *c);
/* Read these bytes by plain calls, for comparison. */
int cp_read_source(const struct copy *c, void *buf, uint64_t len, uint64_t off);

/* Functions of tier.c, for targets named tier://SET/NAME. */
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
/* Functions of service.c, for targets s3://BUCKET/KEY and pst://HOST:PORT/PATH, which are never
 * overwritten in place. */
bool cp_names_service(const char *name);
int cp_service_resolve(struct copy *c, const char *dst);
int cp_service_open(struct copy *c);
/* Reopen the target after its sync, so that c->out reads what others read. */
int cp_service_reopen(struct copy *c);
/* Rename a complete file to its final name. */
int cp_service_publish(struct copy *c);
/* Remove an incomplete file. */
void cp_service_give_up(struct copy *c);

/* Give a new, complete file its name. */
int cp_publish(struct copy *c);
/* Remove an incomplete target, which programs could take for a complete one. */
void cp_give_up(struct copy *c);

#endif
