/* SPDX-License-Identifier: MIT */
/*
 * Compare file reads to GPU memory: NVIDIA's cuFile, Penstock, and pread(2) with a copy, for
 * several block sizes and thread counts, cold and warm.  See cufile.h.
 */
#include <fcntl.h>
#include <getopt.h>
#include <sys/stat.h>

#include "cufile.h"

static const char usage[] =
	"Usage: cufile [OPTION...]\n"
	"\n"
	"Reads a file into GPU memory by cuFile, by Penstock and by hand, and compares\n"
	"them.\n"
	"\n"
	"  --file PATH     (default: one in $TMPDIR or /var/tmp, removed at the end)\n"
	"  --size SIZE     of the file that is made (default 2g)\n"
	"  --blocks LIST   (default 4k,64k,1m,16m)\n"
	"  --threads LIST  (default 1,4,16)\n"
	"  --cold, --warm, --both\n"
	"                  whether the page cache holds the file (default --both)\n"
	"  --seconds S     of measuring for each way in each cell (default 1)\n"
	"  --turns N       in which they are spent (default 3)\n"
	"  --depth N       blocks that Penstock has in flight for a thread, fewer when\n"
	"                  they are large (default 16)\n"
	"  --batch N       entries of a batch of cuFile (default 16)\n"
	"  --patience S    a way that does not answer for so long hangs (default 10)\n"
	"  --gpu N         (default 0)\n"
	"  --libcufile L   library to load (default: the one that is found)\n"
	"  --json          one JSON object instead of a table\n"
	"\n"
	"Status 1: bytes were cufile_wrong, or something other than cuFile failed; 3: no NVIDIA\n"
	"GPU.\n";

struct settings set = {
	.size = GIB(2),
	.blocks = { KIB(4), KIB(64), MIB(1), MIB(16) },
	.nr_blocks = 4,
	.threads = { 1, 4, 16 },
	.nr_threads = 3,
	.turns = 3,
	.depth = 16,
	.batch = 16,
	.seconds = 1,
	.patience = 10,
	.cold = true,
	.warm = true,
};

/* -------------------------------------------------------------------- file */

/* Fill the file so that each eight bytes contain their own offset. */
static int cufile_fill(int fd, const char *path)
{
	_cleanup_(freep) uint64_t *buf = malloc(MIB(1));
	int r = buf ? 0 : fail(ENOMEM, "out of memory");

	for (uint64_t off = 0; r == 0 && off < set.size; off += MIB(1)) {
		for (size_t i = 0; i < MIB(1) / 8; i++)
			buf[i] = off + i * 8;
		r = pwrite_all(fd, buf, MIN(MIB(1), set.size - off), off, path);
		if (stop_signal)
			r = fail(EINTR, "interrupted");
	}
	if (r == 0 && fsync(fd) < 0)
		r = fail(errno, "%s: %s", path, strerror(errno));
	return r;
}

static int cufile_run_on(const char *path, int flags)
{
	_cleanup_(closep) int fd = open(path, flags | O_CLOEXEC, 0600);
	struct stat st;
	int r = 0;

	set.path = path;
	if (fd < 0 || fstat(fd, &st) < 0)
		return fail(errno, "cannot open %s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return fail(EINVAL, "%s is no regular file", path);
	if (flags & O_CREAT)
		r = cufile_fill(fd, path);
	else
		set.size = (uint64_t)st.st_size;
	set.size &= ~UINT64_C(4095);
	if (r == 0 && !set.size)
		r = fail(EINVAL, "%s has not a page", path);
	return r < 0 ? r : cells_run(path, fd);
}

static int cufile_run(void)
{
	_cleanup_(freep) char *dir = NULL, *path = NULL;
	int r;

	if (set.path)
		return cufile_run_on(set.path, O_RDONLY);
	r = scratch_dir(NULL, &dir);
	if (r < 0)
		return r;
	r = asprintf(&path, "%s/file", dir) < 0 ? fail(ENOMEM, "out of memory")
						: cufile_run_on(path, O_RDWR | O_CREAT | O_EXCL);
	scratch_remove(dir);
	return r;
}

/* ----------------------------------------------------------------- options */

__attribute__((noreturn)) static void cufile_wrong(const char *what, const char *text)
{
	(void)fprintf(stderr, "cufile: '%s' is no %s; see --help\n", text, what);
	exit(2);
}

static unsigned cufile_number(const char *text, uint64_t max)
{
	uint64_t v = 0;

	if (parse_number(text, 1, max, &v) < 0)
		cufile_wrong("number that is allowed here", text);
	return (unsigned)v;
}

static double seconds(const char *text)
{
	double v = 0;

	if (parse_seconds(text, &v) < 0 || v > 3600)
		cufile_wrong("time in seconds", text);
	return v;
}

static uint64_t size(const char *text)
{
	uint64_t v = 0;

	if (parse_size(text, &v) < 0 || !v || v % 4096)
		cufile_wrong("size in whole pages, as 64k or 1m", text);
	return v;
}

static void blocks(char *text)
{
	char *save = NULL;

	set.nr_blocks = 0;
	for (char *s = strtok_r(text, ",", &save); s; s = strtok_r(NULL, ",", &save)) {
		if (set.nr_blocks == LIST_MAX || size(s) > MIB(64))
			cufile_wrong("list of up to eight blocks of at most 64m", s);
		set.blocks[set.nr_blocks++] = size(s);
	}
}

static void threads(char *text)
{
	char *save = NULL;

	set.nr_threads = 0;
	for (char *s = strtok_r(text, ",", &save); s; s = strtok_r(NULL, ",", &save)) {
		if (set.nr_threads == LIST_MAX)
			cufile_wrong("list of up to eight numbers", s);
		set.threads[set.nr_threads++] = cufile_number(s, THREADS_MAX);
	}
}

enum {
	FILE_ = 256,
	SIZE,
	BLOCKS,
	THREADS,
	COLD,
	WARM,
	BOTH,
	SECONDS,
	TURNS,
	DEPTH,
	BATCH,
	PATIENCE,
	GPU,
	LIB,
	JSON
};

static void cufile_option(int opt, char *arg)
{
	switch (opt) {
	case FILE_:
		set.path = arg;
		break;
	case SIZE:
		set.size = size(arg);
		break;
	case BLOCKS:
		blocks(arg);
		break;
	case THREADS:
		threads(arg);
		break;
	case COLD:
	case WARM:
	case BOTH:
		set.cold = opt != WARM;
		set.warm = opt != COLD;
		break;
	case SECONDS:
		set.seconds = seconds(arg);
		break;
	case TURNS:
		set.turns = cufile_number(arg, TURNS_MAX);
		break;
	case DEPTH:
		set.depth = cufile_number(arg, SLOTS_MAX);
		break;
	case BATCH:
		set.batch = cufile_number(arg, 128);
		break;
	case PATIENCE:
		set.patience = seconds(arg);
		break;
	case GPU:
		set.gpu = strcmp(arg, "0") ? cufile_number(arg, 63) : 0;
		break;
	case LIB:
		set.libcufile = arg;
		break;
	case JSON:
		set.json = true;
		break;
	case 'h':
		(void)fputs(usage, stdout);
		exit(0);
	default:
		exit(2);
	}
}

static void cufile_parse(int argc, char *argv[])
{
	static const struct option longs[] = {
		{ "file", required_argument, NULL, FILE_ },
		{ "size", required_argument, NULL, SIZE },
		{ "blocks", required_argument, NULL, BLOCKS },
		{ "threads", required_argument, NULL, THREADS },
		{ "cold", no_argument, NULL, COLD },
		{ "warm", no_argument, NULL, WARM },
		{ "both", no_argument, NULL, BOTH },
		{ "seconds", required_argument, NULL, SECONDS },
		{ "turns", required_argument, NULL, TURNS },
		{ "depth", required_argument, NULL, DEPTH },
		{ "batch", required_argument, NULL, BATCH },
		{ "patience", required_argument, NULL, PATIENCE },
		{ "gpu", required_argument, NULL, GPU },
		{ "libcufile", required_argument, NULL, LIB },
		{ "json", no_argument, NULL, JSON },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	const char *named = getenv("PST_LIBCUFILE");
	int opt;

	set.libcufile = named && *named ? named : NULL;
	while ((opt = getopt_long(argc, argv, "h", longs, NULL)) != -1)
		cufile_option(opt, optarg);
	if (optind < argc)
		cufile_wrong("option", argv[optind]);
	if (!set.nr_blocks || !set.nr_threads)
		cufile_wrong("list", "");
}

int main(int argc, char *argv[])
{
	int r, bad;

	cmd_name = "cufile";
	cufile_parse(argc, argv);
	signals_catch();
	r = cufile_run();
	bad = report_end();
	if (r < 0)
		bad = exit_status(r);
	return r == -ENODEV ? 3 : bad;
}
