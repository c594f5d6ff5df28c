/* SPDX-License-Identifier: MIT */
/* Parse mount options as in fstab and mount(8): a list separated by commas. */
#ifndef CLI_MOUNT_OPTIONS_H
#define CLI_MOUNT_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>

#include "cli/mount/daemon.h"

/* Handle a long option by its number, with its value in optarg.  Return 0 or an exit status. */
typedef int (*options_take_long)(int opt, struct daemon_opts *o);

/*
 * Handle each option of a list, which is modified.  longs: the command's options that the list may
 * also contain; sloppy: ignore unknown ones.  Return: 0, or an exit status after a message that
 * names the option.
 */
int options_take(char *list, bool sloppy, const struct option longs[], options_take_long take,
		 struct daemon_opts *o);

#endif
