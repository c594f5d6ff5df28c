/* SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "t.h"
#include "tools/common/table.h"

static const char *const heads[] = { "<step", "<path", "GB/s", "CPU s per 10 GB" };
static const char *const cells[] = {
	"load all tensors of all shards",
	"staged+direct+cached",
	"12.5",
	"0.31",
	"write",
	"buffered",
	"0.25",
	"11.25",
};

static char *print(unsigned width)
{
	_cleanup_(table_freep) struct table *t = table_new(heads, ARRAY_SIZE(heads));
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	for (size_t i = 0; i < ARRAY_SIZE(cells); i++)
		table_add(t, "%s", cells[i]);
	table_print(t, f, width);
	(void)fclose(f);
	return text;
}

static size_t longest(const char *text)
{
	size_t most = 0;

	for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
		most = MAX(most, strcspn(text, "\n"));
	return most;
}

static unsigned lines(const char *text)
{
	unsigned nr = 0;

	for (; *text; text++)
		nr += *text == '\n';
	return nr;
}

static void wide(void)
{
	_cleanup_(freep) char *text = print(200);

	T_CHECK(!strcmp(text, "step                            path                  "
			      "GB/s  CPU s per 10 GB\n"
			      "load all tensors of all shards  staged+direct+cached  "
			      "12.5             0.31\n"
			      "write                           buffered              "
			      "0.25            11.25\n"));
}

/* The last lines of all heads are aligned. */
static void narrow(void)
{
	_cleanup_(freep) char *text = print(45);

	T_CHECK(longest(text) <= 45);
	T_CHECK(strstr(text, "\nstep ") && strstr(text, "GB/s"));
	T_CHECK(lines(text) > 3);
}

/* At every width, every word is printed, and no line is longer. */
static void nothing_is_lost(void)
{
	static const char *const words[] = {
		"step", "path", "GB/s", "CPU",     "load",    "all",    "tensors", "of", "shards",
		"12.5", "0.31", "0.25", "staged+", "direct+", "cached", "write",   "10", "11.25",
	};

	for (unsigned width = 20; width < 120; width++) {
		_cleanup_(freep) char *text = print(width);

		if (longest(text) > width)
			T_FAIL("at %u: a line of %zu:\n%s", width, longest(text), text);
		for (size_t i = 0; i < ARRAY_SIZE(words); i++)
			if (!strstr(text, words[i]))
				T_FAIL("at %u there is no %s:\n%s", width, words[i], text);
		T_CHECK(!strstr(text, " \n"));
	}
}

/* If the width is too small for columns, each row is a block of lines. */
static void blocks(void)
{
	_cleanup_(freep) char *text = print(20);

	T_CHECK(strstr(text, "CPU s per 10 GB:\n  0.31\n"));
	T_CHECK(strstr(text, "path:\n  buffered\n"));
}

/* Each character counts as one column, however many bytes it has. */
static void characters(void)
{
	static const char *const two[] = { "<name", "nr" };
	_cleanup_(table_freep) struct table *t = table_new(two, ARRAY_SIZE(two));
	_cleanup_(freep) char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	table_add(t, "%s", "\303\244\303\266\303\274\303\237");
	table_add(t, "1");
	table_print(t, f, 80);
	(void)fclose(f);
	T_CHECK(!strcmp(text, "name  nr\n\303\244\303\266\303\274\303\237   1\n"));
}

int main(void)
{
	T_RUN(wide);
	T_RUN(narrow);
	T_RUN(nothing_is_lost);
	T_RUN(blocks);
	T_RUN(characters);
	return t_done();
}
