/* SPDX-License-Identifier: MIT */
/* Reads: what answers are compared with. */
#ifndef PST_S3_READ_H
#define PST_S3_READ_H

#include "s3/http.h"

/* Of a Content-Range; only size is set for "bytes *" "/size". */
struct range {
	uint64_t first, last, size;
};
bool range_parse(const char *text, struct range *ret);

/* Is that the range of the same object?  0, or -errno with a sentence. */
int answer_check(const struct s3_file *f, const struct call *c);

extern const struct file_ops s3_file_ops, https_file_ops, http_file_ops, s3_list_ops;

#endif
