/* SPDX-License-Identifier: MIT */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include <stdio.h>

#define TABLE_COLS 20u

/*
 * A table of text whose columns are as wide as needed.  Heads that begin with '<' are aligned left,
 * all others right, as numbers are.
 */
struct table;

struct table *table_new(const char *const heads[], unsigned nr);
struct table *table_free(struct table *t);

/* Add a cell, from left to right; a full row begins the next one. */
void table_add(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * Print the rows with two blanks between columns; the rows stay in the table.
 *
 * No line is longer than width.  If the columns need more, heads and left-aligned columns are
 * wrapped between words.  If that is not enough, each row becomes a block of lines "head: cell".
 * Nothing is left out.
 */
void table_print(const struct table *t, FILE *f, unsigned width);

static inline void table_freep(struct table **t)
{
	(void)table_free(*t);
}

#endif
