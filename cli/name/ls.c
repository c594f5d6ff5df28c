/* SPDX-License-Identifier: MIT */
/* List a directory of any service, and show what names refer to. */
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "cli/commands.h"
#include "tools/common/shown.h"
#include "tools/common/util.h"

const char ls_usage[] =
	"Usage: penstock ls [OPTION...] [DIR]\n"
	"\n"
	"Lists a directory: a path, or a name of a service, such as\n"
	"s3://BUCKET/PREFIX, rados://POOL/PREFIX, pst://HOST:PORT/DIR or tier://SET/DIR.\n"
	"A line has size, time and name; a directory has the size - and a slash behind\n"
	"its name.\n"
	"\n"
	"  -r, --recursive  the files of all directories beneath, in any order\n"
	"  --json           an object for each line: name, kind, size, mtime_ns\n";

const char stat_usage[] =
	"Usage: penstock stat [--json] FILE...\n"
	"\n"
	"Tells kind, size and time of files, as penstock ls does of a directory's.\n"
	"\n"
	"  --json           an object for each line: name, kind, size, mtime_ns\n";

enum { JSON = 256 };

#define NAME_SHOWN_MAX 16384

struct entry {
	char *name;
	struct pst_name_info info;
};

struct entries {
	bool json, stream;
	struct entry *of;
	size_t nr, max;
};

static const char *ls_kind_name(uint32_t kind)
{
	switch (kind) {
	case PST_NAME_FILE:
		return "file";
	case PST_NAME_DIR:
		return "directory";
	default:
		return "other";
	}
}

/* Write the time by RFC 3339 in UTC; "-" if unknown. */
static void mtime_text(const struct pst_name_info *info, char *ret, size_t len)
{
	time_t at = (time_t)(info->mtime_ns / 1000000000);
	struct tm tm;

	if (!(info->has & PST_NAME_HAS_MTIME) || !gmtime_r(&at, &tm) ||
	    !strftime(ret, len, "%Y-%m-%dT%H:%M:%SZ", &tm))
		(void)snprintf(ret, len, "-");
}

static void ls_print_json(const char *name, const struct pst_name_info *info)
{
	char text[NAME_SHOWN_MAX];

	shown(text, sizeof(text), name);
	printf("{\"name\": \"%s\", \"kind\": \"%s\"", text, ls_kind_name(info->kind));
	if (info->has & PST_NAME_HAS_SIZE && info->kind == PST_NAME_FILE)
		printf(", \"size\": %" PRIu64, info->size);
	if (info->has & PST_NAME_HAS_MTIME)
		printf(", \"mtime_ns\": %" PRId64, info->mtime_ns);
	printf("}\n");
}

static void ls_print_text(const char *name, const struct pst_name_info *info)
{
	bool slash = info->kind == PST_NAME_DIR && *name && name[strlen(name) - 1] != '/';
	char size[24] = "-", when[32];

	if (info->has & PST_NAME_HAS_SIZE && info->kind == PST_NAME_FILE)
		(void)snprintf(size, sizeof(size), "%" PRIu64, info->size);
	mtime_text(info, when, sizeof(when));
	shown_printf(2, "%15s  %-20s  %s%s", size, when, name, slash ? "/" : "");
}

static void print_entry(bool json, const char *name, const struct pst_name_info *info)
{
	if (json)
		ls_print_json(name, info);
	else
		ls_print_text(name, info);
}

static int take_entry(void *arg, const char *name, const struct pst_name_info *info)
{
	struct entries *e = arg;
	struct entry *more;

	if (e->stream) {
		print_entry(e->json, name, info);
		return 0;
	}
	if (e->nr == e->max) {
		e->max = e->max ? 2 * e->max : 64;
		more = reallocarray(e->of, e->max, sizeof(*more));
		if (!more)
			return fail(ENOMEM, "out of memory");
		e->of = more;
	}
	e->of[e->nr] = (struct entry){ strdup(name), *info };
	if (!e->of[e->nr].name)
		return fail(ENOMEM, "out of memory");
	e->nr++;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

int cmd_ls(int argc, char *argv[])
{
	static const struct option longs[] = {
		{ "recursive", no_argument, NULL, 'r' },
		{ "json", no_argument, NULL, JSON },
		{ 0 },
	};
	struct entries e = { 0 };
	const char *name;
	int opt, r;

	while ((opt = getopt_long(argc, argv, ":r", longs, NULL)) != -1) {
		if (opt == 'r')
			e.stream = true;
		else if (opt == JSON)
			e.json = true;
		else
			return option_error(argv, longs, opt);
	}
	if (argc - optind > 1)
		return usage_error("one name is needed");
	name = optind < argc ? argv[optind] : ".";
	r = pst_name_list(name, PST_NAME_FACTS | (e.stream ? PST_NAME_TREE : 0), take_entry, &e);
	if (r < 0)
		r = fail_pst(r, name);
	if (e.nr)
		qsort(e.of, e.nr, sizeof(*e.of), by_name);
	for (size_t i = 0; i < e.nr; i++) {
		if (r == 0)
			print_entry(e.json, e.of[i].name, &e.of[i].info);
		free(e.of[i].name);
	}
	free(e.of);
	return exit_status(r);
}

int cmd_stat(int argc, char *argv[])
{
	static const struct option longs[] = {
		{ "json", no_argument, NULL, JSON },
		{ 0 },
	};
	bool json = false;
	int opt, ret = 0;

	while ((opt = getopt_long(argc, argv, ":", longs, NULL)) != -1) {
		if (opt != JSON)
			return option_error(argv, longs, opt);
		json = true;
	}
	if (optind == argc)
		return usage_error("a name is needed");
	for (int i = optind; i < argc; i++) {
		struct pst_name_info info = { .sz = sizeof(info) };
		int r = pst_name_stat(argv[i], &info);

		if (r < 0)
			ret = say_failure(r, argv[i]);
		else
			print_entry(json, argv[i], &info);
	}
	return ret;
}
