/* SPDX-License-Identifier: MIT */
/* Check the source of a mount before it is served. */
#ifndef CLI_MOUNT_SOURCE_H
#define CLI_MOUNT_SOURCE_H

#include <limits.h>

/*
 * Return the canonical path of a directory to serve.  Return: 0, or -errno with a sentence: it is
 * no directory, or its file system does not answer.
 */
int source_check(const char *given, char ret[PATH_MAX]);

#endif
