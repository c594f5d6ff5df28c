/* SPDX-License-Identifier: MIT */
/*
 * Order with the program's streams and other work.
 *
 * An event is recorded in the stream's own context.
 */
#include "base/err.h"
#include "base/log.h"
#include "mem/cuda/cuda.h"

struct cuda_order {
	struct mem_order base;
	struct cuda_order *next; /* next on the device's list of free orders */
	cu_event event;          /* in the device's primary context; NULL until needed */

	/* Members of one use. */
	struct cuda_dev *d;
	cu_stream stream;
	cu_ctx primary;        /* the primary context, retained */
	uint64_t life;         /* life of the primary context when the current use began */
	cu_ctx ctx;            /* context of the program's stream */
	cu_event stream_event; /* the recorded event: event, or one in the stream's context */
	bool reached;          /* the stream has reached the event; an event in its context was
			        * destroyed */
};

/* --------------------------------------------------------------- life cycle */

static int order_take(struct cuda_dev *d, struct cuda_order **ret)
{
	struct cuda_order *o;

	(void)pthread_mutex_lock(&d->lock);
	o = d->orders;
	if (o)
		d->orders = o->next;
	(void)pthread_mutex_unlock(&d->lock);
	if (!o)
		o = calloc(1, sizeof(*o));
	if (!o)
		return err_set(ENOMEM, "no memory for marks on streams");
	o->base.ops = &mem_cuda_ops;
	o->d = d;
	*ret = o;
	return 0;
}

static void order_give(struct cuda_order *o)
{
	struct cuda_dev *d = o->d;

	(void)pthread_mutex_lock(&d->lock);
	if (o->life != atomic_load(&d->life))
		o->event = NULL;
	/* After this, another thread may take the order. */
	o->next = d->orders;
	d->orders = o;
	(void)pthread_mutex_unlock(&d->lock);
	cuda_drop(d);
}

void cuda_orders_let_go(struct cuda_dev *d)
{
	for (struct cuda_order *o = d->orders; o; o = o->next)
		if (o->event)
			cuda_ignore(d, cu.cuEventDestroy_v2(TAKE_PTR(o->event)), "end an event");
}

void cuda_orders_forget(struct cuda_dev *d)
{
	for (struct cuda_order *o = d->orders; o; o = o->next)
		o->event = NULL;
}

/* ------------------------------------------------------------------ errors */

/* Set the error.  An error in a context of the program does not make the primary context
 * unusable. */
static int order_err(const struct cuda_order *o, cu_result err, const char *what)
{
	if (o->ctx == o->primary)
		return cuda_err(o->d, err, "%s", what);
	return err_set(EIO, "%s could not %s in a context of the program: %s", o->d->info.name,
		       what, cuda_err_name(err));
}

/* Set the error for an unusable stream: a mistake of the program, or its context has ended.
 * Neither concerns the primary context. */
static int stream_err(const struct cuda_dev *d, cu_stream st, cu_result err)
{
	bool gone = err == CU_INVALID_HANDLE || err == CU_CONTEXT_IS_DESTROYED;

	return err_set(gone ? EINVAL : EIO, "%s knows nothing of stream %p: %s", d->info.name,
		       (void *)st, cuda_err_name(err));
}

/* Return true for errors of calls on a stream that is being captured, or on the legacy stream
 * during a capture. */
static bool is_capture(cu_result e)
{
	return e >= CU_CAPTURE_UNSUPPORTED && e <= CU_CAPTURE_LAST;
}

static int captured(void)
{
	return err_set(EBUSY,
		       "the stream is being captured into a graph, which cannot hold a request; "
		       "submit before the capture or after it, or name no stream");
}

/* Return 0; -EBUSY if the stream is being captured; -EIO for an invalid stream. */
static int check_capture(const struct cuda_dev *d, cu_stream st)
{
	uint32_t capture = CU_CAPTURE_NONE;
	cu_result e = cu.cuStreamIsCapturing(st, &capture);

	if (is_capture(e) || (e == CU_OK && capture != CU_CAPTURE_NONE))
		return captured();
	if (e == CU_INVALID_CONTEXT)
		return err_set(
			EINVAL,
			"stream %p is one of the calling thread's context, and the thread has "
			"none; make the context of %s current first",
			(void *)st, d->info.name);
	return e == CU_OK ? 0 : stream_err(d, st, e);
}

/*
 * Make the stream's context current, and check that order with it is possible.  Two special handles
 * mean streams of the context that was current before.  For these, first check for a capture,
 * because any other call on the legacy stream would invalidate the capture.
 */
int cuda_stream_enter(struct cuda_scope *s, struct cuda_dev *d, cu_stream st, cu_ctx *ret_ctx)
{
	bool special = st == (cu_stream)CU_LEGACY || st == (cu_stream)CU_PER_THREAD;
	cu_device dev = d->dev;
	cu_result e;
	int r = special ? check_capture(d, st) : 0;

	if (r < 0)
		return r;
	e = cu.cuStreamGetCtx(st, ret_ctx);
	if (is_capture(e))
		return captured();
	if (e != CU_OK)
		return stream_err(d, st, e);
	r = cuda_enter(s, d, *ret_ctx);
	if (r < 0)
		return r;
	e = cu.cuCtxGetDevice(&dev);
	if (e == CU_OK && dev != d->dev)
		return err_set(EINVAL, "the memory is on %s, the stream on another device",
			       d->info.name);
	if (e != CU_OK)
		return stream_err(d, st, e);
	return special ? 0 : check_capture(d, st);
}

/* -------------------------------------------------------------- operations */

int cuda_order_check(unsigned device, void *stream)
{
	CUDA_SCOPE(scope);
	cu_ctx ctx;

	return cuda_stream_enter(&scope, cuda_device(device), stream, &ctx);
}

/* Record the event.  The stream's context is current. */
static int order_event(struct cuda_order *o)
{
	bool own = o->ctx == o->primary;
	cu_result e = CU_OK;

	o->reached = false;
	o->stream_event = own ? o->event : NULL;
	if (!o->stream_event) {
		e = cu.cuEventCreate(&o->stream_event, CU_DISABLE_TIMING);
		if (e != CU_OK)
			return order_err(o, e, "make an event");
		if (own)
			o->event = o->stream_event;
	}
	e = cu.cuEventRecord(o->stream_event, o->stream);
	if (e == CU_OK)
		return 0;
	if (!own)
		(void)cu.cuEventDestroy_v2(o->stream_event);
	return order_err(o, e, "mark a stream");
}

int cuda_order_new(unsigned device, void *stream, struct mem_order **ret)
{
	struct cuda_dev *d = cuda_device(device);
	struct cuda_order *o = NULL;
	cu_ctx ctx, primary;
	CUDA_SCOPE(scope);
	uint64_t life;
	int r;

	r = cuda_stream_enter(&scope, d, stream, &ctx);
	if (r == 0)
		r = cuda_hold(d, &primary, &life);
	if (r < 0)
		return r;
	r = order_take(d, &o);
	if (r == 0) {
		o->stream = stream;
		o->primary = primary;
		o->life = life;
		o->ctx = ctx;
		r = order_event(o);
	}
	cuda_leave(&scope);
	if (r == 0)
		*ret = &o->base;
	else if (o)
		order_give(o);
	else
		cuda_drop(d);
	return r;
}

/* Return true if the order has an event in a context of the program. */
static bool has_own_event(const struct cuda_order *o)
{
	return o->ctx != o->primary && !o->reached;
}

int cuda_order_poll(struct mem_order *base)
{
	struct cuda_order *o = container_of(base, struct cuda_order, base);
	CUDA_SCOPE(scope);
	cu_result e;
	int r;

	if (o->reached)
		return 1;
	r = o->ctx == o->primary ? cuda_check_life(o->d, o->life) : 0;
	if (r == 0)
		r = cuda_enter(&scope, o->d, o->ctx);
	if (r < 0)
		return r;
	e = cu.cuEventQuery(o->stream_event);
	/* Destroy the event now, because the program may end its context before the order ends. */
	if (e == CU_OK && has_own_event(o))
		(void)cu.cuEventDestroy_v2(o->stream_event);
	o->reached = e == CU_OK;
	if (e == CU_OK || e == CU_NOT_READY)
		return e == CU_OK;
	return order_err(o, e, "ask how far a stream has come");
}

void cuda_order_free(struct mem_order *base)
{
	struct cuda_order *o = container_of(base, struct cuda_order, base);
	CUDA_SCOPE(scope);

	if (has_own_event(o)) {
		cuda_enter_anyway(&scope, o->ctx);
		if (scope.pushed)
			(void)cu.cuEventDestroy_v2(o->stream_event);
		cuda_leave(&scope);
	}
	order_give(o);
}

/* ------------------------------------------------------------- other work */

int cuda_sync(const struct mem_alloc *a)
{
	struct cuda_alloc *c = cuda_alloc_of(a);
	CUDA_SCOPE(scope);
	cu_result e;
	int r = cuda_enter_of(&scope, c);

	if (r < 0)
		return r;
	e = cu.cuCtxSynchronize();
	if (e == CU_OK)
		return 0;
	if (is_capture(e))
		return err_set(EBUSY,
			       "a stream of %s is being captured into a graph, which CUDA spoils "
			       "when somebody waits for the device; wait before the capture or "
			       "after it",
			       c->d->info.name);
	if (!c->foreign)
		return cuda_err(c->d, e, "finish its work");
	return err_set(EIO, "%s could not finish its work in a context of the program: %s",
		       c->d->info.name, cuda_err_name(e));
}
