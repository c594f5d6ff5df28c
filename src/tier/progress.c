/* SPDX-License-Identifier: MIT */
#include "tier/progress.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/err.h"
#include "tier/shared.h"

#define WORDS (sizeof(struct progress_move) / sizeof(uint64_t))

_Static_assert(sizeof(struct progress_move) % sizeof(uint64_t) == 0, "copied in words");

struct slot {
	_Atomic uint64_t seq; /* sequence number; odd while the slot is written */
	_Atomic uint64_t words[WORDS];
};

struct progress {
	_Atomic uint64_t nr_begun, nr_ended;
	struct slot now;
	struct slot ended[PROGRESS_ENDED]; /* ring: the nr-th at nr % PROGRESS_ENDED */
};

int progress_open(const char *state, struct progress **ret)
{
	return shared_map(state, "moves", sizeof(struct progress), (void **)ret);
}

struct progress *progress_close(struct progress *p)
{
	shared_unmap(p, sizeof(*p));
	return NULL;
}

static void slot_write(struct slot *s, const struct progress_move *m)
{
	uint64_t seq = atomic_load_explicit(&s->seq, memory_order_relaxed) | 1, word;

	/* A killed mover may have left the number odd. */
	atomic_store_explicit(&s->seq, seq, memory_order_relaxed);
	/* Pairs with the fence of slot_read(). */
	atomic_thread_fence(memory_order_release);
	for (size_t i = 0; i < WORDS; i++) {
		memcpy(&word, (const char *)m + i * sizeof(word), sizeof(word));
		atomic_store_explicit(&s->words[i], word, memory_order_relaxed);
	}
	atomic_store_explicit(&s->seq, seq + 1, memory_order_release);
}

#define TRIES 1000u /* attempts to copy a slot; a killed mover may leave seq odd */

static bool slot_read(const struct slot *s, struct progress_move *ret)
{
	for (unsigned try = 0; try < TRIES; try++) {
		uint64_t seq = atomic_load_explicit(&s->seq, memory_order_acquire), word;

		for (size_t i = 0; i < WORDS; i++) {
			word = atomic_load_explicit(&s->words[i], memory_order_relaxed);
			memcpy((char *)ret + i * sizeof(word), &word, sizeof(word));
		}
		/* Pairs with the fence of slot_write(). */
		atomic_thread_fence(memory_order_acquire);
		if (!(seq & 1) && atomic_load_explicit(&s->seq, memory_order_relaxed) == seq) {
			/* End the name: another program may have written to the file. */
			ret->name[sizeof(ret->name) - 1] = '\0';
			ret->why[sizeof(ret->why) - 1] = '\0';
			return true;
		}
	}
	return false;
}

void progress_begin(struct progress *p, const char *name, unsigned src, unsigned dst,
		    uint64_t bytes)
{
	struct progress_move m = {
		.nr = atomic_load(&p->nr_begun) + 1,
		.bytes = bytes,
		.begun_ns = now_ns(),
		.src = src,
		.dst = dst,
		.running = 1,
	};

	(void)snprintf(m.name, sizeof(m.name), "%s", name);
	slot_write(&p->now, &m);
	atomic_store(&p->nr_begun, m.nr);
}

void progress_step(struct progress *p, uint64_t done, uint64_t waited_ns)
{
	struct progress_move m;

	progress_now(p, &m);
	m.done = done;
	m.waited_ns = waited_ns;
	slot_write(&p->now, &m);
}

void progress_end(struct progress *p, int err)
{
	uint64_t nr = atomic_load(&p->nr_ended);
	struct progress_move m;

	progress_now(p, &m);
	m.running = 0;
	m.ns = now_ns() - m.begun_ns;
	m.err = err;
	if (err)
		(void)snprintf(m.why, sizeof(m.why), "%s", err_text());
	slot_write(&p->now, &m);
	slot_write(&p->ended[nr % PROGRESS_ENDED], &m);
	atomic_store(&p->nr_ended, nr + 1);
}

void progress_now(const struct progress *p, struct progress_move *ret)
{
	if (!slot_read(&p->now, ret))
		*ret = (struct progress_move){ 0 };
}

uint64_t progress_count(const struct progress *p)
{
	return atomic_load(&p->nr_ended);
}

bool progress_ended(const struct progress *p, uint64_t nr, struct progress_move *ret)
{
	return nr < progress_count(p) && slot_read(&p->ended[nr % PROGRESS_ENDED], ret) &&
	       /* The slot may have been reused by now. */
	       progress_count(p) - nr < PROGRESS_ENDED;
}
