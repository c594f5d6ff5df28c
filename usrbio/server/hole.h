/* SPDX-License-Identifier: MIT */
#ifndef SERVER_HOLE_H
#define SERVER_HOLE_H

#include "usrbio/server/table.h"

/*
 * What of a range of a file may be read where holes are forbidden: it ends where a hole begins
 * that reaches its end, as it would at the end of the file.
 *
 * Return: bytes, 0 to @len; -ENODATA for a hole with data behind it in the range; -errno.
 */
int64_t hole_cut(struct server_file *f, uint64_t off, uint64_t len);

#endif
