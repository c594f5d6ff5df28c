/* SPDX-License-Identifier: MIT */
/*
 * Order between streams of the libcuda stub: implicit streams, captures, waits for words, and
 * calls of the program's functions.
 */
#include <string.h>

#include "cuda_stub_int.h"

/* ----------------------------------------------------------------- handles */

static struct CUstream_st *find(cu_ctx ctx, cu_stream handle)
{
	bool own = (uintptr_t)handle == CU_PER_THREAD;
	struct list *e;

	list_for_each (e, &stub.streams) {
		struct CUstream_st *st = list_entry(e, struct CUstream_st, link);

		if (st->ctx == ctx && st->handle == handle &&
		    (!own || pthread_equal(st->owner, pthread_self())))
			return st;
	}
	return NULL;
}

struct CUstream_st *stub_stream(cu_stream handle)
{
	struct CUstream_st *st;
	struct list *e;

	if ((uintptr_t)handle != CU_LEGACY && (uintptr_t)handle != CU_PER_THREAD) {
		list_for_each (e, &stub.streams)
			if (list_entry(e, struct CUstream_st, link) == handle)
				return handle;
		stub_abort("a stream is used that was never made, or has ended");
	}
	if (!stub_current())
		return NULL;
	st = find(stub_current(), handle);
	if (!st) {
		st = stub_stream_new(stub_current(), 0);
		st->handle = handle;
		st->owner = pthread_self();
	}
	return st;
}

unsigned stub_streams_made(void)
{
	struct list *e;
	unsigned n = 0;

	list_for_each (e, &stub.streams)
		n += !list_entry(e, struct CUstream_st, link)->handle;
	return n;
}

void stub_implicit_end(cu_ctx ctx)
{
	struct list *e, *n;

again:
	list_for_each (e, &stub.streams) {
		struct CUstream_st *st = list_entry(e, struct CUstream_st, link);

		if (st->ctx == ctx && st->handle) {
			stub_stream_end(st);
			goto again; /* the list may have changed during the wait */
		}
	}
	list_for_each_safe (e, n, &stub.registrations) {
		struct registration *g = list_entry(e, struct registration, link);

		if (g->ctx == ctx && g->words) {
			list_del(&g->link);
			free(g);
		}
	}
}

void stub_reset_streams(cu_ctx ctx)
{
	struct list *e;

	stub_implicit_end(ctx);
again:
	list_for_each (e, &stub.streams) {
		struct CUstream_st *st = list_entry(e, struct CUstream_st, link);

		if (st->ctx == ctx) {
			stub_stream_end(st);
			goto again; /* the list may have changed during the wait */
		}
	}
}

cu_result cuStreamGetCtx(cu_stream handle, cu_ctx *ret)
{
	struct CUstream_st *st;

	ENTER(0);
	(void)pthread_mutex_lock(&stub.lock);
	st = stub_stream(handle);
	if (st)
		*ret = st->ctx;
	(void)pthread_mutex_unlock(&stub.lock);
	return st ? CU_OK : CU_INVALID_CONTEXT;
}

/* ---------------------------------------------------------------- captures */

/* Return true if st is the legacy stream and a stream ordered with it is being captured. */
static bool is_caught(const struct CUstream_st *st)
{
	struct list *e;

	if ((uintptr_t)st->handle != CU_LEGACY)
		return false;
	list_for_each (e, &stub.streams) {
		const struct CUstream_st *s = list_entry(e, struct CUstream_st, link);

		if (s->ctx == st->ctx && s->capturing && !(s->flags & CU_NON_BLOCKING))
			return true;
	}
	return false;
}

cu_result stub_use(cu_stream handle, struct CUstream_st **ret)
{
	struct CUstream_st *st = stub_stream(handle);

	*ret = NULL;
	if (!st)
		return CU_INVALID_CONTEXT;
	if (is_caught(st)) {
		stub.capture_spoilt = true;
		return CU_CAPTURE_IMPLICIT;
	}
	if (st->capturing)
		st->nodes++;
	else
		*ret = st;
	return CU_OK;
}

cu_result cuStreamIsCapturing(cu_stream handle, uint32_t *ret)
{
	struct CUstream_st *st;
	cu_result e = CU_OK;

	ENTER(IN_CTX);
	(void)pthread_mutex_lock(&stub.lock);
	st = stub_stream(handle);
	if (is_caught(st))
		e = CU_CAPTURE_IMPLICIT;
	else
		*ret = st->capturing ? 1 + stub.capture_spoilt : CU_CAPTURE_NONE;
	(void)pthread_mutex_unlock(&stub.lock);
	return e;
}

cu_result cuStreamBeginCapture_v2(cu_stream handle, uint32_t mode)
{
	struct CUstream_st *st;

	ENTER(IN_CTX);
	(void)pthread_mutex_lock(&stub.lock);
	st = stub_stream(handle);
	stub.captures += mode == CU_CAPTURE_GLOBAL;
	stub.capture_spoilt = false;
	st->capturing = true;
	st->nodes = 0;
	(void)pthread_mutex_unlock(&stub.lock);
	return CU_OK;
}

/* A graph is only the number of its nodes. */
cu_result cuStreamEndCapture(cu_stream handle, void **ret_graph)
{
	struct CUstream_st *st;
	bool spoilt;

	ENTER(IN_CTX);
	(void)pthread_mutex_lock(&stub.lock);
	st = stub_stream(handle);
	if (!st->capturing)
		stub_abort("no capture to end");
	st->capturing = false;
	stub.captures -= stub.captures > 0;
	spoilt = stub.capture_spoilt;
	*ret_graph = spoilt ? NULL : (void *)(uintptr_t)st->nodes;
	(void)pthread_mutex_unlock(&stub.lock);
	return spoilt ? CU_CAPTURE_INVALIDATED : CU_OK;
}

/* ----------------------------------------------------------- the whole context */

/* A call during a capture of any stream of the context spoils the capture. */
cu_result cuCtxSynchronize(void)
{
	cu_ctx ctx = stub_current();
	struct list *e;
	cu_result r = CU_OK;

	ENTER(IN_CTX | UNSAFE | ENDS);
	(void)pthread_mutex_lock(&stub.lock);
	list_for_each (e, &stub.streams) {
		const struct CUstream_st *st = list_entry(e, struct CUstream_st, link);

		if (st->ctx == ctx && st->capturing)
			r = CU_CAPTURE_UNSUPPORTED;
	}
	stub.capture_spoilt |= r != CU_OK;
	if (r == CU_OK) {
		stub.count.syncing++;
		stub_wait_ctx(ctx);
		stub.count.syncing--;
		r = stub.poison[ctx->dev];
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return r ? r : stub_late();
}

/* ------------------------------------------------------------------- words */

void stub_nap(void)
{
	struct timespec nap = { .tv_nsec = 20000 };

	(void)pthread_mutex_unlock(&stub.lock);
	(void)nanosleep(&nap, NULL);
	(void)pthread_mutex_lock(&stub.lock);
}

void stub_wait_word(struct CUstream_st *st, const struct op *op)
{
	struct registration *g;

	while (!stub.poison[st->ctx->dev]) {
		if (stub_registered((void *)(uintptr_t)op->word, sizeof(*op->word), &g) != 1)
			stub_abort("a stream waits for a word that is registered no more");
		if ((int32_t)(atomic_load_explicit(op->word, memory_order_acquire) - op->value) >=
		    0)
			return;
		stub.count.held++;
		stub_nap();
	}
}

void stub_write_word(struct CUstream_st *st, const struct op *op)
{
	struct registration *g;

	if (stub.poison[st->ctx->dev])
		return;
	if (stub_registered((void *)(uintptr_t)op->word, sizeof(*op->word), &g) != 1)
		stub_abort("a stream writes a word that is registered no more");
	atomic_store_explicit(op->word, op->value, memory_order_release);
}

/* Queue an operation on a word in registered memory. */
static cu_result queue_word(cu_stream handle, cu_ptr addr, struct op op)
{
	struct CUstream_st *st;
	struct registration *g;
	cu_result e;

	op.word = (void *)(uintptr_t)(addr & ~HOST_BIT);
	if (!(addr & HOST_BIT) || addr % sizeof(uint32_t))
		return CU_INVALID_VALUE;
	(void)pthread_mutex_lock(&stub.lock);
	e = stub_use(handle, &st);
	if (!e && (stub_registered((void *)(uintptr_t)op.word, sizeof(uint32_t), &g) != 1 ||
		   !(g->flags & CU_REGISTER_DEVICEMAP) ||
		   (st && g->ctx != st->ctx && !(g->flags & CU_REGISTER_PORTABLE))))
		e = CU_INVALID_VALUE;
	if (!e && st) {
		g->ctx->registrations -= !g->words;
		g->words = true;
		stub.count.words += op.kind == OP_WAIT;
		stub_queue(st, op);
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return e;
}

cu_result cuStreamWaitValue32_v2(cu_stream handle, cu_ptr addr, uint32_t value, unsigned flags)
{
	ENTER(IN_CTX);
	if (flags != CU_WAIT_GEQ)
		return CU_INVALID_VALUE;
	return queue_word(handle, addr, (struct op){ .kind = OP_WAIT, .value = value });
}

cu_result cuStreamWriteValue32_v2(cu_stream handle, cu_ptr addr, uint32_t value, unsigned flags)
{
	ENTER(IN_CTX);
	if (flags)
		return CU_INVALID_VALUE;
	return queue_word(handle, addr, (struct op){ .kind = OP_WRITE, .value = value });
}

/* ------------------------------------------------------- of programs alone */

cu_result cuStreamQuery(cu_stream handle)
{
	struct CUstream_st *st;
	cu_result e;

	ENTER(IN_CTX | UNSAFE);
	(void)pthread_mutex_lock(&stub.lock);
	st = stub_stream(handle);
	e = stub.poison[st->ctx->dev];
	if (!e && st->done != st->queued)
		e = CU_NOT_READY;
	(void)pthread_mutex_unlock(&stub.lock);
	return e;
}

/* There is one priority. */
cu_result cuCtxGetStreamPriorityRange(int *ret_least, int *ret_greatest)
{
	ENTER(IN_CTX);
	*ret_least = *ret_greatest = 0;
	return CU_OK;
}

cu_result cuStreamCreateWithPriority(cu_stream *ret, unsigned flags, int priority)
{
	(void)priority;
	return cuStreamCreate(ret, flags);
}

cu_result cuMemsetD8Async(cu_ptr dst, unsigned char value, size_t len, cu_stream handle)
{
	struct CUstream_st *st;
	struct range *r;
	cu_result e;

	ENTER(IN_CTX);
	(void)pthread_mutex_lock(&stub.lock);
	e = stub_use(handle, &st);
	r = stub_range_at(dst);
	if (!e && (!r || len > r->size - (dst - r->va)))
		e = CU_INVALID_VALUE;
	if (!e && st) {
		r->obj->refs++;
		stub_queue(st, (struct op){ .kind = OP_SET,
					    .dst = r->obj->bytes + (dst - r->va),
					    .len = len,
					    .value = value,
					    .obj = r->obj });
	}
	(void)pthread_mutex_unlock(&stub.lock);
	return e;
}

cu_result cuLaunchHostFunc(cu_stream handle, void (*fn)(void *), void *arg)
{
	struct CUstream_st *st;
	cu_result e;

	ENTER(IN_CTX);
	(void)pthread_mutex_lock(&stub.lock);
	e = stub_use(handle, &st);
	if (!e && st)
		stub_queue(st, (struct op){ .kind = OP_CALL, .fn = fn, .arg = arg });
	(void)pthread_mutex_unlock(&stub.lock);
	return e;
}
