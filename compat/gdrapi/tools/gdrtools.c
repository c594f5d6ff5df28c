/* SPDX-License-Identifier: MIT */
#include "compat/gdrapi/tools/gdrtools.h"

#include <inttypes.h>

#include "cli/window/opts.h"

/* ----------------------------------------------------------------- options */

int gdr_parse_device(const char *text, char ret[PST_DEVICE_NAME_MAX])
{
	uint64_t nr;

	if (parse_number(text, 0, 1023, &nr) == 0)
		(void)snprintf(ret, PST_DEVICE_NAME_MAX, "cuda:%u", (unsigned)nr);
	else if (*text && strlen(text) < PST_DEVICE_NAME_MAX)
		(void)snprintf(ret, PST_DEVICE_NAME_MAX, "%s", text);
	else
		return fail(EINVAL, "-d takes the number of a GPU, or a device's name");
	return 0;
}

static int parse_alloc(const char *text)
{
	if (!strcmp(text, "cuMemAlloc"))
		return 0;
	if (!strcmp(text, "cuMemCreate"))
		return fail(EOPNOTSUPP, "-a cuMemCreate: libpenstock allocates by cuMemAlloc");
	return fail(EINVAL, "-a takes cuMemAlloc");
}

static int parse_map(const char *text, uint32_t *ret)
{
	if (!strcmp(text, "default"))
		*ret = 0;
	else if (!strcmp(text, "cache"))
		*ret = PST_CACHING_CACHED;
	else if (!strcmp(text, "cached") || win_parse_caching(text, ret) < 0)
		return fail(EINVAL, "-M takes default, wc, cache or device");
	return 0;
}

/* Parse a number as strtoul() does, also in hexadecimal and octal. */
static int parse_any_base(int opt, const char *text, uint64_t *ret)
{
	char *end = NULL;

	errno = 0;
	if (*text >= '0' && *text <= '9')
		*ret = strtoull(text, &end, 0);
	if (!end || *end || errno || *ret > GIB(64))
		return fail(EINVAL, "-%c takes a number", opt);
	return 0;
}

static int parse_one(int opt, const char *text, struct gdr_opts *o)
{
	switch (opt) {
	case 'd':
		return gdr_parse_device(text, o->device);
	case 'a':
		return parse_alloc(text);
	case 'M':
		return parse_map(text, &o->caching);
	case 'l':
		o->every_size = true;
		return 0;
	case 's':
		return parse_any_base(opt, text, &o->size);
	case 'c':
		return parse_any_base(opt, text, &o->copy);
	case 'o':
		return parse_any_base(opt, text, &o->off);
	case 'r':
		return parse_any_base(opt, text, &o->reads);
	case 'w':
		return parse_any_base(opt, text, &o->writes);
	default:
		return parse_any_base(opt, text, &o->count);
	}
}

static int print_usage(const char *known)
{
	(void)printf("Usage: %s", cmd_name);
	for (const char *p = known + 1; *p; p++)
		if (*p != ':')
			(void)printf(" [-%c%s]", *p, p[1] == ':' ? " VALUE" : "");
	(void)puts("\n\nThe tool of that name in gdrcopy, measuring windows of libpenstock;\n"
		   "see penstock-window(1).");
	return GDR_HELP;
}

int gdr_parse(int argc, char *argv[], const char *known, struct gdr_opts *ret)
{
	int opt, r = 0;

	while (r == 0 && (opt = getopt(argc, argv, known)) != -1) {
		if (opt == 'h')
			return print_usage(known);
		if (opt == ':')
			return fail(EINVAL, "option -%c needs a value", optopt);
		if (opt == '?')
			return fail(EINVAL,
				    "option -%c cannot be served; %s -h lists those that can",
				    optopt, cmd_name);
		r = parse_one(opt, optarg, ret);
	}
	if (r == 0 && optind < argc)
		return fail(EINVAL, "unexpected argument %s", argv[optind]);
	return r;
}

/* ------------------------------------------------------------ common lines */

/* Print a device with its PCI address, without the function number; a device without a bus has no
 * address. */
static void gdrtools_print_device(const struct pst_device *d)
{
	size_t len = strcspn(d->pci, ".");

	(void)printf("GPU id:%u; name: %s; Bus id: %.*s\n", d->index, d->model, len ? (int)len : 4,
		     len ? d->pci : "none");
}

int gdr_print_devices(const char *device)
{
	struct pst_device devs[64], wanted;
	int n, r;

	r = device_pick(device, &wanted);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(devs); i++)
		devs[i] = (struct pst_device){ .sz = sizeof(devs[i]) };
	n = pst_device_list(devs, ARRAY_SIZE(devs));
	for (int i = 0; i < MIN(n, (int)ARRAY_SIZE(devs)); i++)
		if (devs[i].kind == wanted.kind)
			gdrtools_print_device(&devs[i]);
	(void)printf("selecting device %u\n", wanted.index);
	return 0;
}

int gdr_open(const struct gdr_opts *o, uint64_t size, struct win *ret)
{
	const struct win_set set = { .device = o->device, .caching = o->caching };

	return win_open(ret, &set, size, GDR_PAGE);
}

const char *gdr_alloc_name(const struct win *win)
{
	return win->dev.kind == PST_KIND_CUDA ? "cuMemAlloc" : "pst_mem_alloc";
}

void gdr_print_info(const struct win *win, bool with_types)
{
	(void)printf("info.va: %" PRIx64 "\ninfo.mapped_size: %" PRIu64 "\ninfo.page_size: %u\n",
		     win->mem_info.addr + win->off, win->len, (unsigned)GDR_PAGE);
	if (with_types)
		(void)printf("info.mapped: 1\ninfo.wc_mapping: %d\n",
			     win->info.caching == PST_CACHING_WC);
	(void)puts("page offset: 0");
}

void gdr_close(struct win *win)
{
	(void)puts("unmapping buffer");
	win->w = pst_window_close(win->w);
	(void)puts("unpinning buffer");
	win->mem = pst_mem_free(win->mem);
	(void)puts("closing gdrdrv");
}

double gdr_mb_per_s(uint64_t bytes, uint64_t ns)
{
	return ns ? (double)bytes * 1e9 / (double)ns / (double)MIB(1) : 0;
}

/* ------------------------------------------------------------------- names */

static const struct {
	const char *name;
	int (*run)(int argc, char *argv[]);
} tools[] = {
	{ "validate", gdr_first_validate }, { "copybw", gdr_first_copybw },
	{ "gdrcopy_copybw", gdr_copybw },   { "gdrcopy_copylat", gdr_copylat },
	{ "gdrcopy_apiperf", gdr_apiperf }, { "gdrcopy_sanity", gdr_sanity },
};

bool gdr_tool(int argc, char *argv[], int *ret_status)
{
	const char *name = argc ? strrchr(argv[0], '/') : NULL;
	int r;

	name = name ? name + 1 : argc ? argv[0] : "";
	for (size_t i = 0; i < ARRAY_SIZE(tools); i++) {
		if (strcmp(name, tools[i].name) != 0)
			continue;
		cmd_name = tools[i].name;
		r = tools[i].run(argc, argv);
		if (r < 0)
			say("%s", fail_text());
		*ret_status = r < 0;
		return true;
	}
	return false;
}
