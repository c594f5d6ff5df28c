/* SPDX-License-Identifier: MIT */
/* Options of a mount as fstab and mount(8) write them, a list with commas. */
#ifndef CLI_MOUNT_OPTIONS_H
#define CLI_MOUNT_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>

#include "cli/mount/daemon.h"

/* Take a long option by its number, with its value in optarg.  0, or an exit status. */
typedef int (*options_take_long)(int opt, struct daemon_opts *o);

/*
 * Take each option of a list, which is cut into its words.  longs: options of the command that the
 * list may have by the same name; sloppy: pass over unknown ones.
 * Return: 0, or an exit status after a message that names the option.
 */
int options_take(char *list, bool sloppy, const struct option longs[], options_take_long take,
		 struct daemon_opts *o);

#endif
