/* SPDX-License-Identifier: MIT */
/*
 * KV cache offload.  In device memory the blocks are paged: each layer has one array of pieces for
 * keys and one for values, and a block is one piece of each array.  In the store file a block is
 * contiguous.  So writing a block gathers 2 * LAYERS pieces, described by one struct pst_seg.
 * Reading is deliberately harder: thousands of 4 KiB pages from random places of the file go to
 * random places of a device buffer, with a table of segments per batch.
 */
#include <fcntl.h>

#include "cli/demo/demo.h"
#include "tools/common/pattern.h"

#define LAYERS 16
#define ARRAYS (2 * LAYERS) /* one array for keys and one for values, per layer */
#define PAGE KIB(4)
#define PAGES_MAX 8192
#define PLAIN_READ_NS (4 * NSEC_PER_SEC) /* time limit for the plain side's cold reads */
#define SEED UINT64_C(0xcafe)

struct kv {
	struct demo *d;
	uint64_t piece; /* bytes of one block in one array */
	uint64_t block; /* bytes of one block */
	uint64_t nr_blocks;
	struct pst_mem *pool;
	char *paths[2]; /* store files: [0] for requests, [1] for the plain side */
	int fds[2];
	struct pst_file *file;

	/* the page at pages[i] in the file is read to slots[i] in the buffer, for i < nr_pages */
	uint64_t nr_pages, nr_slots;
	uint32_t *pages, *slots;
	struct pst_mem *paged;
	struct pst_seg *segs;
	uint8_t *touched; /* per slot: true if a page was read into it */
};

/* Return the offset in the pool of a byte of the store file. */
static uint64_t pool_off(const struct kv *kv, uint64_t file_off)
{
	uint64_t block = file_off / kv->block, in_block = file_off % kv->block;
	uint64_t array = in_block / kv->piece, in_piece = in_block % kv->piece;

	return array * kv->nr_blocks * kv->piece + block * kv->piece + in_piece;
}

static int fill_pool(struct kv *kv)
{
	uint64_t len = kv->nr_blocks * kv->block;

	for (uint64_t off = 0; off < len;) {
		uint64_t n = MIN(DEMO_CHUNK, len - off);
		int r;

		pattern_fill(kv->d->buf, SEED, off, n);
		r = pst_mem_copy_in(kv->pool, off, kv->d->buf, n);
		if (r < 0)
			return fail_pst(r, NULL);
		off += n;
	}
	return 0;
}

static int open_files(struct kv *kv)
{
	static const char *const names[] = { "kv-blocks", "kv-blocks-plain" };
	int r;

	for (unsigned i = 0; i < 2; i++) {
		if (asprintf(&kv->paths[i], "%s/%s", kv->d->dir, names[i]) < 0) {
			kv->paths[i] = NULL;
			return fail(ENOMEM, "out of memory");
		}
		kv->fds[i] = open(kv->paths[i], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (kv->fds[i] < 0)
			return fail(errno, "cannot create %s: %s", kv->paths[i], strerror(errno));
	}
	r = pst_file_open(kv->paths[0], PST_FILE_READ | PST_FILE_WRITE, NULL, &kv->file);
	return r < 0 ? fail_pst(r, kv->paths[0]) : 0;
}

/* ------------------------------------------------------------------- out */

static int write_ours(struct kv *kv, uint64_t from, uint64_t to, struct xfer_stats *stats)
{
	_cleanup_(freep) struct pst_io *ios = calloc(to - from, sizeof(*ios));
	_cleanup_(freep) struct pst_seg *segs = calloc(to - from, sizeof(*segs));
	_cleanup_(freep) struct xfer_stats *sync = calloc(1, sizeof(*sync));
	struct pst_io sync_io = { .op = PST_OP_SYNC, .file = kv->file };
	int r;

	if (!ios || !segs || !sync)
		return fail(ENOMEM, "out of memory");
	for (uint64_t i = 0; i < to - from; i++) {
		uint64_t b = from + i;

		segs[i] = (struct pst_seg){
			.file_off = b * kv->block,
			.mem_off = b * kv->piece,
			.len = kv->piece,
			.file_stride = kv->piece,
			.mem_stride = kv->nr_blocks * kv->piece,
			.count = ARRAYS,
		};
		ios[i] = (struct pst_io){
			.op = PST_OP_WRITE,
			.file = kv->file,
			.mem = kv->pool,
			.segs = &segs[i],
			.nr_segs = 1,
		};
	}
	r = xfer_run(kv->d->queue, DEMO_DEPTH, ios, to - from, stats, NULL);
	if (r == 0)
		r = xfer_run(kv->d->queue, DEMO_DEPTH, &sync_io, 1, sync, NULL);
	/* Add the sync's time to the total, but not to the latencies of blocks. */
	stats->ns += sync->ns;
	return r;
}

/* Gather the pieces of a block in the buffer. */
static int kv_collect(const struct kv *kv, uint64_t block)
{
	int r = 0;

	for (unsigned a = 0; a < ARRAYS && r >= 0; a++)
		r = pst_mem_copy_out(kv->pool, (a * kv->nr_blocks + block) * kv->piece,
				     kv->d->buf + a * kv->piece, kv->piece);
	return r < 0 ? fail_pst(r, NULL) : 0;
}

static int write_plain(struct kv *kv, uint64_t from, uint64_t to, struct xfer_stats *stats)
{
	bool emulated = device_is_emulated(&kv->d->dev);
	uint64_t t, ns;
	int r;

	for (uint64_t b = from; b < to; b++) {
		t = now_ns();
		r = kv_collect(kv, b);
		if (r < 0)
			return r;
		/* Plain side: leave copies from an emulator untimed. */
		if (emulated)
			t = now_ns();
		r = pwrite_all(kv->fds[1], kv->d->buf, kv->block, b * kv->block, kv->paths[1]);
		if (r < 0)
			return r;
		ns = now_ns() - t;
		hist_add(&stats->hist, ns);
		stats->bytes += kv->block;
		stats->ns += ns;
		stats->nr++;
		if (stop_signal)
			return fail(EINTR, "interrupted");
	}
	t = now_ns();
	if (fsync(kv->fds[1]) < 0)
		return fail(errno, "syncing %s: %s", kv->paths[1], strerror(errno));
	stats->ns += now_ns() - t;
	return 0;
}

static int verify_files(struct kv *kv)
{
	int r;

	for (unsigned i = 0; i < 2; i++) {
		for (uint64_t b = 0; b < kv->nr_blocks; b++) {
			uint64_t off = b * kv->block;

			r = pread_all(kv->fds[i], kv->d->buf, kv->block, off, kv->paths[i]);
			if (r < 0)
				return r;
			for (unsigned a = 0; a < ARRAYS; a++) {
				uint64_t at = off + a * kv->piece;

				if (pattern_differs(kv->d->buf + a * kv->piece, SEED,
						    pool_off(kv, at), kv->piece) != kv->piece)
					return fail(EIO, "KV block %llu is wrong in %s: piece %u",
						    (unsigned long long)b, kv->paths[i], a);
			}
			kv->d->compared.file += kv->block;
		}
	}
	return 0;
}

static int write_out(struct kv *kv)
{
	struct demo_step *step;
	char unit[32];
	uint64_t half = kv->nr_blocks / 2;
	int r;

	(void)snprintf(unit, sizeof(unit), "block of %.12s", size_text(kv->block).s);
	step = demo_step_add(kv->d, "KV blocks out, fsync", unit, false);
	(void)snprintf(step->pieces, sizeof(step->pieces), "%.12s", size_text(kv->piece).s);
	step->state = "-";
	step->plain_by = device_is_emulated(&kv->d->dev) ? "pwrite" : "copy, pwrite";
	r = write_ours(kv, 0, half, &step->ours);
	if (r == 0)
		r = write_plain(kv, 0, half, &step->plain);
	if (r == 0)
		r = write_plain(kv, half, kv->nr_blocks, &step->plain);
	if (r == 0)
		r = write_ours(kv, half, kv->nr_blocks, &step->ours);
	return r < 0 ? r : verify_files(kv);
}

/* ------------------------------------------------------------------ back */

static int read_ours(struct kv *kv, uint64_t from, uint64_t to, struct xfer_stats *stats)
{
	uint64_t nr = (to - from + DEMO_BATCH_PAGES - 1) / DEMO_BATCH_PAGES;
	_cleanup_(freep) struct pst_io *ios = calloc(nr + 1, sizeof(*ios));

	if (!ios)
		return fail(ENOMEM, "out of memory");
	for (uint64_t i = 0; i < nr; i++) {
		uint64_t first = from + i * DEMO_BATCH_PAGES;

		ios[i] = (struct pst_io){
			.op = PST_OP_READ,
			.file = kv->file,
			.mem = kv->paged,
			.segs = &kv->segs[first],
			.nr_segs = MIN((uint64_t)DEMO_BATCH_PAGES, to - first),
		};
	}
	return xfer_run(kv->d->queue, DEMO_DEPTH, ios, nr, stats, NULL);
}

static int kv_read_plain(struct kv *kv, uint64_t from, uint64_t to, struct xfer_stats *stats)
{
	bool copies = demo_plain_copies(kv->d);
	uint64_t t0 = now_ns(), t = t0, now;
	int r;

	for (uint64_t i = from; i < to; i++) {
		uint64_t to_off = kv->segs[i].mem_off;

		r = pread_all(kv->fds[0], demo_plain_buf(kv->d, kv->paged, to_off), PAGE,
			      kv->segs[i].file_off, kv->paths[0]);
		if (r < 0)
			return r;
		r = copies ? pst_mem_copy_in(kv->paged, to_off, kv->d->buf, PAGE) : 0;
		if (r < 0)
			return fail_pst(r, NULL);
		stats->bytes += PAGE;
		if ((i + 1 - from) % DEMO_BATCH_PAGES && i + 1 < to)
			continue;
		now = now_ns();
		hist_add(&stats->hist, now - t);
		stats->nr++;
		t = now;
		if (stop_signal)
			return fail(EINTR, "interrupted");
	}
	stats->ns += now_ns() - t0;
	return 0;
}

static int verify_paged(struct kv *kv, uint64_t from, uint64_t to)
{
	int r;

	memset(kv->touched, 0, kv->nr_slots);
	for (uint64_t i = from; i < to; i++) {
		uint64_t off = (uint64_t)kv->pages[i] * PAGE;

		r = pst_mem_copy_out(kv->paged, kv->slots[i] * PAGE, kv->d->buf, PAGE);
		if (r < 0)
			return fail_pst(r, NULL);
		if (pattern_differs(kv->d->buf, SEED, pool_off(kv, off), PAGE) != PAGE)
			return fail(EIO, "page %u of the KV store came wrong to slot %u",
				    kv->pages[i], kv->slots[i]);
		kv->touched[kv->slots[i]] = 1;
		kv->d->compared.device += PAGE;
	}
	for (uint64_t slot = 0; slot < kv->nr_slots; slot++) {
		if (kv->touched[slot])
			continue;
		r = pst_mem_copy_out(kv->paged, slot * PAGE, kv->d->buf, PAGE);
		if (r < 0)
			return fail_pst(r, NULL);
		if (!demo_is_poison(kv->d->buf, PAGE))
			return fail(EIO,
				    "slot %llu was overwritten though no page was meant for it",
				    (unsigned long long)slot);
		kv->d->compared.untouched += PAGE;
	}
	return 0;
}

static int read_half(struct kv *kv, struct demo_step *step, bool cold, bool plain, unsigned half)
{
	uint64_t mid = kv->nr_pages / 2, from = half ? mid : 0, to = half ? kv->nr_pages : mid;
	int r;

	r = demo_poison(kv->d, kv->paged, kv->nr_slots * PAGE);
	if (r < 0)
		return r;
	if (cold)
		demo_make_cold(step, kv->fds[0]);
	else if ((r = make_warm(kv->fds[0], kv->paths[0])) < 0)
		return r;
	if (plain)
		r = kv_read_plain(kv, from, to, &step->plain);
	else
		r = read_ours(kv, from, to, &step->ours);
	/* If the device is emulated, the plain side has only a host buffer. */
	if (r < 0 || (plain && device_is_emulated(&kv->d->dev)))
		return r;
	return verify_paged(kv, from, to);
}

static int bring_back(struct kv *kv, bool cold)
{
	struct demo_step *step;
	char unit[32];
	int r;

	(void)snprintf(unit, sizeof(unit), "%d pages", DEMO_BATCH_PAGES);
	step = demo_step_add(kv->d, "KV pages back", unit, cold);
	(void)snprintf(step->pieces, sizeof(step->pieces), "%.12s", size_text(PAGE).s);
	r = read_half(kv, step, cold, false, 0);
	if (r == 0)
		r = read_half(kv, step, cold, true, 0);
	if (r == 0)
		r = read_half(kv, step, cold, true, 1);
	if (r == 0)
		r = read_half(kv, step, cold, false, 1);
	return r;
}

/* Return 0..n-1 in random order. */
static uint32_t *shuffled(uint64_t n, uint64_t *random)
{
	uint32_t *v = malloc(n * sizeof(*v));

	for (uint64_t i = 0; v && i < n; i++) {
		uint64_t j = random_next(random) % (i + 1);

		v[i] = v[j];
		v[j] = (uint32_t)i;
	}
	return v;
}

/* Choose as many pages as the plain side can read cold within PLAIN_READ_NS. */
static int choose_nr_pages(struct kv *kv)
{
	enum { TRIES = 24 };
	uint64_t random = SEED, in_file = kv->nr_blocks * kv->block / PAGE, t0, each;
	int r;

	make_cold(kv->fds[1]);
	t0 = now_ns();
	for (unsigned i = 0; i < TRIES; i++) {
		r = pread_all(kv->fds[1], kv->d->buf, PAGE, random_next(&random) % in_file * PAGE,
			      kv->paths[1]);
		if (r < 0)
			return r;
	}
	each = (now_ns() - t0) / TRIES + 1;
	kv->nr_pages = PLAIN_READ_NS / each;
	kv->nr_pages = MIN(kv->nr_pages, (uint64_t)PAGES_MAX);
	kv->nr_pages = MAX(kv->nr_pages, UINT64_C(2) * DEMO_BATCH_PAGES);
	kv->nr_pages = MIN(kv->nr_pages, in_file) & ~UINT64_C(1);
	return 0;
}

static int plan_bring_back(struct kv *kv)
{
	uint64_t random = SEED + 1;
	int r;

	r = choose_nr_pages(kv);
	if (r < 0)
		return r;
	/* Have twice as many slots as pages: half of the slots must stay unchanged. */
	kv->nr_slots = 2 * kv->nr_pages;
	kv->pages = shuffled(kv->nr_blocks * kv->block / PAGE, &random);
	kv->slots = shuffled(kv->nr_slots, &random);
	kv->segs = calloc(kv->nr_pages, sizeof(*kv->segs));
	kv->touched = calloc(kv->nr_slots, 1);
	if (!kv->pages || !kv->slots || !kv->segs || !kv->touched)
		return fail(ENOMEM, "out of memory");
	for (uint64_t i = 0; i < kv->nr_pages; i++)
		kv->segs[i] = (struct pst_seg){
			.file_off = (uint64_t)kv->pages[i] * PAGE,
			.mem_off = (uint64_t)kv->slots[i] * PAGE,
			.len = PAGE,
		};
	return demo_alloc(kv->d, kv->nr_slots * PAGE, &kv->paged);
}

static void kv_done(struct kv *kv)
{
	(void)pst_file_close(kv->file);
	(void)pst_mem_free(kv->pool);
	(void)pst_mem_free(kv->paged);
	for (unsigned i = 0; i < 2; i++) {
		closep(&kv->fds[i]);
		free(kv->paths[i]);
	}
	free(kv->pages);
	free(kv->slots);
	free(kv->segs);
	free(kv->touched);
}

int demo_kv(struct demo *d)
{
	_cleanup_(kv_done) struct kv kv = { .d = d, .fds = { -1, -1 } };
	int r;

	kv.piece = d->kv_bytes >= MIB(16) ? KIB(16) : KIB(4);
	kv.block = ARRAYS * kv.piece;
	kv.nr_blocks = MAX(d->kv_bytes / kv.block, UINT64_C(8));
	r = demo_alloc(d, kv.nr_blocks * kv.block, &kv.pool);
	if (r == 0)
		r = fill_pool(&kv);
	if (r == 0)
		r = open_files(&kv);
	if (r == 0)
		r = write_out(&kv);
	if (r == 0)
		r = plan_bring_back(&kv);
	if (r == 0)
		r = bring_back(&kv, true);
	if (r == 0)
		r = bring_back(&kv, false);
	return r;
}
