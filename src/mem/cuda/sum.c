/* SPDX-License-Identifier: MIT */
/*
 * Checksums of device memory.
 *
 * The host cuts ranges into tiles, the kernel computes the remainder of each tile (ptx_sum.h), and
 * the host combines them.  The list of tiles and the remainders are in pinned host memory.
 */
#include <inttypes.h>
#include <sys/mman.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "mem/cuda/cuda.h"
#include "mem/cuda/ptx_sum.h"

#define TILES 8192u
#define TILES_WANTED 4096u /* about as many warps as the largest device runs at a time */
/* Least bytes of a tile: the fixed work per tile takes as long as 2 KiB. */
#define TILE_MIN KIB(4)
#define BLOCKS_EACH 8u /* blocks per multiprocessor: the most that fit */

/* Pinned memory that the device reads (tiles) and writes (remainders). */
struct area {
	struct cuda_sum_tile tiles[TILES];
	uint32_t remainders[TILES];
};

struct cuda_sums {
	struct mem_sums base;
	struct cuda_dev *d;
	cu_ctx ctx;    /* the primary context, retained */
	uint64_t life; /* life of the primary context when the object was created */
	struct mem_late late;
	cu_stream stream;
	cu_event event;
	struct area *area;
	uint64_t pinned; /* pinned bytes of area */
	cu_ptr area_dev; /* device address of area */
	unsigned max_blocks;

	/* The ranges that are being computed. */
	unsigned nr;
	uint64_t lens[MEM_RANGES];
	unsigned ends[MEM_RANGES]; /* index after the last tile of each range */
};

/* -------------------------------------------------------------- life cycle */

static void sums_end(struct mem_late *l)
{
	struct cuda_sums *s = container_of(l, struct cuda_sums, late);

	if (s->area) {
		cuda_unpin(s->d->idx, s->area, s->pinned);
		(void)munmap(s->area, sizeof(*s->area));
	}
	cuda_drop(s->d);
	free(s);
}

static void sums_done(struct cuda_sums *s)
{
	CUDA_SCOPE(scope);

	/* Destroy stream and event, unless a reset has already ended them. */
	if (cuda_lives(s->d, s->life)) {
		cuda_enter_anyway(&scope, s->ctx);
		if (s->stream)
			cuda_ignore(s->d, cu.cuStreamSynchronize(s->stream), "finish checksums");
		if (s->event)
			cuda_ignore(s->d, cu.cuEventDestroy_v2(s->event), "end an event");
		if (s->stream)
			cuda_ignore(s->d, cu.cuStreamDestroy_v2(s->stream), "end a stream");
	}
	cuda_leave(&scope);
	s->late.run = sums_end;
	if (s->area)
		cuda_late(&s->late);
	else
		sums_end(&s->late);
}

static void sums_donep(struct cuda_sums **s)
{
	if (*s)
		sums_done(*s);
}

static int pin_area(struct cuda_sums *s)
{
	uint64_t len = align_up(sizeof(*s->area), KIB(4)), rest;
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r;

	if (p == MAP_FAILED)
		return err_set(ENOMEM, "no memory for checksums");
	s->area = p;
	r = cuda_pin(s->d->idx, s->life, p, len, &s->pinned);
	if (r < 0)
		return r;
	if (cuda_pin_find(p, len, MEM_FROM_DEVICE, &s->area_dev, &rest) < len || !s->area_dev)
		return err_set(EOPNOTSUPP, "kernels of %s do not reach host memory",
			       s->d->info.name);
	return 0;
}

static int make(struct cuda_sums *s)
{
	int processors = 0;
	cu_result e;

	if (!cuda_kernel(s->d, &s->d->sum))
		return err_set(EOPNOTSUPP,
			       "%s cannot run the kernel for checksums; PST_LOG=warn says why",
			       s->d->info.name);
	(void)cuda_attribute(s->d, CU_DEV_MULTIPROCESSORS, &processors);
	s->max_blocks = (unsigned)MAX(processors, 1) * BLOCKS_EACH;
	e = cu.cuStreamCreate(&s->stream, CU_NON_BLOCKING);
	if (e != CU_OK) {
		s->stream = NULL;
		return cuda_err(s->d, e, "make a stream");
	}
	e = cu.cuEventCreate(&s->event, CU_DISABLE_TIMING);
	if (e != CU_OK) {
		s->event = NULL;
		return cuda_err(s->d, e, "make an event");
	}
	return pin_area(s);
}

int cuda_sums_new(unsigned device, struct mem_sums **ret)
{
	_cleanup_(sums_donep) struct cuda_sums *s = NULL;
	struct cuda_dev *d = cuda_device(device);
	CUDA_SCOPE(scope);
	uint64_t life;
	cu_ctx ctx;
	int r;

	r = cuda_hold(d, &ctx, &life);
	if (r < 0)
		return r;
	s = calloc(1, sizeof(*s));
	if (!s) {
		cuda_drop(d);
		return err_set(ENOMEM, "no memory for checksums");
	}
	s->base.ops = &mem_cuda_ops;
	s->d = d;
	s->ctx = ctx;
	s->life = life;
	r = cuda_enter(&scope, d, ctx);
	if (r == 0)
		r = make(s);
	if (r < 0)
		return r;
	*ret = &TAKE_PTR(s)->base;
	return 0;
}

void cuda_sums_free(struct mem_sums *base)
{
	sums_done(container_of(base, struct cuda_sums, base));
}

/* ------------------------------------------------------------------- start */

static int look_at_ranges(const struct cuda_dev *d, const struct mem_range *v, unsigned nr,
			  uint64_t *ret_len)
{
	const struct mem_alloc *last = NULL;
	int r;

	for (unsigned i = 0; i < nr; i++) {
		const struct mem_alloc *a = v[i].alloc;

		*ret_len += v[i].len;
		if (a == last)
			continue;
		last = a;
		if (a->device != d->idx)
			return err_set(EINVAL, "memory of cuda:%u for checksums by cuda:%u",
				       a->device, d->idx);
		r = cuda_alive(cuda_alloc_of(a));
		if (r < 0)
			return r;
		if (cuda_alloc_of(a)->foreign)
			return err_set(EOPNOTSUPP,
				       "memory of a context of the program's own has no checksums; "
				       "allocate it in the primary context of %s",
				       d->info.name);
	}
	return 0;
}

/* Cut ranges into tiles, which begin at multiples of 16 except for the first tile of a range.
 * Return their number. */
static unsigned cut_tiles(struct cuda_sums *s, const struct mem_range *v, unsigned nr,
			  uint64_t tile)
{
	unsigned n = 0;

	for (unsigned i = 0; i < nr; i++) {
		uint64_t at = v[i].alloc->base.va + v[i].off, end = at + v[i].len, next;

		s->lens[i] = v[i].len;
		for (; at < end; at = next) {
			next = MIN(end, align_down(at, 16) + tile);
			s->area->tiles[n++] = (struct cuda_sum_tile){ .at = at, .len = next - at };
		}
		s->ends[i] = n;
	}
	return n;
}

/* Return the length of tiles: large enough that all ranges fit into TILES, although each range may
 * need one tile more than its length suggests. */
static uint64_t tile_len(uint64_t len, unsigned nr)
{
	uint64_t wanted = MAX(len / TILES_WANTED, TILE_MIN), least = len / (TILES - 2 * nr) + 1;

	return align_up(MAX(wanted, least), 16);
}

int cuda_sums_start(struct mem_sums *base, const struct mem_range *v, unsigned nr)
{
	struct cuda_sums *s = container_of(base, struct cuda_sums, base);
	struct cuda_dev *d = s->d;
	CUDA_SCOPE(scope);
	uint64_t len = 0;
	uint32_t tiles;
	cu_func fn;
	cu_result e;
	int r = look_at_ranges(d, v, nr, &len);

	if (r == 0)
		r = cuda_check_life(d, s->life);
	if (r == 0)
		r = cuda_enter(&scope, d, s->ctx);
	if (r < 0)
		return r;
	fn = cuda_kernel(d, &d->sum);
	if (!fn)
		return err_set(EOPNOTSUPP, "%s cannot run the kernel for checksums", d->info.name);
	tiles = cut_tiles(s, v, nr, tile_len(len, nr));
	e = cu.cuLaunchKernel(
		fn, MIN((tiles + CUDA_SUM_WARPS - 1) / CUDA_SUM_WARPS, s->max_blocks), 1, 1,
		CUDA_SUM_THREADS, 1, 1, 0, s->stream,
		(void *[]){ &(cu_ptr){ s->area_dev + offsetof(struct area, tiles) }, &tiles,
			    &(cu_ptr){ s->area_dev + offsetof(struct area, remainders) } },
		NULL);
	if (e != CU_OK) {
		r = cuda_err(d, e, "start the kernel for checksums");
		if (r == -ENODEV || cuda_check_lost(d) < 0)
			return r;
		cuda_kernel_fails(d, &d->sum, e);
		return -EOPNOTSUPP;
	}
	s->nr = nr;
	e = cu.cuEventRecord(s->event, s->stream);
	if (e == CU_OK)
		return 0;
	(void)cu.cuStreamSynchronize(s->stream);
	return cuda_err(d, e, "mark the end of checksums");
}

/* -------------------------------------------------------------------- poll */

/* Cache of factors by length: most ranges, and most tiles, have a length that occurred before. */
struct factors {
	uint64_t lens[64]; /* 0: empty entry */
	uint32_t factors[64];
};

static uint32_t factor_of(struct factors *f, uint64_t len)
{
	unsigned at = (unsigned)(len * UINT64_C(0x9e3779b97f4a7c15) >> 58);

	if (f->lens[at] != len) {
		f->lens[at] = len;
		f->factors[at] = crc32c_factor(len);
	}
	return f->factors[at];
}

static uint32_t combine(const struct area *a, unsigned from, unsigned to, uint64_t len,
			struct factors *f)
{
	uint32_t sum = 0;

	for (unsigned i = from; i < to; i++) {
		const struct cuda_sum_tile *t = &a->tiles[i];
		unsigned zeros = (unsigned)(-(t->at + t->len) & 15);

		if (sum)
			sum = crc32c_times(sum, factor_of(f, t->len));
		sum ^= crc32c_drop_zeros(a->remainders[i], zeros);
	}
	return crc32c_of_remainder(sum, factor_of(f, len));
}

int cuda_sums_poll(struct mem_sums *base, uint32_t *ret)
{
	struct cuda_sums *s = container_of(base, struct cuda_sums, base);
	struct factors f = { 0 };
	CUDA_SCOPE(scope);
	cu_result e;
	int r;

	r = cuda_check_life(s->d, s->life);
	if (r == 0)
		r = cuda_enter(&scope, s->d, s->ctx);
	if (r < 0)
		return r;
	e = cu.cuEventQuery(s->event);
	if (e == CU_NOT_READY)
		return 0;
	if (e != CU_OK)
		return cuda_err(s->d, e, "compute checksums");
	/* After a reset the handle may be an event of the program, so its state means nothing. */
	if (!cuda_lives(s->d, s->life))
		return cuda_check_life(s->d, s->life);
	for (unsigned i = 0; i < s->nr; i++)
		ret[i] = combine(s->area, i ? s->ends[i - 1] : 0, s->ends[i], s->lens[i], &f);
	return 1;
}
