/* SPDX-License-Identifier: MIT */
/*
 * Accesses to ring memory that another process may truncate.
 *
 * Each access is a function, so that all of it runs after one sigsetjmp().  Words are read by
 * atomic loads, which keeps the compiler from reading a word again after it was checked.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>

#include "usrbio/proto/sem.h"
#include "usrbio/server/shm.h"

/* ------------------------------------------------------------------- guard */

/* The access that this thread is making. */
struct access {
	sigjmp_buf out;
	const char *base;
	size_t size;
};

/* initial-exec: otherwise the first use, perhaps in the handler, could allocate. */
static __thread struct access *_Atomic current __attribute__((tls_model("initial-exec")));

static struct {
	pthread_mutex_t lock;
	unsigned users;
	struct sigaction before;
} guard = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void chain(int sig, siginfo_t *info, void *ctx)
{
	const struct sigaction *b = &guard.before;

	if (b->sa_flags & SA_SIGINFO) {
		b->sa_sigaction(sig, info, ctx);
		return;
	}
	if (b->sa_handler != SIG_DFL && b->sa_handler != SIG_IGN) {
		b->sa_handler(sig);
		return;
	}
	/* The access is executed again and ends the process, as without this handler. */
	(void)signal(sig, SIG_DFL);
}

static void on_sigbus(int sig, siginfo_t *info, void *ctx)
{
	struct access *a = current;
	uintptr_t addr = (uintptr_t)info->si_addr;

	if (a && addr - (uintptr_t)a->base < a->size)
		siglongjmp(a->out, 1);
	chain(sig, info, ctx);
}

void shm_guard(void)
{
	/* SA_NODEFER: the handler leaves by a jump, and the signal must not stay blocked. */
	struct sigaction sa = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_NODEFER };

	(void)pthread_mutex_lock(&guard.lock);
	if (!guard.users++)
		(void)sigaction(SIGBUS, &sa, &guard.before);
	(void)pthread_mutex_unlock(&guard.lock);
}

void shm_unguard(void)
{
	(void)pthread_mutex_lock(&guard.lock);
	if (!--guard.users)
		(void)sigaction(SIGBUS, &guard.before, NULL);
	(void)pthread_mutex_unlock(&guard.lock);
}

typedef void (*access_fn)(const struct shm *s, void *arg);

static bool access_guarded(const struct shm *s, access_fn fn, void *arg)
{
	struct access a = { .base = s->base, .size = s->size };

	if (sigsetjmp(a.out, 0)) {
		current = NULL;
		return false;
	}
	current = &a;
	atomic_signal_fence(memory_order_seq_cst);
	fn(s, arg);
	atomic_signal_fence(memory_order_seq_cst);
	current = NULL;
	return true;
}

static inline bool access_run(const struct shm *s, access_fn fn, void *arg)
{
	if (unlikely(s->guard))
		return access_guarded(s, fn, arg);
	fn(s, arg);
	return true;
}

/* ---------------------------------------------------------------- accesses */

/* Eight bytes of any type. */
typedef uint64_t word __attribute__((may_alias));

/* Copy by words: len and both addresses are multiples of 8. */
static inline void copy_in(void *to, const void *from, size_t len)
{
	word *t = to;
	const word *f = from;

	for (size_t i = 0; i < len / 8; i++)
		t[i] = __atomic_load_n(&f[i], __ATOMIC_RELAXED);
}

static inline void shm_copy_out(void *to, const void *from, size_t len)
{
	word *t = to;
	const word *f = from;

	for (size_t i = 0; i < len / 8; i++)
		__atomic_store_n(&t[i], f[i], __ATOMIC_RELAXED);
}

struct begin {
	int32_t sq_tail, cq_head;
};

static void server_shm_begin(const struct shm *s, void *arg)
{
	struct begin *b = arg;

	b->sq_tail = usrbio_marker(s->at.sq_tail);
	b->cq_head = usrbio_marker(s->at.cq_head);
	(void)sem_init(s->at.sem, 1, 0);
}

bool shm_begin(const struct shm *s, int32_t *ret_sq_tail, int32_t *ret_cq_head)
{
	struct begin b;

	if (!access_run(s, server_shm_begin, &b))
		return false;
	*ret_sq_tail = b.sq_tail;
	*ret_cq_head = b.cq_head;
	return true;
}

static void server_shm_look(const struct shm *s, void *arg)
{
	struct shm_markers *m = arg;

	m->sq_head = usrbio_marker(s->at.sq_head);
	m->cq_tail = usrbio_marker(s->at.cq_tail);
}

bool shm_look(const struct shm *s, struct shm_markers *ret)
{
	return access_run(s, server_shm_look, ret);
}

static void entries(const struct shm *s, void *arg)
{
	struct shm_entries *e = arg;

	e->sq_head = usrbio_marker(s->at.sq_head);
	e->sq_tail = usrbio_marker(s->at.sq_tail);
}

bool shm_entries(const struct shm *s, struct shm_entries *ret)
{
	return access_run(s, entries, ret);
}

struct take {
	uint32_t pos;
	unsigned nr;
	struct shm_entry *ret;
};

static void server_shm_take(const struct shm *s, void *arg)
{
	const struct take *t = arg;
	uint32_t pos = t->pos;

	for (unsigned i = 0; i < t->nr; i++) {
		struct shm_entry *e = &t->ret[i];

		copy_in(&e->sqe, &s->at.sqes[pos], sizeof(e->sqe));
		if (likely((uint32_t)e->sqe.index < s->at.slots))
			copy_in(&e->args, &s->at.args[e->sqe.index], sizeof(e->args));
		else
			e->args = (struct usrbio_args){ 0 };
		pos = usrbio_ring_next(&s->at, pos);
	}
	usrbio_marker_set(s->at.sq_tail, pos);
}

bool shm_take(const struct shm *s, uint32_t pos, unsigned nr, struct shm_entry *ret)
{
	struct take t = { pos, nr, ret };

	return access_run(s, server_shm_take, &t);
}

struct put {
	uint32_t pos;
	const struct usrbio_cqe *cqe;
};

static void server_shm_put(const struct shm *s, void *arg)
{
	const struct put *p = arg;

	shm_copy_out(&s->at.cqes[p->pos], p->cqe, sizeof(*p->cqe));
}

bool shm_put(const struct shm *s, uint32_t pos, const struct usrbio_cqe *cqe)
{
	struct put p = { pos, cqe };

	return access_run(s, server_shm_put, &p);
}

static void server_shm_publish(const struct shm *s, void *arg)
{
	usrbio_marker_set(s->at.cq_head, *(const uint32_t *)arg);
	usrbio_sem_post(s->at.sem);
}

bool shm_publish(const struct shm *s, uint32_t cq_head)
{
	return access_run(s, server_shm_publish, &cq_head);
}
