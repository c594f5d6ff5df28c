/* SPDX-License-Identifier: MIT */
/*
 * Load a model: one request per tensor, many in flight.  For each shard the requests and the plain
 * side change the order, so that neither gains from always being first.
 */
#include "tools/common/crc32c.h"
#include "cli/demo/demo.h"

#define TENSOR_ALIGN 256 /* alignment that accelerators' allocators give */

struct load {
	struct demo *d;
	struct pst_mem *mem;
	uint64_t mem_len;
	struct pst_io *ios;
	size_t *tensor_of; /* tensor index of each request; empty tensors have no request */
	struct pst_done *dones;
	uint64_t *mem_offs; /* bytes; offset of each tensor in device memory */
	size_t nr_ios;
	bool crc;
};

static uint64_t memory_for(const struct shard *s)
{
	uint64_t len = 0;

	for (size_t i = 0; i < s->st->nr; i++)
		len += align_up(s->st->tensors[i].len, TENSOR_ALIGN);
	return len;
}

static void plan(struct load *l, const struct shard *s)
{
	uint64_t mem_off = 0;

	l->nr_ios = 0;
	for (size_t i = 0; i < s->st->nr; i++) {
		const struct safetensor *t = &s->st->tensors[i];

		l->mem_offs[i] = mem_off;
		mem_off += align_up(t->len, TENSOR_ALIGN);
		if (!t->len)
			continue;
		l->tensor_of[l->nr_ios] = i;
		l->ios[l->nr_ios++] = (struct pst_io){
			.op = PST_OP_READ,
			.flags = l->crc ? PST_IO_CRC32C : 0,
			.file = s->file,
			.mem = l->mem,
			.file_off = t->off,
			.mem_off = l->mem_offs[i],
			.len = t->len,
		};
	}
}

/* Load as a program without a library does: read into a buffer, then copy that to the device. */
static int load_plain(struct load *l, const struct shard *s, struct xfer_stats *stats)
{
	bool copies = demo_plain_copies(l->d);
	uint64_t t0 = now_ns(), t = t0, now;
	int r;

	for (size_t i = 0; i < s->st->nr; i++) {
		const struct safetensor *tensor = &s->st->tensors[i];
		uint32_t crc = 0;

		for (uint64_t done = 0; done < tensor->len;) {
			uint64_t n = MIN(DEMO_CHUNK, tensor->len - done);

			uint64_t to = l->mem_offs[i] + done;
			uint8_t *buf = demo_plain_buf(l->d, l->mem, to);

			r = pread_all(s->fd, buf, n, tensor->off + done, s->path);
			if (r < 0)
				return r;
			if (l->crc)
				crc = crc32c_add(crc, buf, n);
			r = copies ? pst_mem_copy_in(l->mem, to, buf, n) : 0;
			if (r < 0)
				return fail_pst(r, NULL);
			done += n;
			if (stop_signal)
				return fail(EINTR, "interrupted");
		}
		if (l->crc && crc != s->crcs[i])
			return fail(EIO, "tensor %s of %s has another checksum than before",
				    tensor->name, s->path);
		if (!tensor->len)
			continue;
		now = now_ns();
		hist_add(&stats->hist, now - t);
		stats->bytes += tensor->len;
		stats->nr++;
		t = now;
	}
	stats->ns += now_ns() - t0;
	return 0;
}

static int load_verify(struct load *l, const struct shard *s)
{
	int r;

	for (size_t i = 0; i < s->st->nr; i++) {
		const struct safetensor *t = &s->st->tensors[i];

		for (uint64_t done = 0; done < t->len;) {
			uint64_t n = MIN(DEMO_CHUNK, t->len - done);

			r = pst_mem_copy_out(l->mem, l->mem_offs[i] + done, l->d->buf, n);
			if (r < 0)
				return fail_pst(r, NULL);
			r = shard_compare(s, t->off + done, l->d->buf, n, t->name);
			if (r < 0)
				return r;
			l->d->compared.device += n;
			done += n;
			if (stop_signal)
				return fail(EINTR, "interrupted");
		}
	}
	return 0;
}

static int verify_crcs(const struct load *l, const struct shard *s)
{
	for (size_t i = 0; i < l->nr_ios; i++) {
		size_t t = l->tensor_of[i];

		if (!(l->dones[i].flags & PST_DONE_CRC32C))
			return fail(EIO, "tensor %s came without the checksum that was asked for",
				    s->st->tensors[t].name);
		if (l->dones[i].crc32c != s->crcs[t])
			return fail(EIO,
				    "tensor %s: the completion says CRC-32C %08x, written was %08x",
				    s->st->tensors[t].name, l->dones[i].crc32c, s->crcs[t]);
		l->d->compared.crcs++;
	}
	return 0;
}

static int job_part_step(struct load *l, struct demo_step *step, bool cold)
{
	struct demo *d = l->d;
	int r;

	for (unsigned i = 0; i < 2 * d->nr_shards; i++) {
		struct shard *s = &d->shards[i / 2];
		bool plain = (i & 1) ^ (i / 2 & 1);

		step->copied |= s->object;
		plan(l, s);
		r = demo_poison(d, l->mem, l->mem_len);
		if (r < 0)
			return r;
		if (cold)
			demo_make_cold(step, s->fd);
		else if ((r = make_warm(s->fd, s->path)) < 0)
			return r;
		if (plain)
			r = load_plain(l, s, &step->plain);
		else
			r = xfer_run(d->queue, DEMO_DEPTH, l->ios, l->nr_ios, &step->ours,
				     l->dones);
		if (r == 0 && l->crc && !plain)
			r = verify_crcs(l, s);
		/* If the device is emulated, the plain side has only a host buffer. */
		if (r == 0 && !(plain && device_is_emulated(&d->dev)))
			r = load_verify(l, s);
		if (r < 0)
			return r;
	}
	return 0;
}

static void load_done(struct load *l)
{
	(void)pst_mem_free(l->mem);
	free(l->ios);
	free(l->tensor_of);
	free(l->dones);
	free(l->mem_offs);
}

int demo_load(struct demo *d)
{
	_cleanup_(load_done) struct load l = { .d = d };
	size_t nr = 1;
	int r;

	for (unsigned i = 0; i < d->nr_shards; i++) {
		nr = MAX(nr, d->shards[i].st->nr);
		l.mem_len = MAX(l.mem_len, memory_for(&d->shards[i]));
	}
	l.mem_len = MAX(l.mem_len, (uint64_t)TENSOR_ALIGN);
	l.ios = calloc(nr, sizeof(*l.ios));
	l.tensor_of = calloc(nr, sizeof(*l.tensor_of));
	l.dones = calloc(nr, sizeof(*l.dones));
	l.mem_offs = calloc(nr, sizeof(*l.mem_offs));
	if (!l.ios || !l.tensor_of || !l.dones || !l.mem_offs)
		return fail(ENOMEM, "out of memory");
	r = demo_alloc(d, l.mem_len, &l.mem);
	if (r < 0)
		return r;

	r = job_part_step(&l, demo_step_add(d, "load tensors", "tensor", true), true);
	if (r == 0)
		r = job_part_step(&l, demo_step_add(d, "load tensors", "tensor", false), false);
	l.crc = true;
	if (r == 0)
		r = job_part_step(&l, demo_step_add(d, "load tensors, CRC-32C", "tensor", false),
				  false);
	return r;
}
