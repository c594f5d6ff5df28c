/* SPDX-License-Identifier: MIT */
/*
 * Find up to how many bytes the CPU is faster than a copy by the device.
 *
 * For reads into device memory, two ways are timed as they are used later: from the page cache into
 * the window, and from the page cache into host memory followed by a device copy.  Loads for writes
 * are timed accordingly.
 */
#include "base/err.h"
#include "base/log.h"
#include "mem/memfd.h"
#include "window/window.h"

#define COST_MAX WINDOW_COST_MAX
/* Bytes; up to this length the time limits do not apply: requests of a few pages are common. */
#define COST_LEAST KIB(16)
#define COST_ROUNDS 5u
#define COST_TRIES 3u                    /* attempts after which the device counts as faster */
#define CPU_LIMIT_NS (5 * NSEC_PER_MSEC) /* CPU time of this thread to spend */
/* Wall-clock time to spend, if other programs use the CPU. */
#define LIMIT_NS (50 * NSEC_PER_MSEC)

struct cost {
	struct window *w;
	const struct window_src *src;
	struct mem_stream *st;
	char *host;
	int fd; /* a memfd */
};

static bool store_by_cpu(const struct cost *c, size_t len)
{
	bool good = pread(c->fd, c->w->ptr, len, 0) == (ssize_t)len;

	copy_fence_stores();
	return good;
}

static bool store_by_device(const struct cost *c, size_t len)
{
	return pread(c->fd, c->host, len, 0) == (ssize_t)len &&
	       mem_copy_wait(c->st, c->src->alloc, MEM_TO_DEVICE, c->src->off, c->host, len) == 0;
}

static bool load_by_cpu(const struct cost *c, size_t len)
{
	window_load(c->w, 0, c->host, len);
	return true;
}

static bool load_by_device(const struct cost *c, size_t len)
{
	return mem_copy_wait(c->st, c->src->alloc, MEM_FROM_DEVICE, c->src->off, c->host, len) == 0;
}

/* Run fn several times.  Return the shortest time in ns, or UINT64_MAX if fn fails once. */
static uint64_t least(const struct cost *c, bool (*fn)(const struct cost *c, size_t len),
		      size_t len)
{
	uint64_t best = UINT64_MAX;

	for (unsigned i = 0; i < COST_ROUNDS; i++) {
		uint64_t start = now_ns();

		if (!fn(c, len))
			return UINT64_MAX;
		best = MIN(best, now_ns() - start);
	}
	return best;
}

/* Return true if the CPU is faster.  Try several times, because an interrupt may spoil one
 * attempt. */
static bool cpu_wins(const struct cost *c, bool (*cpu)(const struct cost *, size_t),
		     bool (*device)(const struct cost *, size_t), size_t len)
{
	uint64_t cpu_ns = UINT64_MAX, device_ns = UINT64_MAX;

	for (unsigned i = 0; i < COST_TRIES; i++) {
		cpu_ns = MIN(cpu_ns, least(c, cpu, len));
		device_ns = MIN(device_ns, least(c, device, len));
		if (cpu_ns < UINT64_MAX && cpu_ns <= device_ns)
			return true;
	}
	return false;
}

static uint64_t cpu_now(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

/*
 * Return the most bytes for which the CPU is faster.  The result is used until the process ends.
 * If other programs have the CPU, the wall-clock limit may end the measurement early; lengths after
 * that are not known.
 */
static uint64_t crossover(const struct cost *c, bool (*cpu)(const struct cost *, size_t),
			  bool (*device)(const struct cost *, size_t))
{
	uint64_t max = 0, end = now_ns() + LIMIT_NS, cpu_end = cpu_now() + CPU_LIMIT_NS;

	for (size_t len = KIB(1); len <= COST_MAX; len *= 2) {
		if (len > COST_LEAST && (now_ns() >= end || cpu_now() >= cpu_end))
			break;
		if (!cpu_wins(c, cpu, device, len))
			break;
		max = len;
	}
	return max;
}

void window_cost(struct window *w, const struct window_src *src, struct mem_stream *st)
{
	struct cost c = { .w = w, .src = src, .st = st, .fd = -1 };

	w->store_max = w->load_max = 0;
	c.host = malloc(COST_MAX);
	c.fd = memfd_new("penstock-cost", COST_MAX);
	if (c.host && c.fd >= 0) {
		w->load_max = crossover(&c, load_by_cpu, load_by_device);
		w->store_max = crossover(&c, store_by_cpu, store_by_device);
		log_debug("%s on %s %u: the CPU stores up to %u and loads up to %u bytes",
			  w->ops->name, src->alloc->ops->name, src->alloc->device,
			  (unsigned)w->store_max, (unsigned)w->load_max);
	} else {
		log_info("small requests are staged: they cannot be timed: %s", err_text());
	}
	closep(&c.fd);
	free(c.host);
}
