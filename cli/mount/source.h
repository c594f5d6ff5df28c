/* SPDX-License-Identifier: MIT */
/* The source of a mount, before it is served. */
#ifndef CLI_MOUNT_SOURCE_H
#define CLI_MOUNT_SOURCE_H

#include <limits.h>

/*
 * Find the canonical path of a directory that is to be served.
 * Return: 0, or -errno with a sentence: no directory, or its file system does not answer.
 */
int source_check(const char *given, char ret[PATH_MAX]);

#endif
