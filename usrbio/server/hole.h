/* SPDX-License-Identifier: MIT */
#ifndef SERVER_HOLE_H
#define SERVER_HOLE_H

#include "usrbio/server/table.h"

/*
 * The part of a file's range that may be read where holes are forbidden.  A hole up to the end of
 * the range cuts it short, as the end of the file would.
 *
 * Return: bytes, 0 to @len; -ENODATA for a hole with data behind it in the range; -errno.
 */
int64_t hole_cut(struct server_file *f, uint64_t off, uint64_t len);

#endif
