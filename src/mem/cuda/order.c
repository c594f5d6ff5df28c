/* SPDX-License-Identifier: MIT */
/*
 * Order with the program's streams and other work.
 *
 * An event is recorded in the stream's own context.  A barrier is a word of pinned memory that
 * the stream waits for and the CPU sets.  No thread sleeps for it.  To open it is a store, which
 * works also while the program sits in the driver and waits for that stream.
 *
 * A word is used again with a larger number, so a stream that comes late to an old barrier
 * finds it open.  It must find the word, too: pages of words stay registered until the primary
 * context ends, which is when its streams do.  If streams of other contexts have waited, the
 * primary context stays for good.
 */
#include <sys/mman.h>

#include "base/err.h"
#include "base/log.h"
#include "mem/cuda/cuda.h"

#define ORDERS 64u /* in one page: a word has a cache line to itself */
#define LINE 64u   /* bytes */
#define WORDS (ORDERS * LINE)

struct cuda_order {
	struct mem_order base;
	struct cuda_order *next; /* of the free ones */
	struct cuda_orders *all; /* that it is one of */
	cu_event event;          /* of the device's primary context; NULL until needed */
	_Atomic uint32_t value;  /* which opens the last barrier */

	/* Of this use. */
	struct cuda_dev *d;
	cu_stream stream;
	cu_ctx primary;        /* held */
	cu_ctx ctx;            /* of the stream */
	cu_event stream_event; /* event, or in another context one of its own */
	bool reached;          /* the stream has come to it, and one of its own is gone */
	atomic_bool barrier;   /* between cuda_barrier_begin() and cuda_barrier_end(), */
	uint64_t nr;           /* as which number */
};

struct cuda_orders {
	struct cuda_orders *next;
	char *words;             /* a page of them */
	_Atomic bool registered; /* in the primary context, while that lasts */
	struct cuda_order order[ORDERS];
};

static _Atomic uint32_t *word_of(const struct cuda_order *o)
{
	return (_Atomic uint32_t *)(void *)(o->all->words + LINE * (size_t)(o - o->all->order));
}

/* --------------------------------------------------------------- life cycle */

/* The lock is held. */
static int orders_grow(struct cuda_dev *d)
{
	struct cuda_orders *all = calloc(1, sizeof(*all));

	if (!all)
		return err_set(ENOMEM, "no memory for marks on streams");
	all->words = mmap(NULL, WORDS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (all->words == MAP_FAILED) {
		free(all);
		return err_set(ENOMEM, "no memory for marks on streams");
	}
	/* A child's copy would part us from the page that the device looks at. */
	(void)madvise(all->words, WORDS, MADV_DONTFORK);
	for (unsigned i = 0; i < ORDERS; i++) {
		all->order[i].base.ops = &mem_cuda_ops;
		all->order[i].base.gate = &d->gate;
		all->order[i].all = all;
		all->order[i].d = d;
		all->order[i].next = d->order;
		d->order = &all->order[i];
	}
	all->next = d->orders;
	d->orders = all;
	return 0;
}

static int order_take(struct cuda_dev *d, struct cuda_order **ret)
{
	int r = 0;

	(void)pthread_mutex_lock(&d->lock);
	if (!d->order)
		r = orders_grow(d);
	if (r == 0) {
		*ret = d->order;
		d->order = d->order->next;
	}
	(void)pthread_mutex_unlock(&d->lock);
	return r;
}

static void order_give(struct cuda_order *o)
{
	(void)pthread_mutex_lock(&o->d->lock);
	o->next = o->d->order;
	o->d->order = o;
	(void)pthread_mutex_unlock(&o->d->lock);
	cuda_drop(o->d);
}

void cuda_orders_let_go(struct cuda_dev *d)
{
	for (struct cuda_orders *all = d->orders; all; all = all->next)
		for (unsigned i = 0; i < ORDERS; i++) {
			cu_event ev = TAKE_PTR(all->order[i].event);

			if (ev)
				cuda_ignore(d, cu.cuEventDestroy_v2(ev), "end an event");
		}
}

/* ------------------------------------------------------------------ errors */

/* An error in a context of the program's own leaves ours usable. */
static int order_err(const struct cuda_order *o, cu_result err, const char *what)
{
	if (o->ctx == o->primary)
		return cuda_err(o->d, err, "%s", what);
	return err_set(EIO, "%s could not %s in a context of the program: %s", o->d->info.name,
		       what, cuda_err_name(err));
}

/* The program's mistake or its context's end: neither says anything of our context. */
static int stream_err(const struct cuda_dev *d, cu_stream st, cu_result err)
{
	bool gone = err == CU_INVALID_HANDLE || err == CU_CONTEXT_IS_DESTROYED;

	return err_set(gone ? EINVAL : EIO, "%s knows nothing of stream %p: %s", d->info.name,
		       (void *)st, cuda_err_name(err));
}

/* Calls on the stream of a capture give such errors, and calls on the legacy one beside it. */
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

/* 0, -EBUSY, or -EIO for a stream that is none. */
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
 * Make the stream's context current and see that it can be ordered with.  Two handles mean
 * streams of the context that is current before; of these the capture is asked first, because
 * any other call on the legacy stream would spoil one.
 */
static int stream_enter(struct cuda_scope *s, struct cuda_dev *d, cu_stream st, cu_ctx *ret_ctx)
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

static int cannot_barrier(const struct cuda_dev *d)
{
	if (cu.cuStreamWaitValue32_v2 && !atomic_load(&d->no_barriers))
		return 0;
	return err_set(
		EOPNOTSUPP,
		"%s cannot make a stream wait for a read: %s; synchronize with the completion "
		"instead, or update the driver to CUDA 11.7 or newer",
		d->info.name,
		cu.cuStreamWaitValue32_v2 ? "it has no stream memory operations"
					  : "its driver lacks cuStreamWaitValue32_v2");
}

/* -------------------------------------------------------------- operations */

int cuda_order_check(unsigned device, void *stream, bool barrier)
{
	struct cuda_dev *d = cuda_device(device);
	CUDA_SCOPE(scope);
	cu_ctx ctx;
	int r = barrier ? cannot_barrier(d) : 0;

	return r < 0 ? r : stream_enter(&scope, d, stream, &ctx);
}

/* The stream's context is current. */
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

static struct mem_stream_id stream_id(const void *stream, const void *ctx)
{
	return (struct mem_stream_id){
		.handle = stream,
		.ctx = ctx,
		.thread = stream == (const void *)CU_PER_THREAD ? gettid() : 0,
	};
}

int cuda_order_new(unsigned device, void *stream, struct mem_order **ret)
{
	struct cuda_dev *d = cuda_device(device);
	struct cuda_order *o = NULL;
	cu_ctx ctx, primary;
	CUDA_SCOPE(scope);
	int r;

	r = stream_enter(&scope, d, stream, &ctx);
	if (r == 0)
		r = cuda_hold(d, &primary);
	if (r < 0)
		return r;
	r = order_take(d, &o);
	if (r == 0) {
		o->stream = stream;
		o->primary = primary;
		o->ctx = ctx;
		o->base.stream = stream_id(stream, ctx);
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

static int words_register(struct cuda_order *o)
{
	CUDA_SCOPE(scope);
	cu_result e;
	int r = cuda_enter(&scope, o->d, o->primary);

	if (r < 0)
		return r;
	e = cu.cuMemHostRegister_v2(o->all->words, WORDS,
				    CU_REGISTER_PORTABLE | CU_REGISTER_DEVICEMAP);
	/* By another thread meanwhile, where it is already. */
	if (e != CU_OK && e != CU_HOST_ALREADY_REGISTERED)
		return cuda_err(o->d, e, "register a page for streams to wait for");
	atomic_store(&o->all->registered, true);
	return 0;
}

/* Where the stream finds the word; the stream's context is current. */
static int word_at(struct cuda_order *o, cu_ptr *ret)
{
	void *word = (void *)(uintptr_t)word_of(o);
	cu_result e;
	int r;

	if (atomic_load(&o->all->registered) &&
	    cu.cuMemHostGetDevicePointer_v2(ret, word, 0) == CU_OK)
		return 0;
	/* The first time, or the context has ended since, with all streams that might wait. */
	r = words_register(o);
	if (r < 0)
		return r;
	e = cu.cuMemHostGetDevicePointer_v2(ret, word, 0);
	return e == CU_OK ? 0 : order_err(o, e, "find a registered page");
}

int cuda_order_barrier(struct mem_order *base, uint64_t until)
{
	struct cuda_order *o = container_of(base, struct cuda_order, base);
	CUDA_SCOPE(scope);
	cu_result e;
	cu_ptr at;
	int r;

	r = cannot_barrier(o->d);
	if (r == 0)
		r = cuda_enter(&scope, o->d, o->ctx);
	if (r == 0)
		r = word_at(o, &at);
	if (r < 0)
		return r;
	/* A stream of another context may come to the word when nobody holds the primary one. */
	if (o->ctx != o->primary)
		cuda_keep(o->d);
	/* First, so that the barrier can be opened also where the call does more than it says. */
	o->value++;
	if (!o->barrier)
		o->nr = cuda_barrier_begin(until);
	o->barrier = true;
	e = cu.cuStreamWaitValue32_v2(o->stream, at, o->value, CU_WAIT_GEQ);
	if (e == CU_NOT_SUPPORTED) {
		atomic_store(&o->d->no_barriers, true);
		return cannot_barrier(o->d);
	}
	return e == CU_OK ? 0 : order_err(o, e, "make a stream wait");
}

/* Is there an event in a context of the program's own? */
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
	r = cuda_enter(&scope, o->d, o->ctx);
	if (r < 0)
		return r;
	e = cu.cuEventQuery(o->stream_event);
	/* The program may end its context before the order ends. */
	if (e == CU_OK && has_own_event(o))
		(void)cu.cuEventDestroy_v2(o->stream_event);
	o->reached = e == CU_OK;
	if (e == CU_OK || e == CU_NOT_READY)
		return e == CU_OK;
	return order_err(o, e, "ask how far a stream has come");
}

/*
 * Release, although the device's reading is no atomic operation of this language: stores before
 * the word's are in memory when the word is.  The device itself wrote the bytes, and has said so.
 */
void cuda_order_open(struct mem_order *base)
{
	struct cuda_order *o = container_of(base, struct cuda_order, base);

	atomic_store_explicit(word_of(o), o->value, memory_order_release);
	if (atomic_exchange(&o->barrier, false))
		cuda_barrier_end(o->nr);
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
