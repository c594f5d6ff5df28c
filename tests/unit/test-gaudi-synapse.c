/* SPDX-License-Identifier: MIT */
/*
 * Gaudi memory in attach mode, on the stubs of libSynapse, libscal and libhl-thunk.  Copies are
 * asynchronous and in order, the program's memory is found, and nothing is left.
 */
#include <sys/mman.h>

#include "base/err.h"
#include "base/fault.h"
#include "mem/gaudi/gaudi.h"
#include "mem/mem.h"

#define T_ERROR_TEXT() err_text()
#include "gaudi_rig.h"

#define LEN (UINT64_C(3) << 20)

static const struct mem_ops *ops;

/* Functions that a program of SynapseAI calls. */
static struct {
	syn_status (*init)(void);
	syn_status (*acquire)(uint32_t *, const char *);
	syn_status (*release)(uint32_t);
	syn_status (*malloc)(uint32_t, uint64_t, uint64_t, uint32_t, uint64_t *);
	syn_status (*free)(uint32_t, uint64_t, uint32_t);
} prog;

#define SAYS(want)                                                       \
	do {                                                             \
		if (!strstr(err_text(), want))                           \
			T_FAIL("\"%s\" lacks \"%s\"", err_text(), want); \
	} while (0)

static struct mem_alloc *alloc(uint64_t len)
{
	struct mem_alloc *a = NULL;

	T_OK(mem_alloc(ops, 0, len, 0, &a));
	return a;
}

static void quiet(void)
{
	struct stub_gaudi_state s = gaudi_state();
	struct stub_syn_state y = gaudi_syn_state();

	T_EQ(s.contexts, 0);
	T_EQ(s.exports, 0);
	T_EQ(y.acquired, 0);
	T_EQ(y.mallocs, 0);
	T_EQ(y.host_maps, 0);
	T_EQ(y.streams, 0);
	T_EQ(y.events, 0);
	T_EQ(y.leaked, 0);
	T_EQ(s.leaked, 0);
}

static void fill(unsigned char *buf, uint64_t len, unsigned seed)
{
	for (uint64_t i = 0; i < len; i++)
		buf[i] = (unsigned char)(i * 7 + seed + (i >> 12));
}

static void device_is_acquired_and_released(void)
{
	struct mem_alloc *a = alloc(LEN), *b = NULL;

	T_CHECK(mem_copies(a->ops));
	T_EQ(a->base.va % 4096, 0);
	T_EQ(gaudi_syn_state().acquired, 1);
	T_EQ(mem_alloc(ops, 1, LEN, 0, &b), -EBUSY);
	SAYS("one at a time");
	mem_free(a);
	quiet();
}

static void copies_move_bytes(void)
{
	struct mem_alloc *a = alloc(LEN);
	unsigned char *x = malloc(LEN), *y = malloc(LEN);

	T_CHECK(x && y);
	fill(x, LEN, 3);
	T_OK(mem_copy_sync(a, MEM_TO_DEVICE, 0, x, LEN));
	T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 0, y, LEN));
	T_CHECK(!memcmp(x, y, LEN));
	T_OK(mem_copy_sync(a, MEM_TO_DEVICE, 12345, x, 777));
	T_OK(mem_copy_sync(a, MEM_FROM_DEVICE, 12340, y, 790));
	T_CHECK(!memcmp(x, y + 5, 777));
	T_CHECK(!memcmp(x + 12340, y, 5));
	T_EQ(mem_copy_sync(a, MEM_TO_DEVICE, 0, (void *)8, 16), -EFAULT);
	T_OK(mem_sync(a));
	free(x);
	free(y);
	mem_free(a);
	quiet();
}

static void pinned_memory_needs_no_wait(void)
{
	struct mem_alloc *a = alloc(LEN);
	struct mem_stream *st = NULL;
	uint64_t len = 0, ticket = 0, last = 0;
	unsigned char *host = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				   -1, 0);
	struct mem_copy c = { .alloc = a, .host = host, .len = LEN };
	unsigned n = 0;
	int r;

	T_CHECK(host != MAP_FAILED);
	fill(host, LEN, 9);
	T_OK(mem_pin(a->ops, 0, a->life, host, LEN, &len));
	T_EQ(len, LEN);
	T_OK(mem_stream_new(a->ops, 0, &st));
	gs.hold(true);
	while ((r = mem_copy(st, MEM_TO_DEVICE, &c, 1, &ticket)) == 0) {
		T_EQ(ticket, last + 1);
		T_EQ(mem_poll(st, ticket), 0);
		last = ticket;
		n++;
	}
	T_EQ(r, -EAGAIN);
	T_EQ(n, 64);
	gs.hold(false);
	while (!(r = mem_poll(st, last)))
		;
	T_EQ(r, 1);
	T_EQ(mem_poll(st, 1), 1);
	memset(host, 0, LEN);
	T_OK(mem_copy(st, MEM_FROM_DEVICE, &c, 1, &ticket));
	while (!(r = mem_poll(st, ticket)))
		;
	T_EQ(host[LEN - 1], (unsigned char)((LEN - 1) * 7 + 9 + ((LEN - 1) >> 12)));
	/* The second of three batches fails. */
	T_OK(fault_set("mem.copy:2:EIO"));
	for (int i = 0; i < 3; i++)
		T_OK(mem_copy(st, MEM_FROM_DEVICE, &c, 1, &ticket));
	T_OK(fault_set(NULL));
	while (!mem_poll(st, ticket))
		;
	T_EQ(mem_poll(st, ticket - 2), 1);
	T_EQ(mem_poll(st, ticket - 1), -EIO);
	T_EQ(mem_poll(st, ticket), 1);
	mem_stream_free(st);
	mem_unpin(a->ops, 0, host, LEN);
	(void)munmap(host, LEN);
	mem_free(a);
	quiet();
}

static void programs_memory_is_wrapped(void)
{
	struct mem_alloc *w = NULL;
	uint64_t va = 0, calls;
	struct mem_dmabuf d;
	uint32_t id = 9;
	char buf[8] = "";
	syn_status e = prog.init();

	T_CHECK(e == SYN_OK || e == SYN_ALREADY_INITIALIZED);
	T_EQ(prog.acquire(&id, STUB_GAUDI_PCI_1), SYN_OK);
	T_EQ(prog.malloc(id, 10000, 0, 0, &va), SYN_OK);
	T_CHECK(va % 4096 != 0);
	T_OK(mem_wrap(va, 10000, PST_KIND_GAUDI, 0, &w));
	T_EQ(w->device, 1);
	T_CHECK(mem_copies(w->ops));
	T_OK(mem_copy_sync(w, MEM_TO_DEVICE, 10, (char[]){ "tensor" }, 6));
	T_CHECK(gs.peek(va + 10, buf, 6));
	T_CHECK(!strcmp(buf, "tensor"));
	/* Export the pages of the range, at an offset in the pool's mapping. */
	T_OK(mem_export_dmabuf(w, 10, 6, &d));
	T_EQ(d.off, (va + 10) % 4096);
	T_EQ(d.size, 4096);
	memset(buf, 0, sizeof(buf));
	gaudi_dmabuf_io(d.fd, d.off, buf, 6, false);
	T_CHECK(!strcmp(buf, "tensor"));
	(void)close(d.fd);
	mem_free(w);
	/* Across the end of the pool, and before its start. */
	T_EQ(mem_wrap(va, STUB_GAUDI_POOL, PST_KIND_GAUDI, 0, &w), -EFAULT);
	T_EQ(mem_wrap(va - STUB_GAUDI_LEAD, 1, PST_KIND_GAUDI, 0, &w), -EFAULT);
	/* libscal does not answer. */
	T_OK(mem_wrap(va, 10000, PST_KIND_GAUDI, 0, &w));
	(void)gs.fail("scal_pool_get_infoV2:1:1");
	T_EQ(mem_export_dmabuf(w, 0, 1, &d), -EIO);
	SAYS("install the libscal");
	T_CHECK(gs.fail(NULL));
	mem_free(w);
	/* The program keeps the device. */
	T_EQ(gaudi_syn_state().acquired, 1);
	calls = gaudi_state().calls;
	T_EQ(prog.free(id, va, 0), SYN_OK);
	T_EQ(prog.release(id), SYN_OK);
	T_CHECK(gaudi_state().calls > calls);
	quiet();
}

static void a_reset_in_mid_transfer_ends_it(void)
{
	struct mem_alloc *a = alloc(LEN), *b;
	struct mem_stream *st = NULL;
	uint64_t len = 0, ticket = 0, leaked;
	char *host = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct mem_copy c = { .alloc = a, .host = host, .len = LEN };
	char one[1] = "";
	int r;

	T_OK(mem_pin(a->ops, 0, a->life, host, LEN, &len));
	T_OK(mem_stream_new(a->ops, 0, &st));
	gs.hold(true);
	for (int i = 0; i < 3; i++)
		T_OK(mem_copy(st, MEM_TO_DEVICE, &c, 1, &ticket));
	T_EQ(mem_poll(st, ticket), 0);
	gs.reset(0, true);
	r = mem_poll(st, ticket);
	T_EQ(r, -ENODEV);
	SAYS("was reset");
	T_EQ(mem_poll(st, 1), -ENODEV);
	T_EQ(mem_copy(st, MEM_TO_DEVICE, &c, 1, &ticket), -ENODEV);
	T_EQ(mem_alive(a), -ENODEV);
	/* the reset is not complete yet */
	T_EQ(mem_copy_sync(a, MEM_TO_DEVICE, 0, one, 1), -EBUSY);
	gs.hold(false);
	gs.reset(0, false);
	T_EQ(mem_copy_sync(a, MEM_TO_DEVICE, 0, one, 1), -ENODEV);
	leaked = gaudi_state().leaked;
	/* Memory that was pinned before the reset is not pinned for the new device. */
	b = alloc(LEN);
	T_OK(mem_copy_sync(b, MEM_TO_DEVICE, 0, host, LEN));
	mem_free(b);
	mem_stream_free(st);
	mem_unpin(a->ops, 0, host, LEN);
	mem_free(a);
	(void)munmap(host, LEN);
	T_EQ(gaudi_syn_state().acquired, 0);
	T_EQ(gaudi_syn_state().streams, 0);
	T_EQ(gaudi_syn_state().host_maps, 0);
	T_EQ(gaudi_state().contexts, 0);
	T_EQ(gaudi_state().leaked, leaked);
	a = alloc(LEN);
	T_OK(mem_copy_sync(a, MEM_TO_DEVICE, 0, one, 1));
	mem_free(a);
	T_EQ(gaudi_syn_state().acquired, 0);
}

static _Atomic bool over;

/* Copy until over is set.  Each copy must succeed or be ended by a reset. */
static void *copies_through_resets(void *arg)
{
	unsigned char x[5000] = "", y[5000];

	(void)arg;
	while (!over) {
		struct mem_alloc *a = NULL;
		int r = mem_alloc(ops, 0, LEN, 0, &a);

		for (int i = 0; r == 0 && i < 20; i++) {
			x[0] = (unsigned char)i;
			r = mem_copy_sync(a, MEM_TO_DEVICE, 4000, x, sizeof(x));
			if (r == 0)
				r = mem_copy_sync(a, MEM_FROM_DEVICE, 4000, y, sizeof(y));
			if (r == 0 && memcmp(x, y, sizeof(x)) != 0)
				r = -EBADMSG;
		}
		if (a)
			mem_free(a);
		if (r < 0 && r != -ENODEV && r != -EBUSY)
			return (void *)(intptr_t)-r;
	}
	return NULL;
}

static void resets_under_many_threads(void)
{
	pthread_t t[3];
	void *bad;

	over = false;
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
		T_EQ(pthread_create(&t[i], NULL, copies_through_resets, NULL), 0);
	for (int i = 0; i < 40; i++) {
		uint64_t copies = gaudi_syn_state().copies, until = t_hang();

		gs.reset(0, true);
		gs.reset(0, false);
		while (gaudi_syn_state().copies < copies + 3) /* wait until copying works again */
			T_CHECK(t_now() < until);
	}
	over = true;
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		T_EQ(pthread_join(t[i], &bad), 0);
		T_EQ((intptr_t)bad, 0);
	}
	T_EQ(gaudi_syn_state().acquired, 0);
	T_EQ(gaudi_syn_state().streams, 0);
	T_EQ(gaudi_state().contexts, 0);
}

static void every_call_fails_once(void)
{
	char spec[40], byte = 1;

	for (int n = 1, met = 1; met; n++) {
		struct mem_alloc *a = NULL;
		struct mem_dmabuf d;

		T_CHECK(n < 500);
		(void)snprintf(spec, sizeof(spec), "*:%d:%d", n, SYN_FAIL);
		(void)gs.fail(spec);
		if (mem_alloc(ops, 0, LEN, 0, &a) == 0) {
			uint64_t len = 0;
			void *host = aligned_alloc(4096, 4096);

			if (mem_pin(a->ops, 0, a->life, host, 4096, &len) == 0)
				T_EQ(len, 4096);
			(void)mem_copy_sync(a, MEM_TO_DEVICE, 0, &byte, 1);
			(void)mem_copy_sync(a, MEM_FROM_DEVICE, 0, host, 100);
			if (mem_export_dmabuf(a, 0, 1, &d) == 0)
				(void)close(d.fd);
			if (len)
				mem_unpin(a->ops, 0, host, len);
			free(host);
			mem_free(a);
		}
		met = gs.fail(NULL);
		T_EQ(gaudi_syn_state().acquired, 0);
		T_EQ(gaudi_syn_state().streams, 0);
		T_EQ(gaudi_syn_state().events, 0);
		T_EQ(gaudi_state().contexts, 0);
	}
}

int main(void)
{
	void *lib;

	gaudi_sys_new("GAUDI2\n");
	gaudi_stub_find();
	lib = gaudi_synapse_find();
	symbol(lib, &prog.init, "synInitialize");
	symbol(lib, &prog.acquire, "synDeviceAcquire");
	symbol(lib, &prog.release, "synDeviceRelease");
	symbol(lib, &prog.malloc, "synDeviceMalloc");
	symbol(lib, &prog.free, "synDeviceFree");
	ops = mem_provider(PST_KIND_GAUDI);
	T_CHECK(ops);
	T_RUN(device_is_acquired_and_released);
	T_RUN(copies_move_bytes);
	T_RUN(pinned_memory_needs_no_wait);
	T_RUN(programs_memory_is_wrapped);
	T_RUN(a_reset_in_mid_transfer_ends_it);
	T_RUN(resets_under_many_threads);
	T_RUN(every_call_fails_once);
	gaudi_sys_done();
	return t_done();
}
