/* SPDX-License-Identifier: MIT */
/* Text from elsewhere, such as names of files, for a terminal and for JSON. */
#ifndef CLI_SHOWN_H
#define CLI_SHOWN_H

#include <stddef.h>

/* base/shown.h, whose file the command is built with. */
void shown(char *ret, size_t len, const char *text);

/* Columns of the terminal on standard output, 100 where it is none; at least 60. */
unsigned shown_width(void);

/*
 * Print a text that begins in column indent and goes on there in further lines, each no longer
 * than width unless a word is.  Ends with a newline.
 */
void shown_wrapped(const char *text, unsigned indent, unsigned width);

#endif
