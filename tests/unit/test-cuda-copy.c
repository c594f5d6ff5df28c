/* SPDX-License-Identifier: MIT */
#include <pthread.h>

#include "base/fault.h"
#include "cuda_rig.h"

/* Each copy overwrites the one before: the last bytes show that they ran in order. */
static void copies_are_in_order(void)
{
	enum { LEN = 3000, ROUNDS = 300 };
	struct mem_alloc *a = alloc(LEN + 7);
	struct mem_stream *st = stream(0);
	uint8_t *out = map(ROUNDS * 4096), *in = map(ROUNDS * 4096);
	uint64_t t[2], last = 0;

	T_OK(pin_host(0, out, ROUNDS * 4096));
	T_OK(pin_host(0, in, ROUNDS * 4096));
	for (int i = 0; i < ROUNDS; i++) {
		struct mem_copy w = { .alloc = a, .off = 7, .host = out + i * 4096, .len = LEN };
		struct mem_copy r = { .alloc = a, .off = 7, .host = in + i * 4096, .len = LEN };
		int e;

		t_fill(out + i * 4096, (uint64_t)i, 0, LEN);
		while ((e = mem_copy(st, MEM_TO_DEVICE, &w, 1, &t[0])) == -EAGAIN)
			T_CHECK(mem_poll(st, last) >= 0);
		T_OK(e);
		while ((e = mem_copy(st, MEM_FROM_DEVICE, &r, 1, &t[1])) == -EAGAIN)
			T_CHECK(mem_poll(st, last) >= 0);
		T_OK(e);
		T_CHECK(t[0] > last && t[1] > t[0]);
		last = t[1];
	}
	T_EQ(wait_done(st, last), 1);
	for (int i = 0; i < ROUNDS; i++)
		T_EQ(t_differs(in + i * 4096, (uint64_t)i, 0, LEN), LEN);
	T_EQ(mem_poll(st, last - 500), 1);
	mem_stream_free(st);
	ops()->unpin(0, out, ROUNDS * 4096);
	ops()->unpin(0, in, ROUNDS * 4096);
	(void)munmap(out, ROUNDS * 4096);
	(void)munmap(in, ROUNDS * 4096);
	mem_free(a);
}

static void tickets(void)
{
	struct mem_alloc *a = alloc(100);
	struct mem_stream *st = stream(0);
	uint8_t *host = map(4096);
	struct mem_copy c = { .alloc = a, .host = host, .len = 100 };
	uint64_t t = 0, first;
	int r;

	T_EQ(mem_poll(st, 0), -EINVAL);
	T_EQ(mem_poll(st, 1), -EINVAL);
	T_EQ(mem_stream_fd(st), -1);
	T_EQ(ops()->copy(st, MEM_TO_DEVICE, &c, 1u << 20, &t), -EINVAL);
	T_OK(mem_copy(st, MEM_TO_DEVICE, &c, 0, &t));
	T_EQ(wait_done(st, t), 1);
	c.len = 0;
	T_OK(mem_copy(st, MEM_TO_DEVICE, (struct mem_copy[]){ c, c, c, c, c }, 5, &t));
	T_EQ(wait_done(st, t), 1);
	c.len = 100;
	first = t;
	T_OK(pin_host(0, host, 4096));
	if (x.state) {
		unsigned nr = 0;

		x.delay_us(2000);
		while (!(r = mem_copy(st, MEM_TO_DEVICE, &c, 1, &t)))
			nr++;
		T_EQ(r, -EAGAIN);
		T_CHECK(nr >= 64);
		x.delay_us(0);
		T_EQ(wait_done(st, t), 1);
	}
	for (int i = 0; i < 1100; i++) {
		T_OK(mem_copy(st, MEM_TO_DEVICE, &c, 1, &t));
		T_EQ(wait_done(st, t), 1);
	}
	T_EQ(mem_poll(st, first), -EINVAL);
	T_OK(fault_set("mem.copy:1:EREMOTEIO"));
	T_OK(mem_copy(st, MEM_TO_DEVICE, &c, 1, &t));
	T_EQ(wait_done(st, t), -EREMOTEIO);
	T_OK(fault_set(NULL));
	T_OK(mem_copy(st, MEM_TO_DEVICE, &c, 1, &t));
	T_EQ(wait_done(st, t), 1);
	mem_stream_free(st);
	ops()->unpin(0, host, 4096);
	(void)munmap(host, 4096);
	mem_free(a);
}

/* Two large batches are started together: the first completes without waiting for the second. */
static void a_large_batch_is_not_waited_for_with_the_next(void)
{
	enum { LEN = 3 << 20 };
	struct mem_alloc *a;
	struct mem_stream *st;
	struct mem_copy c;
	uint64_t t[2];

	NEED_STUB();
	a = alloc(LEN);
	st = stream(0);
	c = (struct mem_copy){ .alloc = a, .host = map(LEN), .len = LEN };
	T_OK(pin_host(0, c.host, LEN));
	x.delay_us(300000);
	for (unsigned i = 0; i < 2; i++)
		T_OK(mem_copy(st, MEM_TO_DEVICE, &c, 1, &t[i]));
	T_EQ(wait_done(st, t[0]), 1);
	T_EQ(mem_poll(st, t[1]), 0);
	x.delay_us(0);
	T_EQ(wait_done(st, t[1]), 1);
	mem_stream_free(st);
	ops()->unpin(0, c.host, LEN);
	(void)munmap(c.host, LEN);
	mem_free(a);
}

/* Copy between two allocations in both directions, alone and in one batch with host memory. */
static void between_two_allocations(void)
{
	enum { LEN = 2 * CHUNK + 5 };
	struct mem_alloc *a = alloc(LEN + 3), *b = alloc(LEN + 9);
	struct mem_stream *st = stream(0);
	uint8_t *host = map(LEN);
	struct mem_copy c[2] = {
		{ .alloc = a, .off = 3, .host = host, .len = LEN },
		{ .alloc = a, .off = 3, .other = b, .other_off = 9, .len = LEN },
	};
	uint64_t t;

	T_OK(pin_host(0, host, LEN));
	t_fill(host, 1, 0, LEN);
	T_OK(mem_copy(st, MEM_TO_DEVICE, c, 1, &t));
	T_OK(mem_copy(st, MEM_FROM_DEVICE, &c[1], 1, &t)); /* copy from a to b */
	T_EQ(wait_done(st, t), 1);
	memset(host, 0, LEN);
	T_OK(mem_copy(st, MEM_TO_DEVICE, c, 2, &t)); /* zeros, then the bytes of b */
	T_OK(mem_copy(st, MEM_FROM_DEVICE, c, 1, &t));
	T_EQ(wait_done(st, t), 1);
	T_EQ(t_differs(host, 1, 0, LEN), LEN);
	c[1].other_off++;
	T_EQ(mem_copy(st, MEM_TO_DEVICE, &c[1], 1, &t), -ERANGE);
	c[1].other_off--;
	b->rights = PST_RIGHT_READ;
	T_EQ(mem_copy(st, MEM_FROM_DEVICE, &c[1], 1, &t), -EACCES);
	T_OK(mem_copy(st, MEM_TO_DEVICE, &c[1], 1, &t));
	T_EQ(wait_done(st, t), 1);
	b->rights |= PST_RIGHT_WRITE;
	mem_stream_free(st);
	ops()->unpin(0, host, LEN);
	(void)munmap(host, LEN);
	mem_free(a);
	mem_free(b);
}

/*
 * Copy between two devices, both ways.  The stream's context first gets access to the other device,
 * so the copy goes through host memory only if the devices cannot reach each other.
 */
static void between_two_devices(void)
{
	enum { LEN = 2 * CHUNK + 5 };
	struct mem_alloc *a = alloc(LEN), *b;
	struct mem_stream *st = stream(0);
	uint8_t *host = map(LEN);
	struct mem_copy c = { .alloc = a, .host = host, .len = LEN };
	struct mem_copy other = { .alloc = a, .len = LEN };
	struct stub_cuda_state was, now;
	uint64_t t;

	NEED_DEVICES(2);
	T_OK(mem_alloc(ops(), 1, LEN, 0, &b));
	other.other = b;
	T_OK(pin_host(0, host, LEN));
	for (unsigned reach = 2; reach--;) {
		if (x.state) {
			T_OK(setenv("STUB_CUDA_PEERS", reach ? "1" : "0", 1));
			x.state(&was);
		}
		t_fill(host, reach, 0, LEN);
		T_OK(mem_copy(st, MEM_TO_DEVICE, &c, 1, &t));
		T_OK(mem_copy(st, MEM_FROM_DEVICE, &other, 1, &t)); /* copy to b */
		T_EQ(wait_done(st, t), 1);
		memset(host, 0, LEN);
		T_OK(mem_copy(st, MEM_TO_DEVICE, &c, 1, &t));
		T_OK(mem_copy(st, MEM_TO_DEVICE, &other, 1, &t)); /* copy from b */
		T_OK(mem_copy(st, MEM_FROM_DEVICE, &c, 1, &t));
		T_EQ(wait_done(st, t), 1);
		T_EQ(t_differs(host, reach, 0, LEN), LEN);
		if (x.state) {
			x.state(&now);
			T_EQ(now.between - was.between, 2);
			T_EQ(now.between_by_host - was.between_by_host, reach ? 0 : 2);
		}
		/* The next round's context has no access yet. */
		mem_stream_free(st);
		ops()->unpin(0, host, LEN);
		if (reach && x.state) {
			mem_free(a);
			mem_free(b);
			a = alloc(LEN);
			T_OK(mem_alloc(ops(), 1, LEN, 0, &b));
			c.alloc = other.alloc = a;
			other.other = b;
		}
		st = stream(0);
		T_OK(pin_host(0, host, LEN));
	}
	mem_stream_free(st);
	ops()->unpin(0, host, LEN);
	T_OK(unsetenv("STUB_CUDA_PEERS"));
	(void)munmap(host, LEN);
	mem_free(a);
	mem_free(b);
}

static void streams_are_for_their_device(void)
{
	struct mem_alloc *a = alloc(100);
	struct mem_stream *st;
	uint8_t buf[10];
	struct mem_copy c = { .alloc = a, .host = buf, .len = 10 };
	uint64_t t;

	NEED_DEVICES(2);
	st = stream(1);
	T_EQ(mem_copy(st, MEM_TO_DEVICE, &c, 1, &t), -EINVAL);
	mem_stream_free(st);
	mem_free(a);
}

static void *thread_main(void *arg)
{
	unsigned device = *(unsigned *)arg % cuda_nr_devices();
	struct mem_alloc *a = NULL, *w = NULL;
	struct mem_stream *st = NULL;
	uint8_t *host = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
	struct mem_copy v[6];
	uint64_t t;

	for (int i = 0; i < 20; i++) {
		if (mem_alloc(ops(), device, 65536, 0, &a) < 0 ||
		    mem_wrap(a->base.va + 5, 100, 0, 0, &w) < 0 ||
		    pin_host(device, host, 65536) < 0 || mem_stream_new(ops(), device, &st) < 0)
			return (void *)err_text();
		t_fill(host, (uint64_t)i + device, 0, 6000);
		for (unsigned k = 0; k < 6; k++)
			v[k] = (struct mem_copy){ .alloc = k % 2 ? w : a,
						  .off = k * 5000,
						  .host = host + k * 1000,
						  .len = 1000 };
		for (int dir = 0; dir < 2; dir++) {
			int r = mem_copy(st, dir ? MEM_FROM_DEVICE : MEM_TO_DEVICE, v, 6, &t);

			while (!r)
				r = mem_poll(st, t);
			if (r < 0)
				return (void *)err_text();
			if (!dir)
				memset(host, 0, 6000);
		}
		if (t_differs(host, (uint64_t)i + device, 0, 6000) != 6000)
			return (void *)(uintptr_t) "wrong bytes";
		mem_stream_free(st);
		ops()->unpin(device, host, 65536);
		mem_free(w);
		mem_free(a);
	}
	(void)munmap(host, 65536);
	return NULL;
}

static void threads_do_not_meet(void)
{
	struct stub_cuda_state before = state();
	pthread_t t[4];
	unsigned idx[4];
	void *why = NULL, *r;

	for (unsigned i = 0; i < 4; i++) {
		idx[i] = i;
		T_EQ(pthread_create(&t[i], NULL, thread_main, &idx[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		(void)pthread_join(t[i], &r);
		why = r ? r : why;
	}
	if (why)
		T_FAIL("a thread failed: %s", (const char *)why);
	SAME_OBJECTS(before);
}

int main(void)
{
	if (!cuda_begin())
		return t_done();
	T_RUN(copies_are_in_order);
	T_RUN(tickets);
	T_RUN(a_large_batch_is_not_waited_for_with_the_next);
	T_RUN(between_two_allocations);
	T_RUN(between_two_devices);
	T_RUN(streams_are_for_their_device);
	T_RUN(threads_do_not_meet);
	T_RUN(nothing_is_left);
	return t_done();
}
