/* SPDX-License-Identifier: MIT */
/*
 * Proofs of windows, before they are trusted.
 *
 * For each class of memory on a device, scratch memory of that class is written through a window
 * and read by device copies, and then the other way round.  The same scratch memory is used to time
 * the copy kernels and device copies.  Then some bytes of every window are compared with a device
 * copy of them, without writing to the window.
 */
#include <pthread.h>
#include <string.h>

#include "base/err.h"
#include "base/list.h"
#include "base/log.h"
#include "window/window.h"

#define SCRATCH KIB(256)
#define INSIDE (KIB(68) + 88) /* offset of a second window in the scratch memory, bytes */
#define INSIDE_LEN KIB(8)
#define SAMPLE 64u       /* bytes that are compared at each end of a window */
#define SAMPLE_TRIES 16u /* attempts to compare: a program may be writing there */

/* The verdict on one backend for one class of memory.  Never freed. */
struct window_verdict {
	struct list link;
	const struct window_ops *ops;
	const struct mem_ops *mem;
	unsigned device;
	uint32_t class;
	bool good, bad;
	struct copy_choice copy;
	uint64_t store_max, load_max;
	struct mem_stream *stream; /* NULL while there are no users */
	uint64_t life;             /* the device's life when the stream was created */
	unsigned users;            /* open windows that use the verdict */
};

static struct {
	pthread_mutex_t lock; /* also held during a proof, and covers the verdict's stream */
	struct list list;
} verdicts = { PTHREAD_MUTEX_INITIALIZER, LIST_INIT(verdicts.list) };

static void fill_pattern(uint64_t *buf, uint64_t seed)
{
	for (uint64_t i = 0; i < SCRATCH / 8; i++)
		buf[i] = (i + seed) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Prove both directions on scratch memory, which then contains the same bytes as buf. */
static int prove_both_ways(struct window_verdict *v, struct window *w, const struct window_src *src,
			   uint64_t *buf)
{
	uint64_t *back = buf + SCRATCH / sizeof(*buf);
	int r;

	fill_pattern(buf, now_ns());
	window_store(w, 0, buf, SCRATCH);
	r = mem_copy_wait(v->stream, src->alloc, MEM_FROM_DEVICE, src->off, back, SCRATCH);
	if (r == 0 && memcmp(buf, back, SCRATCH) != 0)
		r = err_set(EIO, "what the CPU stored is not what the device has");
	if (r < 0)
		return r;
	fill_pattern(buf, now_ns());
	r = mem_copy_wait(v->stream, src->alloc, MEM_TO_DEVICE, src->off, buf, SCRATCH);
	if (r < 0)
		return r;
	window_load(w, 0, back, SCRATCH);
	if (memcmp(buf, back, SCRATCH) != 0)
		return err_set(EIO, "what the device has is not what the CPU loads");
	return 0;
}

/* Prove that a window that begins inside an allocation shows exactly that place.  Each word of the
 * pattern is different, so bytes of another place would be noticed. */
static int prove_inside(const struct window_verdict *v, const struct window_src *src,
			const uint64_t *buf)
{
	struct window_src in = *src;
	char back[INSIDE_LEN];
	struct window *w;
	int r;

	in.off += INSIDE;
	in.len = INSIDE_LEN;
	r = v->ops->open(&in, &w);
	if (r < 0)
		return 0; /* a backend that refuses cannot show wrong bytes */
	copy_choose(&w->copy, w->caching);
	window_load(w, 0, back, sizeof(back));
	v->ops->close(w);
	if (memcmp(back, (const char *)buf + INSIDE, sizeof(back)) != 0)
		return err_set(EIO,
			       "a window that begins inside an allocation shows another place");
	return 0;
}

/* Choose the fastest copy kernels, and prove that they move the right bytes. */
static int prove_choice(struct window_verdict *v, struct window *w, const struct window_src *src,
			uint64_t *buf)
{
	copy_measure(&v->copy, w->caching, w->ptr);
	if (memcmp(&w->copy, &v->copy, sizeof(v->copy)) == 0)
		return 0;
	w->copy = v->copy;
	return prove_both_ways(v, w, src, buf);
}

static int prove_scratch(struct window_verdict *v, const struct window_src *src, uint64_t *buf)
{
	struct window *w;
	int r = v->ops->open(src, &w);

	if (r < 0)
		return r;
	copy_choose(&w->copy, w->caching);
	r = prove_both_ways(v, w, src, buf);
	if (r == 0)
		r = prove_inside(v, src, buf);
	if (r == 0)
		r = prove_choice(v, w, src, buf);
	if (r == 0) {
		window_cost(w, src, v->stream);
		v->store_max = w->store_max;
		v->load_max = w->load_max;
	}
	v->ops->close(w);
	return r;
}

static int prove_class(struct window_verdict *v, const struct mem_alloc *like)
{
	struct window_src src = { .len = SCRATCH, .rights = PST_RIGHT_READ | PST_RIGHT_WRITE };
	_cleanup_(freep) uint64_t *buf = malloc(2 * SCRATCH);
	struct mem_alloc *a;
	int r;

	if (!buf)
		return err_set(ENOMEM, "no memory to prove a window with");
	r = mem_alloc_like(like, SCRATCH + WINDOW_SCRATCH_ALIGN, &a);
	if (r < 0)
		return r;
	src.alloc = a;
	src.off = window_scratch_off(a);
	r = prove_scratch(v, &src, buf);
	v->good = r == 0;
	v->bad = r == -EIO;
	mem_free(a);
	return r;
}

/* Compare some bytes of a window with a device copy of them, without writing. */
static int prove_sample(struct window_verdict *v, struct window *w, const struct window_src *src,
			uint64_t at)
{
	char seen[SAMPLE], real[SAMPLE];
	uint64_t len = MIN(w->len, SAMPLE);
	int r;

	for (unsigned i = 0; i < SAMPLE_TRIES; i++) {
		r = mem_copy_wait(v->stream, src->alloc, MEM_FROM_DEVICE, src->off + at, real, len);
		if (r < 0)
			return r;
		window_load(w, at, seen, len);
		if (memcmp(seen, real, len) == 0)
			return 0;
	}
	return err_set(EIO, "the window shows other bytes than the device has, or they change all "
			    "the time; open it while nobody writes there");
}

static struct window_verdict *verdict_of(const struct window *w, const struct mem_alloc *a)
{
	struct window_verdict *v;
	struct list *e;

	list_for_each (e, &verdicts.list) {
		v = list_entry(e, struct window_verdict, link);
		if (v->ops == w->ops && v->mem == a->ops && v->device == a->device &&
		    v->class == mem_alloc_class(a))
			return v;
	}
	v = calloc(1, sizeof(*v));
	if (!v)
		return NULL;
	v->ops = w->ops;
	v->mem = a->ops;
	v->device = a->device;
	v->class = mem_alloc_class(a);
	list_add_tail(&verdicts.list, &v->link);
	return v;
}

static void verdict_put(struct window_verdict *v)
{
	if (--v->users == 0) {
		mem_stream_free(v->stream);
		v->stream = NULL;
	}
}

/* Prove a window, under the lock. */
static int prove(struct window_verdict *v, struct window *w, const struct window_src *src)
{
	int r = 0;

	if (v->bad)
		return err_set(EIO, "it showed wrong data before and is not used any more");
	/* A reset has ended the stream, but does not change the verdict. */
	if (v->stream && v->life != mem_life(v->mem, v->device))
		mem_stream_free(TAKE_PTR(v->stream));
	v->life = mem_life(v->mem, v->device);
	if (!v->stream)
		r = mem_stream_new(v->mem, v->device, &v->stream);
	if (r == 0 && !v->good)
		r = prove_class(v, src->alloc);
	if (r < 0)
		return r;
	w->copy = v->copy;
	w->store_max = v->store_max;
	w->load_max = v->load_max;
	if (!(w->rights & PST_RIGHT_READ))
		return 0;
	r = prove_sample(v, w, src, 0);
	return r < 0 || w->len <= SAMPLE ? r : prove_sample(v, w, src, w->len - SAMPLE);
}

int window_prove(struct window *w, const struct window_src *src)
{
	struct window_verdict *v;
	int r;

	if (!src->alloc || !mem_copies(src->alloc->ops)) {
		copy_choose(&w->copy, w->caching);
		return 0;
	}
	(void)pthread_mutex_lock(&verdicts.lock);
	v = verdict_of(w, src->alloc);
	if (!v) {
		r = err_set(ENOMEM, "no memory to prove a window with");
	} else {
		v->users++;
		r = prove(v, w, src);
		if (r < 0)
			verdict_put(v);
		else
			w->verdict = v;
	}
	(void)pthread_mutex_unlock(&verdicts.lock);
	return r;
}

void window_unproven(struct window *w)
{
	if (!w->verdict)
		return;
	(void)pthread_mutex_lock(&verdicts.lock);
	verdict_put(w->verdict);
	(void)pthread_mutex_unlock(&verdicts.lock);
}
