/* SPDX-License-Identifier: MIT */
#include "raw.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/common/numbers.h"

const char *const mode_names[] = { "plain", "pinned", "odirect", "gpu-write", "cufile" };

static const char usage[] =
	"Usage: raw MODE FILE [OPTION...]\n"
	"\n"
	"Moves FILE to or from GPU memory in the way that MODE names: plain, pinned,\n"
	"odirect (host memory only), gpu-write or cufile.\n"
	"\n"
	"  --size SIZE     bytes of a piece (default 4m)\n"
	"  --threads N     (default 1)\n"
	"  --block SIZE    read a piece in blocks of so many bytes; plain and pinned\n"
	"  --offsets O     seq or random (default seq), of pieces or blocks\n"
	"  --cold          drop the file from the page cache before each pass\n"
	"  --warm          have it there (default)\n"
	"  --io I          buffered or direct (default: direct with odirect and gpu-write)\n"
	"  --passes N      times through the file (default 1)\n"
	"  --seconds SEC   one pass, round and round for so long; reading only\n"
	"  --bytes SIZE    at most so much of the file\n"
	"  --write         odirect and cufile: write\n"
	"  --overwrite     needed to write: destroys what FILE holds\n"
	"  --gpu N         (default 0)\n"
	"  --libcufile L   library to load (default libcufile.so.0)\n"
	"  --json          one JSON object instead of text\n"
	"\n"
	"us/op is the time of a thread from one piece to the next.  Writes are synced in\n"
	"the time.  Status 3: this machine has not what MODE needs.\n";

struct settings set = {
	.size = 4u << 20, .threads = 1, .passes = 1, .libcufile = "libcufile.so.0"
};

__attribute__((noreturn, format(printf, 2, 3))) void die(int status, const char *fmt, ...)
{
	va_list ap;

	(void)fputs("raw: ", stderr);
	va_start(ap, fmt);
	(void)vfprintf(stderr, fmt, ap);
	va_end(ap);
	(void)fputc('\n', stderr);
	exit(status);
}

static uint64_t raw_size_of(const char *text)
{
	uint64_t v;

	if (parse_size(text, &v) < 0 || !v)
		die(2, "'%s' is not a size such as 4m", text);
	return v;
}

static unsigned raw_number_of(const char *text, unsigned max)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);

	if (*end || end == text || v > max)
		die(2, "'%s' is not a number up to %u", text, max);
	return (unsigned)v;
}

static void parse_mode(const char *text)
{
	for (unsigned i = 0; i < ARRAY_SIZE(mode_names); i++)
		if (!strcmp(text, mode_names[i])) {
			set.mode = (enum mode)i;
			return;
		}
	die(2, "there is no mode '%s'; see raw --help", text);
}

static void check_settings(const char *io, bool overwrite)
{
	if (set.mode == GPU_WRITE)
		set.write = true;
	set.direct = io ? !strcmp(io, "direct") : set.mode == ODIRECT || set.mode == GPU_WRITE;
	if (io && !set.direct && strcmp(io, "buffered") != 0)
		die(2, "--io takes buffered or direct");
	if (set.mode == ODIRECT && !set.direct)
		die(2, "odirect is direct");
	if (set.write && (set.mode == PLAIN || set.mode == PINNED))
		die(2, "%s only reads; gpu-write writes", mode_names[set.mode]);
	if (set.write && !overwrite)
		die(2, "this destroys what %s holds; say --overwrite if you mean it", set.path);
	if (!set.block)
		set.block = set.size;
	if (set.size % set.block)
		die(2, "pieces are whole blocks");
	if (set.block != set.size && set.mode != PLAIN && set.mode != PINNED)
		die(2, "--block is for plain and pinned");
	if (set.seconds > 0 && (set.write || set.passes > 1))
		die(2, "--seconds is for one pass of reading");
	if (!set.threads || !set.passes)
		die(2, "there is nothing to do");
}

static void raw_parse(int argc, char *argv[])
{
	enum {
		SIZE = 256,
		BLOCK,
		THREADS,
		OFFSETS,
		IO,
		PASSES,
		SECONDS,
		BYTES,
		OVERWRITE,
		GPU,
		LIB
	};
	static int cold, write, json;
	static const struct option longs[] = {
		{ "size", required_argument, NULL, SIZE },
		{ "block", required_argument, NULL, BLOCK },
		{ "threads", required_argument, NULL, THREADS },
		{ "offsets", required_argument, NULL, OFFSETS },
		{ "cold", no_argument, &cold, 1 },
		{ "warm", no_argument, &cold, 0 },
		{ "io", required_argument, NULL, IO },
		{ "passes", required_argument, NULL, PASSES },
		{ "seconds", required_argument, NULL, SECONDS },
		{ "bytes", required_argument, NULL, BYTES },
		{ "write", no_argument, &write, 1 },
		{ "overwrite", no_argument, NULL, OVERWRITE },
		{ "gpu", required_argument, NULL, GPU },
		{ "libcufile", required_argument, NULL, LIB },
		{ "json", no_argument, &json, 1 },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	const char *io = NULL;
	bool overwrite = false;
	int opt;

	while ((opt = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (opt) {
		case 0:
			break;
		case SIZE:
			set.size = raw_size_of(optarg);
			break;
		case BLOCK:
			set.block = raw_size_of(optarg);
			break;
		case THREADS:
			set.threads = raw_number_of(optarg, THREADS_MAX);
			break;
		case OFFSETS:
			set.random = !strcmp(optarg, "random");
			if (!set.random && strcmp(optarg, "seq") != 0)
				die(2, "--offsets takes seq or random");
			break;
		case IO:
			io = optarg;
			break;
		case PASSES:
			set.passes = raw_number_of(optarg, PASSES_MAX);
			break;
		case SECONDS:
			set.seconds = strtod(optarg, NULL);
			break;
		case BYTES:
			set.bytes = raw_size_of(optarg);
			break;
		case OVERWRITE:
			overwrite = true;
			break;
		case GPU:
			set.gpu = (int)raw_number_of(optarg, 64);
			break;
		case LIB:
			set.libcufile = optarg;
			break;
		case 'h':
			(void)fputs(usage, stdout);
			exit(0);
		default:
			die(2, "see raw --help");
		}
	}
	if (argc - optind != 2)
		die(2, "a mode and a file are wanted; see raw --help");
	parse_mode(argv[optind]);
	set.path = argv[optind + 1];
	set.cold = cold;
	set.write = write;
	set.json = json;
	check_settings(io, overwrite);
}

int main(int argc, char *argv[])
{
	raw_parse(argc, argv);
	raw_file_open();
	if (on_gpu())
		load_cuda();
	if (set.mode == CUFILE)
		load_cufile();
	run();
	return 0;
}
