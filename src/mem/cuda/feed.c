/* SPDX-License-Identifier: MIT */
/*
 * Feeds: copies that are put on a stream of the program before their bytes are available.
 *
 * Each copy has three entries on the stream: a wait for a word, a launch of the gather kernel, and
 * a write of another word.  The kernel finds its list of tiles by a descriptor, which the CPU fills
 * before it stores the first word.  The second word tells the CPU that the copy is done.  So after
 * pst_queue_submit() has returned, a read that the program's stream waits for needs no call of the
 * driver.  Such a call could wait for that very stream: after a kernel's first launch, the driver
 * makes the device run later work only when that kernel has ended, and the kernel waits for the
 * stream (driver 580.159, H100 and H200).
 *
 * Words and descriptors are in pages that stay registered until the primary context ends, because
 * its streams may use them until then.  A word is reused with a larger value.
 *
 * The kernel belongs to the primary context.  If the program's stream belongs to another context,
 * the copies are on a stream of the library, which waits for the program's stream, and the
 * program's stream then waits for the library's.  All of that is submitted before
 * pst_queue_submit() returns.
 */
#include <sys/mman.h>

#include "base/err.h"
#include "mem/cuda/cuda.h"

#define PLACES 256u /* maximum copies of a feed on the stream; the driver accepts 340 */
#define PLACES_BYTES (PLACES * sizeof(struct place))

/* Two words and a descriptor for one copy, which stream and kernel read; one cache line. */
struct place {
	_Atomic uint32_t go;   /* the stream waits until go >= the copy's value_of() */
	_Atomic uint32_t done; /* the stream writes the copy's value_of() here */
	struct cuda_fed list;
	uint64_t unused[5];
};

_Static_assert(sizeof(struct place) == 64, "the addresses that feed_put() computes");

struct cuda_feed {
	struct mem_feed base;
	struct cuda_feed *next; /* next on the list of free feeds; under the device's lock */
	struct cuda_dev *d;
	struct place *places;
	_Atomic bool registered; /* places are registered in the primary context */
	bool used;               /* a stream has waited for a place since the registration */
	uint32_t value;          /* value of go and done for the first PLACES copies of the current
				  * use */
	cu_event event;          /* recorded after the last copy; in the primary context; NULL until
			 * needed */
	cu_stream own; /* the library's stream in the primary context; NULL until needed */

	/* Members of one use: one read, from feed_take() until its copies are done. */
	cu_ctx primary;   /* the primary context, retained */
	uint64_t life;    /* life of the primary context when the current use began */
	cu_ctx ctx;       /* context of the program's stream */
	cu_stream stream; /* the program's stream */
	cu_stream on;     /* the stream that has the copies: @stream or @own */
	cu_ptr at;        /* device address of places */
	unsigned max_tiles;
	_Atomic uint64_t nr_put; /* copies that were put on the stream */
	uint64_t nr_whole;       /* copies of nr_put with all three entries */
	bool torn;               /* a copy has only some of its entries, so its kernel may run at
				  * any time: do not reuse the places in this context */
	uint64_t nr_sent;        /* copies sent; under the caller's lock */
	atomic_bool ended;
	atomic_bool sealed; /* no more copies are put */
	atomic_bool marked; /* event was recorded after the last copy */
	atomic_bool lost;   /* copies that are not done will never run */
	uint64_t barrier;   /* barrier number from cuda_barrier_begin() */
};

static struct cuda_feed *feed_of(const struct mem_feed *base)
{
	return container_of((struct mem_feed *)(uintptr_t)base, struct cuda_feed, base);
}

static struct place *place_of(const struct cuda_feed *f, uint64_t nr)
{
	return &f->places[nr % PLACES];
}

/* Return the value that the words of copy nr have. */
static uint32_t value_of(const struct cuda_feed *f, uint64_t nr)
{
	return f->value + (uint32_t)(nr / PLACES);
}

static bool is_done(const struct cuda_feed *f, uint64_t nr)
{
	uint32_t done = atomic_load_explicit(&place_of(f, nr)->done, memory_order_acquire);

	return (int32_t)(done - value_of(f, nr)) >= 0;
}

/* --------------------------------------------------------------- life cycle */

static int feed_make(struct cuda_dev *d, struct cuda_feed **ret)
{
	struct cuda_feed *f = calloc(1, sizeof(*f));
	void *p;

	if (!f)
		return err_set(ENOMEM, "no memory for a read that a stream waits for");
	p = mmap(NULL, PLACES_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) {
		free(f);
		return err_set(ENOMEM, "no memory for a read that a stream waits for");
	}
	/* After a fork, copy-on-write would separate this process from the pages that the device
	 * reads. */
	(void)madvise(p, PLACES_BYTES, MADV_DONTFORK);
	f->base.ops = &mem_cuda_ops;
	f->base.path = PST_PATH_GATHER;
	f->base.lock = &d->feed_lock;
	f->d = d;
	f->places = p;
	f->value = 1;
	*ret = f;
	return 0;
}

/* Return true if the stream has run all complete copies of the feed's last use. */
static bool is_over(const struct cuda_feed *f)
{
	return !f->nr_whole || is_done(f, f->nr_whole - 1);
}

/* Take a free feed whose last use is over, or create one. */
static int feed_take(struct cuda_dev *d, struct cuda_feed **ret)
{
	struct cuda_feed **at, *f;

	(void)pthread_mutex_lock(&d->lock);
	for (at = &d->feeds; *at && (!is_over(*at) || (*at)->torn); at = &(*at)->next)
		;
	f = *at;
	if (f)
		*at = f->next;
	(void)pthread_mutex_unlock(&d->lock);
	if (!f)
		return feed_make(d, ret);
	f->value = value_of(f, f->nr_put) + 1;
	*ret = f;
	return 0;
}

/* Forget objects of the primary context, which has ended.  No stream reads the feed's places any
 * more. */
static void feed_forget(struct cuda_feed *f)
{
	f->event = NULL;
	f->own = NULL;
	f->registered = f->used = f->torn = false;
	f->nr_whole = 0;
}

void cuda_feeds_forget(struct cuda_dev *d)
{
	for (struct cuda_feed *f = d->feeds; f; f = f->next)
		feed_forget(f);
}

static void feed_give(struct cuda_feed *f)
{
	(void)pthread_mutex_lock(&f->d->lock);
	if (f->life != atomic_load(&f->d->life))
		feed_forget(f);
	f->next = f->d->feeds;
	f->d->feeds = f;
	(void)pthread_mutex_unlock(&f->d->lock);
	cuda_drop(f->d);
}

void cuda_feeds_let_go(struct cuda_dev *d)
{
	for (struct cuda_feed *f = d->feeds; f; f = f->next) {
		if (f->registered && !f->used) {
			cuda_ignore(d, cu.cuMemHostUnregister(f->places), "unregister pages");
			f->registered = false;
		}
		if (f->event)
			cuda_ignore(d, cu.cuEventDestroy_v2(TAKE_PTR(f->event)), "end an event");
		if (f->own)
			cuda_ignore(d, cu.cuStreamDestroy_v2(TAKE_PTR(f->own)), "end a stream");
	}
}

/* ------------------------------------------------------------------ begin */

static int places_register(struct cuda_feed *f)
{
	cu_result e = cu.cuMemHostRegister_v2(f->places, PLACES_BYTES,
					      CU_REGISTER_PORTABLE | CU_REGISTER_DEVICEMAP);

	if (e != CU_OK && e != CU_HOST_ALREADY_REGISTERED)
		return cuda_err(f->d, e, "register pages for streams to wait for");
	f->registered = true;
	f->used = f->torn = false;
	return 0;
}

/* Register the places if necessary, and set their device address.  The primary context is
 * current. */
static int places_find(struct cuda_feed *f)
{
	cu_result e;
	int r;

	if (f->registered && cu.cuMemHostGetDevicePointer_v2(&f->at, f->places, 0) == CU_OK)
		return 0;
	/* Register the places on first use, and again if the context has ended with all streams
	 * that might wait. */
	r = places_register(f);
	if (r < 0)
		return r;
	e = cu.cuMemHostGetDevicePointer_v2(&f->at, f->places, 0);
	return e == CU_OK ? 0 : cuda_err(f->d, e, "find registered pages");
}

static int cannot_feed(const struct cuda_dev *d, const char *why)
{
	return err_set(EOPNOTSUPP,
		       "%s cannot make a stream wait for a read: %s; synchronize with the "
		       "completion instead",
		       d->info.name, why);
}

/* Create what this use's copies need.  The primary context is current. */
static int feed_prepare(struct cuda_feed *f)
{
	cu_result e = CU_OK;

	if (!f->event)
		e = cu.cuEventCreate(&f->event, CU_DISABLE_TIMING);
	if (e != CU_OK)
		return cuda_err(f->d, e, "make an event");
	f->on = f->stream;
	if (f->ctx != f->primary && !f->own)
		e = cu.cuStreamCreate(&f->own, CU_NON_BLOCKING);
	if (e != CU_OK)
		return cuda_err(f->d, e, "make a stream");
	if (f->ctx != f->primary)
		f->on = f->own;
	return places_find(f);
}

/* Let the library's stream wait for the program's stream, which belongs to another context. */
static int feed_follow(struct cuda_feed *f)
{
	cu_event ev = NULL;
	CUDA_SCOPE(scope);
	cu_result e;
	int r = cuda_enter(&scope, f->d, f->ctx);

	if (r < 0)
		return r;
	e = cu.cuEventCreate(&ev, CU_DISABLE_TIMING);
	if (e == CU_OK)
		e = cu.cuEventRecord(ev, f->stream);
	cuda_leave(&scope);
	if (e == CU_OK)
		r = cuda_enter(&scope, f->d, f->primary);
	if (e == CU_OK && r == 0)
		e = cu.cuStreamWaitEvent(f->own, ev, 0);
	cuda_leave(&scope);
	cuda_enter_anyway(&scope, f->ctx);
	if (ev)
		(void)cu.cuEventDestroy_v2(ev);
	if (e == CU_OK)
		return r;
	return err_set(EIO, "%s could not follow a stream of a context of the program: %s",
		       f->d->info.name, cuda_err_name(e));
}

int cuda_feed_check(const struct mem_alloc *a, void *stream)
{
	struct cuda_alloc *c = cuda_alloc_of(a);
	CUDA_SCOPE(scope);
	cu_ctx ctx;

	if (!cu.cuStreamWaitValue32_v2 || !cu.cuStreamWriteValue32_v2)
		return cannot_feed(c->d, "its driver is older than CUDA 11.7");
	if (atomic_load(&c->d->no_feeds))
		return cannot_feed(c->d, "it has no stream memory operations");
	if (c->foreign)
		return cannot_feed(c->d, "the memory is of a context of the program's own");
	return cuda_stream_enter(&scope, c->d, stream, &ctx);
}

static int feed_begin(struct cuda_feed *f, const struct mem_alloc *a)
{
	CUDA_SCOPE(scope);
	int r = cuda_alive(cuda_alloc_of(a));

	if (r == 0)
		r = cuda_enter(&scope, f->d, f->primary);
	if (r == 0)
		r = feed_prepare(f);
	if (r == 0 && !cuda_has_gather(f->d))
		r = cannot_feed(f->d, "it does not run the gather kernel");
	cuda_leave(&scope);
	if (r == 0 && f->on != f->stream)
		r = feed_follow(f);
	return r;
}

int cuda_feed_new(const struct mem_alloc *a, void *stream, unsigned max_tiles, uint64_t until,
		  struct mem_feed **ret)
{
	struct cuda_dev *d = cuda_device(a->device);
	struct cuda_feed *f = NULL;
	cu_ctx ctx, primary;
	CUDA_SCOPE(scope);
	uint64_t life;
	int r;

	r = cuda_stream_enter(&scope, d, stream, &ctx);
	cuda_leave(&scope);
	if (r == 0)
		r = cuda_hold(d, &primary, &life);
	if (r < 0)
		return r;
	r = feed_take(d, &f);
	if (r < 0) {
		cuda_drop(d);
		return r;
	}
	f->primary = primary;
	f->life = life;
	f->ctx = ctx;
	f->stream = stream;
	f->max_tiles = max_tiles;
	f->nr_put = f->nr_whole = f->nr_sent = 0;
	f->ended = f->sealed = f->marked = f->lost = false;
	r = feed_begin(f, a);
	if (r < 0) {
		feed_give(f);
		return r;
	}
	f->barrier = cuda_barrier_begin(until);
	*ret = &f->base;
	return 0;
}

/* -------------------------------------------------------------------- put */

static int feed_enter(struct cuda_scope *scope, struct cuda_feed *f)
{
	int r = cuda_check_life(f->d, f->life);

	return r < 0 ? r : cuda_enter(scope, f->d, f->primary);
}

/* Put the three entries of a copy on the stream.  The primary context is current. */
static cu_result put(struct cuda_feed *f, uint64_t nr)
{
	cu_ptr at = f->at + nr % PLACES * sizeof(struct place);
	uint32_t value = value_of(f, nr);
	cu_result e;

	e = cu.cuStreamWaitValue32_v2(f->on, at + offsetof(struct place, go), value, CU_WAIT_GEQ);
	f->used |= e == CU_OK;
	if (e == CU_OK)
		e = cuda_gather_fed(f->d, at + offsetof(struct place, list), f->max_tiles, f->on);
	if (e == CU_OK)
		e = cu.cuStreamWriteValue32_v2(f->on, at + offsetof(struct place, done), value, 0);
	return e;
}

int cuda_feed_put(struct mem_feed *base)
{
	struct cuda_feed *f = feed_of(base);
	uint64_t nr = f->nr_put;
	CUDA_SCOPE(scope);
	cu_result e;
	int r;

	if (atomic_load(&f->ended))
		return 0;
	if (nr >= PLACES && !is_done(f, nr - PLACES))
		return atomic_load(&f->lost) ? -EIO : -EAGAIN;
	/*
	 * Pairs with cuda_feed_end(): either that function releases this copy because it sees
	 * nr_put, or this thread sees ended.
	 */
	atomic_store(&f->nr_put, nr + 1);
	if (atomic_load(&f->ended)) {
		atomic_store(&f->nr_put, nr);
		return 0;
	}
	r = feed_enter(&scope, f);
	e = r == 0 ? put(f, nr) : CU_OK;
	if (r == 0 && e == CU_OK) {
		f->nr_whole = nr + 1;
		return 1;
	}
	f->torn |= r == 0;
	if (r < 0)
		return r;
	if (e == CU_NOT_SUPPORTED) {
		atomic_store(&f->d->no_feeds, true);
		return cannot_feed(f->d, "it has no stream memory operations");
	}
	return cuda_err(f->d, e, "put a copy on a stream");
}

int cuda_feed_seal(struct mem_feed *base)
{
	struct cuda_feed *f = feed_of(base);
	CUDA_SCOPE(scope);
	cu_result e;
	int r;

	atomic_store(&f->sealed, true);
	r = feed_enter(&scope, f);
	if (r < 0)
		return r;
	e = cu.cuEventRecord(f->event, f->on);
	cuda_leave(&scope);
	if (e != CU_OK)
		return cuda_err(f->d, e, "mark a stream");
	atomic_store(&f->marked, true);
	if (f->on == f->stream)
		return 0;
	r = cuda_enter(&scope, f->d, f->ctx);
	if (r < 0)
		return r;
	e = cu.cuStreamWaitEvent(f->stream, f->event, 0);
	if (e == CU_OK)
		return 0;
	return err_set(EIO, "%s could not make a stream of a context of the program wait: %s",
		       f->d->info.name, cuda_err_name(e));
}

/* ------------------------------------------------------------------- send */

/*
 * Store the list, then let the stream continue.  Release: a device that sees p->go must see the
 * list and all bytes stored before it, though C does not define a device's atomic reads.
 */
static void open_place(struct cuda_feed *f, uint64_t nr, const struct mem_sgl *list)
{
	struct place *p = place_of(f, nr);

	p->list = (struct cuda_fed){ .tiles = list ? list->dev : 0, .nr = list ? list->nr : 0 };
	atomic_store_explicit(&p->go, value_of(f, nr), memory_order_release);
}

int cuda_feed_list(const struct mem_feed *base, const struct mem_copy *v, unsigned nr, void *room,
		   struct mem_sgl *ret)
{
	struct cuda_tile *first = room, *end = first;
	const struct cuda_feed *f = feed_of(base);
	uint64_t len;
	cu_ptr at;

	if (cuda_pin_find(room, MEM_SGL_BYTES, MEM_TO_DEVICE, &at, &len) < MEM_SGL_BYTES || !at ||
	    !cuda_tiles_put(MEM_TO_DEVICE, v, nr, &end, first + f->max_tiles))
		return err_set(EIO, "%s does not reach the staging memory of a read",
			       f->d->info.name);
	*ret = (struct mem_sgl){ .alloc = v->alloc, .dev = at, .nr = (unsigned)(end - first) };
	return 0;
}

uint64_t cuda_feed_send(struct mem_feed *base, const struct mem_sgl *list)
{
	struct cuda_feed *f = feed_of(base);
	uint64_t nr = f->nr_sent++;

	open_place(f, nr, list);
	return nr;
}

void cuda_feed_end(struct mem_feed *base)
{
	struct cuda_feed *f = feed_of(base);

	if (atomic_exchange(&f->ended, true))
		return;
	for (uint64_t nr = f->nr_sent; nr < atomic_load(&f->nr_put); nr++)
		open_place(f, nr, NULL);
	/* Copies that were sent but have not begun must find nothing to move. */
	for (uint64_t nr = f->nr_sent; nr-- > 0 && f->nr_sent - nr <= PLACES && !is_done(f, nr);)
		__atomic_store_n(&place_of(f, nr)->list.nr, 0, __ATOMIC_RELAXED);
	cuda_barrier_end(f->barrier);
}

int cuda_feed_poll(const struct mem_feed *base, uint64_t nr)
{
	const struct cuda_feed *f = feed_of(base);
	bool lost = atomic_load(&f->lost);

	if (is_done(f, nr))
		return 1;
	/* This copy was never put on the stream, so nothing is left to do. */
	if (atomic_load(&f->sealed) && nr >= atomic_load(&f->nr_put))
		return 1;
	return lost ? -EIO : 0;
}

void cuda_feed_check_lost(struct mem_feed *base)
{
	struct cuda_feed *f = feed_of(base);
	bool marked = atomic_load(&f->marked);
	CUDA_SCOPE(scope);
	cu_result e;

	if (feed_enter(&scope, f) < 0) {
		atomic_store(&f->lost, true);
		return;
	}
	/* Without a recorded event, only errors count: in this thread, CU_STREAM_PER_THREAD is
	 * another stream. */
	e = marked ? cu.cuEventQuery(f->event) : cu.cuStreamQuery(f->on);
	if (e == CU_NOT_READY || (e == CU_OK && !marked))
		return;
	/* The stream is finished.  A copy that was put on it in part may never be done. */
	if (e != CU_OK)
		(void)cuda_err(f->d, e, "wait for a stream");
	atomic_store(&f->lost, true);
}

void cuda_feed_free(struct mem_feed *base)
{
	feed_give(feed_of(base));
}
