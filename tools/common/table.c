/* SPDX-License-Identifier: MIT */
#include "tools/common/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/shown.h"
#include "tools/common/util.h"

struct table {
	const char *heads[TABLE_COLS];
	bool left[TABLE_COLS];
	unsigned nr_cols;
	char **cells; /* row by row; a cell without memory for it is NULL */
	size_t nr_cells, max_cells;
};

struct table *table_new(const char *const heads[], unsigned nr)
{
	struct table *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->nr_cols = MIN(nr, TABLE_COLS);
	for (unsigned i = 0; i < t->nr_cols; i++) {
		t->left[i] = heads[i][0] == '<';
		t->heads[i] = heads[i] + t->left[i];
	}
	return t;
}

struct table *table_free(struct table *t)
{
	if (!t)
		return NULL;
	for (size_t i = 0; i < t->nr_cells; i++)
		free(t->cells[i]);
	free(t->cells);
	free(t);
	return NULL;
}

void table_add(struct table *t, const char *fmt, ...)
{
	char *text = NULL, *safe = NULL;
	va_list ap;

	if (t->nr_cells == t->max_cells) {
		size_t max = t->max_cells ? 2 * t->max_cells : 64;
		char **cells = reallocarray(t->cells, max, sizeof(*cells));

		if (!cells)
			return;
		t->cells = cells;
		t->max_cells = max;
	}
	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	if (text)
		safe = malloc(4 * strlen(text) + 5);
	if (safe)
		shown(safe, 4 * strlen(text) + 5, text);
	free(text);
	t->cells[t->nr_cells++] = safe;
}

static const char *cell(const struct table *t, size_t i)
{
	return i < t->nr_cells && t->cells[i] ? t->cells[i] : "";
}

static void print_row(const struct table *t, FILE *f, const size_t *width, const char *const *row)
{
	for (unsigned c = 0; c < t->nr_cols; c++) {
		bool last = c + 1 == t->nr_cols;

		/* No blanks at the end of a line. */
		if (t->left[c])
			(void)fprintf(f, "%-*s", last ? 0 : (int)width[c], row[c]);
		else
			(void)fprintf(f, "%*s", (int)width[c], row[c]);
		(void)fputs(last ? "\n" : "  ", f);
	}
}

void table_print(const struct table *t, FILE *f)
{
	size_t width[TABLE_COLS] = { 0 }, rows = t->nr_cols ? t->nr_cells / t->nr_cols : 0;
	const char *row[TABLE_COLS];

	for (unsigned c = 0; c < t->nr_cols; c++) {
		width[c] = strlen(t->heads[c]);
		for (size_t r = 0; r < rows; r++)
			width[c] = MAX(width[c], strlen(cell(t, r * t->nr_cols + c)));
	}
	print_row(t, f, width, t->heads);
	for (size_t r = 0; r < rows; r++) {
		for (unsigned c = 0; c < t->nr_cols; c++)
			row[c] = cell(t, r * t->nr_cols + c);
		print_row(t, f, width, row);
	}
}
