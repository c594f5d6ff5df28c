/* SPDX-License-Identifier: MIT */
#include <pthread.h>

#include "cuda_rig.h"

static void pins_go_in_pieces(void)
{
	struct stub_cuda_state before = state(), now;
	uint64_t len = MIB(160), n;
	char *p = map(len);
	cu_ptr dev;

	T_OK(pin_host(0, p, len));
	now = state();
	if (x.state) {
		T_EQ(now.registrations, before.registrations + 20);
		T_CHECK(now.largest_registration <= MIB(8));
	}
	T_EQ(cuda_pin_find(p + 10, 100, MEM_TO_DEVICE, &dev, &n), 100);
	T_CHECK(dev);
	T_EQ(cuda_pin_find(p + MIB(8) - 10, 100, MEM_TO_DEVICE, &dev, &n), 10);
	T_EQ(n, 10);
	T_EQ(cuda_pin_find(p + len - 10, 100, MEM_TO_DEVICE, &dev, &n), 10);
	T_EQ(cuda_pin_find(p - 10, 100, MEM_TO_DEVICE, &dev, &n), 0);
	T_EQ(n, 10);
	/* Pins are counted. */
	T_OK(pin_host(cuda_nr_devices() - 1, p, len));
	ops()->unpin(0, p, len);
	T_EQ(cuda_pin_find(p, 100, MEM_TO_DEVICE, &dev, &n), 100);
	/* Pinning a part of pinned memory is refused. */
	T_EQ(pin_host(0, p + 4096, 4096), -EBUSY);
	ops()->unpin(0, p, len);
	T_EQ(cuda_pin_find(p, 100, MEM_TO_DEVICE, &dev, &n), 0);
	T_EQ(pin_host(0, p + 1, 4096), -EINVAL);
	T_EQ(pin_host(0, p, 0), -EINVAL);
	ops()->unpin(0, p, len);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
	(void)munmap(p, len);
}

/* The driver pins only a part: the caller must unpin that part. */
static void pins_fail_half_way(void)
{
	struct stub_cuda_state before = state();
	uint64_t len = MIB(160), pinned = 1, n;
	char *p = map(len);
	cu_ptr dev;

	NEED_STUB();
	(void)x.fail("cuMemHostRegister_v2:3:2");
	T_EQ(ops()->pin(0, 0, p, len, &pinned), -ENOMEM);
	T_CHECK(x.fail(NULL));
	T_EQ(pinned, MIB(16));
	T_EQ(cuda_pin_find(p + pinned - 10, 100, MEM_TO_DEVICE, &dev, &n), 10);
	ops()->unpin(0, p, pinned);
	T_EQ(cuda_pin_find(p, 100, MEM_TO_DEVICE, &dev, &n), 0);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
	(void)munmap(p, len);
}

static void files_are_pinned_read_only(void)
{
	struct stub_cuda_state before = state();
	char path[] = "/tmp/pst-test-XXXXXX";
	_cleanup_(closep) int fd = mkstemp(path);
	struct mem_alloc *a = alloc(300000);
	static uint8_t out[300000], in[300000];
	uint64_t pinned;
	char *p;

	T_CHECK(fd >= 0);
	(void)unlink(path);
	t_fill(out, 21, 0, sizeof(out));
	T_EQ(write(fd, out, sizeof(out)), sizeof(out));
	p = mmap(NULL, sizeof(out), PROT_READ, MAP_SHARED, fd, 0);
	T_CHECK(p != MAP_FAILED);
	if (x.state)
		T_EQ(pin_host(0, p, sizeof(out)), -EINVAL);
	T_OK(mem_pin_file(ops(), 0, 0, p, sizeof(out), &pinned));
	T_EQ(pinned, sizeof(out));
	T_OK(mem_copy_sync(a, MEM_TO_DEVICE, 0, p, sizeof(out)));
	{
		struct mem_stream *st = stream(0);
		struct mem_copy v[6];
		uint64_t t;

		/* The device gathers small pieces from the page cache; a copy to the file's
		 * pages is refused. */
		for (unsigned i = 0; i < 6; i++)
			v[i] = (struct mem_copy){
				.alloc = a, .off = i * 1000, .host = p + i * 1000, .len = 900
			};
		T_OK(mem_copy(st, MEM_TO_DEVICE, v, 6, &t));
		T_EQ(wait_done(st, t), 1);
		if (x.state) {
			T_EQ(mem_copied_by(st), PST_PATH_GATHER);
			T_OK(mem_copy(st, MEM_FROM_DEVICE, v, 6, &t));
			T_EQ(wait_done(st, t), -EINVAL);
			T_CHECK(!cuda_device(0)->lost);
		}
		mem_stream_free(st);
		T_CHECK(pin_host(0, p, sizeof(out)) < 0);
	}
	mem_unpin_file(ops(), 0, p, sizeof(out));
	T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 0, in, sizeof(in)));
	T_CHECK(!memcmp(in, out, sizeof(in)));
	T_EQ(mem_pin_file(&mem_soft_ops, 0, 0, p, sizeof(out), &pinned), -EOPNOTSUPP);
	T_EQ(mem_pin_file(ops(), 99, 0, p, sizeof(out), &pinned), -ENODEV);
	(void)munmap(p, sizeof(out));
	mem_free(a);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
}

/* A call in a separate thread. */
struct other {
	pthread_t thread;
	void *host;
	uint64_t len, life, pinned;
	int r;
	atomic_bool done;
};

static void *pin_in_thread(void *arg)
{
	struct other *o = arg;

	o->r = ops()->pin(0, o->life, o->host, o->len, &o->pinned);
	atomic_store(&o->done, true);
	return NULL;
}

static void *pin_file_in_thread(void *arg)
{
	struct other *o = arg;

	o->r = mem_pin_file(ops(), 0, o->life, o->host, o->len, &o->pinned);
	atomic_store(&o->done, true);
	return NULL;
}

static void *unpin_in_thread(void *arg)
{
	struct other *o = arg;

	ops()->unpin(0, o->host, o->len);
	atomic_store(&o->done, true);
	return NULL;
}

static void begin(struct other *o, void *(*fn)(void *), void *host, uint64_t len)
{
	*o = (struct other){ .host = host, .len = len, .life = ops()->life(0) };
	T_EQ(pthread_create(&o->thread, NULL, fn, o), 0);
}

static int end(struct other *o)
{
	T_EQ(pthread_join(o->thread, NULL), 0);
	return o->r;
}

static void wait_stalled(void)
{
	uint64_t until = t_hang();

	while (!state().stalled)
		T_CHECK(t_now() < until);
}

struct put_off {
	struct mem_late late;
	void *host;
	uint64_t len;
};

static void unpin_late(struct mem_late *l)
{
	struct put_off *p = container_of(l, struct put_off, late);

	ops()->unpin(0, p->host, p->len);
}

/* The driver stalls a thread that pins a file.  Other threads can pin, unpin and start a
 * barrier, and cuda_pin_now() returns -EAGAIN. */
static void a_kept_piece_keeps_no_others(void)
{
	struct stub_cuda_state before = state();
	uint64_t len = MIB(1), n;
	char *file = map(len), *host = map(2 * len);
	struct put_off l = { .late.run = unpin_late, .host = host, .len = len };
	struct other o;

	NEED_STUB();
	(void)alarm(60); /* ends a deadlock */
	T_OK(pin_host(0, host, len));
	x.stall("cuMemHostRegister_v2#1");
	begin(&o, pin_file_in_thread, file, len);
	wait_stalled();
	T_OK(pin_host(0, host + len, len));
	T_EQ(cuda_pin_now(0, 0, file, len, &n), -EAGAIN);
	cuda_late(&l.late);
	cuda_barrier_end(cuda_barrier_begin(0));
	ops()->unpin(0, host + len, len);
	T_CHECK(!o.done);
	T_EQ(state().registrations, before.registrations);
	x.stall(NULL);
	T_OK(end(&o));
	ops()->unpin_file(0, file, len);
	T_OK(cuda_pin_now(0, 0, host, len, &n));
	ops()->unpin(0, host, n);
	(void)alarm(0);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
	(void)munmap(file, len);
	(void)munmap(host, 2 * len);
}

/* A piece is being pinned or unpinned: another thread that pins it waits, and then succeeds. */
static void the_same_piece_waits(void)
{
	struct stub_cuda_state before = state();
	uint64_t len = MIB(1), n;
	char *p = map(len);
	struct other o, same;
	cu_ptr dev;

	NEED_STUB();
	(void)alarm(60);
	x.stall("cuMemHostRegister_v2#1");
	begin(&o, pin_in_thread, p, len);
	wait_stalled();
	begin(&same, pin_in_thread, p, len);
	T_EQ(cuda_pin_find(p, len, MEM_TO_DEVICE, &dev, &n), 0);
	x.stall(NULL);
	T_OK(end(&o));
	T_OK(end(&same));
	ops()->unpin(0, p, len);
	T_EQ(cuda_pin_find(p, len, MEM_TO_DEVICE, &dev, &n), len);
	x.stall("cuMemHostUnregister#1");
	begin(&o, unpin_in_thread, p, len);
	wait_stalled();
	begin(&same, pin_in_thread, p, len);
	T_EQ(cuda_pin_find(p, len, MEM_TO_DEVICE, &dev, &n), 0);
	x.stall(NULL);
	T_OK(end(&o));
	T_OK(end(&same));
	T_EQ(cuda_pin_find(p, len, MEM_TO_DEVICE, &dev, &n), len);
	ops()->unpin(0, p, len);
	(void)alarm(0);
	SAME_THREAD(before);
	SAME_OBJECTS(before);
	(void)munmap(p, len);
}

/* Pinning for memory from before a reset must not make a context. */
static void a_past_life_makes_no_context(void)
{
	struct stub_cuda_state before, now;
	uint64_t life = ops()->life(0), len = MIB(1), pinned;
	struct mem_alloc *a = alloc(4096);
	char *p = map(len);

	NEED_STUB();
	CU(x.ctx_reset(0));
	before = state();
	for (unsigned i = 0; i < 2; i++) { /* the library knows of the reset in the second round */
		T_EQ(ops()->pin(0, life, p, len, &pinned), -ENODEV);
		T_EQ(pinned, 0);
	}
	now = state();
	T_EQ(now.contexts_made, before.contexts_made);
	T_EQ(now.registrations, before.registrations);
	mem_free(a);
	T_OK(pin_host(0, p, len));
	ops()->unpin(0, p, len);
	(void)munmap(p, len);
}

/*
 * The program resets the device while the driver pins.  The driver then registers the memory in the
 * new context, which the caller does not know: the registration must be undone.
 */
static void a_reset_meanwhile_leaves_nothing_pinned(void)
{
	uint64_t len = MIB(1), n;
	struct mem_alloc *a;
	char *p = map(len);
	struct other o;
	cu_ptr dev;

	NEED_STUB();
	(void)app_enter(0);
	for (unsigned seen = 0; seen < 2; seen++) {
		struct stub_cuda_state before = state();

		a = alloc(4096);
		(void)alarm(60);
		x.stall("cuMemHostRegister_v2#1");
		begin(&o, pin_in_thread, p, len);
		wait_stalled();
		CU(x.ctx_reset(0));
		app_leave(0);
		(void)app_enter(0);
		if (seen)
			T_CHECK(!cuda_lives(cuda_device(0), o.life));
		x.stall(NULL);
		T_EQ(end(&o), -ENODEV);
		T_EQ(o.pinned, len);
		ops()->unpin(0, p, len);
		(void)alarm(0);
		T_EQ(cuda_pin_find(p, len, MEM_TO_DEVICE, &dev, &n), 0);
		T_EQ(state().registrations, before.registrations);
		mem_free(a);
	}
	app_leave(0);
	T_OK(pin_host(0, p, len));
	ops()->unpin(0, p, len);
	(void)munmap(p, len);
}

int main(void)
{
	if (!cuda_begin())
		return t_done();
	T_RUN(pins_go_in_pieces);
	T_RUN(pins_fail_half_way);
	T_RUN(files_are_pinned_read_only);
	T_RUN(a_kept_piece_keeps_no_others);
	T_RUN(the_same_piece_waits);
	T_RUN(a_past_life_makes_no_context);
	T_RUN(a_reset_meanwhile_leaves_nothing_pinned);
	T_RUN(nothing_is_left);
	return t_done();
}
