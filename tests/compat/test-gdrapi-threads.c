/* SPDX-License-Identifier: MIT */
/*
 * Calls of many threads at the same time: each must return a valid result and nothing may crash,
 * even if threads end objects that others use.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "gdr_rig.h"

#define LEN (4u << 20)
#define THREADS 4

static struct pst_mem *mem;
static unsigned long addr;
static unsigned rounds = RIG_SLOW ? 60 : 600;
static _Atomic unsigned wrong;
static _Atomic bool stop;

static void *run(void *(*fn)(void *))
{
	static unsigned numbers[THREADS] = { 0, 1, 2, 3 };
	pthread_t t[THREADS];

	wrong = 0;
	stop = false;
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, fn, &numbers[i]))
			T_FAIL("no thread can be started");
	for (int i = 0; i < THREADS; i++)
		(void)pthread_join(t[i], NULL);
	T_EQ(wrong, 0);
	return NULL;
}

#define WANT(cond)               \
	do {                     \
		if (!(cond))     \
			wrong++; \
	} while (0)

/* Each thread pins buffers in the same session. */
static void *own_buffers(void *arg)
{
	unsigned long at = addr + *(unsigned *)arg * (LEN / THREADS);
	char in[300], out[300];

	for (unsigned i = 0; i < rounds; i++) {
		unsigned long a = at + i * 13 % 5000;
		gdr_mh_t mh = { 0 };
		gdr_info_t info;
		void *va = NULL;

		t_fill(in, a, i, sizeof(in));
		WANT(gdr_pin_buffer(g, a, 1000, 0, 0, &mh) == 0);
		WANT(gdr_map(g, mh, &va, 1000) == 0);
		WANT(gdr_get_info(g, mh, &info) == 0 && info.va == a && info.mapped);
		if (!va)
			break;
		WANT(gdr_copy_to_mapping(mh, (char *)va + 7, in, sizeof(in)) == 0);
		WANT(gdr_copy_from_mapping(mh, out, (char *)va + 7, sizeof(out)) == 0);
		WANT(memcmp(in, out, sizeof(in)) == 0);
		if (i % 2)
			WANT(gdr_unmap(g, mh, va, 1000) == 0);
		WANT(gdr_unpin_buffer(g, mh) == 0);
		WANT(gdr_unpin_buffer(g, mh) == EINVAL);
	}
	return NULL;
}

static void buffers_of_many_threads(void)
{
	run(own_buffers);
}

/* Each thread opens sessions and closes them with buffers and mappings in them. */
static void *own_sessions(void *arg)
{
	unsigned long at = addr + *(unsigned *)arg * (LEN / THREADS);

	for (unsigned i = 0; i < rounds / 10; i++) {
		gdr_t s = gdr_open();
		gdr_mh_t mh = { 0 };
		void *va;

		WANT(s);
		for (unsigned k = 0; k < 5; k++) {
			WANT(gdr_pin_buffer(s, at + k, 4096, 0, 0, &mh) == 0);
			WANT(gdr_map(s, mh, &va, 4096) == 0);
		}
		WANT(gdr_close(s) == 0);
		WANT(gdr_close(s) == EINVAL);
	}
	return NULL;
}

static void sessions_of_many_threads(void)
{
	run(own_sessions);
}

static gdr_mh_t shared;
static void *_Atomic shared_va;

/* Thread 0 maps and unmaps a buffer while the other threads copy through the mapping. */
static void *copy_or_unmap(void *arg)
{
	unsigned id = *(unsigned *)arg, off = 16384 * id;
	char buf[2000] = "";
	void *va;

	if (id == 0) {
		for (unsigned i = 0; i < rounds; i++) {
			WANT(gdr_map(g, shared, &va, LEN) == 0);
			shared_va = va;
			(void)usleep(i % 50);
			WANT(gdr_unmap(g, shared, va, LEN) == 0);
		}
		stop = true;
		return NULL;
	}
	while (!stop) {
		int r;

		va = shared_va;
		r = gdr_copy_to_mapping(shared, (char *)va + off, buf, sizeof(buf));
		WANT(r == 0 || r == EINVAL);
		r = gdr_copy_from_mapping(shared, buf, (char *)va + off, sizeof(buf));
		WANT(r == 0 || r == EINVAL);
	}
	return NULL;
}

static void copies_while_the_mapping_ends(void)
{
	shared = rig_pin(addr, LEN);
	run(copy_or_unmap);
	T_EQ(gdr_unpin_buffer(g, shared), 0);
}

static gdr_t _Atomic session;

/* Thread 0 closes the session in which the other threads pin and map. */
static void *use_or_close(void *arg)
{
	unsigned id = *(unsigned *)arg;

	if (id == 0) {
		for (unsigned i = 0; i < rounds; i++) {
			gdr_t old = session;

			session = gdr_open();
			(void)usleep(i % 100);
			WANT(gdr_close(old) == 0);
		}
		stop = true;
		return NULL;
	}
	while (!stop) {
		unsigned long at = addr + 16384ul * id;
		gdr_mh_t mh = { 0 };
		gdr_t s = session;
		void *va = NULL;
		int r = gdr_pin_buffer(s, at, 5000, 0, 0, &mh);

		WANT(r == 0 || r == EINVAL);
		r = gdr_map(s, mh, &va, 5000);
		WANT(r == 0 || r == EINVAL);
		r = gdr_copy_to_mapping(mh, va, &r, sizeof(r));
		WANT(r == 0 || r == EINVAL);
		r = gdr_unpin_buffer(s, mh);
		WANT(r == 0 || r == EINVAL);
	}
	return NULL;
}

static void pins_while_the_session_ends(void)
{
	session = gdr_open();
	T_CHECK(session);
	run(use_or_close);
	T_EQ(gdr_close(session), 0);
}

/* All threads unpin the same buffers: each unpin must succeed once. */
static gdr_mh_t many[64];
static _Atomic unsigned ended;

static void *end_all(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < 64; i++)
		ended += gdr_unpin_buffer(g, many[i]) == 0;
	return NULL;
}

static void everybody_ends_everything(void)
{
	for (unsigned n = 0; n < rounds / 20; n++) {
		void *va;

		ended = 0;
		for (unsigned i = 0; i < 64; i++) {
			many[i] = rig_pin(addr + i, 4096);
			if (i % 8 == 0)
				T_EQ(gdr_map(g, many[i], &va, 4096), 0);
		}
		run(end_all);
		T_EQ(ended, 64);
	}
}

int main(void)
{
	gdr_mh_t keep;
	void *va;

	g = gdr_open();
	if (!g)
		return 1;
	mem = rig_mem("soft", LEN, &addr);
	/* Keep one mapping, so that device state stays alive between the cases. */
	(void)rig_map(addr, 1, addr, &keep, &va);
	T_RUN(buffers_of_many_threads);
	T_RUN(sessions_of_many_threads);
	T_RUN(copies_while_the_mapping_ends);
	T_RUN(pins_while_the_session_ends);
	T_RUN(everybody_ends_everything);
	if (gdr_close(g))
		return 1;
	pst_mem_free(mem);
	return t_done();
}
