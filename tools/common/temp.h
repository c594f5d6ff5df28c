/* SPDX-License-Identifier: MIT */
/* Names of files that are not complete yet. */
#ifndef CLI_TEMP_H
#define CLI_TEMP_H

#include <stdbool.h>

/* Make an unused name for a file that will later be renamed to base. */
int temp_name(const char *base, char **ret_name);

/*
 * Lock a new file until it is closed, so that temp_clear() of other processes does not remove it.
 * Return false if one of them already has.
 */
bool temp_lock(int dir_fd, const char *name, int fd);

/* Remove temporary files that killed copies to base left in the directory. */
void temp_clear(int dir_fd, const char *base);

#endif
