/* SPDX-License-Identifier: MIT */
/* Operations on the thread pst-http. */
#ifndef PST_S3_IO_H
#define PST_S3_IO_H

#include "s3/s3.h"

/* Complete an operation in its I/O context; do not touch op afterwards. */
void op_end(struct io_op *op, int64_t res);

/* End the canceled operations of all uploads; in upload.c. */
void uploads_cancel(void);

#endif
