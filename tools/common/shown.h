/* SPDX-License-Identifier: MIT */
/* Print foreign text, such as file names, to terminals and JSON, and fit lines to a width. */
#ifndef CLI_SHOWN_H
#define CLI_SHOWN_H

#include <stddef.h>
#include <stdio.h>

/* From base/shown.h, whose source the command is built with. */
void shown(char *ret, size_t len, const char *text);

#define SHOWN_WIDTH 80u /* columns if the width is unknown */

/* Return the columns of a stream: those of $COLUMNS, else of the terminal, else SHOWN_WIDTH. */
unsigned shown_width(FILE *f);

/* Return the columns of the first len bytes of a UTF-8 text: one per character. */
size_t shown_columns(const char *text, size_t len);

/*
 * Return the bytes of a text's first line.  Lines break between words and in lists like
 * staged+direct; a word longer than width stays whole.
 */
size_t shown_line(const char *text, size_t width);

/*
 * Print a text from column col, with further lines from column indent.  No line exceeds width,
 * unless a single word does.  Ends with a newline.
 */
void shown_wrapped(FILE *f, const char *text, unsigned col, unsigned indent, unsigned width);

/*
 * Print a line to standard output; it may contain foreign names.  If it is longer than the terminal
 * is wide, continue it from column indent.
 */
void shown_printf(unsigned indent, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
