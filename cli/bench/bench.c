/* SPDX-License-Identifier: MIT */
#include "cli/bench/report.h"

#include <fcntl.h>
#include <getopt.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "cli/commands.h"
#include "tools/common/files.h"
#include "tools/common/pattern.h"

#define FILE_SIZE_DEFAULT GIB(1)
#define CHUNK MIB(4)
#define MEMORY_MAX GIB(16) /* bytes; limit for all requests in flight together */

const char bench_usage[] =
	"Usage: penstock bench [OPTION...]\n"
	"\n"
	"Measures requests against plain pread or pwrite (for device memory with\n"
	"pst_mem_copy_in or _out) with as many threads, in turns.  Without -f it makes\n"
	"a scratch file and removes it.\n"
	"\n"
	"  -f, --file FILE   read this file; to write to it --overwrite is needed\n"
	"  --dir DIR         make the scratch file in DIR (default: $TMPDIR, /var/tmp\n"
	"                    or .)\n"
	"  --size SIZE       of the scratch file (default 1g)\n"
	"  -m, --memory DEV  host, cuda:0, soft:0, ... (default host)\n"
	"  --op OP           read, write, randread or randwrite (default read)\n"
	"  --sizes LIST      bytes of a piece, a row for each (default 4k,64k,1m)\n"
	"  --pieces N        pieces in one request (default 1)\n"
	"  --depth N         requests in flight in each queue (default 32)\n"
	"  --queues N        queues, a thread for each (default 1)\n"
	"  --batch N         completions to wait for at once (default 1)\n"
	"  --cold            drop the file from memory first, read each byte once\n"
	"                    (default); with --path direct, again and again\n"
	"  --warm            have the file in memory\n"
	"  --stable          have it in memory, opened as one that nobody changes, and\n"
	"                    read once before: a device that can then reads from its\n"
	"                    pinned pages\n"
	"  --runtime SEC     longest time for each size and way (default 3)\n"
	"  --bytes SIZE      most bytes for each size and way\n"
	"  --turns N         turns into which they are split, the two ways in\n"
	"                    alternation (default 6; without a baseline 1)\n"
	"  --path LIST       only these paths, such as direct (default auto)\n"
	"  --strict          fail where the wanted path cannot be taken\n"
	"  --store S         auto, uring or threads\n"
	"  --baseline B      pread or none (default pread)\n"
	"  --overwrite       let writes destroy what FILE holds\n"
	"  --plot FILE.svg   draw GB/s over size\n"
	"  --json            one JSON object instead of the table\n";

/* -------------------------------------------------------------------- file */

static int make_file(struct bench *b)
{
	_cleanup_(freep) uint8_t *buf = malloc(CHUNK);
	struct statvfs vfs;
	int r;

	if (!buf)
		return fail(ENOMEM, "out of memory");
	r = scratch_dir(b->set->dir, &b->dir);
	if (r < 0)
		return r;
	if (asprintf(&b->path, "%s/bench", b->dir) < 0) {
		b->path = NULL;
		return fail(ENOMEM, "out of memory");
	}
	b->fd = open(b->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (b->fd < 0)
		return fail(errno, "cannot create %s: %s", b->path, strerror(errno));
	if (fstatvfs(b->fd, &vfs) == 0 && (uint64_t)vfs.f_bavail * vfs.f_frsize < b->set->size)
		return fail(ENOSPC,
			    "%s has only %s free; ask for less with --size, or for another place "
			    "with --dir",
			    b->dir, size_text((uint64_t)vfs.f_bavail * vfs.f_frsize).s);
	for (uint64_t off = 0; off < b->set->size;) {
		uint64_t n = MIN(CHUNK, b->set->size - off);

		pattern_fill(buf, 1, off, n);
		r = pwrite_all(b->fd, buf, n, off, b->path);
		if (r < 0)
			return r;
		off += n;
		if (stop_signal)
			return fail(EINTR, "interrupted");
	}
	if (fsync(b->fd) < 0)
		return fail(errno, "syncing %s: %s", b->path, strerror(errno));
	return 0;
}

static int bench_open_file(struct bench *b)
{
	_cleanup_(pst_filep) struct pst_file *file = NULL;
	struct pst_file_info info = { .sz = sizeof(info) };
	int r;

	if (b->set->file) {
		r = check_path(b->set->file);
		if (r < 0)
			return r;
		b->path = strdup(b->set->file);
		if (!b->path)
			return fail(ENOMEM, "out of memory");
		b->fd = open(b->path, (b->set->write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
		if (b->fd < 0)
			return fail_open(b->path);
		(void)fcntl(b->fd, F_SETFL, 0);
	} else {
		r = make_file(b);
		if (r < 0)
			return r;
	}
	r = pst_file_wrap(b->fd, 0, NULL, &file);
	if (r == 0)
		r = pst_file_info(file, &info);
	if (r < 0)
		return fail_pst(r, b->path);
	b->file_size = info.size;
	memcpy(b->fs, info.fs, sizeof(b->fs));

	b->cold = b->set->cold && !b->set->write && !b->set->stable;
	if (b->cold) {
		make_cold(b->fd);
		/* Report whether the file really was cold: a file on tmpfs stays in memory even if
		 * the user asked for a cold one. */
		b->cold = resident_part(b->fd) <= 0.05;
	}
	return 0;
}

/* --------------------------------------------------------------------- run */

static struct bench_job job_of(const struct bench *b, uint64_t size)
{
	const struct settings *set = b->set;

	return (struct bench_job){
		.path = b->path,
		.fd = b->fd,
		.file = b->file,
		.file_size = b->file_size,
		.device = b->dev.name,
		.host = b->dev.kind == PST_KIND_HOST,
		.plain_copies = b->dev.kind != PST_KIND_HOST && !device_is_emulated(&b->dev),
		.write = set->write,
		.random = set->random,
		.cold = b->cold,
		.size = size,
		.pieces = set->pieces,
		.depth = set->depth,
		.batch = set->batch,
		.threads = set->queues,
		.policy = set->policy,
		.store = set->store,
		.strict = set->strict,
		.bytes = set->bytes,
	};
}

/* Open the file as stable once for all rows, so that its pages stay pinned. */
static int open_stable(struct bench *b)
{
	struct bench_job job;
	int r = pst_file_wrap(b->fd, PST_FILE_STABLE, NULL, &b->file);

	if (r < 0)
		return fail_pst(r, b->path);
	job = job_of(b, MIB(4));
	return bench_pin(&job, &b->pages);
}

static int take_turn(struct bench_side *side, unsigned turn, struct side_sum *sum)
{
	struct bench_result res;
	int r = bench_side_turn(side, turn, &res);

	if (r < 0)
		return r;
	sum->turns[turn] =
		(struct turn){ .bytes = res.bytes, .requests = res.requests, .ns = res.ns };
	bench_result_add(&sum->all, &res);
	return 0;
}

/*
 * Measure all turns of a row.  The sides alternate, so that other load of the machine affects both
 * equally.  Each side is first in every second turn, so that neither always runs after the other.
 */
static int run_turns(const struct bench_job *job, bool plain_first, struct row *row,
		     struct bench_side *ours, struct bench_side *plain)
{
	int r = 0;

	for (unsigned t = 0; r == 0 && t < job->turns; t++) {
		bool swap = plain_first ^ (t % 2);

		if (plain && swap)
			r = take_turn(plain, t, &row->plain);
		if (r == 0)
			r = take_turn(ours, t, &row->ours);
		if (r == 0 && plain && !swap)
			r = take_turn(plain, t, &row->plain);
	}
	return r;
}

static int run_size(struct bench *b, unsigned idx)
{
	_cleanup_(bench_sidep) struct bench_side *ours = NULL, *plain = NULL;
	const struct settings *set = b->set;
	struct row *row = &b->rows[idx];
	struct bench_job job = job_of(b, set->sizes[idx]);
	int r;

	row->size = job.size;
	if (job.file_size / job.size < job.threads)
		return fail(EINVAL, "%s has %s: too small for %u queues with pieces of %s", b->path,
			    size_text(b->file_size).s, job.threads, size_text(job.size).s);
	job.turns = row->turns = bench_turns(&job, set->baseline, set->turns);
	job.seconds = set->seconds / job.turns;
	r = bench_side_new(&job, false, &ours);
	if (r == 0 && set->baseline)
		r = bench_side_new(&job, true, &plain);
	return r == 0 ? run_turns(&job, idx % 2, row, ours, plain) : r;
}

static void bench_done(struct bench *b)
{
	(void)pst_file_close(b->file);
	closep(&b->fd);
	if (b->dir)
		scratch_remove(b->dir);
	free(b->dir);
	free(b->path);
	free(b->rows);
}

static int bench_run(const struct settings *set)
{
	_cleanup_(bench_done) struct bench b = { .set = set, .fd = -1 };
	int r;

	machine_facts(&b.m);
	r = device_pick(set->device, &b.dev);
	if (r == 0)
		r = bench_open_file(&b);
	if (r == 0 && set->stable)
		r = open_stable(&b);
	if (r < 0)
		return r;
	b.rows = calloc(set->nr_sizes, sizeof(*b.rows));
	if (!b.rows)
		return fail(ENOMEM, "out of memory");
	for (unsigned i = 0; i < set->nr_sizes; i++) {
		r = run_size(&b, i);
		if (r < 0)
			return r;
		b.nr_rows++;
	}
	if (set->plot) {
		r = bench_plot(&b);
		if (r < 0)
			return r;
	}
	if (!set->json)
		return bench_print_table(&b);
	bench_print_json(&b);
	return 0;
}

/* ----------------------------------------------------------------- options */

static int parse_sizes(const char *text, struct settings *set)
{
	_cleanup_(freep) char *copy = strdup(text);
	char *save = NULL;

	if (!copy)
		return -ENOMEM;
	set->nr_sizes = 0;
	for (char *s = strtok_r(copy, ",", &save); s; s = strtok_r(NULL, ",", &save)) {
		uint64_t v;

		if (set->nr_sizes == SIZES_MAX || parse_size(s, &v) < 0 || !v || v > GIB(1))
			return -EINVAL;
		set->sizes[set->nr_sizes++] = v;
	}
	return set->nr_sizes ? 0 : -EINVAL;
}

static int parse_op(const char *text, struct settings *set)
{
	static const char *const ops[] = { "read", "write", "randread", "randwrite" };

	for (unsigned i = 0; i < ARRAY_SIZE(ops); i++) {
		if (strcmp(text, ops[i]) != 0)
			continue;
		set->op = ops[i];
		set->write = i & 1;
		set->random = i & 2;
		return 0;
	}
	return -EINVAL;
}

/* Check that the options fit together; return 0 or an exit status. */
static int bench_check(const struct settings *set)
{
	uint64_t most = 0;

	for (unsigned i = 0; i < set->nr_sizes; i++)
		most = MAX(most, set->sizes[i]);
	if (set->file && set->dir)
		return usage_error("-f and --dir exclude each other");
	if (set->file && set->write && !set->overwrite)
		return usage_error(
			"--op %s would destroy what %s holds; say --overwrite if you mean it",
			set->op, set->file);
	if (set->stable && set->said_cold)
		return usage_error("--cold and --stable exclude each other: pinned pages are in "
				   "memory");
	if (set->stable && set->write)
		return usage_error("--stable is for reading");
	if (set->batch > set->depth)
		return usage_error("--batch must not be more than --depth");
	if (most * set->pieces * set->depth * set->queues > MEMORY_MAX)
		return usage_error(
			"%s times %u pieces, depth %u and %u queues is more than %s of memory",
			size_text(most).s, set->pieces, set->depth, set->queues,
			size_text(MEMORY_MAX).s);
	return 0;
}

int cmd_bench(int argc, char *argv[])
{
	enum {
		DIR_OPT = 256,
		SIZE,
		OP,
		SIZES,
		PIECES,
		DEPTH,
		QUEUES,
		BATCH,
		COLD,
		WARM,
		STABLE,
		RUNTIME,
		BYTES,
		TURNS,
		PATH,
		STRICT,
		STORE,
		BASELINE,
		OVERWRITE,
		PLOT,
		JSON,
	};
	static const struct option longs[] = {
		{ "file", required_argument, NULL, 'f' },
		{ "memory", required_argument, NULL, 'm' },
		{ "dir", required_argument, NULL, DIR_OPT },
		{ "size", required_argument, NULL, SIZE },
		{ "op", required_argument, NULL, OP },
		{ "sizes", required_argument, NULL, SIZES },
		{ "pieces", required_argument, NULL, PIECES },
		{ "depth", required_argument, NULL, DEPTH },
		{ "queues", required_argument, NULL, QUEUES },
		{ "batch", required_argument, NULL, BATCH },
		{ "cold", no_argument, NULL, COLD },
		{ "warm", no_argument, NULL, WARM },
		{ "stable", no_argument, NULL, STABLE },
		{ "runtime", required_argument, NULL, RUNTIME },
		{ "bytes", required_argument, NULL, BYTES },
		{ "turns", required_argument, NULL, TURNS },
		{ "path", required_argument, NULL, PATH },
		{ "strict", no_argument, NULL, STRICT },
		{ "store", required_argument, NULL, STORE },
		{ "baseline", required_argument, NULL, BASELINE },
		{ "overwrite", no_argument, NULL, OVERWRITE },
		{ "plot", required_argument, NULL, PLOT },
		{ "json", no_argument, NULL, JSON },
		{ 0 },
	};
	struct settings set = {
		.device = "host",
		.path_list = "auto",
		.size = FILE_SIZE_DEFAULT,
		.baseline = true,
		.cold = true,
		.op = "read",
		.pieces = 1,
		.depth = 32,
		.batch = 1,
		.queues = 1,
		.seconds = 3,
		.sizes = { KIB(4), KIB(64), MIB(1) },
		.nr_sizes = 3,
	};
	uint64_t v = 0;
	int opt, r;

	while ((opt = getopt_long(argc, argv, ":f:m:", longs, NULL)) != -1) {
		switch (opt) {
		case 'f':
			set.file = optarg;
			break;
		case 'm':
			set.device = optarg;
			break;
		case DIR_OPT:
			set.dir = optarg;
			break;
		case SIZE:
			if (parse_size(optarg, &set.size) < 0 || !set.size)
				return usage_error("--size takes a size such as 1g");
			break;
		case OP:
			if (parse_op(optarg, &set) < 0)
				return usage_error("--op takes read, write, randread or randwrite");
			break;
		case SIZES:
			if (parse_sizes(optarg, &set) < 0)
				return usage_error(
					"--sizes takes up to %d sizes up to 1g, such as 4k,64k,1m",
					SIZES_MAX);
			break;
		case PIECES:
			if (parse_number(optarg, 1, 65536, &v) < 0)
				return usage_error("--pieces takes a number from 1 to 65536");
			set.pieces = (uint32_t)v;
			break;
		case DEPTH:
			if (parse_number(optarg, 1, 4096, &v) < 0)
				return usage_error("--depth takes a number from 1 to 4096");
			set.depth = (uint32_t)v;
			break;
		case QUEUES:
			if (parse_number(optarg, 1, BENCH_THREADS_MAX, &v) < 0)
				return usage_error("--queues takes a number from 1 to %d",
						   BENCH_THREADS_MAX);
			set.queues = (unsigned)v;
			break;
		case BATCH:
			if (parse_number(optarg, 1, 256, &v) < 0)
				return usage_error("--batch takes a number from 1 to 256");
			set.batch = (uint32_t)v;
			break;
		case COLD:
			set.cold = set.said_cold = true;
			break;
		case WARM:
			set.cold = set.said_cold = false;
			break;
		case STABLE:
			set.stable = true;
			break;
		case RUNTIME:
			if (parse_seconds(optarg, &set.seconds) < 0)
				return usage_error("--runtime takes seconds, such as 3 or 0.5");
			break;
		case BYTES:
			if (parse_size(optarg, &set.bytes) < 0 || !set.bytes)
				return usage_error("--bytes takes a size such as 1g");
			break;
		case TURNS:
			if (parse_number(optarg, 1, TURNS_MAX, &v) < 0)
				return usage_error("--turns takes a number from 1 to %u",
						   TURNS_MAX);
			set.turns = (unsigned)v;
			break;
		case PATH:
			if (parse_policy(optarg, &set.policy) < 0)
				return usage_error("%s", fail_text());
			set.path_list = optarg;
			break;
		case STRICT:
			set.strict = true;
			break;
		case STORE:
			if (parse_store(optarg, &set.store) < 0)
				return usage_error("--store takes auto, uring or threads");
			break;
		case BASELINE:
			if (strcmp(optarg, "pread") != 0 && strcmp(optarg, "none") != 0)
				return usage_error("--baseline takes pread or none");
			set.baseline = !strcmp(optarg, "pread");
			break;
		case OVERWRITE:
			set.overwrite = true;
			break;
		case PLOT:
			set.plot = optarg;
			break;
		case JSON:
			set.json = true;
			break;
		default:
			return option_error(argv, longs, opt);
		}
	}
	if (optind != argc)
		return usage_error("unexpected argument %s", argv[optind]);
	r = bench_check(&set);
	if (r)
		return r;
	if (!set.turns)
		set.turns = set.baseline ? TURNS_DEFAULT : 1;
	signals_catch();
	return exit_status(bench_run(&set));
}
