/* SPDX-License-Identifier: MIT */
/* Names of files that are not complete yet. */
#ifndef CLI_CP_TEMP_H
#define CLI_CP_TEMP_H

#include <stdbool.h>

/* A name that nobody has yet, for a file that will be called base. */
int temp_name(const char *base, char **ret_name);

/*
 * Keep temp_clear() of other processes from removing a file that was just made; closing it ends
 * that.  Return false if one of them was faster.
 */
bool temp_lock(int dir_fd, const char *name, int fd);

/* Remove what copies to base left in the directory that were killed. */
void temp_clear(int dir_fd, const char *base);

#endif
