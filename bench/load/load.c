/* SPDX-License-Identifier: MIT */
#include "load.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "tools/common/json.h"
#include "tools/common/machine.h"

static const char usage[] =
	"Usage: load [OPTION...] FILE...\n"
	"\n"
	"Loads all tensors of safetensors files into device memory, by Penstock or by\n"
	"hand, and prints a line of JSON for each load.  bench/loaders compares this with\n"
	"other loaders.\n"
	"\n"
	"  --by WAY       penstock: a request for each tensor; pinned: pread(2)\n"
	"                 into pinned memory and cuMemcpyHtoDAsync (default penstock)\n"
	"  --device D     host, soft:0, cuda:0, ... (default cuda:0)\n"
	"  --per WHAT     an allocation of device memory for each tensor or file\n"
	"                 (default tensor)\n"
	"  --threads N    pinned: threads that read (default 8); penstock: files at a\n"
	"                 time (default 8)\n"
	"  --piece SIZE   pinned: bytes of a buffer, in whole pages (default 4m)\n"
	"  --direct       pinned: read by O_DIRECT\n"
	"  --stable       penstock: open the files as stable\n"
	"  --loads N      in this process (default 3)\n"
	"  --crc          also the length and CRC-32 of each tensor as it is on the device\n"
	"  --steps        wait for a line before each load, \"load\" or \"load verify\";\n"
	"                 the end of the input ends the program\n";

struct settings set = { .threads = 8, .piece = MIB(4) };

static struct {
	const char *device;
	unsigned loads;
	bool pinned, steps, crc;
	struct shard *shards;
	unsigned nr;
} run = { .device = "cuda:0", .loads = 3 };

/* ----------------------------------------------------------------- printing */

static void load_print_line(struct json_object *o)
{
	(void)puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN |
							     JSON_C_TO_STRING_NOSLASHESCAPE));
	(void)fflush(stdout);
}

static void print_ready(void)
{
	_cleanup_(json_putp) struct json_object *o = json_object_new_object();
	struct json_object *versions = json_object_new_object();

	json_text(o, "event", "ready");
	json_text(o, "device", set.device.name);
	json_text(o, "model", set.device.model);
	json_text(versions, "penstock", pst_version());
	json_add(o, "versions", versions);
	load_print_line(o);
}

static int crc_of(void *arg, unsigned idx)
{
	uint32_t **crc = arg;

	crc[idx] = calloc(run.shards[idx].st->nr + 1, sizeof(uint32_t));
	return crc[idx] ? shard_crc(&run.shards[idx], crc[idx]) : fail(ENOMEM, "out of memory");
}

static int add_tensors(struct json_object *to)
{
	uint32_t **crc = calloc(run.nr, sizeof(*crc));
	struct json_object *tensors = json_object_new_object();
	int r = crc ? each(run.nr, THREADS_MAX, crc_of, crc) : fail(ENOMEM, "out of memory");

	for (unsigned i = 0; r == 0 && i < run.nr; i++)
		for (size_t k = 0; k < run.shards[i].st->nr; k++) {
			struct json_object *t = json_object_new_array();

			json_u64(t, NULL, run.shards[i].st->tensors[k].len);
			json_u64(t, NULL, crc[i][k]);
			json_add(tensors, run.shards[i].st->tensors[k].name, t);
		}
	json_add(to, "tensors", tensors);
	for (unsigned i = 0; crc && i < run.nr; i++)
		free(crc[i]);
	free(crc);
	return r;
}

static uint64_t bytes_loaded(void)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < run.nr; i++)
		for (size_t k = 0; k < run.shards[i].st->nr; k++)
			sum += run.shards[i].st->tensors[k].len;
	return sum;
}

/* Return the seconds that all threads together spent allocating device memory. */
static double alloc_seconds(void)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < run.nr; i++)
		sum += run.shards[i].alloc_ns;
	return (double)sum / 1e9;
}

/* -------------------------------------------------------------------- loads */

static int load_once(bool verify)
{
	_cleanup_(json_putp) struct json_object *o = json_object_new_object();
	bool restarted = resident_restart();
	uint64_t resident = resident_now(), begun;
	char path[256] = "";
	double cpu;
	int r;

	cpu = cpu_seconds();
	begun = now_ns();
	r = (run.pinned ? pinned_load : penstock_load)(run.shards, run.nr, path, sizeof(path));
	json_text(o, "event", "load");
	json_num(o, "seconds", (double)(now_ns() - begun) / 1e9);
	json_num(o, "cpu_s", cpu_seconds() - cpu);
	json_num(o, "alloc_s", alloc_seconds());
	if (restarted)
		json_u64(o, "host_bytes", MAX(resident_most(), resident) - resident);
	json_u64(o, "bytes", r == 0 ? bytes_loaded() : 0);
	json_text(o, "path", path);
	if (r == 0 && verify)
		r = add_tensors(o);
	for (unsigned i = 0; i < run.nr; i++)
		shard_drop(&run.shards[i]);
	if (r == 0)
		load_print_line(o);
	return r;
}

static int load_in_steps(void)
{
	char line[32];
	int r = 0;

	while (r == 0 && fgets(line, sizeof(line), stdin))
		r = load_once(!strcmp(line, "load verify\n"));
	return r;
}

static int load_all(void)
{
	int r = pst_device_find(run.device, &set.device);

	if (r < 0)
		return fail_pst(r, run.device);
	r = device_start();
	if (r < 0)
		return r;
	print_ready();
	if (run.steps)
		return load_in_steps();
	for (unsigned i = 0; r == 0 && i < run.loads; i++)
		r = load_once(run.crc);
	return r;
}

/* ------------------------------------------------------------------ options */

__attribute__((noreturn)) static void wrong(const char *option, const char *text)
{
	(void)fprintf(stderr, "load: --%s does not take '%s'; see --help\n", option, text);
	exit(2);
}

static unsigned load_number(const char *option, const char *text, uint64_t max)
{
	uint64_t v = 0;

	if (parse_number(text, 1, max, &v) < 0)
		wrong(option, text);
	return (unsigned)v;
}

/* Return true for the second of two words; exit if the text is neither. */
static bool second(const char *option, const char *text, const char *a, const char *b)
{
	if (strcmp(text, a) != 0 && strcmp(text, b) != 0)
		wrong(option, text);
	return !strcmp(text, b);
}

static const struct option longs[] = {
	{ "by", required_argument, NULL, 'b' },    { "device", required_argument, NULL, 'd' },
	{ "per", required_argument, NULL, 'p' },   { "threads", required_argument, NULL, 't' },
	{ "piece", required_argument, NULL, 's' }, { "direct", no_argument, NULL, 'D' },
	{ "stable", no_argument, NULL, 'S' },      { "loads", required_argument, NULL, 'l' },
	{ "crc", no_argument, NULL, 'c' },         { "steps", no_argument, NULL, 'w' },
	{ "help", no_argument, NULL, 'h' },        { 0 },
};

static void load_take(int opt, const char *arg)
{
	switch (opt) {
	case 'b':
		run.pinned = second("by", arg, "penstock", "pinned");
		break;
	case 'd':
		run.device = arg;
		break;
	case 'p':
		set.per_file = second("per", arg, "tensor", "file");
		break;
	case 't':
		set.threads = load_number("threads", arg, THREADS_MAX);
		break;
	case 's':
		if (parse_size(arg, &set.piece) < 0 || !set.piece || set.piece % 4096 ||
		    set.piece > GIB(1))
			wrong("piece", arg);
		break;
	case 'D':
		set.direct = true;
		break;
	case 'S':
		set.stable = true;
		break;
	case 'l':
		run.loads = load_number("loads", arg, 1000);
		break;
	case 'c':
		run.crc = true;
		break;
	case 'w':
		run.steps = true;
		break;
	case 'h':
		(void)fputs(usage, stdout);
		exit(0);
	default:
		(void)fputs("load: see --help\n", stderr);
		exit(2);
	}
}

int main(int argc, char *argv[])
{
	int opt, r;

	set.device.sz = sizeof(set.device);
	while ((opt = getopt_long(argc, argv, "h", longs, NULL)) != -1)
		load_take(opt, optarg);
	run.nr = (unsigned)(argc - optind);
	if (!run.nr || run.nr > SHARDS_MAX) {
		(void)fprintf(stderr, "load: one to %d files are wanted; see --help\n", SHARDS_MAX);
		return 2;
	}
	/* Let the kernel kill this process when bench/loaders ends. */
	if (run.steps)
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	run.shards = calloc(run.nr, sizeof(*run.shards));
	if (!run.shards)
		return 1;
	for (unsigned i = 0; i < run.nr; i++)
		run.shards[i].path = argv[optind + (int)i];
	r = load_all();
	if (r < 0)
		(void)fprintf(stderr, "load: %s\n", fail_text());
	free(run.shards);
	return r < 0;
}
