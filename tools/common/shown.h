/* SPDX-License-Identifier: MIT */
/* Text from elsewhere, such as names of files, for a terminal and for JSON; and lines that fit. */
#ifndef CLI_SHOWN_H
#define CLI_SHOWN_H

#include <stddef.h>
#include <stdio.h>

/* base/shown.h, whose file the command is built with. */
void shown(char *ret, size_t len, const char *text);

#define SHOWN_WIDTH 80u /* columns where there is no terminal to ask */

/* Columns for a stream: what COLUMNS says, else those of the terminal, else SHOWN_WIDTH. */
unsigned shown_width(FILE *f);

/* Columns that the first len bytes of a UTF-8 text take: one for each character. */
size_t shown_columns(const char *text, size_t len);

/*
 * Bytes of the first line of a text.  Lines end between words and in lists like staged+direct; a
 * word that is longer than width stays whole.
 */
size_t shown_line(const char *text, size_t width);

/*
 * Print a text that begins in column col and goes on in column indent of further lines, each no
 * longer than width unless a word is.  Ends with a newline.
 */
void shown_wrapped(FILE *f, const char *text, unsigned col, unsigned indent, unsigned width);

/*
 * Print a line to standard output, with names from outside in it.  Where it is longer than the
 * terminal is wide, it goes on in further lines, from column indent.
 */
void shown_printf(unsigned indent, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
