/* SPDX-License-Identifier: MIT */

#include "cli/commands.h"
#include "compat/gdrapi/tools/gdrtools.h"
#include "tools/common/names.h"
#include "tools/common/util.h"

static const struct command {
	const char *name;
	int (*run)(int argc, char *argv[]);
	const char *summary;
	const char *usage;
} commands[] = {
	{ "demo", cmd_demo, "load model shards and page KV blocks, checked and timed", demo_usage },
	{ "doctor", cmd_doctor, "say which paths this machine has, and what is missing",
	  doctor_usage },
	{ "cp", cmd_cp, "copy a file to a file or into device memory", cp_usage },
	{ "ls", cmd_ls, "list a directory, also of a service", ls_usage },
	{ "stat", cmd_stat, "tell size and time of files, also of a service", stat_usage },
	{ "rm", cmd_rm, "remove files, also of a service", rm_usage },
	{ "mv", cmd_mv, "rename a file, also of a service", mv_usage },
	{ "truncate", cmd_truncate, "set the size of files, also of a service", truncate_usage },
	{ "sum", cmd_sum, "write checksums of safetensors files, or check them", sum_usage },
	{ "bench", cmd_bench, "measure paths against plain pread and copy", bench_usage },
	{ "perf", cmd_perf, "measure what moves between the memory of two processes", perf_usage },
	{ "window", cmd_window, "check and measure the CPU's mappings of device memory",
	  window_usage },
	{ "mount", cmd_mount, "serve a directory to programs, also by rings of 3FS's usrbio",
	  mount_usage },
	{ "umount", cmd_umount, "undo a mount", umount_usage },
	{ "serve", cmd_serve, "serve a directory to programs on other machines", serve_usage },
	{ "top", cmd_top, "show what a mount does, and for which users", top_usage },
	{ "tier", cmd_tier, "keep hot files on the fast disk, and move them safely", tier_usage },
	{ "kv", cmd_kv, "look at a store of blocks of keys and values", kv_usage },
	{ "run", cmd_run, "run a program with our libraries in place of gdrcopy's or 3FS's",
	  run_usage },
};

static void print_help(FILE *f)
{
	(void)fputs("penstock moves bytes between files and host or accelerator memory by the\n"
		    "shortest path the machine allows, and says which path was taken.\n\n"
		    "Usage: penstock COMMAND [OPTION...]\n\nCommands:\n",
		    f);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		(void)fprintf(f, "  %-8s %s\n", commands[i].name, commands[i].summary);
	(void)fputs("  help     [COMMAND]: say what a command does, and its options\n\n"
		    "Start with 'penstock demo' or 'penstock doctor'.\n",
		    f);
}

static const struct command *cli_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

static int no_command(const char *name)
{
	const char *meant = nearest(name, strlen(name), &commands[0].name, sizeof(commands[0]),
				    ARRAY_SIZE(commands));

	if (meant)
		return usage_error("there is no command '%s'; did you mean %s?", name, meant);
	return usage_error("there is no command '%s'", name);
}

static int cli_help(const char *name)
{
	const struct command *c;

	if (!name) {
		print_help(stdout);
		return 0;
	}
	c = cli_find(name);
	if (!c)
		return no_command(name);
	(void)printf("penstock %s: %s\n\n%s", c->name, c->summary, c->usage);
	return 0;
}

static int cli_run(int argc, char *argv[])
{
	const struct command *c;

	if (argc < 2) {
		print_help(stderr);
		return 2;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		(void)printf("penstock %s\n", pst_version());
		return 0;
	}
	if (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return cli_help(argc > 2 ? argv[2] : NULL);
	if (argv[1][0] == '-')
		return usage_error("unknown option %s", argv[1]);
	c = cli_find(argv[1]);
	if (!c)
		return no_command(argv[1]);
	/* For "run", the arguments after the program's name belong to that program. */
	for (int i = 2; i < (c->run == cmd_run ? MIN(argc, 3) : argc); i++) {
		if (!strcmp(argv[i], "--"))
			break;
		if (!strcmp(argv[i], "--help"))
			return cli_help(c->name);
	}
	cmd_name = c->name;
	return c->run(argc - 1, argv + 1);
}

int main(int argc, char *argv[])
{
	int r;

	/* Ignore SIGPIPE, so that commands still clean up after the reader of their output has
	 * ended. */
	(void)signal(SIGPIPE, SIG_IGN);
	/* Ignore SIGXFSZ: exceeding RLIMIT_FSIZE then gives an error with a message. */
	(void)signal(SIGXFSZ, SIG_IGN);
	if (!gdr_tool(argc, argv, &r) && !mount_helper(argc, argv, &r))
		r = cli_run(argc, argv);
	if ((fflush(stdout) != 0 || ferror(stdout)) && r == 0) {
		if (errno != EPIPE)
			say("cannot write the output: %s", strerror(errno));
		r = 1;
	}
	return r;
}
