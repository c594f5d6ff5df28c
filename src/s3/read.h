/* SPDX-License-Identifier: MIT */
/* Reads: what answers are compared with, and what an object is asked for first. */
#ifndef PST_S3_READ_H
#define PST_S3_READ_H

#include "s3/http.h"

/* Of a Content-Range; only size is set for "bytes *" "/size". */
struct range {
	uint64_t first, last, size;
};
bool range_parse(const char *text, struct range *ret);

/* Set the sentence of -ESTALE, and return that. */
int err_object_replaced(const struct s3_file *f);

/* Is that the range of the same object?  0, or -errno with a sentence. */
int answer_check(const struct s3_file *f, const struct call *c);

/* Ask for the first byte.  0; -ERANGE with the status 416: the object is empty; another error.  The
 * caller frees the text of the answer. */
int where_probe(struct where *w, struct call *c);

/* True for s3://BUCKET and s3://BUCKET/, which name no object. */
bool where_is_bucket(const char *name);

extern const struct file_ops s3_file_ops, https_file_ops, http_file_ops;
extern const struct names_ops s3_names_ops, http_names_ops;

#endif
