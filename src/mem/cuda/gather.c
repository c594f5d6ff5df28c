/* SPDX-License-Identifier: MIT */
#include "base/err.h"
#include "mem/cuda/cuda.h"
#include "mem/cuda/ptx.h"

/* ------------------------------------------------------------------- tiles */

/*
 * A range of registered host memory that a kernel can reach.  Most batches need one registration,
 * but the pieces of a pinned file lie in many.  So the table is locked once for all pieces: its
 * lock is one cache line that all streams share.
 */
struct reach {
	uintptr_t start, end;
	cu_ptr dev; /* device address of start */
};

static bool reach_from(struct reach *w, const char *host, enum mem_dir dir)
{
	uintptr_t at = (uintptr_t)host;
	uint64_t rest;

	if (at >= w->start && at < w->end)
		return true;
	w->start = at;
	w->end = at + cuda_pin_find_held(host, UINT64_MAX, dir, &w->dev, &rest);
	return w->end > at && w->dev;
}

/* Cut a piece into tiles.  Return false if the kernel cannot reach its host memory, or if there is
 * no room for the tiles. */
static bool put_tiles(enum mem_dir dir, const struct mem_copy *c, struct reach *w,
		      struct cuda_tile **at, const struct cuda_tile *end)
{
	uint64_t dev = c->alloc->base.va + c->off, left = c->len, n;
	const char *host = c->host;

	while (left) {
		cu_ptr host_dev;
		uint64_t run;

		if (!reach_from(w, host, dir))
			return false;
		run = MIN(left, w->end - (uintptr_t)host);
		host_dev = w->dev + ((uintptr_t)host - w->start);
		left -= run;
		host += run;
		for (; run; run -= n) {
			n = MIN(run, CUDA_TILE);
			if (*at == end)
				return false;
			*(*at)++ = (struct cuda_tile){
				.dst = dir == MEM_TO_DEVICE ? dev : host_dev,
				.src = dir == MEM_TO_DEVICE ? host_dev : dev,
				.len = n,
			};
			dev += n;
			host_dev += n;
		}
	}
	return true;
}

bool cuda_tiles_put(enum mem_dir dir, const struct mem_copy *v, unsigned nr, struct cuda_tile **at,
		    const struct cuda_tile *end)
{
	struct reach within = { 0 };
	bool all = true;

	cuda_pins_hold();
	for (unsigned i = 0; all && i < nr; i++)
		all = put_tiles(dir, &v[i], &within, at, end);
	cuda_pins_drop();
	return all;
}

/* ------------------------------------------------------------------ kernel */

static cu_result launch(cu_func fn, const struct mem_sgl *v, unsigned nr, cu_stream st)
{
	struct cuda_gather_lists lists = { 0 };
	void *params[] = { &lists };
	unsigned most = 0;

	for (unsigned i = 0; i < nr; i++) {
		lists.v[i].tiles = v[i].dev;
		lists.v[i].nr = v[i].nr;
		most = MAX(most, v[i].nr);
	}
	return cu.cuLaunchKernel(fn, nr, most, 1, CUDA_GATHER_THREADS, 1, 1, 0, st, params, NULL);
}

int cuda_gather(struct cuda_dev *d, const struct mem_sgl *v, unsigned nr, cu_stream st)
{
	cu_func fn = cuda_kernel(d, &d->gather);
	cu_result e = fn ? launch(fn, v, nr, st) : CU_OK;
	int r;

	if (!fn)
		return err_set(EOPNOTSUPP, "%s has no gather kernel", d->info.name);
	if (e == CU_OK)
		return 0;
	r = cuda_err(d, e, "start the gather kernel");
	if (r == -ENODEV || cuda_check_lost(d) < 0)
		return r;
	cuda_kernel_fails(d, &d->gather, e);
	return -EOPNOTSUPP;
}

bool cuda_has_gather(struct cuda_dev *d)
{
	return cuda_kernel(d, &d->gather) != NULL;
}

cu_result cuda_gather_fed(struct cuda_dev *d, cu_ptr list, unsigned max_tiles, cu_stream st)
{
	struct cuda_gather_lists lists = {
		.v[0] = { .tiles = list, .nr = max_tiles, .fed = 1 },
	};
	void *params[] = { &lists };
	cu_func fn = cuda_kernel(d, &d->gather);

	if (!fn)
		return CU_NOT_SUPPORTED;
	return cu.cuLaunchKernel(fn, 1, max_tiles, 1, CUDA_GATHER_THREADS, 1, 1, 0, st, params,
				 NULL);
}
