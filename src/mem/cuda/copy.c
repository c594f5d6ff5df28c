/* SPDX-License-Identifier: MIT */
/*
 * Streams: copies in order on one device, whose end is known by events.
 *
 * A batch is copied by the driver's batched copy if the driver has one and host memory is
 * registered: between two copies that are started one by one, the device pauses for some two
 * microseconds.  A batch of many small pieces is moved by one device kernel that reads, or writes,
 * host memory itself; the kernel reaches only device memory of its own context.  Other batches are
 * a loop of asynchronous copies.
 *
 * The kernel's list of tiles is in a ring that the device reads; a completed batch frees its part
 * of the ring.  If lists were written earlier (cuda_sgl_write()), one kernel moves the tiles of
 * several lists.
 */
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "mem/cuda/cuda.h"

#define BATCHES_MAX 64u      /* maximum batches in flight in a stream; power of two */
#define MARK_EVERY 4u        /* batches per event while the stream is busy */
#define MARK_BYTES MIB(2)    /* bytes after which an event is recorded in any case */
#define RESULTS_KEPT 1024u   /* last tickets whose result is kept for poll(); power of two */
#define PIECES_MAX 65536u    /* maximum pieces of one batch */
#define TILES 8192u          /* tiles in the ring */
#define MANY_PIECES 4u       /* with this many pieces or more, the kernel is faster */
#define SMALL_PIECE KIB(256) /* bytes of an average piece, up to which the kernel is faster */
#define REACHED_MAX 8u       /* maximum other devices that a stream remembers */

struct cuda_stream {
	struct mem_stream base;
	struct cuda_dev *d;
	cu_ctx ctx;    /* the primary context; the stream holds a reference */
	uint64_t life; /* life of the primary context when the stream was created */
	struct mem_late late;
	cu_stream stream;
	cu_event events[BATCHES_MAX]; /* ring by ticket; NULL until first needed */
	uint64_t marks[BATCHES_MAX];  /* ring of tickets in flight that have an event */
	unsigned mark_first, mark_end;
	uint64_t marked;   /* latest ticket that has an event */
	uint64_t unmarked; /* bytes of the batches after @marked */
	uint64_t head;     /* latest ticket that was returned */
	uint64_t done;     /* latest ticket that is known to be done */
	int results[RESULTS_KEPT];
	uint32_t path; /* PST_PATH_* of the last batch */

	/* Other devices, at idx % REACHED_MAX, for which reach_device_of() was called. */
	struct {
		unsigned idx;
		uint64_t life_plus_1; /* 1 + life of the device's context; 0: unused */
	} reached[REACHED_MAX];

	struct cuda_tile *tiles;        /* NULL until the first gather */
	uint64_t tiles_pinned;          /* bytes */
	cu_ptr tiles_dev;               /* 0 until the tiles are pinned */
	bool no_tiles;                  /* the ring cannot be used */
	uint64_t tile_head;             /* tiles used since the start, including skipped ones */
	uint64_t tile_tail;             /* value of tile_head after the last batch that is done */
	uint64_t tile_end[BATCHES_MAX]; /* value of tile_head after each batch, by ticket */

	/* Arrays of arguments for the driver's batched copy. */
	cu_ptr *batch_dev, *batch_host;
	size_t *batch_len;
	size_t batch_room;
};

/* A batch whose pieces were checked. */
struct batch {
	enum mem_dir dir;
	const struct mem_copy *v;
	unsigned nr;
	uint64_t len;
	uint64_t tiles; /* maximum tiles that the batch can need */
	bool foreign;
	bool between; /* a piece is copied between two allocations of device memory */
};

static atomic_bool no_batched; /* the driver has refused its batched copy before */

/* -------------------------------------------------------------- life cycle */

static void stream_end(struct mem_late *l)
{
	struct cuda_stream *st = container_of(l, struct cuda_stream, late);

	if (st->tiles) {
		cuda_unpin(st->d->idx, st->tiles, st->tiles_pinned);
		(void)munmap(st->tiles, TILES * sizeof(*st->tiles));
	}
	cuda_drop(st->d);
	free(st);
}

static void stream_done(struct cuda_stream *st)
{
	CUDA_SCOPE(scope);

	/* Destroy stream and events, unless a reset has already ended them. */
	if (cuda_lives(st->d, st->life)) {
		cuda_enter_anyway(&scope, st->ctx);
		/* This call fails if the device is lost; such a device moves nothing any more. */
		if (st->stream)
			cuda_ignore(st->d, cu.cuStreamSynchronize(st->stream), "finish a stream");
		for (unsigned i = 0; i < BATCHES_MAX; i++)
			if (st->events[i])
				cuda_ignore(st->d, cu.cuEventDestroy_v2(st->events[i]),
					    "end an event");
		if (st->stream)
			cuda_ignore(st->d, cu.cuStreamDestroy_v2(st->stream), "end a stream");
	}
	cuda_leave(&scope);
	free(st->batch_dev);
	free(st->batch_host);
	free(st->batch_len);
	st->late.run = stream_end;
	if (st->tiles)
		cuda_late(&st->late);
	else
		stream_end(&st->late);
}

static void stream_donep(struct cuda_stream **st)
{
	if (*st)
		stream_done(*st);
}

int cuda_stream_new(unsigned device, struct mem_stream **ret)
{
	_cleanup_(stream_donep) struct cuda_stream *st = NULL;
	struct cuda_dev *d = cuda_device(device);
	CUDA_SCOPE(scope);
	uint64_t life;
	cu_result e;
	cu_ctx ctx;
	int r;

	r = cuda_hold(d, &ctx, &life);
	if (r < 0)
		return r;
	st = calloc(1, sizeof(*st));
	if (!st) {
		cuda_drop(d);
		return err_set(ENOMEM, "no memory for a stream");
	}
	st->base.ops = &mem_cuda_ops;
	st->d = d;
	st->ctx = ctx;
	st->life = life;
	st->path = PST_PATH_STAGED;
	r = cuda_enter(&scope, d, ctx);
	if (r < 0)
		return r;
	/* Non-blocking: the program's default stream neither waits for this stream nor delays
	 * it. */
	e = cu.cuStreamCreate(&st->stream, CU_NON_BLOCKING);
	if (e != CU_OK) {
		st->stream = NULL;
		return cuda_err(d, e, "make a stream");
	}
	*ret = &TAKE_PTR(st)->base;
	return 0;
}

void cuda_stream_free(struct mem_stream *base)
{
	stream_done(container_of(base, struct cuda_stream, base));
}

/* ----------------------------------------------------------------- tickets */

static void mark_done(struct cuda_stream *st, uint64_t ticket)
{
	st->done = ticket;
	st->tile_tail = st->tile_end[ticket & (BATCHES_MAX - 1)];
}

/*
 * Record an event after the started copies.  Each event makes the device stop for a moment, so
 * while the stream is busy several batches share one.  A large batch has its own event: if two
 * large batches shared one, the first would be known to be done only when the device is idle.
 */
static cu_result mark(struct cuda_stream *st)
{
	bool idle = st->mark_first == st->mark_end;
	cu_event *ev = &st->events[st->head & (BATCHES_MAX - 1)];
	cu_result e = CU_OK;

	if (st->head == st->marked)
		return CU_OK;
	if (!idle && st->head - st->marked < MARK_EVERY && st->unmarked < MARK_BYTES)
		return CU_OK;
	if (!*ev)
		e = cu.cuEventCreate(ev, CU_DISABLE_TIMING);
	if (e == CU_OK)
		e = cu.cuEventRecord(*ev, st->stream);
	if (e != CU_OK)
		return e;
	st->marked = st->head;
	st->unmarked = 0;
	st->marks[st->mark_end++ % BATCHES_MAX] = st->head;
	return CU_OK;
}

/* Return 1 if a batch is done, 0 if not yet, or -errno: then the stream moves nothing any more. */
static int advance(struct cuda_stream *st, uint64_t ticket)
{
	cu_result e = CU_OK;

	if (ticket <= st->done)
		return 1;
	while (st->mark_first != st->mark_end) {
		uint64_t t = st->marks[st->mark_first % BATCHES_MAX];

		e = cu.cuEventQuery(st->events[t & (BATCHES_MAX - 1)]);
		if (e != CU_OK)
			break;
		mark_done(st, t);
		st->mark_first++;
	}
	if (ticket <= st->done)
		return 1;
	if (e == CU_OK || e == CU_NOT_READY)
		e = mark(st);
	if (e == CU_OK)
		return 0;
	/* After an error, make sure that no copy touches host memory any more, because it will be
	 * reused. */
	e = cu.cuStreamSynchronize(st->stream);
	if (e != CU_OK)
		return cuda_err(st->d, e, "finish a copy");
	mark_done(st, st->head);
	st->mark_first = st->mark_end;
	st->marked = st->head;
	st->unmarked = 0;
	return 1;
}

int cuda_poll(struct mem_stream *base, uint64_t ticket)
{
	struct cuda_stream *st = container_of(base, struct cuda_stream, base);
	CUDA_SCOPE(scope);
	int e, r;

	if (!ticket || ticket > st->head)
		return err_set(EINVAL, "ticket %" PRIu64 " was never given out", ticket);
	if (st->head - ticket >= RESULTS_KEPT)
		return err_set(EINVAL, "ticket %" PRIu64 " is older than the last %u", ticket,
			       RESULTS_KEPT);
	if (ticket > st->done) {
		r = cuda_check_life(st->d, st->life);
		if (r == 0)
			r = cuda_enter(&scope, st->d, st->ctx);
		if (r == 0)
			r = advance(st, ticket);
		if (r <= 0)
			return r;
	}
	e = st->results[ticket & (RESULTS_KEPT - 1)];
	if (unlikely(e))
		return err_set(e, "the copy on %s failed: %s", st->d->info.name, err_name(e));
	return 1;
}

uint32_t cuda_copied_by(const struct mem_stream *base)
{
	return ((const struct cuda_stream *)base)->path;
}

/* ------------------------------------------------------------------- loops */

/* Give the current context access to all memory of another one. */
static cu_result context_reach(cu_ctx other)
{
	cu_result e = cu.cuCtxEnablePeerAccess(other, 0);

	return e == CU_PEER_ALREADY_ENABLED ? CU_OK : e;
}

static cu_result contexts_reach(const struct cuda_stream *st, const struct cuda_alloc *o)
{
	cu_result e = context_reach(o->ctx);
	CUDA_SCOPE(scope);

	if (e != CU_OK)
		return e;
	return cuda_enter(&scope, o->d, o->ctx) < 0 ? CU_INVALID_CONTEXT : context_reach(st->ctx);
}

/*
 * Let the stream's device and another one read and write each other's memory directly, by NVLink or
 * PCIe.  Unless both contexts have access, the driver copies between two devices through host
 * memory, at a tenth of the rate (two H200, driver 580: 36 GB/s if no context or only one has
 * access, 316 to 367 GB/s if both have).  If the devices cannot reach each other, the driver always
 * copies through host memory.
 *
 * The access stays enabled: the program, or a library in it, may rely on it by now.
 */
static void reach_device_of(struct cuda_stream *st, const struct cuda_alloc *o)
{
	unsigned at = o->d->idx % REACHED_MAX;
	uint64_t key = o->a.life + 1;
	cu_result e;

	if (o->d == st->d || o->foreign ||
	    (st->reached[at].idx == o->d->idx && st->reached[at].life_plus_1 == key))
		return;
	e = contexts_reach(st, o);
	if (e != CU_OK)
		log_info("%s does not reach %s (%s): the driver copies through host memory",
			 st->d->info.name, o->d->info.name, cuda_err_name(e));
	st->reached[at].idx = o->d->idx;
	st->reached[at].life_plus_1 = key;
}

/* Copy one piece between two allocations. */
static cu_result copy_between(struct cuda_stream *st, enum mem_dir dir, const struct mem_copy *c,
			      bool *started)
{
	cu_ptr dev = c->alloc->base.va + c->off, other = c->other->base.va + c->other_off;
	cu_result e;

	reach_device_of(st, cuda_alloc_of(c->other));
	e = dir == MEM_TO_DEVICE ? cu.cuMemcpyAsync(dev, other, c->len, st->stream)
				 : cu.cuMemcpyAsync(other, dev, c->len, st->stream);
	*started |= e == CU_OK;
	return e;
}

/* Copy one piece, cut at the ends of registrations of host memory. */
static cu_result copy_piece(struct cuda_stream *st, enum mem_dir dir, const struct mem_copy *c,
			    bool *started)
{
	cu_ptr dev = c->alloc->base.va + c->off, unused;
	char *host = c->host;
	uint64_t left = c->len, n;
	cu_result e = CU_OK;

	while (left && e == CU_OK) {
		(void)cuda_pin_find(host, left, dir, &unused, &n);
		e = dir == MEM_TO_DEVICE ? cu.cuMemcpyHtoDAsync_v2(dev, host, n, st->stream)
					 : cu.cuMemcpyDtoHAsync_v2(host, dev, n, st->stream);
		*started |= e == CU_OK;
		dev += n;
		host += n;
		left -= n;
	}
	return e;
}

static cu_result copy_loop(struct cuda_stream *st, const struct batch *b, bool *started)
{
	cu_result e = CU_OK;

	for (unsigned i = 0; i < b->nr && e == CU_OK; i++)
		e = (b->v[i].other ? copy_between : copy_piece)(st, b->dir, &b->v[i], started);
	return e;
}

/* Make room for the arguments of nr copies.  Return false without memory. */
static bool batch_room(struct cuda_stream *st, size_t nr)
{
	cu_ptr *dev, *host;
	size_t *len;

	if (nr <= st->batch_room)
		return true;
	nr = MAX(nr, 2 * st->batch_room);
	dev = reallocarray(st->batch_dev, nr, sizeof(*dev));
	if (dev)
		st->batch_dev = dev;
	host = reallocarray(st->batch_host, nr, sizeof(*host));
	if (host)
		st->batch_host = host;
	len = reallocarray(st->batch_len, nr, sizeof(*len));
	if (len)
		st->batch_len = len;
	if (!dev || !host || !len)
		return false;
	st->batch_room = nr;
	return true;
}

/* Add one piece, cut at the ends of registrations.  Return false if its host memory is not
 * registered. */
static bool batch_add(struct cuda_stream *st, enum mem_dir dir, const struct mem_copy *c,
		      size_t *nr)
{
	cu_ptr dev = c->alloc->base.va + c->off, unused;
	uint64_t left = c->len, n, skip;
	uintptr_t host = (uintptr_t)c->host;

	for (; left; left -= n) {
		n = cuda_pin_find((const void *)host, left, dir, &unused, &skip);
		if (!n || !batch_room(st, *nr + 1))
			return false;
		st->batch_dev[*nr] = dev;
		st->batch_host[*nr] = host;
		st->batch_len[(*nr)++] = n;
		dev += n;
		host += n;
	}
	return true;
}

/* Copy by the driver's batched copy.  Return false if that is impossible and nothing was
 * started. */
static bool copy_batched(struct cuda_stream *st, const struct batch *b, cu_result *ret)
{
	struct cu_batch_attr attr = { .src_order = CU_SRC_ORDER_STREAM };
	size_t from = 0, failed = SIZE_MAX, nr = 0;
	cu_ptr *dst, *src;
	cu_result e;

	if ((!cu.cuMemcpyBatchAsync_v2 && !cu.cuMemcpyBatchAsync) || atomic_load(&no_batched))
		return false;
	for (unsigned i = 0; i < b->nr; i++)
		if (!batch_add(st, b->dir, &b->v[i], &nr))
			return false;
	if (!nr)
		return false;
	dst = b->dir == MEM_TO_DEVICE ? st->batch_dev : st->batch_host;
	src = b->dir == MEM_TO_DEVICE ? st->batch_host : st->batch_dev;
	if (cu.cuMemcpyBatchAsync_v2)
		e = cu.cuMemcpyBatchAsync_v2(dst, src, st->batch_len, nr, &attr, &from, 1,
					     st->stream);
	else
		e = cu.cuMemcpyBatchAsync(dst, src, st->batch_len, nr, &attr, &from, 1, &failed,
					  st->stream);
	if (e == CU_NOT_SUPPORTED) {
		atomic_store(&no_batched, true);
		return false;
	}
	*ret = e;
	return true;
}

/* ------------------------------------------------------------------ gather */

/* Pin the ring.  Return 0; -EAGAIN while file pages are being pinned; another -errno. */
static int tiles_pin(struct cuda_stream *st)
{
	uint64_t len = TILES * sizeof(*st->tiles), n;
	int r = cuda_pin_now(st->d->idx, st->life, st->tiles, len, &st->tiles_pinned);

	if (r == 0 &&
	    (!cuda_pin_find(st->tiles, len, MEM_TO_DEVICE, &st->tiles_dev, &n) || !st->tiles_dev))
		r = -EOPNOTSUPP;
	return r;
}

/*
 * Return true if the ring is usable.  While file pages are being pinned, a batch does not wait for
 * the ring: it is copied without the kernel, and a later batch tries again.
 */
static bool tiles_ring(struct cuda_stream *st)
{
	int r = 0;

	if (likely(st->tiles_dev) || st->no_tiles)
		return !st->no_tiles;
	if (!st->tiles) {
		void *p = mmap(NULL, TILES * sizeof(*st->tiles), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		st->tiles = p != MAP_FAILED ? p : NULL;
	}
	r = st->tiles ? tiles_pin(st) : -ENOMEM;
	st->no_tiles = r < 0 && r != -EAGAIN;
	if (st->no_tiles)
		log_info("%s: no pinned memory for lists of pieces, copying one by one",
			 st->d->info.name);
	return r == 0;
}

/*
 * Move a batch by one kernel.  Return 1 if it was launched; 0 if that is impossible and nothing was
 * started; -EAGAIN if the ring is full; another -errno if the device is lost.
 */
static int copy_gather(struct cuda_stream *st, const struct batch *b)
{
	uint64_t start = st->tile_head, at = start % TILES;
	struct cuda_tile *first, *end;
	struct mem_sgl sgl;
	int r;

	if (b->foreign || b->tiles > TILES || st->d->gather.none || !tiles_ring(st))
		return 0;
	/* The tiles of a batch must be contiguous.  Skip the rest of the ring if it is too short
	 * for them. */
	if (at + b->tiles > TILES) {
		start += TILES - at;
		at = 0;
	}
	if (st->head != st->done && start + b->tiles - st->tile_tail > TILES)
		return -EAGAIN;
	first = end = &st->tiles[at];
	if (!cuda_tiles_put(b->dir, b->v, b->nr, &end, first + b->tiles) || end == first)
		return 0;
	sgl = (struct mem_sgl){ .dev = st->tiles_dev + at * sizeof(*first),
				.nr = (unsigned)(end - first) };
	r = cuda_gather(st->d, &sgl, 1, st->stream);
	if (r < 0)
		return r == -EOPNOTSUPP ? 0 : r;
	st->tile_head = start + sgl.nr;
	return 1;
}

/* -------------------------------------------------------------------- copy */

static int look_at_batch(const struct cuda_dev *d, struct batch *b)
{
	const struct mem_alloc *last = NULL;
	int r;

	for (unsigned i = 0; i < b->nr; i++) {
		const struct mem_copy *c = &b->v[i];

		/* Check an allocation only once if consecutive pieces lie in it, which is
		 * common. */
		if (c->alloc != last) {
			if (c->alloc->device != d->idx)
				return err_set(EINVAL, "memory of cuda:%u on a stream of cuda:%u",
					       c->alloc->device, d->idx);
			r = cuda_alive(cuda_alloc_of(c->alloc));
			if (r < 0)
				return r;
			b->foreign |= cuda_alloc_of(c->alloc)->foreign;
			last = c->alloc;
		}
		if (c->other) {
			r = cuda_alive(cuda_alloc_of(c->other));
			if (r < 0)
				return r;
			b->between = true;
		}
		b->len += c->len;
		/* One tile for the rest, and one because a piece may cross a registration's end. */
		b->tiles += c->len / CUDA_TILE + 2;
	}
	return 0;
}

static bool many_small(const struct batch *b)
{
	uint64_t sum = 0;

	if (b->nr < MANY_PIECES)
		return false;
	for (unsigned i = 0; i < b->nr; i++)
		sum += b->v[i].len;
	return sum / b->nr <= SMALL_PIECE;
}

/*
 * Start the copies of a batch.  Return 0, -EAGAIN or another -errno.  If *started is set, copies
 * may be in flight, and an error becomes the result of the batch.
 */
static int start(struct cuda_stream *st, const struct batch *b, bool *started)
{
	cu_result e = CU_OK;
	int r = 0;

	st->path = PST_PATH_STAGED;
	if (!b->between && many_small(b)) {
		r = copy_gather(st, b);
		if (r < 0)
			return r;
		if (r > 0) {
			*started = true;
			st->path = PST_PATH_GATHER;
			return 0;
		}
	}
	if (b->nr > 1 && !b->between && copy_batched(st, b, &e))
		*started = true;
	else
		e = copy_loop(st, b, started);
	return e == CU_OK ? 0 : cuda_err(st->d, e, "start a copy");
}

/* Return 0 if another batch may start; -EAGAIN if too many are in flight; another -errno. */
static int has_room(struct cuda_stream *st)
{
	int r;

	if (st->head - st->done < BATCHES_MAX)
		return 0;
	r = advance(st, st->done + 1);
	if (!r)
		return err_set(EAGAIN, "the stream has %u batches under way", BATCHES_MAX);
	return MIN(r, 0);
}

/*
 * Record that a batch of len bytes was started, or only a part of it if err is not 0.  Return its
 * ticket.
 */
static uint64_t started_one(struct cuda_stream *st, uint64_t len, int err)
{
	uint64_t ticket = ++st->head;

	st->results[ticket & (RESULTS_KEPT - 1)] = err;
	st->tile_end[ticket & (BATCHES_MAX - 1)] = st->tile_head;
	st->unmarked += len;
	if (st->unmarked >= MARK_BYTES)
		(void)mark(st); /* ignore an error: advance() will try again and report it */
	return ticket;
}

int cuda_copy(struct mem_stream *base, enum mem_dir dir, const struct mem_copy *v, unsigned nr,
	      uint64_t *ret_ticket)
{
	struct cuda_stream *st = container_of(base, struct cuda_stream, base);
	struct batch b = { .dir = dir, .v = v, .nr = nr };
	CUDA_SCOPE(scope);
	bool started = false;
	int fault, r;

	if (nr > PIECES_MAX)
		return err_set(EINVAL, "%u copies in one batch; %u are the most", nr, PIECES_MAX);
	r = look_at_batch(st->d, &b);
	if (r == 0)
		r = cuda_check_life(st->d, st->life);
	if (r == 0)
		r = cuda_enter(&scope, st->d, st->ctx);
	if (r == 0)
		r = has_room(st);
	if (r < 0)
		return r;
	fault = mem_copy_fault();
	(void)atomic_fetch_add(&st->d->nr_starting, 1);
	r = fault ? 0 : start(st, &b, &started);
	(void)atomic_fetch_sub(&st->d->nr_starting, 1);
	if (r == -EAGAIN)
		return err_set(EAGAIN, "the stream has %u small pieces under way", TILES);
	if (r < 0 && !started)
		return r;
	*ret_ticket = started_one(st, b.len, fault ? fault : -r);
	return 0;
}

/* ------------------------------------------------------------------- lists */

int cuda_sgl_write(unsigned device, enum mem_dir dir, const struct mem_copy *v, unsigned nr,
		   void *room, struct mem_sgl *ret)
{
	const struct cuda_dev *d = cuda_device(device);
	struct batch b = { .dir = dir, .v = v, .nr = nr };
	struct cuda_tile *first = room, *end = first;
	uint64_t len;
	cu_ptr at;
	int r = look_at_batch(d, &b);

	if (r < 0)
		return r;
	if (d->gather.none || b.foreign || b.tiles > MEM_SGL_BYTES / sizeof(*first))
		return 0;
	if (cuda_pin_find(room, MEM_SGL_BYTES, MEM_TO_DEVICE, &at, &len) < MEM_SGL_BYTES || !at ||
	    !cuda_tiles_put(dir, v, nr, &end, first + b.tiles))
		return 0;
	*ret = (struct mem_sgl){
		.alloc = v->alloc, .dev = at, .len = b.len, .nr = (unsigned)(end - first)
	};
	return 1;
}

int cuda_sgl_copy(struct mem_stream *base, const struct mem_sgl *v, unsigned nr,
		  uint64_t *ret_ticket)
{
	struct cuda_stream *st = container_of(base, struct cuda_stream, base);
	CUDA_SCOPE(scope);
	uint64_t len = 0;
	int fault, r = 0;

	for (unsigned i = 0; r == 0 && i < nr; i++) {
		r = cuda_alive(cuda_alloc_of(v[i].alloc));
		len += v[i].len;
	}
	if (r == 0)
		r = cuda_check_life(st->d, st->life);
	if (r == 0)
		r = cuda_enter(&scope, st->d, st->ctx);
	if (r == 0)
		r = has_room(st);
	if (r < 0)
		return r;
	fault = mem_copy_fault();
	(void)atomic_fetch_add(&st->d->nr_starting, 1);
	r = fault ? 0 : cuda_gather(st->d, v, nr, st->stream);
	(void)atomic_fetch_sub(&st->d->nr_starting, 1);
	if (r < 0)
		return r;
	st->path = PST_PATH_GATHER;
	*ret_ticket = started_one(st, len, fault);
	return 0;
}
