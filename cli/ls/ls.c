/* SPDX-License-Identifier: MIT */
/*
 * List the objects of a bucket.  The library gives a listing as a file, s3+list://BUCKET/PREFIX:
 * lines of SIZE TAB TIME TAB ETAG TAB KEY.
 */
#include <getopt.h>

#include "cli/commands.h"
#include "tools/common/shown.h"
#include "tools/common/util.h"

#define SCHEME "s3://"
#define FIELDS 4

const char ls_usage[] =
	"Usage: penstock ls [OPTION...] URL\n"
	"\n"
	"Lists the objects of a bucket whose keys begin with PREFIX; URL is\n"
	"s3://BUCKET/PREFIX.  A line has size, time and key.  Keys that go on behind\n"
	"a slash are one line, with the size -.\n"
	"\n"
	"  -r, --recursive  list every key\n";

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Undo percent-encoding in place. */
static void decode(char *text)
{
	char *to = text;

	for (; *text; text++) {
		int high = *text == '%' ? hex_digit(text[1]) : -1;
		int low = high >= 0 ? hex_digit(text[2]) : -1;

		*to++ = (char)(low >= 0 ? high << 4 | low : *text);
		text += low >= 0 ? 2 : 0;
	}
	*to = '\0';
}

static void print_row(char *row)
{
	char *field[FIELDS];

	for (unsigned i = 0; i < FIELDS; i++) {
		field[i] = strsep(&row, "\t");
		if (!field[i])
			return;
	}
	decode(field[3]);
	shown_printf(2, "%15s  %-24s  %s", field[0], field[1], field[3]);
}

/* All of the file, which ends with a 0. */
static int read_listing(const char *name, const char *shown_name, char **ret)
{
	struct pst_file_info info = { .sz = sizeof(info) };
	struct pst_file *f = NULL;
	char *text = NULL;
	int64_t n = 0;
	int r = pst_file_open(name, PST_FILE_READ, NULL, &f);

	if (r == 0)
		r = pst_file_info(f, &info);
	if (r == 0) {
		text = malloc(info.size + 1);
		r = text ? 0 : fail(ENOMEM, "out of memory");
	}
	if (r == 0 && info.size)
		n = pst_read(f, 0, NULL, (uintptr_t)text, info.size, NULL);
	(void)pst_file_close(f);
	if (r == 0 && n < 0)
		r = (int)n;
	if (r < 0) {
		free(text);
		return fail_pst(r, shown_name);
	}
	text[n] = '\0';
	*ret = text;
	return 0;
}

static int list(const char *url, bool all)
{
	_cleanup_(freep) char *name = NULL;
	_cleanup_(freep) char *text = NULL;
	const char *rest = url + strlen(SCHEME);
	char *at, *row;
	int r;

	if (asprintf(&name, "s3+list://%s%s%s", rest, all && !strchr(rest, '/') ? "/" : "",
		     all ? "?all" : "") < 0)
		return fail(ENOMEM, "out of memory");
	r = read_listing(name, url, &text);
	if (r < 0)
		return r;
	at = text;
	while ((row = strsep(&at, "\n")))
		if (*row)
			print_row(row);
	return 0;
}

int cmd_ls(int argc, char *argv[])
{
	static const struct option longs[] = {
		{ "recursive", no_argument, NULL, 'r' },
		{ 0 },
	};
	bool all = false;
	int opt;

	while ((opt = getopt_long(argc, argv, ":r", longs, NULL)) != -1) {
		if (opt != 'r')
			return option_error(argv, longs, opt);
		all = true;
	}
	if (argc - optind != 1)
		return usage_error("one URL is needed");
	if (strncmp(argv[optind], SCHEME, strlen(SCHEME)) != 0)
		return usage_error("a URL is s3://BUCKET/PREFIX; ls(1) lists directories");
	return exit_status(list(argv[optind], all));
}
