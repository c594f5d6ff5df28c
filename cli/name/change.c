/* SPDX-License-Identifier: MIT */
/* Remove, rename and truncate files of any service. */
#include <getopt.h>

#include "cli/commands.h"
#include "tools/common/util.h"

const char rm_usage[] = "Usage: penstock rm FILE...\n"
			"\n"
			"Removes files: paths, or names of a service, such as s3://BUCKET/KEY,\n"
			"pst://HOST:PORT/PATH or tier://SET/PATH.  Directories stay.\n";

const char mv_usage[] =
	"Usage: penstock mv FILE NEW\n"
	"\n"
	"Gives a file another name in the same service; a file that has the name NEW\n"
	"is replaced in one step.  Objects are not renamed: copy them by penstock cp.\n";

const char truncate_usage[] = "Usage: penstock truncate --size SIZE FILE...\n"
			      "\n"
			      "Sets the size of files; new bytes are 0.\n"
			      "\n"
			      "  -s, --size SIZE  bytes, or with a suffix: 64K, 1.5G\n";

static const struct option no_options[] = { { 0 } };

/* Return the number of names after the options; negative, with an exit status in *ret, for a bad
 * command line. */
static int only_names(int argc, char *argv[], int *ret)
{
	int opt = getopt_long(argc, argv, ":", no_options, NULL);

	if (opt == -1)
		return argc - optind;
	*ret = option_error(argv, no_options, opt);
	return -1;
}

int cmd_rm(int argc, char *argv[])
{
	int status = 0, nr = only_names(argc, argv, &status), ret = 0;

	if (nr < 0)
		return status;
	if (!nr)
		return usage_error("a name is needed");
	for (int i = optind; i < argc; i++) {
		int r = pst_name_unlink(argv[i]);

		if (r < 0)
			ret = say_failure(r, argv[i]);
	}
	return ret;
}

int cmd_mv(int argc, char *argv[])
{
	int status = 0, nr = only_names(argc, argv, &status), r;

	if (nr < 0)
		return status;
	if (nr != 2)
		return usage_error("a name and a new one are needed");
	r = pst_name_rename(argv[optind], argv[optind + 1]);
	return exit_status(r < 0 ? fail_pst(r, argv[optind]) : 0);
}

int cmd_truncate(int argc, char *argv[])
{
	static const struct option longs[] = {
		{ "size", required_argument, NULL, 's' },
		{ 0 },
	};
	uint64_t size = UINT64_MAX;
	int opt, ret = 0;

	while ((opt = getopt_long(argc, argv, ":s:", longs, NULL)) != -1) {
		if (opt != 's')
			return option_error(argv, longs, opt);
		if (parse_size(optarg, &size) < 0)
			return usage_error("'%s' is no size", optarg);
	}
	if (size == UINT64_MAX)
		return usage_error("--size is needed");
	if (optind == argc)
		return usage_error("a name is needed");
	for (int i = optind; i < argc; i++) {
		int r = pst_name_truncate(argv[i], size);

		if (r < 0)
			ret = say_failure(r, argv[i]);
	}
	return ret;
}
