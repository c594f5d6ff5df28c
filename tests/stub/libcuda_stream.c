/* SPDX-License-Identifier: MIT */
/* Streams of the libcuda stub: each is a thread that executes its queue in order. */
#include <stdio.h>
#include <string.h>

#include "cuda_stub_int.h"
#include "mem/cuda/ptx.h"
#include "mem/cuda/ptx_sum.h"

struct CUevent_st {
	struct list link;
	cu_ctx ctx;
	unsigned refs;
	uint64_t recorded, completed;
};

struct CUmod_st {
	struct list link;
	cu_ctx ctx;
	bool sums; /* the kernel sums; else it gathers */
};

static struct list modules = LIST_INIT(modules);

/* ------------------------------------------------------------------ thread */

static void event_unref(struct CUevent_st *ev)
{
	if (!--ev->refs)
		free(ev);
}

static void stream_unref(struct CUstream_st *st)
{
	if (--st->refs)
		return;
	(void)pthread_cond_destroy(&st->work);
	(void)pthread_cond_destroy(&st->idle);
	free(st);
}

/* Translate an address that a kernel uses; NULL: the kernel would fault.  Call it with the lock
 * held. */
static char *kernel_sees(cu_ptr ptr, uint64_t len, bool write)
{
	struct registration *g;
	struct range *r;

	if (ptr & HOST_BIT) {
		char *host = (char *)(uintptr_t)(ptr & ~HOST_BIT);

		if (stub_registered(host, len, &g) != 1 || !(g->flags & CU_REGISTER_DEVICEMAP) ||
		    (write && g->flags & CU_REGISTER_READ_ONLY))
			return NULL;
		return host;
	}
	r = stub_range_at(ptr);
	if (!r || !(r->prot & CU_PROT_READ) || (write && r->prot != CU_PROT_READ_WRITE))
		return NULL;
	/* The caller splits a tile that crosses the border of two mapped chunks. */
	return len <= r->size - (ptr - r->va) ? stub_bytes(r, ptr) : NULL;
}

static bool tile_copy(cu_ptr dst, cu_ptr src, uint64_t len)
{
	while (len) {
		uint64_t n = len;
		char *d, *s;

		/* Halve n until both sides lie in one range each. */
		while (n > 1 && (!kernel_sees(dst, n, true) || !kernel_sees(src, n, false)))
			n = n / 2;
		d = kernel_sees(dst, n, true);
		s = kernel_sees(src, n, false);
		if (!d || !s)
			return false;
		memcpy(d, s, n);
		dst += n;
		src += n;
		len -= n;
	}
	return true;
}

static bool run_list(cu_ptr tiles, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		uint64_t tile[4];
		char *p = kernel_sees(tiles + i * sizeof(tile), sizeof(tile), false);

		if (!p)
			return false;
		memcpy(tile, p, sizeof(tile));
		if (!tile_copy(tile[0], tile[1], tile[2]))
			return false;
	}
	return true;
}

/* Run a list that was filled in after the launch.  It must fit the launched blocks. */
static bool run_fed(const struct mem_sgl *most)
{
	const struct cuda_fed *list = (void *)kernel_sees(most->dev, sizeof(struct cuda_fed),
							  false);
	unsigned nr;

	if (!list)
		return false;
	/* The library may take the list back at the same time. */
	nr = __atomic_load_n(&list->nr, __ATOMIC_RELAXED);
	if (nr > most->nr)
		stub_abort("a list has more tiles than its kernel has blocks");
	return run_list(list->tiles, nr);
}

/* Continue a CRC-32C remainder over p (mem/cuda/ptx_sum.h). */
static uint32_t remainder_of(uint32_t r, const unsigned char *p, uint64_t len)
{
	static uint32_t table[256];

	for (uint32_t b = 0; !table[255] && b < 256; b++) {
		table[b] = b;
		for (unsigned i = 0; i < 8; i++)
			table[b] = table[b] >> 1 ^ (table[b] & 1 ? 0x82f63b78u : 0);
	}
	while (len--)
		r = r >> 8 ^ table[(r ^ *p++) & 255];
	return r;
}

static bool run_sum(const struct cuda_sum_tile *t, uint32_t *ret)
{
	static const unsigned char zeros[16];
	uint64_t at = t->at, end = t->at + t->len;

	*ret = 0;
	while (at < end) {
		uint64_t n = end - at;
		char *p;

		while (!(p = kernel_sees(at, n, false)) && n > 1)
			n /= 2;
		if (!p)
			return false;
		*ret = remainder_of(*ret, (unsigned char *)p, n);
		at += n;
	}
	*ret = remainder_of(*ret, zeros, -end & 15);
	return true;
}

static bool run_sums(const struct op *op)
{
	unsigned nr = op->lists[0].nr;
	const struct cuda_sum_tile *tiles = (void *)kernel_sees(op->lists[0].dev,
								nr * sizeof(*tiles), false);
	uint32_t *to = (void *)kernel_sees(op->remainders, nr * sizeof(*to), true);

	for (unsigned i = 0; i < nr; i++)
		if (!tiles || !to || !run_sum(&tiles[i], &to[i]))
			return false;
	return true;
}

/* Run a kernel of mem/cuda/ptx.h or ptx_sum.h.  Call it with the lock held. */
static bool run_kernel(const struct op *op)
{
	if (op->remainders)
		return run_sums(op);
	if (op->fed)
		return run_fed(op->lists);
	for (unsigned i = 0; i < op->nr_lists; i++)
		if (!run_list(op->lists[i].dev, op->lists[i].nr))
			return false;
	return true;
}

/* Execute an operation.  Call it with the lock held; it drops the lock while it copies bytes. */
static void job_part_op(struct CUstream_st *st, struct op *op)
{
	cu_result *poison = &stub.poison[st->ctx->dev];
	unsigned delay = stub.delay_us;

	while (stub.hold && op->kind < OP_EVENT)
		(void)pthread_cond_wait(&stub.let_go, &stub.lock);
	stub.count.held_sums += op->remainders != 0;
	while (stub.hold_sums && op->remainders)
		(void)pthread_cond_wait(&stub.let_go, &stub.lock);
	stub.count.held_sums -= op->remainders != 0;
	if (delay && op->kind < OP_EVENT) {
		struct timespec ts = { .tv_nsec = (long)delay * 1000 };

		(void)pthread_mutex_unlock(&stub.lock);
		(void)nanosleep(&ts, NULL);
		(void)pthread_mutex_lock(&stub.lock);
	}
	switch (op->kind) {
	case OP_COPY:
		if (!*poison) {
			(void)pthread_mutex_unlock(&stub.lock);
			memcpy(op->dst, op->src, op->len);
			(void)pthread_mutex_lock(&stub.lock);
		}
		stub_obj_unref(op->obj);
		if (op->from)
			stub_obj_unref(op->from);
		free(op->snapshot);
		break;
	case OP_SET:
		if (!*poison)
			memset(op->dst, (int)op->value, op->len);
		stub_obj_unref(op->obj);
		break;
	case OP_KERNEL:
		if (!*poison && !run_kernel(op))
			*poison = CU_ILLEGAL_ADDRESS;
		break;
	case OP_EVENT:
		if (!*poison)
			op->event->completed = MAX(op->event->completed, op->seq);
		event_unref(op->event);
		break;
	case OP_EVENT_WAIT:
		while (op->event->completed < op->seq && !*poison)
			stub_nap();
		event_unref(op->event);
		break;
	case OP_WAIT:
		stub_wait_word(st, op);
		break;
	case OP_WRITE:
		stub_write_word(st, op);
		break;
	case OP_AFTER:
		while (op->after->done < op->seq)
			(void)pthread_cond_wait(&op->after->idle, &stub.lock);
		stream_unref(op->after);
		break;
	case OP_CALL:
		(void)pthread_mutex_unlock(&stub.lock);
		op->fn(op->arg);
		(void)pthread_mutex_lock(&stub.lock);
	}
}

static void *stream_main(void *arg)
{
	struct CUstream_st *st = arg;

	(void)pthread_mutex_lock(&stub.lock);
	for (;;) {
		struct op *op;

		while (list_empty(&st->ops) && !st->stop)
			(void)pthread_cond_wait(&st->work, &stub.lock);
		if (list_empty(&st->ops))
			break;
		op = list_first(&st->ops, struct op, link);
		list_del(&op->link);
		st->busy = true;
		job_part_op(st, op);
		free(op);
		st->busy = false;
		st->done++;
		(void)pthread_cond_broadcast(&st->idle);
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return NULL;
}

void stub_append(struct CUstream_st *st, struct op op)
{
	struct op *o = malloc(sizeof(*o));

	if (!o)
		stub_abort("out of memory");
	*o = op;
	list_add_tail(&st->ops, &o->link);
	st->queued++;
	(void)pthread_cond_signal(&st->work);
}

/* Queue an operation, ordered after the legacy stream and, on the legacy stream, after all
 * streams that are not CU_NON_BLOCKING. */
void stub_queue(struct CUstream_st *st, struct op op)
{
	bool legacy = (uintptr_t)st->handle == CU_LEGACY;
	struct list *e;

	list_for_each (e, &stub.streams) {
		struct CUstream_st *s = list_entry(e, struct CUstream_st, link);

		if (s == st || s->ctx != st->ctx || s->done == s->queued ||
		    (s->flags | st->flags) & CU_NON_BLOCKING ||
		    (!legacy && (uintptr_t)s->handle != CU_LEGACY))
			continue;
		s->refs++;
		stub_append(st, (struct op){ .kind = OP_AFTER, .after = s, .seq = s->queued });
	}
	stub_append(st, op);
}

void stub_wait_idle(struct CUstream_st *st)
{
	while (st->busy || !list_empty(&st->ops))
		(void)pthread_cond_wait(&st->idle, &stub.lock);
}

/* Wait for all streams of ctx or, if it is NULL, of the device. */
static void wait_for_all(cu_ctx ctx, int dev)
{
	struct list *e;

again:
	list_for_each (e, &stub.streams) {
		struct CUstream_st *st = list_entry(e, struct CUstream_st, link);

		if ((ctx ? st->ctx == ctx : st->ctx->dev == dev) &&
		    (st->busy || !list_empty(&st->ops))) {
			(void)pthread_cond_wait(&st->idle, &stub.lock);
			goto again; /* the list may have changed during the wait */
		}
	}
}

void stub_quiesce(int dev)
{
	(void)pthread_mutex_lock(&stub.lock);
	while (stub.quiescing)
		(void)pthread_cond_wait(&stub.quiesced, &stub.lock);
	stub.quiescing = true;
	wait_for_all(NULL, dev);
	stub.quiescing = false;
	(void)pthread_cond_broadcast(&stub.quiesced);
	(void)pthread_mutex_unlock(&stub.lock);
}

void stub_wait_ctx(cu_ctx ctx)
{
	wait_for_all(ctx, 0);
}

/* ----------------------------------------------------------------- streams */

static void check_event(cu_event ev)
{
	struct list *e;

	list_for_each (e, &stub.events)
		if (list_entry(e, struct CUevent_st, link) == ev)
			return;
	stub_abort("an event is used that was never made, or has ended");
}

struct CUstream_st *stub_stream_new(cu_ctx ctx, unsigned flags)
{
	struct CUstream_st *st = calloc(1, sizeof(*st));

	if (!st)
		stub_abort("out of memory");
	st->ctx = ctx;
	st->flags = flags;
	st->refs = 1;
	list_init(&st->ops);
	(void)pthread_cond_init(&st->work, NULL);
	(void)pthread_cond_init(&st->idle, NULL);
	if (pthread_create(&st->thread, NULL, stream_main, st))
		stub_abort("no thread for a stream");
	list_add_tail(&stub.streams, &st->link);
	return st;
}

void stub_stream_end(struct CUstream_st *st)
{
	stub_wait_idle(st);
	list_del(&st->link);
	st->stop = true;
	(void)pthread_cond_signal(&st->work);
	(void)pthread_mutex_unlock(&stub.lock);
	(void)pthread_join(st->thread, NULL);
	(void)pthread_mutex_lock(&stub.lock);
	stream_unref(st);
}

cu_result cuStreamCreate(cu_stream *ret, unsigned flags)
{
	ENTER(IN_CTX | UNSAFE);
	if (flags & ~1u)
		return CU_INVALID_VALUE;
	(void)pthread_mutex_lock(&stub.lock);
	*ret = stub_stream_new(stub_current(), flags);
	(*ret)->ctx->streams++;
	(void)pthread_mutex_unlock(&stub.lock);
	return CU_OK;
}

cu_result cuStreamDestroy_v2(cu_stream handle)
{
	struct CUstream_st *st;

	ENTER(IN_CTX | ENDS);
	(void)pthread_mutex_lock(&stub.lock);
	st = stub_stream(handle);
	if (st->handle)
		stub_abort("a stream is ended that nobody made");
	st->ctx->streams--;
	stub_stream_end(st);
	(void)pthread_mutex_unlock(&stub.lock);
	return stub_late();
}

cu_result cuStreamSynchronize(cu_stream handle)
{
	struct CUstream_st *st;
	cu_result e;

	/* ENDS: wait for the stream even if an earlier error is reported then. */
	ENTER(IN_CTX | UNSAFE | ENDS);
	(void)pthread_mutex_lock(&stub.lock);
	st = stub_stream(handle);
	stub_wait_idle(st);
	e = stub.poison[st->ctx->dev];
	(void)pthread_mutex_unlock(&stub.lock);
	return e ? e : stub_late();
}

/* ------------------------------------------------------------------ events */

cu_result cuEventCreate(cu_event *ret, unsigned flags)
{
	struct CUevent_st *ev;

	ENTER(IN_CTX);
	if (flags & ~7u)
		return CU_INVALID_VALUE;
	ev = calloc(1, sizeof(*ev));
	if (!ev)
		return CU_OUT_OF_MEMORY;
	ev->ctx = stub_current();
	ev->refs = 1;
	(void)pthread_mutex_lock(&stub.lock);
	ev->ctx->events++;
	list_add_tail(&stub.events, &ev->link);
	(void)pthread_mutex_unlock(&stub.lock);
	*ret = ev;
	return CU_OK;
}

void stub_reset_handles(cu_ctx ctx)
{
	struct list *e, *n;

	list_for_each_safe (e, n, &modules) {
		struct CUmod_st *m = list_entry(e, struct CUmod_st, link);

		if (m->ctx != ctx)
			continue;
		list_del(&m->link);
		stub.count.modules--;
		free(m);
	}

	list_for_each_safe (e, n, &stub.events) {
		struct CUevent_st *ev = list_entry(e, struct CUevent_st, link);

		if (ev->ctx != ctx)
			continue;
		list_del(&ev->link);
		event_unref(ev);
	}
}

cu_result cuEventDestroy_v2(cu_event ev)
{
	ENTER(IN_CTX | ENDS);
	(void)pthread_mutex_lock(&stub.lock);
	check_event(ev);
	ev->ctx->events--;
	list_del(&ev->link);
	event_unref(ev);
	(void)pthread_mutex_unlock(&stub.lock);
	return stub_late();
}

cu_result cuEventRecord(cu_event ev, cu_stream handle)
{
	struct CUstream_st *st;
	cu_result e;

	ENTER(IN_CTX);
	(void)pthread_mutex_lock(&stub.lock);
	check_event(ev);
	e = stub_use(handle, &st);
	if (!e && st && ev->ctx != st->ctx)
		e = CU_INVALID_HANDLE;
	if (!e && st) {
		ev->refs++;
		stub_queue(st, (struct op){ .kind = OP_EVENT, .event = ev, .seq = ++ev->recorded });
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return e;
}

/* An event of another context is allowed; the stream must be of the current one. */
cu_result cuStreamWaitEvent(cu_stream handle, cu_event ev, unsigned flags)
{
	struct CUstream_st *st;
	cu_result e;

	ENTER(IN_CTX);
	if (flags)
		return CU_INVALID_VALUE;
	(void)pthread_mutex_lock(&stub.lock);
	check_event(ev);
	e = stub_use(handle, &st);
	if (!e && st && st->ctx != stub_current())
		e = CU_INVALID_HANDLE;
	if (!e && st) {
		ev->refs++;
		stub_queue(st,
			   (struct op){ .kind = OP_EVENT_WAIT, .event = ev, .seq = ev->recorded });
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return e;
}

cu_result cuEventQuery(cu_event ev)
{
	cu_result e;

	ENTER(UNSAFE);
	(void)pthread_mutex_lock(&stub.lock);
	check_event(ev);
	e = stub.poison[ev->ctx->dev];
	if (!e && ev->completed != ev->recorded)
		e = CU_NOT_READY;
	(void)pthread_mutex_unlock(&stub.lock);
	return e;
}

/* ----------------------------------------------------------------- modules */

cu_result cuModuleLoadDataEx(cu_module *ret, const void *image, unsigned nr, uint32_t *options,
			     void **values)
{
	struct CUmod_st *m;

	ENTER(IN_CTX | UNSAFE);
	(void)options;
	(void)values;
	if (nr || (strcmp(image, cuda_gather_ptx) != 0 && strcmp(image, cuda_sum_ptx) != 0))
		return CU_INVALID_PTX;
	m = calloc(1, sizeof(*m));
	if (!m)
		return CU_OUT_OF_MEMORY;
	m->ctx = stub_current();
	m->sums = strcmp(image, cuda_sum_ptx) == 0;
	(void)pthread_mutex_lock(&stub.lock);
	m->ctx->modules++;
	stub.count.modules++;
	list_add_tail(&modules, &m->link);
	(void)pthread_mutex_unlock(&stub.lock);
	*ret = m;
	return CU_OK;
}

cu_result cuModuleUnload(cu_module m)
{
	ENTER(IN_CTX | UNSAFE | ENDS);
	(void)pthread_mutex_lock(&stub.lock);
	if (m->ctx != stub_current())
		stub_abort("a module is unloaded in another context than its own");
	m->ctx->modules--;
	stub.count.modules--;
	list_del(&m->link);
	(void)pthread_mutex_unlock(&stub.lock);
	free(m);
	return stub_late();
}

/* A module has one function, so its handle serves as the function's handle. */
cu_result cuModuleGetFunction(cu_func *ret, cu_module m, const char *name)
{
	ENTER(IN_CTX);
	if (strcmp(name, m->sums ? CUDA_SUM_NAME : CUDA_GATHER_NAME) != 0)
		return CU_NOT_FOUND;
	*ret = (cu_func)(void *)m;
	return CU_OK;
}

static cu_result launch_gather(struct op *op, unsigned grid_x, unsigned grid_y, unsigned threads,
			       void **params)
{
	const struct cuda_gather_lists *lists = params[0];
	unsigned most = 0;

	if (grid_x > MEM_SGLS || threads != CUDA_GATHER_THREADS)
		return CU_INVALID_VALUE;
	op->nr_lists = grid_x;
	for (unsigned i = 0; i < grid_x; i++) {
		op->lists[i] = (struct mem_sgl){ .dev = lists->v[i].tiles, .nr = lists->v[i].nr };
		op->fed |= lists->v[i].fed;
		most = MAX(most, op->lists[i].nr);
	}
	if (op->fed && grid_x != 1)
		stub_abort("a kernel is launched for several lists that it looks for");
	if (most != grid_y)
		stub_abort("a kernel is launched with too few blocks for its lists, or too many");
	return CU_OK;
}

static cu_result launch_sums(struct op *op, unsigned grid_x, unsigned grid_y, unsigned threads,
			     void **params)
{
	if (grid_y != 1 || threads != CUDA_SUM_THREADS)
		return CU_INVALID_VALUE;
	op->lists[0] = (struct mem_sgl){ .dev = *(cu_ptr *)params[0],
					 .nr = *(uint32_t *)params[1] };
	op->remainders = *(cu_ptr *)params[2];
	if (!op->lists[0].nr || grid_x > (op->lists[0].nr + CUDA_SUM_WARPS - 1) / CUDA_SUM_WARPS)
		stub_abort("a kernel is launched for no tile, or with blocks for none");
	return CU_OK;
}

cu_result cuLaunchKernel(cu_func fn, unsigned grid_x, unsigned grid_y, unsigned grid_z,
			 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
			 cu_stream handle, void **params, void **extra)
{
	struct op op = { .kind = OP_KERNEL };
	struct CUstream_st *st;
	cu_result e;

	ENTER(IN_CTX);
	if (!grid_x || !grid_y || grid_z != 1 || block_y != 1 || block_z != 1 || shared || extra)
		return CU_INVALID_VALUE;
	e = ((cu_module)(void *)fn)->sums ? launch_sums(&op, grid_x, grid_y, block_x, params)
					  : launch_gather(&op, grid_x, grid_y, block_x, params);
	if (e)
		return e;
	(void)pthread_mutex_lock(&stub.lock);
	e = stub_use(handle, &st);
	if (!e && st) {
		if (((cu_module)(void *)fn)->ctx != st->ctx)
			stub_abort("a kernel is launched in another context than its module's");
		stub.count.kernels++;
		stub_queue(st, op);
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return e;
}
