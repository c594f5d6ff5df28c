/* SPDX-License-Identifier: MIT */
/*
 * Load by plain calls.  Threads take blocks of the files from a common counter, read each block
 * into one of two buffers, and copy from there to each tensor with bytes in the block.  CUDA copies
 * while the other buffer is filled.  Host memory is read into directly.  The software device, which
 * only the library can access, is filled by pst_mem_copy_in().
 */
#include "load.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define SLOTS 2

static cu_ctx ctx;

/* Buffers of a thread, kept for the next load, as loaders do. */
static struct lane {
	char *buf[SLOTS];
	cu_stream stream[SLOTS];
	bool ready;
} lanes[THREADS_MAX];

struct load {
	struct shard *shards;
	int *fds;
	uint64_t *first; /* first block of each file; the last entry is the total */
	unsigned nr;
	_Atomic uint64_t next;
	_Atomic bool failed;
	pthread_mutex_t lock; /* covers memory that only one thread at a time may use */
};

/* -------------------------------------------------------------------- CUDA */

static int cuda_fail(const char *call, cu_result e)
{
	const char *name = NULL;

	if (cu.cuGetErrorName(e, &name) || !name)
		name = "unknown";
	return fail(EIO, "%s gave %u (%s)", call, e, name);
}

#define CU(call)                               \
	({                                     \
		cu_result _e = (call);         \
		_e ? cuda_fail(#call, _e) : 0; \
	})

int device_start(void)
{
	struct pst_mem *mem = NULL;
	cu_device dev;
	char why[256];
	int r;

	if (on_cuda()) {
		r = vendor_cuda(why, sizeof(why));
		if (r < 0)
			return fail(r, "%s", why);
		r = CU(cu.cuInit(0));
		if (r == 0)
			r = CU(cu.cuDeviceGet(&dev, (int)set.device.index));
		if (r == 0)
			r = CU(cu.cuDevicePrimaryCtxRetain(&ctx, dev));
		if (r < 0)
			return r;
	}
	r = pst_mem_alloc(set.device.name, 1, NULL, &mem);
	(void)pst_mem_free(mem);
	return r < 0 ? fail_pst(r, set.device.name) : 0;
}

static int lane_start(struct lane *l)
{
	int r = 0;

	if (l->ready || on_host())
		return 0;
	for (unsigned i = 0; r == 0 && i < SLOTS; i++) {
		void *p = mmap(NULL, set.piece, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		if (p == MAP_FAILED)
			return fail(ENOMEM, "no memory for buffers");
		l->buf[i] = p;
		if (on_cuda())
			r = CU(cu.cuMemHostRegister_v2(p, set.piece, CU_REGISTER_PORTABLE));
		if (r == 0 && on_cuda())
			r = CU(cu.cuStreamCreate(&l->stream[i], CU_NON_BLOCKING));
	}
	l->ready = r == 0;
	return r;
}

/* Wait for all copies, even after a failure, because memory is freed next. */
static int lane_drain(const struct lane *l)
{
	int r = 0;

	for (unsigned i = 0; on_cuda() && i < SLOTS; i++)
		if (l->stream[i] && r == 0)
			r = CU(cu.cuStreamSynchronize(l->stream[i]));
	return r;
}

/* ------------------------------------------------------------------ blocks */

static int pinned_read_full(const struct load *d, unsigned file, char *buf, uint64_t off,
			    uint64_t len, uint64_t room)
{
	for (uint64_t got = 0; got < len;) {
		/* O_DIRECT needs whole blocks, even at the end of the file. */
		ssize_t n = pread(d->fds[file], buf + got, room - got, (off_t)(off + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return fail(n ? errno : EIO, "reading %s at %" PRIu64 ": %s",
				    d->shards[file].path, off + got,
				    n ? strerror(errno) : "it ends there");
		got += (uint64_t)n;
	}
	return 0;
}

/* Copy the part of a tensor that lies in a block: file offsets begin to end. */
static int pinned_put(struct load *d, struct lane *l, unsigned slot, unsigned file, size_t idx,
		      uint64_t block, uint64_t begin, uint64_t end)
{
	const struct shard *s = &d->shards[file];
	const struct place *p = &s->places[idx];
	uint64_t at = begin - s->st->tensors[idx].off, len = end - begin;
	char *src = l->buf[slot] + (begin - block);
	int r;

	if (on_host())
		return pinned_read_full(d, file, (char *)(uintptr_t)p->addr + at, begin, len, len);
	if (on_cuda())
		return CU(cu.cuMemcpyHtoDAsync_v2(p->addr + at, src, len, l->stream[slot]));
	(void)pthread_mutex_lock(&d->lock);
	r = pst_mem_copy_in(p->mem, p->off + at, src, len);
	(void)pthread_mutex_unlock(&d->lock);
	return r < 0 ? fail_pst(r, set.device.name) : 0;
}

static int pinned_move(struct load *d, struct lane *l, unsigned slot, unsigned file, uint64_t block)
{
	const struct shard *s = &d->shards[file];
	uint64_t end = MIN(block + set.piece, s->size);
	int r = 0;

	/* Wait for the copies that used this buffer before. */
	if (on_cuda())
		r = CU(cu.cuStreamSynchronize(l->stream[slot]));
	if (r == 0 && !on_host())
		r = pinned_read_full(d, file, l->buf[slot], block, end - block, set.piece);
	for (size_t i = 0; r == 0 && i < s->st->nr; i++) {
		const struct safetensor *t = &s->st->tensors[i];
		uint64_t from = MAX(t->off, block), to = MIN(t->off + t->len, end);

		if (from < to)
			r = pinned_put(d, l, slot, file, i, block, from, to);
	}
	return r;
}

static int lane_work(struct load *d, struct lane *l)
{
	int r = lane_start(l), drained;

	for (unsigned slot = 0; r == 0 && !d->failed; slot = (slot + 1) % SLOTS) {
		uint64_t block = atomic_fetch_add_explicit(&d->next, 1, memory_order_relaxed);
		unsigned file = 0;

		if (block >= d->first[d->nr])
			break;
		while (block >= d->first[file + 1])
			file++;
		r = pinned_move(d, l, slot, file, (block - d->first[file]) * set.piece);
	}
	drained = lane_drain(l);
	if (r < 0 || drained < 0)
		d->failed = true;
	return r < 0 ? r : drained;
}

static int pinned_lane_main(void *arg, unsigned idx)
{
	cu_ctx own;
	int r = on_cuda() ? CU(cu.cuCtxPushCurrent_v2(ctx)) : 0;

	if (r < 0)
		return r;
	r = lane_work(arg, &lanes[idx]);
	if (on_cuda())
		(void)cu.cuCtxPopCurrent_v2(&own);
	return r;
}

/* ------------------------------------------------------------------- files */

static int pinned_open_all(struct load *d)
{
	int flags = O_RDONLY | O_CLOEXEC | (set.direct ? O_DIRECT : 0), r = 0;

	for (unsigned i = 0; r == 0 && i < d->nr; i++) {
		struct shard *s = &d->shards[i];

		r = model_shard_open(s);
		for (size_t k = 0; r == 0 && k < s->st->nr; k++)
			r = shard_place(s, k);
		if (r < 0)
			return r;
		d->fds[i] = open(s->path, flags);
		if (d->fds[i] < 0)
			r = fail(errno, "%s%s: %s", s->path, set.direct ? " by O_DIRECT" : "",
				 strerror(errno));
		d->first[i + 1] = d->first[i] + (s->size + set.piece - 1) / set.piece;
	}
	return r;
}

int pinned_load(struct shard *shards, unsigned nr, char *ret_paths, size_t len)
{
	_cleanup_(freep) uint64_t *first = calloc(nr + 1, sizeof(*first));
	_cleanup_(freep) int *fds = calloc(nr, sizeof(*fds));
	struct load d = { .shards = shards, .nr = nr, .first = first, .fds = fds };
	int r;

	if (!first || !fds)
		return fail(ENOMEM, "out of memory");
	for (unsigned i = 0; i < nr; i++)
		fds[i] = -1;
	(void)pthread_mutex_init(&d.lock, NULL);
	r = pinned_open_all(&d);
	if (r == 0)
		r = each(set.threads, set.threads, pinned_lane_main, &d);
	for (unsigned i = 0; i < nr; i++)
		closep(&fds[i]);
	(void)pthread_mutex_destroy(&d.lock);
	(void)snprintf(ret_paths, len, "%u x %s", set.threads,
		       set.direct ? "O_DIRECT" : "page cache");
	return r;
}
