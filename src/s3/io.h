/* SPDX-License-Identifier: MIT */
/* Operations on the thread pst-http. */
#ifndef PST_S3_IO_H
#define PST_S3_IO_H

#include "s3/s3.h"

/* Give it back to its I/O context; the caller does not touch it afterwards. */
void op_end(struct io_op *op, int64_t res);

/* upload.c: end operations of all uploads whose cancel flag is set. */
void uploads_cancel(void);

#endif
