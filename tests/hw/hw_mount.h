/* SPDX-License-Identifier: MIT */
/* Shared by the cases of gpu-mount: memory of a GPU or of the software device, and timed
 * requests. */
#ifndef PST_HW_MOUNT_H
#define PST_HW_MOUNT_H

#include "hw.h"
#include "usrbio/mount_gpu_rig.h"

#define FILE_SIZE RIG_MIB(256)
#define WAIT_S 60     /* s; limit for one completion */
#define SAMPLES 50000 /* maximum latencies kept */

static int number; /* number of the device */
static bool soft;
static cu_stream stream;

/* -------------------------------------------------------------- device memory */

/* Return the software device's name, like "soft:1". */
static inline const char *soft_name(void)
{
	static char name[16];

	(void)snprintf(name, sizeof(name), "soft:%d", number);
	return name;
}

/* The program's memory: the driver's allocation, or a pst_mem of the software device. */
struct memory {
	uint8_t *base;
	struct pst_mem *mem;
};

static inline struct memory alloc(size_t len)
{
	struct memory m = { 0 };
	cu_ptr p = 0;

	if (soft) {
		struct pst_mem_info info = { .sz = sizeof(info) };

		m.mem = rig_alloc(soft_name(), len);
		T_OK(pst_mem_info(m.mem, &info));
		p = info.addr;
	} else {
		HW_CU(cuMemAlloc_v2(&p, len));
	}
	m.base = (uint8_t *)(uintptr_t)p;
	return m;
}

static inline void drop(struct memory *m)
{
	if (soft)
		(void)pst_mem_free(m->mem);
	else
		HW_CU(cuMemFree_v2((uintptr_t)m->base));
	m->base = NULL;
}

static inline void put(const uint8_t *to, uint64_t seed, uint64_t at, size_t len)
{
	char *buf;

	if (soft) {
		gpu_fill(to, len, seed, at);
		return;
	}
	buf = malloc(len);
	T_CHECK(buf);
	t_fill(buf, seed, at, len);
	HW_CU(cuMemcpyHtoDAsync_v2((uintptr_t)to, buf, len, stream));
	HW_CU(cuStreamSynchronize(stream));
	free(buf);
}

/* Return the offset of the first wrong byte, or len. */
static inline size_t differs(const uint8_t *from, uint64_t seed, uint64_t at, size_t len)
{
	char *buf;
	size_t n;

	if (soft)
		return gpu_differs(from, len, seed, at);
	buf = malloc(len);
	T_CHECK(buf);
	HW_CU(cuMemcpyDtoHAsync_v2(buf, (uintptr_t)from, len, stream));
	HW_CU(cuStreamSynchronize(stream));
	n = t_differs(buf, seed, at, len);
	free(buf);
	return n;
}

/* Check that the calling thread's context and device have not changed. */
static inline void same_context(void)
{
	cu_ctx now = NULL;
	cu_device dev = -1;

	if (soft)
		return;
	HW_CU(cuCtxGetCurrent(&now));
	T_CHECK(now == hw_ctx);
	HW_CU(cuCtxGetDevice(&dev));
	T_EQ(dev, number);
}

/* ----------------------------------------------------------------- requests */

/* Wait for completions by hf3fs_wait_for_ios(); fail if none arrives. */
static inline int wait_some(const struct hf3fs_ior *ior, struct hf3fs_cqe *c, int max)
{
	struct timespec until;
	int n;

	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WAIT_S;
	n = hf3fs_wait_for_ios(ior, c, max, 1, &until);
	if (n <= 0)
		T_FAIL("no completion in %d s: %d", WAIT_S, n);
	return n;
}

static inline int64_t io(const struct mg_ring *r, const struct hf3fs_iov *iov, size_t at,
			 size_t off, size_t len)
{
	struct hf3fs_cqe c;

	T_CHECK(hf3fs_prep_io(&r->ior, iov, r->ior.for_read, iov->base + at, r->fd, off, len,
			      NULL) >= 0);
	T_OK(hf3fs_submit_ios(&r->ior));
	T_EQ(wait_some(&r->ior, &c, 1), 1);
	return c.result;
}

struct figure {
	double p50_us, p99_us, per_s, gb_per_s;
};

static inline int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Return the offset of the n-th piece in the file or the memory. */
static inline size_t place(uint64_t n, size_t piece, size_t size)
{
	return n * 7919 % (size / piece) * piece;
}

/* Run batches of depth requests for ms milliseconds; each batch is awaited as a whole. */
static inline struct figure run(const struct mg_ring *r, const struct hf3fs_iov *iov, size_t piece,
				unsigned depth, unsigned ms)
{
	uint64_t begin = t_now(), until = begin + (uint64_t)ms * 1000000, now = begin;
	uint64_t *took = malloc(SAMPLES * sizeof(*took)), nr = 0, batches = 0;
	struct hf3fs_cqe *c = malloc(depth * sizeof(*c));
	struct figure f;

	T_CHECK(took && c);
	while (now < until || !batches) {
		uint64_t from = now;

		for (unsigned i = 0; i < depth; i++, nr++)
			T_CHECK(hf3fs_prep_io(&r->ior, iov, true,
					      iov->base + place(nr, piece, iov->size), r->fd,
					      place(nr, piece, FILE_SIZE), piece, NULL) >= 0);
		T_OK(hf3fs_submit_ios(&r->ior));
		for (unsigned got = 0; got < depth;) {
			int n = wait_some(&r->ior, c, (int)depth);

			for (int i = 0; i < n; i++)
				T_EQ(c[i].result, (int64_t)piece);
			got += (unsigned)n;
		}
		now = t_now();
		took[batches++ % SAMPLES] = now - from;
	}
	f.per_s = (double)nr * 1e9 / (double)(now - begin);
	f.gb_per_s = f.per_s * (double)piece / 1e9;
	nr = batches < SAMPLES ? batches : SAMPLES;
	qsort(took, nr, sizeof(*took), by_size);
	f.p50_us = (double)took[nr / 2] / 1e3;
	f.p99_us = (double)took[nr * 99 / 100] / 1e3;
	free(took);
	free(c);
	return f;
}

static inline void say(const char *what, size_t piece, unsigned depth, const struct figure *f)
{
	printf("# %-32s %7zu bytes, depth %3u: p50 %9.2f us, p99 %9.2f us, %9.0f/s, %7.2f GB/s\n",
	       what, piece, depth, f->p50_us, f->p99_us, f->per_s, f->gb_per_s);
}

#endif
