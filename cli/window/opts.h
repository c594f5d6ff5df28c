/* SPDX-License-Identifier: MIT */
#ifndef CLI_WINDOW_OPTS_H
#define CLI_WINDOW_OPTS_H

#include "cli/window/window.h"

/* Options that only some subcommands accept. */
#define WIN_OPT_SIZE (1u << 0)
#define WIN_OPT_RANDOM (1u << 1)
#define WIN_OPT_SEED (1u << 2)
#define WIN_OPT_SIZES (1u << 3)
#define WIN_OPT_THREADS (1u << 4)
#define WIN_OPT_MAX (1u << 5)
#define WIN_OPT_COUNT (1u << 6)
#define WIN_OPT_RUNTIME (1u << 7)
#define WIN_OPT_BASELINE (1u << 8)

/* Parse argv and fill in the defaults.  Return 0 or an exit status; *ret_used has the WIN_OPT_*
 * that were given. */
int win_opts_parse(int argc, char *argv[], struct win_set *ret, uint32_t *ret_used);

/* Return the name, such as "--size", of the first option in a set of WIN_OPT_*; NULL if the set is
 * empty. */
const char *win_opt_name(uint32_t opts);

/* Parse "wc", "cached" or "device".  Return 0 or -EINVAL. */
int win_parse_caching(const char *text, uint32_t *ret);

#endif
