/* SPDX-License-Identifier: MIT */
/*
 * Whole objects of a store: the calls that src/s3 offers to src/tier.
 *
 * The module libpenstock-s3.so exports a table of them, beside its table of file_module.h.  All
 * calls block, and may be made by several threads at once.  An object is named s3://BUCKET/KEY.
 * A call that fails returns -errno and writes its cause to @why.
 */
#ifndef PST_OBJECTS_H
#define PST_OBJECTS_H

#include "base/base.h"

#define OBJECTS_SYMBOL "pst_objects"
#define OBJECTS_VERSION 1u
#define OBJECT_WHY_SIZE 512u
#define OBJECT_ETAG_SIZE 160u
#define OBJECT_META_SIZE 1900u /* bytes with NUL; S3 limits all metadata of an object to 2 KB */
#define OBJECT_META_HEADER "x-amz-meta-penstock-file"

struct object_facts {
	uint64_t size;
	char etag[OBJECT_ETAG_SIZE];
	char meta[OBJECT_META_SIZE]; /* value of OBJECT_META_HEADER; "": none */
};

/* The content of an object that is written. */
struct object_source {
	uint64_t size;
	/* Read len bytes at off, in order.  Return 0, or -errno to give up. */
	int (*read)(void *arg, void *buf, size_t len, uint64_t off);
	void *arg;
};

/* Functions of base/err.h, and a log, for a module that the library has not loaded. */
struct objects_host {
	int (*err_set)(int err, const char *fmt, ...) _printf_(2, 3);
	const char *(*err_text)(void);
	void (*log_line)(int level, const char *fmt, ...) _printf_(2, 3);
};

typedef int (*object_list_fn)(void *arg, const char *key, uint64_t size);

struct objects_table {
	uint32_t version; /* OBJECTS_VERSION */
	uint32_t sz;      /* sizeof(struct objects_table) */
	/* Called once, before all others; the host is used unless the library gave its own. */
	void (*begin)(const struct objects_host *host);
	/* Return the facts of an object; -ENOENT. */
	int (*head)(const char *name, struct object_facts *ret, char why[OBJECT_WHY_SIZE]);
	/*
	 * Write an object as a whole.  If the answer to the last request was lost, the result is 0
	 * although the object may be missing: use head() afterwards.
	 */
	int (*put)(const char *name, const struct object_source *src, const char *meta,
		   char why[OBJECT_WHY_SIZE]);
	/* Read len bytes at off.  Return -ESTALE if size or ETag of the object differ. */
	int (*get)(const char *name, const struct object_facts *of, void *buf, size_t len,
		   uint64_t off, char why[OBJECT_WHY_SIZE]);
	/* Remove an object; one that is missing is no error. */
	int (*remove)(const char *name, char why[OBJECT_WHY_SIZE]);
	/* Call fn for each key below s3://BUCKET/PREFIX, relative to it, until it returns
	 * nonzero. */
	int (*list)(const char *dir, object_list_fn fn, void *arg, char why[OBJECT_WHY_SIZE]);
};

#endif
