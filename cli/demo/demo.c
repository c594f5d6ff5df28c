/* SPDX-License-Identifier: MIT */
/*
 * A small version of the file I/O of an inference engine: load model shards, and move KV blocks out
 * and in.  All moved bytes are compared, and each step is also done by plain system calls.
 */
#include "cli/demo/demo.h"

#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "cli/commands.h"
#include "tools/common/json.h"
#include "tools/common/pattern.h"
#include "tools/common/shown.h"
#include "tools/common/table.h"

#define SIZE_DEFAULT MIB(1024)
#define SIZE_MIN MIB(1)
#define SIZE_MAX_OPT GIB(1024)
#define FILES_MAX 1024
#define PROBE_BYTES MIB(32)
#define WRITE_SECONDS 8.0 /* seconds; longest time for writing the shards */
#define POISON 0xa5

const char demo_usage[] =
	"Usage: penstock demo [OPTION...]\n"
	"\n"
	"Makes model shards in safetensors format, loads every tensor into device\n"
	"memory, pages KV blocks to a file and back, and compares the bytes.  Prints\n"
	"one table: the path taken, speed and latency, beside those of plain pread and\n"
	"pwrite.  Takes less than a minute; its files are removed at the end.\n"
	"\n"
	"  --dir DIR      make a private directory in DIR (default: $TMPDIR, /var/tmp\n"
	"                 or .)\n"
	"  --file FILE    load this safetensors file instead; may be given again, and may\n"
	"                 be an object: s3://BUCKET/KEY is copied to DIR for pread\n"
	"  --size MIB     size of all shards together (default 1024; smaller where disk\n"
	"                 or memory are short or slow)\n"
	"  --device NAME  cuda:0, soft:0, host, ... (default: the first accelerator,\n"
	"                 else soft:0, an emulator)\n"
	"  --json         one JSON object instead of the table\n";

struct settings {
	const char *dir;
	const char *device;
	const char *files[FILES_MAX];
	unsigned nr_files;
	uint64_t size;
	bool json;
};

struct facts {
	struct machine m;
	char fs[16];
	char note[256];   /* why the shards are smaller than requested, or "" */
	char no_gpu[256]; /* why the software device is used instead of a GPU, or "" */
	bool own_files;   /* the shards are files of the user */
	bool objects;     /* some shards are objects, of which the plain side reads local copies */
	uint64_t shard_bytes;
};

struct demo_step *demo_step_add(struct demo *d, const char *name, const char *unit, bool cold)
{
	struct demo_step *s = &d->steps[d->nr_steps++];

	(void)snprintf(s->name, sizeof(s->name), "%s", name);
	(void)snprintf(s->unit, sizeof(s->unit), "%s", unit);
	s->pieces[0] = '\0';
	s->state = cold ? "cold" : "warm";
	s->plain_by = demo_plain_copies(d) ? "pread, copy" : "pread";
	return s;
}

void demo_make_cold(struct demo_step *step, int fd)
{
	make_cold(fd);
	if (resident_part(fd) > 0.05)
		step->stayed = true;
}

bool demo_plain_copies(const struct demo *d)
{
	return !device_is_emulated(&d->dev) && d->dev.kind != PST_KIND_HOST;
}

uint8_t *demo_plain_buf(const struct demo *d, struct pst_mem *mem, uint64_t off)
{
	return d->dev.kind == PST_KIND_HOST ? (uint8_t *)pst_mem_ptr(mem) + off : d->buf;
}

int demo_poison(struct demo *d, struct pst_mem *mem, uint64_t len)
{
	memset(d->buf, POISON, DEMO_CHUNK);
	for (uint64_t off = 0; off < len;) {
		uint64_t n = MIN(DEMO_CHUNK, len - off);
		int r = pst_mem_copy_in(mem, off, d->buf, n);

		if (r < 0)
			return fail_pst(r, NULL);
		off += n;
		if (stop_signal)
			return fail(EINTR, "interrupted");
	}
	return 0;
}

int demo_alloc(const struct demo *d, uint64_t len, struct pst_mem **ret)
{
	int r = pst_mem_alloc(d->dev.name, len, NULL, ret);

	if (r >= 0)
		return 0;
	return fail(r, "%s; try another device with --device, or less with --size",
		    pst_error_text());
}

bool demo_is_poison(const void *buf, size_t len)
{
	const uint8_t *p = buf;

	return len == 0 || (p[0] == POISON && !memcmp(p, p + 1, len - 1));
}

/* ------------------------------------------------------------------ set-up */

/* Measure how many bytes per second the directory takes, including a sync. */
static int measure_writes(struct demo *d, double *ret)
{
	_cleanup_(freep) char *path = NULL;
	_cleanup_(closep) int fd = -1;
	uint64_t t0;
	int r = 0;

	if (asprintf(&path, "%s/probe", d->dir) < 0) {
		path = NULL;
		return fail(ENOMEM, "out of memory");
	}
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail(errno, "cannot create %s: %s", path, strerror(errno));
	(void)unlink(path);
	pattern_fill(d->buf, 1, 0, DEMO_CHUNK);
	t0 = now_ns();
	for (uint64_t off = 0; r == 0 && off < PROBE_BYTES; off += DEMO_CHUNK) {
		r = pwrite_all(fd, d->buf, DEMO_CHUNK, off, path);
		if (r == 0 && now_ns() - t0 > 5 * NSEC_PER_SEC)
			return fail(ETIMEDOUT,
				    "%s takes less than 1 MB/s; name a faster place with --dir",
				    d->dir);
	}
	if (r == -ENOSPC || r == -EDQUOT) {
		/* The write was too fast to measure: other limits decide the size. */
		*ret = 1e9;
		return 0;
	}
	if (r < 0)
		return r;
	if (fsync(fd) < 0)
		return fail(errno, "syncing %s: %s", path, strerror(errno));
	*ret = (double)PROBE_BYTES * 1e9 / (double)(now_ns() - t0 + 1);
	return 0;
}

/* Lower *size to a limit and note the reason. */
static void demo_lower(struct facts *f, uint64_t *size, uint64_t limit, const char *why)
{
	if (*size <= limit)
		return;
	(void)snprintf(f->note, sizeof(f->note), "%.12s of shards instead of %.12s: %.150s",
		       size_text(limit & ~(MIB(1) - 1)).s, size_text(*size).s, why);
	*size = limit & ~(MIB(1) - 1);
}

static int choose_sizes(struct demo *d, struct facts *f, const struct settings *set, uint64_t *size)
{
	struct statvfs vfs;
	double speed = 0;
	char why[128];
	int r;

	r = measure_writes(d, &speed);
	if (r < 0)
		return r;
	if (statvfs(d->dir, &vfs) == 0) {
		/* The shards plus both files of KV blocks take at most 1.5 times the size. */
		(void)snprintf(why, sizeof(why), "%.12s are free in %.60s",
			       size_text((uint64_t)vfs.f_bavail * vfs.f_frsize).s, d->dir);
		demo_lower(f, size, (uint64_t)vfs.f_bavail * vfs.f_frsize / 2, why);
	}
	if (f->m.available) {
		(void)snprintf(why, sizeof(why), "%.12s of memory are free",
			       size_text(f->m.available).s);
		demo_lower(f, size, f->m.available / 4, why);
	}
	(void)snprintf(why, sizeof(why), "files are written at %.0f MB/s here", speed / 1e6);
	demo_lower(f, size, (uint64_t)(speed * WRITE_SECONDS), why);
	if (*size < SIZE_MIN)
		return fail(ENOSPC,
			    "too little room for the demonstration: %s; name another place with "
			    "--dir",
			    f->note);
	d->kv_bytes = MIN(*size / 4, MIB(256));
	if (set->nr_files)
		f->note[0] = '\0';
	return 0;
}

static int make_shards(struct demo *d, uint64_t size)
{
	unsigned nr = size >= MIB(64) ? 4 : 2;
	int r;

	d->shards = calloc(nr, sizeof(*d->shards));
	if (!d->shards)
		return fail(ENOMEM, "out of memory");
	for (unsigned i = 0; i < nr; i++) {
		_cleanup_(freep) char *path = NULL;

		if (asprintf(&path, "%s/model-%05u-of-%05u.safetensors", d->dir, i + 1, nr) < 0) {
			path = NULL;
			return fail(ENOMEM, "out of memory");
		}
		d->nr_shards = i + 1;
		r = shard_make(&d->shards[i], path, size / nr, i, nr);
		if (r < 0)
			return r;
	}
	return 0;
}

static int open_shards(struct demo *d, const struct settings *set)
{
	int r;

	d->shards = calloc(set->nr_files, sizeof(*d->shards));
	if (!d->shards)
		return fail(ENOMEM, "out of memory");
	for (unsigned i = 0; i < set->nr_files; i++) {
		d->nr_shards = i + 1;
		r = shard_open(&d->shards[i], set->files[i], d->dir);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Check for enough memory, because these devices use host memory, which the kernel may
 * overcommit. */
static int check_memory(const struct demo *d, const struct facts *f)
{
	uint64_t most = 0;

	for (unsigned i = 0; i < d->nr_shards; i++)
		most = MAX(most, d->shards[i].st->data_len);
	if ((d->dev.kind == PST_KIND_SOFT || d->dev.kind == PST_KIND_HOST) && f->m.available &&
	    most > f->m.available / 2)
		return fail(ENOMEM,
			    "the largest file needs %s of %s memory, but only %s of the host's "
			    "are free",
			    size_text(most).s, d->dev.name, size_text(f->m.available).s);
	return 0;
}

static int demo_set_up(struct demo *d, struct facts *f, const struct settings *set)
{
	struct pst_queue_opts qo = { .sz = sizeof(qo), .depth = DEMO_DEPTH };
	uint64_t size = set->size;
	struct pst_file_info info = { .sz = sizeof(info) };
	int r;

	machine_facts(&f->m);
	f->own_files = set->nr_files;
	r = device_pick(set->device, &d->dev);
	if (r < 0)
		return r;
	if (!set->device && d->dev.kind == PST_KIND_SOFT) {
		struct pst_device gpu = { .sz = sizeof(gpu) };

		if (pst_device_find("cuda", &gpu) < 0)
			(void)snprintf(f->no_gpu, sizeof(f->no_gpu), "%s", pst_error_text());
	}
	d->buf = malloc(DEMO_CHUNK);
	d->steps = calloc(DEMO_STEPS_MAX, sizeof(*d->steps));
	if (!d->buf || !d->steps)
		return fail(ENOMEM, "out of memory");
	r = scratch_dir(set->dir, &d->dir);
	/* Check the files before the long part, so that a bad one is reported at once. */
	if (r == 0 && set->nr_files)
		r = open_shards(d, set);
	if (r == 0)
		r = choose_sizes(d, f, set, &size);
	if (r == 0 && !set->nr_files)
		r = make_shards(d, size);
	if (r == 0)
		r = check_memory(d, f);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < d->nr_shards; i++) {
		f->shard_bytes += d->shards[i].st->data_len;
		f->objects |= d->shards[i].object;
	}
	if (pst_file_info(d->shards[0].file, &info) == 0)
		memcpy(f->fs, info.fs, sizeof(f->fs));
	r = pst_queue_new(&qo, &d->queue);
	return r < 0 ? fail_pst(r, "cannot make a queue") : 0;
}

static void demo_done(struct demo *d)
{
	(void)pst_queue_free(d->queue);
	for (unsigned i = 0; i < d->nr_shards; i++)
		shard_done(&d->shards[i]);
	free(d->shards);
	free(d->steps);
	free(d->buf);
	if (d->dir)
		scratch_remove(d->dir);
	free(d->dir);
}

/* ------------------------------------------------------------------ output */

static const char *demo_state_of(const struct demo_step *s)
{
	return s->stayed ? "warm" : s->state;
}

static bool any_stayed(const struct demo *d)
{
	for (unsigned i = 0; i < d->nr_steps; i++)
		if (d->steps[i].stayed)
			return true;
	return false;
}

/* Return the ratio; NAN if it would only describe an emulator, or if the two sides read from
 * different places. */
static double demo_ratio(const struct demo *d, const struct demo_step *s)
{
	double ours = gb_per_s(s->ours.bytes, s->ours.ns);
	double plain = gb_per_s(s->plain.bytes, s->plain.ns);

	return plain > 0 && !device_is_emulated(&d->dev) && !s->copied ? ours / plain : NAN;
}

static bool in_memory(const char *fs)
{
	return !strcmp(fs, "tmpfs") || !strcmp(fs, "ramfs");
}

#define INDENT 9u /* indent of the header's texts, in columns */

static void print_header(const struct demo *d, const struct facts *f)
{
	const char *cold = "";
	size_t tensors = 0;

	for (unsigned i = 0; i < d->nr_shards; i++)
		tensors += d->shards[i].st->nr;
	if (any_stayed(d))
		cold = in_memory(f->fs) ? ", which keeps files in memory: no read is cold"
					: "; some of them stayed in memory, so reads that should "
					  "be cold are warm";
	shown_printf(INDENT, "machine  %s, %u processors, %s", f->m.cpu, f->m.cpus, f->m.kernel);
	shown_printf(INDENT, "device   %s", device_text(&d->dev).s);
	if (*f->no_gpu)
		shown_printf(INDENT, "         in place of a GPU: %s", f->no_gpu);
	device_print_emulated(&d->dev, INDENT);
	shown_printf(INDENT, "files    %s of %zu tensors in %u files on %s%s",
		     size_text(f->shard_bytes).s, tensors, d->nr_shards, f->fs, cold);
	if (*f->note)
		shown_printf(INDENT, "         %s", f->note);
	(void)putchar('\n');
}

static void demo_print_whys(const struct demo *d)
{
	for (unsigned i = 0; i < d->nr_steps; i++) {
		const struct demo_step *s = &d->steps[i];

		for (uint32_t why = PST_WHY_NONE + 1; why <= PST_WHY_MAX; why++) {
			if (!s->ours.whys.nr[why])
				continue;
			shown_printf(2, "%s, %s: %s for %llu of %llu requests, since %s", s->name,
				     demo_state_of(s), paths_text(s->ours.paths).s,
				     (unsigned long long)s->ours.whys.nr[why],
				     (unsigned long long)s->ours.nr,
				     why_text(why, s->ours.whys.detail[why]).s);
		}
	}
}

static void print_compared(const struct demo *d, const struct facts *f)
{
	const struct compared *c = &d->compared;
	const char *dev = d->dev.name;

	(void)puts("Compared, all equal:");
	shown_printf(4, "  %s read back from %s with %s", size_text(c->device).s, dev,
		     f->own_files ? "what pread gives of the files, and what the KV blocks were"
				  : "what was written into the files");
	shown_printf(4, "  %s of %s beside them, which no read may change, with what was there",
		     size_text(c->untouched).s, dev);
	shown_printf(4, "  %s of KV files, read by pread, with what %s was filled with",
		     size_text(c->file).s, dev);
	shown_printf(4, "  %llu checksums (CRC-32C) of requests with those of the files' bytes",
		     (unsigned long long)c->crcs);
}

/* Add one side's numbers; times is the ratio, or NAN for none. */
static void demo_add_row(struct table *t, const struct xfer_stats *s, bool ratios, double times)
{
	table_add(t, "%s", rate_text(s->bytes, s->ns).s);
	table_add(t, "%s", time_text(hist_quantile(&s->hist, 0.5)).s);
	table_add(t, "%s", time_text(hist_quantile(&s->hist, 0.99)).s);
	if (ratios && isfinite(times))
		table_add(t, "%.2fx", times);
	else if (ratios)
		table_add(t, "%s", "");
}

static int print_table(const struct demo *d, const struct facts *f)
{
	static const char *const heads[] = {
		"<step", "<state", "<by", "GB/s", "p50", "p99", "ratio"
	};
	bool ratios = !device_is_emulated(&d->dev);
	_cleanup_(table_freep) struct table *t = table_new(heads, ratios ? ARRAY_SIZE(heads)
									 : ARRAY_SIZE(heads) - 1);

	if (!t)
		return fail(ENOMEM, "out of memory");
	for (unsigned i = 0; i < d->nr_steps; i++) {
		const struct demo_step *s = &d->steps[i];

		table_add(t, "%s", s->name);
		table_add(t, "%s", demo_state_of(s));
		table_add(t, "penstock: %s", paths_text(s->ours.paths).s);
		demo_add_row(t, &s->ours, ratios, demo_ratio(d, s));
		table_add(t, "  %s%s%s", size_text(s->ours.bytes).s, *s->pieces ? " by " : "",
			  s->pieces);
		table_add(t, "%s", "");
		table_add(t, "plain: %s", s->plain_by);
		demo_add_row(t, &s->plain, ratios, NAN);
	}
	print_header(d, f);
	table_print(t, stdout, shown_width(stdout));
	(void)putchar('\n');
	demo_print_whys(d);
	shown_printf(2,
		     "p50 and p99 are times of a tensor, a block or %d pages.  Penstock has up "
		     "to %d of them in flight, the plain way one, in one thread.",
		     DEMO_BATCH_PAGES, DEMO_DEPTH);
	if (!ratios)
		shown_printf(2,
			     "The plain way uses host memory.  No ratio: a thread copies for %s, "
			     "where a GPU has an engine.  --device host has ratios.",
			     d->dev.name);
	if (f->objects)
		shown_printf(2, "The plain way reads copies of the objects in %s: no ratio.",
			     d->dir);
	print_compared(d, f);
	return 0;
}

static void demo_add_side(struct json_object *to, const char *key, const struct xfer_stats *s)
{
	struct json_object *o = json_object_new_object();

	json_u64(o, "bytes", s->bytes);
	json_u64(o, "requests", s->nr);
	json_num(o, "seconds", (double)s->ns / 1e9);
	json_num(o, "gb_per_s", gb_per_s(s->bytes, s->ns));
	json_num(o, "p50_us", (double)hist_quantile(&s->hist, 0.5) / 1e3);
	json_num(o, "p99_us", (double)hist_quantile(&s->hist, 0.99) / 1e3);
	if (!strcmp(key, "penstock")) {
		json_paths(o, "paths", s->paths);
		json_whys(o, "why", &s->whys);
	}
	json_add(to, key, o);
}

static void add_compared(struct json_object *to, const struct compared *c)
{
	struct json_object *o = json_object_new_object();

	json_u64(o, "device_bytes", c->device);
	json_u64(o, "untouched_bytes", c->untouched);
	json_u64(o, "file_bytes", c->file);
	json_u64(o, "checksums", c->crcs);
	json_add(to, "compared", o);
}

static void print_json(const struct demo *d, const struct facts *f)
{
	_cleanup_(json_putp) struct json_object *root = json_object_new_object();
	struct json_object *steps = json_object_new_array();

	json_machine(root, &f->m);
	json_text(root, "device", d->dev.name);
	json_text(root, "model", d->dev.model);
	json_text(root, "no_gpu", f->no_gpu);
	json_text(root, "fs", f->fs);
	json_u64(root, "shard_bytes", f->shard_bytes);
	json_flag(root, "cold_possible", !any_stayed(d));
	json_text(root, "note", f->note);
	for (unsigned i = 0; i < d->nr_steps; i++) {
		const struct demo_step *s = &d->steps[i];
		struct json_object *o = json_object_new_object();

		json_text(o, "step", s->name);
		json_text(o, "pieces", s->pieces);
		json_text(o, "state", demo_state_of(s));
		json_text(o, "latency_of", s->unit);
		demo_add_side(o, "penstock", &s->ours);
		demo_add_side(o, "plain", &s->plain);
		json_num(o, "ratio", demo_ratio(d, s));
		json_add(steps, NULL, o);
	}
	json_add(root, "steps", steps);
	add_compared(root, &d->compared);
	json_flag(root, "verified", true);
	json_print(root);
}

static int demo_run(const struct settings *set)
{
	_cleanup_(demo_done) struct demo d = { 0 };
	struct facts f = { .fs = "" };
	int r;

	r = demo_set_up(&d, &f, set);
	if (r == 0)
		r = demo_load(&d);
	if (r == 0)
		r = demo_kv(&d);
	if (r < 0)
		return r;
	if (!set->json)
		return print_table(&d, &f);
	print_json(&d, &f);
	return 0;
}

int cmd_demo(int argc, char *argv[])
{
	enum { DIR_OPT = 256, FILE_OPT, SIZE, DEVICE, JSON };
	static const struct option longs[] = {
		{ "dir", required_argument, NULL, DIR_OPT },
		{ "file", required_argument, NULL, FILE_OPT },
		{ "size", required_argument, NULL, SIZE },
		{ "device", required_argument, NULL, DEVICE },
		{ "json", no_argument, NULL, JSON },
		{ 0 },
	};
	struct settings set = { .size = SIZE_DEFAULT };
	bool after_file = false;
	uint64_t v;
	int opt;

	/* '-' keeps arguments in order, so that all names that a shell expands after --file belong
	 * to it. */
	while ((opt = getopt_long(argc, argv, "-:", longs, NULL)) != -1) {
		if (opt == 1 && !after_file)
			return usage_error("unexpected argument %s", optarg);
		after_file = opt == 1 || opt == FILE_OPT;
		switch (opt) {
		case DIR_OPT:
			set.dir = optarg;
			break;
		case 1:
		case FILE_OPT:
			if (set.nr_files == FILES_MAX)
				return usage_error("more than %d files", FILES_MAX);
			set.files[set.nr_files++] = optarg;
			break;
		case SIZE:
			/* A number without a unit is in MiB. */
			if (parse_number(optarg, 1, SIZE_MAX_OPT >> 20, &v) == 0)
				v <<= 20;
			else if (parse_size(optarg, &v) < 0)
				v = 0;
			if (v < SIZE_MIN || v > SIZE_MAX_OPT)
				return usage_error("--size takes MiB, or a size from 1m to 1024g");
			set.size = v;
			break;
		case DEVICE:
			set.device = optarg;
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
	signals_catch();
	return exit_status(demo_run(&set));
}
