/* SPDX-License-Identifier: MIT */
/* Temporary names of incomplete files. */
#ifndef CLI_TEMP_H
#define CLI_TEMP_H

#include <stdbool.h>

/* Make an unused name for a file that will later be renamed to base. */
int temp_name(const char *base, char **ret_name);

/*
 * Lock a new file until it is closed, so that other processes' temp_clear() keeps it.  Return false
 * if another process has locked it already.
 */
bool temp_lock(int dir_fd, const char *name, int fd);

/* Remove the temporary files that killed commands left next to base. */
void temp_clear(int dir_fd, const char *base);

#endif
