/* SPDX-License-Identifier: MIT */
/* Device memory registered with cuFile: slices, limits, and deregistration. */
#include "cufile_rig.h"

static struct cufile_file *cf;
static struct cufile_mem *m;

static void ready(const char *text)
{
	use_library(text);
	T_OK(cufile_open());
	T_OK(cufile_file_get(local_of(file), &cf));
	m = mem_new();
}

static void over(void)
{
	T_EQ(within(do_mem_free, m), 0);
	T_EQ(cufile_mem_registered(0), 0);
	cufile_file_put(cf);
	nothing_is_left();
}

static uint64_t room_of(uint64_t base, uint64_t size, uint64_t off)
{
	struct cufile_mem *a = NULL;
	uint64_t room;

	T_OK(cufile_mem_new(0, base, size, &a));
	room = cufile_mem_room(a, off);
	T_EQ(cufile_mem_free(a), 0);
	return room;
}

/* Slices are whole pages of the GPU, cut every 16 MiB. */
static void slices(void)
{
	const uint64_t at = UINT64_C(0x7f0000000000);

	T_EQ(room_of(at, MIB(40), 0), MIB(16));
	T_EQ(room_of(at, MIB(40), 4096), MIB(16) - 4096);
	T_EQ(room_of(at, MIB(40), MIB(16) - 4096), 4096);
	T_EQ(room_of(at, MIB(40), MIB(16)), MIB(16));
	T_EQ(room_of(at, MIB(40), MIB(39)), MIB(1));
	T_EQ(room_of(at, MIB(40), MIB(40)), 0);
	T_EQ(room_of(at, MIB(40), UINT64_C(1) << 62), 0);
	/* Unaligned offsets. */
	T_EQ(room_of(at, MIB(40), 100), 0);
	T_EQ(room_of(at, MIB(40), 512), 0);
	/* Ends of an allocation that do not fill a page. */
	T_EQ(room_of(at + 4096, MIB(1), 0), 0);
	T_EQ(room_of(at + 4096, MIB(1), 65536 - 4096), MIB(1) - 65536);
	T_EQ(room_of(at, 1000000, 0), 983040);
	T_EQ(room_of(at, 1000000, 983040), 0);
	T_EQ(room_of(at, 65535, 0), 0);
	T_EQ(room_of(at + 4096, 65536, 0), 0);
	T_EQ(room_of(at, 1, 0), 0);
	T_EQ(cufile_mem_new(CUFILE_DEVICES, at, 65536, &m), -EINVAL);
}

static void each_is_registered_once(void)
{
	ready("mode=nvfs");
	T_EQ(cufile_mem_registered(0), 0);
	T_EQ(io(cf, m, 0, 0, 65536, 0), 65536);
	T_EQ(cufile_mem_registered(0), MIB(16));
	T_EQ(io(cf, m, MIB(15), 0, MIB(1), 0), MIB(1));
	T_EQ(cufile_mem_registered(0), MIB(16));
	T_EQ(io(cf, m, MIB(63), 0, MIB(1), 0), MIB(1));
	T_EQ(cufile_mem_registered(0), MIB(32));
	T_CHECK(mem_is(MIB(63), 0, MIB(1)));
	if (x.set) {
		T_EQ(state().bufs, 2);
		T_EQ(state().registered, MIB(32));
	}
	over();
}

static void the_bound_is_kept(void)
{
	ready("mode=p2pdma");
	cufile_mem_limit(MIB(32));
	for (unsigned i = 0; i < 12; i++) {
		uint64_t off = i % 4 * CUFILE_SLICE;

		T_EQ(io(cf, m, off, 0, 4096, 0), 4096);
		T_CHECK(cufile_mem_registered(0) <= MIB(32));
		T_CHECK(state().registered <= MIB(32));
		T_CHECK(mem_is(off, 0, 4096));
	}
	T_EQ(cufile_mem_registered(0), MIB(32));
	/* A limit below one slice: nothing can be registered. */
	cufile_mem_limit(MIB(8));
	T_EQ(io(cf, m, MIB(16), 0, 4096, 0), -ENOBUFS);
	T_CHECK(strstr(err_text(), "bound"));
	/* The attempt has deregistered both slices. */
	T_EQ(cufile_mem_registered(0), 0);
	cufile_mem_limit(0);
	T_EQ(io(cf, m, MIB(16), 0, 4096, 0), 4096);
	over();
}

static void the_oldest_goes_first(void)
{
	ready("mode=p2pdma");
	NEED_STUB();
	cufile_mem_limit(MIB(32));
	T_EQ(io(cf, m, 0, 0, 4096, 0), 4096);
	T_EQ(io(cf, m, MIB(16), 0, 4096, 0), 4096);
	T_EQ(io(cf, m, 0, 0, 4096, 0), 4096);
	/* replaces the second slice, which is the least recently used */
	T_EQ(io(cf, m, MIB(32), 0, 4096, 0), 4096);
	x.set("fail=cuFileBufRegister:1:5030");
	T_EQ(io(cf, m, 0, 0, 4096, 0), 4096);
	T_CHECK(!x.met());
	T_EQ(io(cf, m, MIB(16), 0, 4096, 0), -EIO);
	T_CHECK(x.met());
	over();
}

/* The device can register less than cuFile says. */
static void less_than_it_was_said(void)
{
	ready("mode=nvfs,pin=37748736"); /* 37748736 bytes are 36 MiB */
	NEED_STUB();
	for (unsigned i = 0; i < 8; i++)
		T_EQ(io(cf, m, i % 4 * CUFILE_SLICE, 0, 4096, 0), 4096);
	T_EQ(cufile_mem_registered(0), MIB(32));
	T_EQ(within(do_mem_free, m), 0);
	/* The limit that was found ends with the memory. */
	x.set("pin=0");
	m = mem_new();
	for (unsigned i = 0; i < 4; i++)
		T_EQ(io(cf, m, i * CUFILE_SLICE, 0, 4096, 0), 4096);
	T_EQ(cufile_mem_registered(0), MIB(64));
	over();
}

static void nothing_can_be_pinned(void)
{
	ready("mode=nvfs,pin=4096");
	NEED_STUB();
	T_EQ(io(cf, m, 0, 0, 4096, 0), -ENOMEM);
	T_CHECK(strstr(err_text(), "BAR1"));
	T_EQ(cufile_mem_registered(0), 0);
	over();
}

static int64_t foreign_reg(void *arg)
{
	return x.buf_reg(arg, MIB(1), 0).err;
}

static int64_t foreign_unreg(void *arg)
{
	return x.buf_unreg(arg).err;
}

/* A registration by another user of cuFile must not be used: its length and end are unknown. */
static void others_have_it(void)
{
	void *at;

	ready("mode=p2pdma");
	at = (void *)(uintptr_t)mem->base.va;
	T_EQ(within(foreign_reg, at), 0);
	T_EQ(io(cf, m, 0, 0, 4096, 0), -EBUSY);
	T_CHECK(strstr(err_text(), "another user"));
	T_EQ(io(cf, m, MIB(16), 0, 4096, 0), 4096);
	T_EQ(within(foreign_unreg, at), 0);
	T_EQ(io(cf, m, 0, 0, 4096, 0), 4096);
	T_CHECK(mem_is(0, 0, 4096));
	over();
}

/* ------------------------------------------------------------------ sharing */

static struct cufile_io hung_io;

static void *io_thread(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)within(do_io, &hung_io);
}

static void one_transfer_at_a_time(void)
{
	struct hung h;

	ready("mode=nvfs,hang=read:1");
	NEED_STUB();
	hung_io = (struct cufile_io){ .file = cf, .mem = m, .len = 65536 };
	h = hang(io_thread, NULL);
	T_EQ(io(cf, m, MIB(1), 0, 4096, 0), -EAGAIN);
	T_EQ(io(cf, m, MIB(1), 0, 4096, CUFILE_IO_SHARE), -EAGAIN);
	T_EQ(io(cf, m, MIB(16), 0, 4096, 0), 4096);
	T_EQ((intptr_t)unhang(h), 65536);
	T_EQ(io(cf, m, MIB(1), 0, 4096, 0), 4096);
	over();
}

static void many_when_all_say_so(void)
{
	struct hung h;

	ready("mode=p2pdma,hang=read:1");
	NEED_STUB();
	hung_io =
		(struct cufile_io){ .file = cf, .mem = m, .len = 65536, .flags = CUFILE_IO_SHARE };
	h = hang(io_thread, NULL);
	T_EQ(io(cf, m, MIB(1), 0, 4096, CUFILE_IO_SHARE), 4096);
	T_EQ(io(cf, m, MIB(1), 0, 4096, 0), -EAGAIN);
	/* The slice in use is not deregistered to make room. */
	cufile_mem_limit(MIB(16));
	T_EQ(io(cf, m, MIB(16), 0, 4096, 0), -ENOBUFS);
	cufile_mem_limit(0);
	T_EQ((intptr_t)unhang(h), 65536);
	over();
}

static unsigned sharing;

/* Threads that read through random slices, with room for half of the slices. */
static void *some_reads(void *arg)
{
	uint64_t seed = (uintptr_t)arg;
	unsigned done = 0;

	for (unsigned i = 0; done < 60; i++) {
		struct cufile_io v = { .mem = m, .len = 65536 };
		unsigned at = (unsigned)(t_byte(seed, i) % 4);
		struct call c = { .fn = do_io, .arg = &v };
		int r = cufile_file_get(local_of(file), &v.file);

		if (r == -EBUSY)
			continue;
		/* Each thread writes to a place of its own in each slice, which is checked at
		 * the end. */
		v.mem_off = at * CUFILE_SLICE + seed * 65536;
		v.file_off = seed * 65536;
		v.flags = seed & sharing ? CUFILE_IO_SHARE : 0;
		if (r == 0)
			r = mem_within(mem, call_it, &c);
		if (r < 0)
			return strdup(err_text());
		cufile_file_put(v.file);
		done += c.res == 65536;
		if (c.res != 65536 && c.res != -EAGAIN && c.res != -ENOBUFS)
			return strdup(err_text());
	}
	return NULL;
}

static void many_threads(const char *text)
{
	void *bad[6], *why = NULL;
	pthread_t t[6];

	ready(text);
	cufile_file_put(cf);
	cufile_mem_limit(MIB(32));
	for (uintptr_t i = 0; i < ARRAY_SIZE(t); i++)
		T_CHECK(!pthread_create(&t[i], NULL, some_reads, (void *)i));
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		(void)pthread_join(t[i], &bad[i]);
		why = bad[i] ? bad[i] : why;
	}
	if (why)
		T_FAIL("%s", (char *)why);
	for (uint64_t i = 0; i < ARRAY_SIZE(t); i++) {
		bool seen = false;

		for (unsigned at = 0; at < 4; at++)
			seen |= mem_is(at * CUFILE_SLICE + i * 65536, i * 65536, 65536);
		T_CHECK(seen);
	}
	T_CHECK(cufile_mem_registered(0) <= MIB(32));
	cufile_mem_limit(0);
	T_OK(cufile_file_get(local_of(file), &cf));
	over();
}

static void many_threads_nvfs(void)
{
	many_threads("mode=nvfs");
}

static void many_threads_p2pdma(void)
{
	sharing = 1; /* every other thread reads with CUFILE_IO_SHARE */
	many_threads("mode=p2pdma");
}

/* ------------------------------------------------------------------- hangs */

static void *free_thread(void *arg)
{
	return (void *)(intptr_t)within(do_mem_free, arg);
}

static void a_registration_hangs(void)
{
	struct hung h;

	ready("mode=p2pdma,hang=cuFileBufRegister:1");
	NEED_STUB();
	hung_io = (struct cufile_io){ .file = cf, .mem = m, .len = 65536 };
	h = hang(io_thread, NULL);
	T_EQ(io(cf, m, 0, 0, 4096, 0), -EAGAIN);
	T_EQ(io(cf, m, MIB(16), 0, 4096, 0), 4096);
	T_EQ(cufile_mem_registered(0), MIB(32));
	T_EQ(within(do_mem_free, m), -EBUSY);
	T_EQ((intptr_t)unhang(h), 65536);
	over();
}

static void an_end_hangs(void)
{
	struct cufile_mem *other;
	struct hung h;

	ready("mode=p2pdma");
	NEED_STUB();
	T_EQ(io(cf, m, 0, 0, 4096, 0), 4096);
	x.set("hang=cuFileBufDeregister:1");
	h = hang(free_thread, m);
	T_EQ(cufile_mem_registered(0), MIB(16));
	/* Other memory can be registered during the hang. */
	T_OK(cufile_mem_new(1, mem->base.va + MIB(32), MIB(16), &other));
	T_EQ(io(cf, other, 0, 0, 4096, 0), 4096);
	T_EQ(cufile_mem_registered(1), MIB(16));
	T_EQ(within(do_mem_free, other), 0);
	T_EQ((intptr_t)unhang(h), 0);
	m = NULL;
	cufile_file_put(cf);
	nothing_is_left();
}

/* One thread deregisters a slice of memory to make room while another thread frees that memory. */
static void making_room_hangs(void)
{
	struct cufile_mem *other;
	struct hung h;

	ready("mode=p2pdma");
	NEED_STUB();
	cufile_mem_limit(MIB(16));
	T_EQ(io(cf, m, 0, 0, 4096, 0), 4096);
	T_OK(cufile_mem_new(0, mem->base.va + MIB(32), MIB(16), &other));
	x.set("hang=cuFileBufDeregister:1");
	hung_io = (struct cufile_io){ .file = cf, .mem = other, .len = 65536 };
	h = hang(io_thread, NULL);
	T_EQ(within(do_mem_free, m), -EBUSY);
	T_EQ(io(cf, m, 0, 0, 4096, 0), -EAGAIN);
	T_EQ((intptr_t)unhang(h), 65536);
	T_EQ(within(do_mem_free, other), 0);
	cufile_mem_limit(0);
	over();
}

/* A failed deregistration is logged, and counts as done. */
static void an_end_fails(void)
{
	ready("mode=p2pdma");
	NEED_STUB();
	T_EQ(io(cf, m, 0, 0, 4096, 0), 4096);
	x.set("fail=cuFileBufDeregister:1:5048");
	over();
}

int main(void)
{
	APART(slices);
	APART(each_is_registered_once);
	APART(the_bound_is_kept);
	APART(the_oldest_goes_first);
	APART(less_than_it_was_said);
	APART(nothing_can_be_pinned);
	APART(others_have_it);
	APART(one_transfer_at_a_time);
	APART(many_when_all_say_so);
	APART(many_threads_nvfs);
	APART(many_threads_p2pdma);
	APART(a_registration_hangs);
	APART(an_end_hangs);
	APART(making_room_hangs);
	APART(an_end_fails);
	return t_done();
}
