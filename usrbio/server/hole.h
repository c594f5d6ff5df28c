/* SPDX-License-Identifier: MIT */
#ifndef SERVER_HOLE_H
#define SERVER_HOLE_H

#include "usrbio/server/table.h"

/*
 * Find how much of a range may be read if holes are forbidden.  A hole that extends to the end of
 * the range cuts the range short, like the end of the file.
 *
 * Return: 0 to @len bytes; -ENODATA for a hole with data after it in the range; -errno.
 */
int64_t hole_cut(struct server_file *f, uint64_t off, uint64_t len);

#endif
