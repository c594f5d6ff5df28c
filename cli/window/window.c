/* SPDX-License-Identifier: MIT */
#include "cli/window/window.h"

#include <getopt.h>

#include "cli/commands.h"
#include "cli/window/opts.h"
#include "tools/common/names.h"

const char window_usage[] =
	"Usage: penstock window SUBCOMMAND [OPTION...]\n"
	"\n"
	"A window is device memory in the address space of the CPU.  Subcommands:\n"
	"\n"
	"  validate          copy at every alignment, both ways, and compare each byte\n"
	"  copybw            bandwidth of stores and loads, and of the device's copies\n"
	"  copylat           time of a store and of a load by size, and of the same\n"
	"  apiperf           time to open and to close a window\n"
	"  pingpong          round trip of a flag between two processes in device memory\n"
	"\n"
	"For all of them:\n"
	"  -d, --device DEV  cuda:0, soft:0, ... (default: an accelerator, else soft:0)\n"
	"  --backend NAME    gdrdrv, dmabuf, nvrm or soft (default: the first that\n"
	"                    works)\n"
	"  --caching C       only a window that is wc, cached or device\n"
	"  --kernel NAME     copy with avx512, avx2, ..., memcpy (default: the fastest);\n"
	"                    copybw: all, a row for each\n"
	"  --json            one JSON object instead of the table\n"
	"\n"
	"For some of them:\n"
	"  --size SIZE       validate: bytes of the buffer (default 320k)\n"
	"  --random N        validate: random copies (default 1000)\n"
	"  --seed N          validate: which ones (default: others each time)\n"
	"  --sizes LIST      copybw: bytes of a copy (default 4k,64k,1m)\n"
	"  -t, --threads L   copybw: threads, a slice for each, such as 1,2,4,8\n"
	"                    (default 1)\n"
	"  --max SIZE        copylat, apiperf: largest size (default 16m)\n"
	"  -n, --count N     apiperf: windows of each size (default 100);\n"
	"                    pingpong: round trips (default 10000)\n"
	"  --runtime SEC     copybw, copylat: longest time for each number (default\n"
	"                    0.5)\n"
	"  --baseline B      copybw, copylat: copies (the device's own) or none\n";

/* ------------------------------------------------------------ the window */

const char *win_caching_name(uint32_t caching)
{
	static const char *const names[] = { "unknown", "wc", "cached", "device" };

	return names[caching < ARRAY_SIZE(names) ? caching : 0];
}

struct pst_window_opts win_opts(const struct win_set *set)
{
	return (struct pst_window_opts){
		.sz = sizeof(struct pst_window_opts),
		.caching = set->caching,
		.backend = set->backend,
		.kernel = set->kernel,
	};
}

int win_again(const struct win *win, const struct win_set *set, uint64_t off, uint64_t len,
	      struct pst_window **ret)
{
	struct pst_window_opts o = win_opts(set);
	int r = pst_window_open(win->mem, win->off + off, len, &o, ret);

	return r < 0 ? fail_pst(r, win->dev.name) : 0;
}

int win_map(struct win *win, const struct win_set *set)
{
	int r;

	win->w = pst_window_close(win->w);
	r = win_again(win, set, 0, win->len, &win->w);
	if (r < 0)
		return r;
	win->ptr = pst_window_ptr(win->w);
	win->info.sz = sizeof(win->info);
	r = pst_window_info(win->w, &win->info);
	return r < 0 ? fail_pst(r, win->dev.name) : 0;
}

static int win_alloc(struct win *win, uint64_t align)
{
	int r;

	r = pst_mem_alloc(win->dev.name, win->len + align - 1, NULL, &win->mem);
	if (r < 0)
		return fail_pst(r, win->dev.name);
	win->mem_info.sz = sizeof(win->mem_info);
	r = pst_mem_info(win->mem, &win->mem_info);
	if (r < 0)
		return fail_pst(r, win->dev.name);
	win->off = align_up(win->mem_info.addr, align) - win->mem_info.addr;
	return 0;
}

int win_open(struct win *win, const struct win_set *set, uint64_t len, uint64_t align)
{
	int r;

	*win = (struct win){ .len = len };
	r = device_pick(set->device, &win->dev);
	if (r == 0)
		r = win_alloc(win, align);
	if (r == 0)
		r = win_map(win, set);
	if (r < 0)
		win_close(win);
	return r;
}

void win_close(struct win *win)
{
	win->w = pst_window_close(win->w);
	win->mem = pst_mem_free(win->mem);
}

/* ----------------------------------------------------------------- options */

static const struct {
	const char *name;
	int (*run)(const struct win_set *set);
	uint32_t takes; /* WIN_OPT_* that the subcommand accepts */
} subs[] = {
	{ "validate", win_validate, WIN_OPT_SIZE | WIN_OPT_RANDOM | WIN_OPT_SEED },
	{ "copybw", win_copybw,
	  WIN_OPT_SIZES | WIN_OPT_THREADS | WIN_OPT_RUNTIME | WIN_OPT_BASELINE },
	{ "copylat", win_copylat, WIN_OPT_MAX | WIN_OPT_RUNTIME | WIN_OPT_BASELINE },
	{ "apiperf", win_apiperf, WIN_OPT_MAX | WIN_OPT_COUNT },
	{ "pingpong", win_pingpong, WIN_OPT_COUNT },
};

/* Check that a subcommand accepts the options that were given.  Return 0 or an exit status. */
static int check_used(const char *sub, uint32_t takes, uint32_t used)
{
	const char *name = win_opt_name(used & ~takes);

	return name ? usage_error("%s does not take %s", sub, name) : 0;
}

int cmd_window(int argc, char *argv[])
{
	const char *meant = NULL;
	struct win_set set;
	uint32_t used;
	int r;

	r = win_opts_parse(argc, argv, &set, &used);
	if (r)
		return r;
	if (optind + 1 < argc)
		return usage_error("unexpected argument %s", argv[optind + 1]);
	for (size_t i = 0; optind < argc && i < ARRAY_SIZE(subs); i++) {
		if (strcmp(argv[optind], subs[i].name) != 0)
			continue;
		r = check_used(subs[i].name, subs[i].takes, used);
		if (r)
			return r;
		signals_catch();
		return exit_status(subs[i].run(&set));
	}
	if (optind < argc)
		meant = nearest(argv[optind], strlen(argv[optind]), &subs[0].name, sizeof(subs[0]),
				ARRAY_SIZE(subs));
	if (meant)
		return usage_error("there is no subcommand '%s'; did you mean %s?", argv[optind],
				   meant);
	return usage_error("say what to do: validate, copybw, copylat, apiperf or pingpong");
}
