/* SPDX-License-Identifier: MIT */
/*
 * Copy a file to another through host or device memory, or load it into device memory.
 */
#include "cli/cp/cp.h"

#include <getopt.h>

#include "cli/commands.h"
#include "tools/common/crc32c.h"
#include "tools/common/device.h"
#include "tools/common/files.h"
#include "tools/common/shown.h"

#define BATCH 64
#define DEPTH_DEFAULT 8
#define DEPTH_MAX 1024
/* bytes; small enough that depth times block stays below the usual memlock limit */
#define BLOCK_DEFAULT KIB(512)
/* bytes, for files of a service: each block is one request, which takes a server some ms */
#define BLOCK_OBJECT MIB(8)
#define BLOCK_MIN KIB(4)
#define BLOCK_MAX GIB(1)
#define MEMORY_MAX GIB(4) /* maximum bytes of depth times block */

const char cp_usage[] =
	"Usage: penstock cp [OPTION...] SRC DST\n"
	"       penstock cp [OPTION...] SRC DEVICE\n"
	"\n"
	"SRC is a file, or the name of one elsewhere: s3://BUCKET/KEY, https://HOST/PATH,\n"
	"rados://POOL/OBJECT, pst://HOST:PORT/PATH, tier://SET/NAME.  DST is a file, a\n"
	"directory, or such a name; a file of s3:// or pst:// becomes visible when it is\n"
	"complete.\n"
	"DEVICE is the name of a device, such as cuda:0, soft:0 or host: SRC is loaded\n"
	"into fresh memory there, which is freed after the report.  A new DST gets its\n"
	"name when it is complete.  An existing one is overwritten in place, as by cp(1),\n"
	"and is left empty by a copy that fails.\n"
	"\n"
	"  --via DEVICE     let the bytes go through this device's memory (default:\n"
	"                   host)\n"
	"  --device DEVICE  with DST the same as --via; without, the DEVICE to load into\n"
	"  --verify         read the target back from the disk (or device) and compare\n"
	"  --depth N        blocks in flight (default 8)\n"
	"  --block SIZE     bytes of one block (default 512k; 8m from objects)\n"
	"  --path LIST      only these paths, such as direct or staged,direct (default\n"
	"                   auto)\n"
	"  --strict         fail where the wanted path cannot be taken\n"
	"  --store S        auto, uring or threads\n"
	"  --dmabuf B       yes, no or try (default): whether the memory has to, must not\n"
	"                   or may become a dma-buf, by which other devices reach it\n"
	"  --no-sync        do not wait until the bytes are on the disk\n"
	"  -q, --quiet      print nothing but errors\n";

/* --------------------------------------------------------------- progress */

static void cp_progress(struct copy *c, const char *verb, uint64_t done)
{
	uint64_t now = now_ns(), ns = now - c->begun_ns;
	double eta;

	if (!c->bar || now < c->bar_next_ns)
		return;
	c->bar_next_ns = now + 200 * NSEC_PER_MSEC;
	eta = done ? (double)ns / 1e9 * (double)(c->size - done) / (double)done : 0;
	(void)fprintf(stderr, "\r%s %3.0f%%  %s of %s  %.2f GB/s  %.0f s left\033[K", verb,
		      100.0 * (double)done / (double)c->size, size_text(done).s,
		      size_text(c->size).s, gb_per_s(done, ns), eta);
}

static void cp_progress_end(const struct copy *c)
{
	if (c->bar)
		(void)fputs("\r\033[K", stderr);
}

/* ------------------------------------------------------------------ bytes */

static uint64_t block_len(const struct copy *c, uint64_t block)
{
	return MIN(c->o->block, c->size - block * c->o->block);
}

/* Passes over all blocks, and the transfer that each makes per block. */
enum pass {
	PASS_COPY,   /* source to memory to target */
	PASS_LOAD,   /* source to memory, all blocks at once */
	PASS_REREAD, /* target to memory, to compare with the CRCs of the first pass */
};

static int cp_prep(struct copy *c, enum pass pass, uint32_t op, uint32_t slot, uint64_t block)
{
	struct pst_io io = {
		.op = op,
		.flags = (c->o->strict ? PST_IO_STRICT : 0) |
			 (c->o->verify && op == PST_OP_READ ? PST_IO_CRC32C : 0),
		.policy = c->o->policy,
		.file = op == PST_OP_WRITE || pass == PASS_REREAD ? c->out : c->in,
		.mem = c->mem,
		.file_off = block * c->o->block,
		.mem_off = (pass == PASS_LOAD ? block : slot) * c->o->block,
		.len = block_len(c, block),
		.user_data = slot,
	};
	int r = pst_queue_prep(c->queue, &io);

	return r < 0 ? fail_pst(r, NULL) : 0;
}

/*
 * Return true if the only reason for not using a path is that the file's end is not aligned to a
 * disk block: no program can avoid that.
 */
static bool is_odd_end(const struct copy *c, const struct pst_done *d, uint64_t block)
{
	return d->why == PST_WHY_UNALIGNED && block + 1 == c->nr_blocks && d->detail > 0 &&
	       c->size % (uint64_t)d->detail;
}

/* Report a failed completion.  If no path can access the memory, print the library's sentence,
 * which names what can. */
static int cp_fail(const struct copy *c, const char *name, const struct pst_done *d)
{
	char buf[512], byte;

	(void)pst_done_text(d, buf, sizeof(buf));
	if (d->res == -EOPNOTSUPP && pst_mem_copy_out(c->mem, 0, &byte, 1) == -EOPNOTSUPP)
		return fail(EOPNOTSUPP, "%s: %s", name, pst_error_text());
	return fail((int)-d->res, "%s: %s", name, buf);
}

/* Check a completion for an error, a short count and wrong data. */
static int cp_check(struct copy *c, enum pass pass, const struct pst_done *d, uint64_t block)
{
	const char *name = d->op == PST_OP_WRITE || pass == PASS_REREAD ? c->dst : c->src;

	if (d->res < 0)
		return cp_fail(c, name, d);
	if ((uint64_t)d->res != block_len(c, block))
		return fail(EIO, "%s ended early: something made it shorter", name);
	if (c->o->verify && d->op == PST_OP_READ) {
		if (!(d->flags & PST_DONE_CRC32C))
			return fail(EIO, "%s: the checksum that was asked for did not come", name);
		if (pass == PASS_REREAD && c->crcs[block] != d->crc32c)
			return fail(EIO, "%s differs from %s in the %s at offset %llu: %s", c->dst,
				    c->src, size_text(block_len(c, block)).s,
				    (unsigned long long)(block * c->o->block),
				    names_object(c->dst) ? "delete the copy"
							 : "the copy was not kept");
		c->crcs[block] = d->crc32c;
	}
	c->paths[pass == PASS_REREAD     ? PATHS_REREAD
		 : d->op == PST_OP_WRITE ? PATHS_WRITE
					 : PATHS_READ] |= d->paths;
	if (!is_odd_end(c, d, block))
		whys_add(&c->whys, d->why, d->detail);
	return 0;
}

static int run_pass(struct copy *c, enum pass pass, const char *verb)
{
	_cleanup_(freep) uint64_t *block_of = calloc(c->slots + 1, sizeof(*block_of));
	_cleanup_(freep) uint32_t *idle = calloc(c->slots + 1, sizeof(*idle));
	struct pst_done batch[BATCH];
	uint64_t next = 0, done = 0, bytes = 0;
	uint32_t nr_idle = 0;
	int n, r;

	if (!block_of || !idle)
		return fail(ENOMEM, "out of memory");
	for (uint32_t s = 0; s < c->slots; s++)
		idle[nr_idle++] = s;
	c->begun_ns = now_ns();
	while (done < c->nr_blocks) {
		while (nr_idle && next < c->nr_blocks) {
			uint32_t slot = idle[--nr_idle];

			block_of[slot] = next;
			r = cp_prep(c, pass, PST_OP_READ, slot, next++);
			if (r < 0)
				return r;
		}
		r = pst_queue_submit(c->queue);
		if (r < 0)
			return fail_pst(r, NULL);
		n = pst_queue_reap(c->queue, batch, 1, BATCH, now_ns() + 100 * NSEC_PER_MSEC);
		if (n < 0)
			return fail_pst(n, NULL);
		for (int i = 0; i < n; i++) {
			uint32_t slot = (uint32_t)batch[i].user_data;
			uint64_t block = block_of[slot];

			r = cp_check(c, pass, &batch[i], block);
			if (r < 0)
				return r;
			if (pass == PASS_COPY && batch[i].op == PST_OP_READ) {
				r = cp_prep(c, pass, PST_OP_WRITE, slot, block);
				if (r < 0)
					return r;
				continue;
			}
			bytes += block_len(c, block);
			idle[nr_idle++] = slot;
			done++;
		}
		if (stop_signal)
			return fail(EINTR, "interrupted");
		cp_progress(c, verb, bytes);
	}
	return 0;
}

static int sync_target(struct copy *c)
{
	struct pst_io io = { .op = PST_OP_SYNC, .file = c->out };
	struct pst_done d;
	char buf[512];
	int r;

	r = pst_queue_prep(c->queue, &io);
	if (r == 0)
		r = pst_queue_submit(c->queue);
	if (r < 0)
		return fail_pst(r, c->dst);
	do {
		r = pst_queue_reap(c->queue, &d, 1, 1, now_ns() + 100 * NSEC_PER_MSEC);
		if (r < 0)
			return fail_pst(r, c->dst);
		if (stop_signal)
			return fail(EINTR, "interrupted");
	} while (!r);
	if (d.res < 0)
		return fail((int)-d.res, "%s: %s", c->dst, pst_done_text(&d, buf, sizeof(buf)));
	return 0;
}

/* Compare device memory with the requests' CRCs and with the file's bytes. */
static int verify_memory(struct copy *c)
{
	const uint64_t chunk = MIB(1);
	_cleanup_(freep) uint8_t *got = malloc(chunk), *want = malloc(chunk);

	if (!got || !want)
		return fail(ENOMEM, "out of memory");
	c->begun_ns = now_ns();
	for (uint64_t block = 0; block < c->nr_blocks; block++) {
		uint64_t off = block * c->o->block, len = block_len(c, block);
		uint32_t crc = 0;

		for (uint64_t done = 0; done < len;) {
			uint64_t n = MIN(chunk, len - done);
			int r;

			r = pst_mem_copy_out(c->mem, off + done, got, n);
			if (r < 0)
				return fail_pst(r, c->dev.name);
			r = cp_read_source(c, want, n, off + done);
			if (r < 0)
				return r;
			if (memcmp(got, want, n) != 0)
				return fail(EIO, "%s differs from %s between offsets %llu and %llu",
					    c->dev.name, c->src, (unsigned long long)(off + done),
					    (unsigned long long)(off + done + n));
			crc = crc32c_add(crc, got, n);
			done += n;
			if (stop_signal)
				return fail(EINTR, "interrupted");
			cp_progress(c, "verify", off + done);
		}
		if (crc != c->crcs[block])
			return fail(
				EIO,
				"the checksum of the %s at offset %llu is %08x, but the request "
				"reported %08x",
				size_text(len).s, (unsigned long long)off, crc, c->crcs[block]);
	}
	return 0;
}

static int cp_set_up(struct copy *c)
{
	struct pst_queue_opts qo = { .sz = sizeof(qo), .backend = c->o->store };
	uint64_t bytes;
	int r;

	c->nr_blocks = (c->size + c->o->block - 1) / c->o->block;
	c->slots = (uint32_t)MIN((uint64_t)c->o->depth, c->nr_blocks + !c->nr_blocks);
	qo.depth = c->slots;
	r = pst_queue_new(&qo, &c->queue);
	if (r < 0)
		return fail_pst(r, "cannot make a queue");
	c->dev = (struct pst_device){ .sz = sizeof(c->dev) };
	r = pst_device_find(c->o->device ? c->o->device : "host", &c->dev);
	if (r < 0)
		return fail_pst(r, c->o->device);
	if (!c->size)
		return 0;
	bytes = c->dst && c->nr_blocks > 1 ? c->slots * c->o->block : c->size;
	if (c->dst && bytes > MEMORY_MAX)
		return fail(ENOMEM, "depth times block is %s, the limit is %s; lower one of them",
			    size_text(bytes).s, size_text(MEMORY_MAX).s);
	r = pst_mem_alloc(c->dev.name, bytes, NULL, &c->mem);
	if (r < 0)
		return fail_pst(r, c->dev.name);
	if (c->o->verify) {
		c->crcs = calloc(c->nr_blocks, sizeof(*c->crcs));
		if (!c->crcs)
			return fail(ENOMEM, "out of memory");
	}
	return 0;
}

/* Return a text such as ", read by direct"; empty if no request of the pass ran. */
static struct text cp_by_text(const char *verb, uint32_t paths)
{
	struct text t = { "" };

	if (paths)
		(void)snprintf(t.s, sizeof(t.s), "; %s by %.200s", verb, paths_text(paths).s);
	return t;
}

static void cp_report(const struct copy *c, uint64_t ns, uint64_t verify_ns)
{
	struct text rate = { "" }, where = { "" }, verified = { "" };

	if (c->o->quiet)
		return;
	if (c->size)
		(void)snprintf(rate.s, sizeof(rate.s), ", %s GB/s", rate_text(c->size, ns).s);
	if (!c->dst || c->dev.kind != PST_KIND_HOST)
		(void)snprintf(where.s, sizeof(where.s), ", %s %.200s", c->dst ? "through" : "into",
			       device_text(&c->dev).s);
	if (c->o->verify)
		(void)snprintf(verified.s, sizeof(verified.s),
			       "; read back%s%.100s and compared in %.3f s",
			       c->paths[PATHS_REREAD] ? " by " : "",
			       c->paths[PATHS_REREAD] ? paths_text(c->paths[PATHS_REREAD]).s : "",
			       (double)verify_ns / 1e9);
	shown_printf(2, "%llu bytes in %.3f s%s%s%s%s%s", (unsigned long long)c->size,
		     (double)ns / 1e9, rate.s, where.s, cp_by_text("read", c->paths[PATHS_READ]).s,
		     cp_by_text("written", c->paths[PATHS_WRITE]).s, verified.s);
	for (uint32_t i = PST_WHY_NONE + 1; i <= PST_WHY_MAX; i++)
		if (c->whys.nr[i])
			shown_printf(2, "why %s (%llu request%s): %s", pst_why_name(i),
				     (unsigned long long)c->whys.nr[i],
				     c->whys.nr[i] == 1 ? "" : "s",
				     why_text(i, c->whys.detail[i]).s);
}

static int copy_to_file(struct copy *c)
{
	uint64_t t0, ns, verify_ns = 0;
	int r;

	r = cp_open_target(c);
	if (r < 0)
		return r;
	t0 = now_ns();
	r = run_pass(c, PASS_COPY, "copy");
	if (r < 0)
		return r;
	if (c->o->sync) {
		r = sync_target(c);
		if (r < 0)
			return r;
	}
	ns = now_ns() - t0;
	if (c->o->verify) {
		/* Drop clean pages from the page cache, so that reads come from the disk. */
		drop_clean(c->dst_fd);
		t0 = now_ns();
		r = run_pass(c, PASS_REREAD, "verify");
		if (r < 0)
			return r;
		verify_ns = now_ns() - t0;
	}
	r = cp_check_unchanged(c);
	if (r < 0)
		return r;
	if (stop_signal)
		return fail(EINTR, "interrupted");
	t0 = now_ns();
	r = c->tier ? cp_tier_publish(c) : cp_publish(c);
	if (r < 0)
		return r;
	ns += now_ns() - t0;
	cp_progress_end(c);
	cp_report(c, ns, verify_ns);
	return 0;
}

/* Copy to a service, where the file or object appears only when complete. */
static int copy_to_service(struct copy *c)
{
	uint64_t t0, ns, verify_ns = 0;
	int r;

	r = cp_service_open(c);
	if (r < 0)
		return r;
	t0 = now_ns();
	r = run_pass(c, PASS_COPY, "copy");
	if (r == 0)
		r = cp_check_unchanged(c);
	if (r == 0 && stop_signal)
		r = fail(EINTR, "interrupted");
	/* An object cannot be read before its sync. */
	if (r == 0 && (c->o->sync || !c->part))
		r = sync_target(c);
	if (r < 0)
		return r;
	ns = now_ns() - t0;
	if (c->o->verify) {
		t0 = now_ns();
		r = cp_service_reopen(c);
		if (r == 0)
			r = run_pass(c, PASS_REREAD, "verify");
		if (r < 0)
			return r;
		verify_ns = now_ns() - t0;
	}
	t0 = now_ns();
	r = cp_service_publish(c);
	if (r < 0)
		return r;
	ns += now_ns() - t0;
	cp_progress_end(c);
	cp_report(c, ns, verify_ns);
	return 0;
}

static int copy_to_device(struct copy *c)
{
	uint64_t t0 = now_ns(), ns, verify_ns = 0;
	int r;

	r = run_pass(c, PASS_LOAD, "load");
	if (r < 0)
		return r;
	ns = now_ns() - t0;
	if (c->o->verify) {
		t0 = now_ns();
		r = verify_memory(c);
		if (r < 0)
			return r;
		verify_ns = now_ns() - t0;
	}
	r = cp_check_unchanged(c);
	if (r < 0)
		return r;
	cp_progress_end(c);
	cp_report(c, ns, verify_ns);
	return 0;
}

static int cp_copy(struct copy *c, const char *dst)
{
	bool service = dst && cp_names_service(dst);
	int r;

	r = dst && !service && !cp_names_tier(dst) ? check_path(dst) : 0;
	if (r == 0)
		r = cp_open_source(c);
	if (r < 0)
		return r;
	if (dst) {
		r = service ? cp_service_resolve(c, dst) : cp_resolve_target(c, dst);
		if (r < 0)
			return r;
	}
	r = cp_set_up(c);
	if (r < 0)
		return r;
	c->bar = !c->o->quiet && c->size && isatty(STDERR_FILENO);
	if (service)
		return copy_to_service(c);
	return dst ? copy_to_file(c) : copy_to_device(c);
}

static void copy_done(struct copy *c)
{
	cp_progress_end(c);
	(void)pst_queue_free(c->queue);
	(void)pst_mem_free(c->mem);
	(void)pst_file_close(c->in);
	(void)pst_file_close(c->out);
	cp_give_up(c);
	cp_service_give_up(c);
	cp_tier_done(c);
	closep(&c->src_fd);
	closep(&c->dst_fd);
	closep(&c->dir_fd);
	free(c->crcs);
	free(c->tmp);
	free(c->base);
	free(c->dst);
}

int cmd_cp(int argc, char *argv[])
{
	enum {
		VIA = 256,
		DEVICE,
		VERIFY,
		DEPTH,
		BLOCK,
		PATH,
		STRICT,
		STORE,
		QUIET,
		NO_SYNC,
		DMABUF
	};
	static const struct option longs[] = {
		{ "via", required_argument, NULL, VIA },
		{ "device", required_argument, NULL, DEVICE },
		{ "verify", no_argument, NULL, VERIFY },
		{ "depth", required_argument, NULL, DEPTH },
		{ "block", required_argument, NULL, BLOCK },
		{ "path", required_argument, NULL, PATH },
		{ "strict", no_argument, NULL, STRICT },
		{ "store", required_argument, NULL, STORE },
		{ "quiet", no_argument, NULL, QUIET },
		{ "no-sync", no_argument, NULL, NO_SYNC },
		{ "dmabuf", required_argument, NULL, DMABUF },
		{ 0 },
	};
	struct options o = {
		.sync = true,
		.depth = DEPTH_DEFAULT,
	};
	_cleanup_(copy_done) struct copy c = { .o = &o, .src_fd = -1, .dst_fd = -1, .dir_fd = -1 };
	_cleanup_(freep) char *src = NULL;
	const char *dst = NULL;
	bool via = false;
	uint64_t v;
	int opt;

	while ((opt = getopt_long(argc, argv, ":q", longs, NULL)) != -1) {
		switch (opt) {
		case VIA:
			via = true;
			o.device = optarg;
			break;
		case DEVICE:
			o.device = optarg;
			break;
		case VERIFY:
			o.verify = true;
			break;
		case DEPTH:
			if (parse_number(optarg, 1, DEPTH_MAX, &v) < 0)
				return usage_error("--depth takes a number from 1 to %d",
						   DEPTH_MAX);
			o.depth = (uint32_t)v;
			break;
		case BLOCK:
			if (parse_size(optarg, &o.block) < 0 || o.block < BLOCK_MIN ||
			    o.block > BLOCK_MAX || o.block % BLOCK_MIN)
				return usage_error("--block takes a multiple of 4k up to 1g");
			break;
		case PATH:
			if (parse_policy(optarg, &o.policy) < 0)
				return usage_error("%s", fail_text());
			break;
		case STRICT:
			o.strict = true;
			break;
		case STORE:
			if (parse_store(optarg, &o.store) < 0)
				return usage_error("--store takes auto, uring or threads");
			break;
		case 'q':
		case QUIET:
			o.quiet = true;
			break;
		case NO_SYNC:
			o.sync = false;
			break;
		case DMABUF:
			if (device_parse_dmabuf(optarg) < 0)
				return usage_error("--dmabuf takes yes, no or try");
			break;
		default:
			return option_error(argv, longs, opt);
		}
	}
	if (argc - optind == 1 && o.device && !via) {
		dst = NULL;
	} else if (argc - optind == 2) {
		int is_device = cp_names_device(argv[optind + 1]);

		dst = argv[optind + 1];
		if (is_device < 0)
			return usage_error("%s", fail_text());
		if (is_device) {
			if (o.device)
				return usage_error("two devices are named, %s and %s", o.device,
						   dst);
			o.device = dst;
			dst = NULL;
		}
	} else {
		return usage_error("one SRC and one DST are needed");
	}
	c.name = argv[optind];
	src = shown_name(c.name);
	if (!src)
		return exit_status(fail(ENOMEM, "out of memory"));
	c.src = src;
	if (!o.block)
		o.block = names_object(c.name) ? BLOCK_OBJECT : BLOCK_DEFAULT;
	signals_catch();
	return exit_status(cp_copy(&c, dst));
}
