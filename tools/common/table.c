/* SPDX-License-Identifier: MIT */
#include "tools/common/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/shown.h"
#include "tools/common/util.h"

#define GAP 2u /* blanks between columns */

struct table {
	const char *heads[TABLE_COLS];
	bool left[TABLE_COLS];
	unsigned nr_cols;
	char **cells; /* row by row; NULL if there was no memory for the cell */
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

/* ------------------------------------------------------------------ widths */

/* Return the columns of a cell, and of its longest unbreakable part. */
static size_t table_whole(const char *text)
{
	return shown_columns(text, strlen(text));
}

static size_t longest_word(const char *text)
{
	size_t most = 0;

	while (*text) {
		size_t n = shown_line(text, 0);

		most = MAX(most, shown_columns(text, n));
		text += n;
		text += strspn(text, " ");
	}
	return most;
}

struct layout {
	size_t width[TABLE_COLS], least[TABLE_COLS];
	size_t total; /* total width, including blanks between columns */
};

static size_t table_rows_of(const struct table *t)
{
	return t->nr_cols ? t->nr_cells / t->nr_cols : 0;
}

static void table_measure(const struct table *t, struct layout *l)
{
	l->total = 0;
	for (unsigned c = 0; c < t->nr_cols; c++) {
		l->width[c] = table_whole(t->heads[c]);
		l->least[c] = longest_word(t->heads[c]);
		for (size_t r = 0; r < table_rows_of(t); r++) {
			const char *text = cell(t, r * t->nr_cols + c);

			l->width[c] = MAX(l->width[c], table_whole(text));
			l->least[c] = MAX(l->least[c],
					  t->left[c] ? longest_word(text) : table_whole(text));
		}
		l->total += l->width[c] + (c ? GAP : 0);
	}
}

/* Make columns narrower, the one with the most slack first.  Return false if they cannot become
 * narrow enough. */
static bool fit(const struct table *t, struct layout *l, size_t width)
{
	while (l->total > width) {
		unsigned most = 0;

		for (unsigned c = 1; c < t->nr_cols; c++)
			if (l->width[c] - l->least[c] > l->width[most] - l->least[most])
				most = c;
		if (l->width[most] == l->least[most])
			return false;
		l->width[most]--;
		l->total--;
	}
	return true;
}

/* ------------------------------------------------------------------- print */

/* Add text to a line, aligned in a column of that width. */
static void table_put(char *line, size_t *len, const char *text, size_t n, size_t width, bool left)
{
	size_t pad = width - MIN(width, shown_columns(text, n));

	if (!left) {
		memset(line + *len, ' ', pad);
		*len += pad;
	}
	memcpy(line + *len, text, n);
	*len += n;
	if (left) {
		memset(line + *len, ' ', pad);
		*len += pad;
	}
}

/* Print the next line of a row, and advance row[c] to what remains.  Return false if nothing
 * remains. */
static bool table_print_line(const struct table *t, const struct layout *l, FILE *f,
			     const char **row)
{
	_cleanup_(freep) char *line = NULL;
	size_t len = 0, max = l->total + 1;
	bool any = false;

	for (unsigned c = 0; c < t->nr_cols; c++) {
		any = any || *row[c];
		max += strlen(row[c]);
	}
	line = any ? malloc(max) : NULL;
	if (!line)
		return false;
	for (unsigned c = 0; c < t->nr_cols; c++) {
		size_t n = table_whole(row[c]) <= l->width[c] ? strlen(row[c])
							      : shown_line(row[c], l->width[c]);

		if (c)
			table_put(line, &len, "", 0, GAP, true);
		table_put(line, &len, row[c], n, l->width[c], t->left[c]);
		row[c] += n;
		row[c] += strspn(row[c], " ");
	}
	/* Remove blanks at the end of the line. */
	while (len && line[len - 1] == ' ')
		len--;
	(void)fprintf(f, "%.*s\n", (int)len, line);
	return true;
}

/* Return the lines that a head takes. */
static unsigned lines_of(const char *head, size_t width)
{
	unsigned nr = 0;

	for (; *head; nr++) {
		head += shown_line(head, width);
		head += strspn(head, " ");
	}
	return nr;
}

/* Align heads of several lines at their last line. */
static void print_heads(const struct table *t, const struct layout *l, FILE *f)
{
	const char *row[TABLE_COLS], *rest[TABLE_COLS];
	unsigned nr[TABLE_COLS], most = 0;

	for (unsigned c = 0; c < t->nr_cols; c++) {
		rest[c] = t->heads[c];
		nr[c] = lines_of(t->heads[c], l->width[c]);
		most = MAX(most, nr[c]);
	}
	for (; most; most--) {
		char part[TABLE_COLS][64];

		for (unsigned c = 0; c < t->nr_cols; c++) {
			size_t n = nr[c] < most ? 0 : shown_line(rest[c], l->width[c]);

			(void)snprintf(part[c], sizeof(part[c]), "%.*s", (int)n, rest[c]);
			row[c] = part[c];
			rest[c] += n;
			rest[c] += strspn(rest[c], " ");
		}
		(void)table_print_line(t, l, f, row);
	}
}

static void print_block(const struct table *t, FILE *f, size_t r, unsigned width)
{
	for (unsigned c = 0; c < t->nr_cols; c++) {
		const char *text = cell(t, r * t->nr_cols + c);

		if (!*text)
			continue;
		(void)fprintf(f, "%s:\n  ", t->heads[c]);
		shown_wrapped(f, text, 2, 2, width);
	}
	(void)fputc('\n', f);
}

void table_print(const struct table *t, FILE *f, unsigned width)
{
	const char *row[TABLE_COLS];
	struct layout l;

	table_measure(t, &l);
	if (!fit(t, &l, width)) {
		for (size_t r = 0; r < table_rows_of(t); r++)
			print_block(t, f, r, width);
		return;
	}
	print_heads(t, &l, f);
	for (size_t r = 0; r < table_rows_of(t); r++) {
		for (unsigned c = 0; c < t->nr_cols; c++)
			row[c] = cell(t, r * t->nr_cols + c);
		while (table_print_line(t, &l, f, row))
			;
	}
}
