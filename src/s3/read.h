/* SPDX-License-Identifier: MIT */
/* Reading objects: checks of answers, and the first request. */
#ifndef PST_S3_READ_H
#define PST_S3_READ_H

#include "s3/http.h"

/* A parsed Content-Range; for "bytes *" "/size" only size is set. */
struct range {
	uint64_t first, last, size;
};
bool range_parse(const char *text, struct range *ret);

/* Set the sentence for an object that was replaced. Return -ESTALE. */
int err_object_replaced(const struct s3_file *f);

/* Check that the answer is the requested range of the same object.  Return 0, or -errno with a
 * sentence. */
int answer_check(const struct s3_file *f, const struct call *c);

/* Request the first byte.  Return 0; -ERANGE with status 416 if the object is empty; another error.
 * The caller frees the answer's text. */
int where_probe(struct where *w, struct call *c);

/* Return true for s3://BUCKET and s3://BUCKET/, which name no object. */
bool where_is_bucket(const char *name);

extern const struct file_ops s3_file_ops, https_file_ops, http_file_ops;
extern const struct names_ops s3_names_ops, http_names_ops;

#endif
