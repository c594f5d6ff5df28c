/* SPDX-License-Identifier: MIT */
/* An actor: a thread that replaces its memory, files and queue while its requests use them. */
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "actor.h"

/* ------------------------------------------------------- what an actor has */

static void *map_host(struct bank *b, bool shared)
{
	void *p;

	b->fd = shared ? memfd_create("bank", MFD_CLOEXEC) : -1;
	if (shared && (b->fd < 0 || ftruncate(b->fd, (off_t)BANK_LEN) < 0))
		soak_fail("no memory: %s", strerror(errno));
	p = mmap(NULL, BANK_LEN, PROT_READ | PROT_WRITE,
		 shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, b->fd, 0);
	if (p == MAP_FAILED)
		soak_fail("no memory: %s", strerror(errno));
	return p;
}

/* Open memory of a random kind; retry after an injected failure. */
static void bank_open(struct actor *a, struct bank *b)
{
	struct pst_mem_opts o = { .sz = sizeof(o) };
	const char *dev = a->plan.devices[below(&a->dice, a->plan.nr_devices)];
	unsigned life = b->life + 1;
	int r;

	do {
		*b = (struct bank){ .kind = (enum bank_kind)below(&a->dice, BANK_KINDS), .fd = -1 };
		b->life = life;
		switch (b->kind) {
		case BANK_ALLOC:
			o.flags = one_in(&a->dice, 3) ? PST_MEM_SHARED : 0;
			b->windows = !strcmp(dev, "soft:0");
			r = pst_mem_alloc(dev, BANK_LEN, &o, &b->mem);
			break;
		case BANK_BORROWED:
			r = soak_borrow(&a->dice, &b->mem, &b->read_only);
			break;
		default:
			o.flags = b->kind == BANK_PINNED ? PST_MEM_PINNED : 0;
			b->host = map_host(b, b->kind == BANK_SHRINKS);
			r = pst_mem_wrap((uintptr_t)b->host, BANK_LEN, &o, &b->mem);
			if (r < 0)
				(void)munmap(b->host, BANK_LEN);
			break;
		}
		must(a, r, "making memory");
	} while (r < 0);
}

static void bank_close(struct bank *b)
{
	b->mem = pst_mem_free(b->mem);
	if (b->host)
		(void)munmap(b->host, BANK_LEN);
	if (b->fd >= 0)
		(void)close(b->fd);
	b->host = NULL;
	b->fd = -1;
}

static void file_open(struct actor *a, unsigned i)
{
	const struct ground *g = &a->plan.grounds[i];
	uint32_t how = one_in(&a->dice, 5) ? PST_FILE_PLAIN : 0;
	int r;

	if (g->kind == GROUND_STILL && one_in(&a->dice, 2))
		how |= PST_FILE_STABLE;
	do {
		if (one_in(&a->dice, 3))
			r = pst_file_wrap(g->fd, how, NULL, &a->files[i]);
		else
			r = pst_file_open(g->path, RIG_RW | how, NULL, &a->files[i]);
		must(a, r, "opening a file");
	} while (r < 0);
}

static void queue_open(struct actor *a)
{
	struct pst_queue_opts o = { .sz = sizeof(o) };
	int r;

	do {
		o.backend = one_in(&a->dice, 2) ? PST_BACKEND_THREADS : PST_BACKEND_AUTO;
		o.depth = (uint32_t)any_size(&a->dice, 6);
		o.flags = one_in(&a->dice, 3) ? PST_QUEUE_FD_ONCE : 0;
		r = pst_queue_new(&o, &a->q);
		must(a, r, "making a queue");
	} while (r < 0);
}

/* ------------------------------------------------------------------- deeds */

static void deed_prepare(struct actor *a)
{
	for (unsigned n = 1 + (unsigned)below(&a->dice, 6); n; n--) {
		struct slot *sl = &a->slots[below(&a->dice, NR_SLOTS)];

		if (sl->state == SLOT_FREE)
			slot_prepare(a, sl);
	}
	if (!one_in(&a->dice, 4))
		must(a, pst_queue_submit(a->q), "pst_queue_submit()");
}

static void deed_reap(struct actor *a)
{
	struct pst_done d[8];
	unsigned min = one_in(&a->dice, 2) ? 0 : 1 + (unsigned)below(&a->dice, 8);
	int n = pst_queue_reap(a->q, d, min, 8, t_now() + any_size(&a->dice, 23));

	must(a, n, "pst_queue_reap()");
	for (int i = 0; i < n; i++)
		slot_done(a, &d[i]);
}

/* Wait as the header describes: submit, reap what has completed, sleep on the descriptor. */
static void deed_sleep(struct actor *a)
{
	struct pollfd p = { .events = POLLIN };
	struct pst_done d[8];
	int n;

	must(a, pst_queue_submit(a->q), "pst_queue_submit()");
	p.fd = pst_queue_fd(a->q);
	must(a, p.fd, "pst_queue_fd()");
	n = pst_queue_reap(a->q, d, 0, 8, 0);
	must(a, n, "pst_queue_reap()");
	for (int i = 0; i < n; i++)
		slot_done(a, &d[i]);
	if (n || !a->flying)
		return;
	p.fd = pst_queue_fd(a->q);
	must(a, p.fd, "pst_queue_fd()");
	if (p.fd < 0)
		return;
	if (poll(&p, 1, (int)(soak_patience_ns() / MS / 2)) == 0) {
		soak_show_stacks();
		soak_fail("actor %u slept and nobody woke it", a->plan.nr);
	}
}

static void deed_cancel(struct actor *a)
{
	struct slot *sl = &a->slots[below(&a->dice, NR_SLOTS)];
	int r;

	if (sl->state != SLOT_FLYING)
		return;
	sl->cancelled = true;
	r = pst_queue_cancel(a->q, sl->io.user_data);
	if (r != 1 && r != -ENOENT) /* completed but not reaped yet */
		soak_fail("actor %u: pst_queue_cancel() gave %d", a->plan.nr, r);
}

static void deed_reopen(struct actor *a)
{
	unsigned i = (unsigned)below(&a->dice, a->plan.nr_grounds);

	a->files[i] = pst_file_close(a->files[i]);
	file_open(a, i);
}

/* Replace memory in use: library memory at once, wrapped memory after a drain. */
static void deed_replace_bank(struct actor *a)
{
	struct bank *b = &a->banks[below(&a->dice, NR_BANKS)];
	int r;

	if (b->host) {
		must(a, pst_queue_submit(a->q), "pst_queue_submit()");
		r = pst_mem_drain(b->mem, t_now() + any_size(&a->dice, 26));
		if (r < 0 && r != -EBUSY)
			must(a, r, "pst_mem_drain()");
		if (r < 0)
			return;
	}
	bank_close(b);
	bank_open(a, b);
}

static void deed_replace_queue(struct actor *a)
{
	a->q = pst_queue_free(a->q);
	for (unsigned i = 0; i < NR_SLOTS; i++) {
		struct slot *sl = &a->slots[i];

		if (sl->state == SLOT_FLYING)
			sl->state = SLOT_BUSY;
		sl->orphan = true;
	}
	a->flying = 0;
	queue_open(a);
}

static void deed_shrink(struct actor *a)
{
	struct bank *b = &a->banks[below(&a->dice, NR_BANKS)];

	if (b->kind == BANK_SHRINKS && ftruncate(b->fd, (off_t)below(&a->dice, BANK_LEN + 1)) < 0)
		soak_fail("memory cannot shrink: %s", strerror(errno));
}

/* Store through a window to a free slot, and read the bytes back. */
static void deed_window(struct actor *a)
{
	struct slot *sl = &a->slots[below(&a->dice, NR_SLOTS)];
	uint64_t off = below(&a->dice, SLOT_LEN), len = 1 + below(&a->dice, SLOT_LEN - off);
	struct bank *b = &a->banks[below(&a->dice, NR_BANKS)];
	struct pst_window *w = NULL;
	uint8_t *mine;
	int r;

	if (sl->state != SLOT_FREE || !b->windows)
		return;
	slot_check_sum(a, sl);
	r = pst_window_open(b->mem, slot_off(a, sl) + off, len, NULL, &w);
	must(a, r, "pst_window_open()");
	if (r < 0)
		return;
	mine = malloc(len);
	t_fill(mine, a->serial, 0, len);
	must(a, pst_window_store(w, 0, mine, len), "pst_window_store()");
	memset(mine, 0, len);
	r = pst_mem_copy_out(b->mem, slot_off(a, sl) + off, mine, len);
	must(a, r, "pst_mem_copy_out()");
	if (r == 0 && t_differs(mine, a->serial, 0, len) != len)
		soak_fail("actor %u: what was stored by a window is not there", a->plan.nr);
	free(mine);
	(void)pst_window_close(w);
}

static void deed_fork(struct actor *a)
{
	struct pst_done d;
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		_exit(pst_queue_reap(a->q, &d, 0, 1, 0) != -EOWNERDEAD ||
		      pst_queue_submit(a->q) != -EOWNERDEAD || pst_mem_free(a->banks[0].mem));
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		soak_fail("actor %u: a forked child ended with 0x%x", a->plan.nr, (unsigned)status);
}

/* Set random limits.  They stay large enough for one slot per queue: a queue without one waits a
 * second each time. */
static void deed_limits(struct actor *a)
{
	struct pst_limits l = { .sz = sizeof(l) };
	int r;

	l.pool_bytes = one_in(&a->dice, 2) ? 0 : POOL_MIN + any_size(&a->dice, 28);
	l.pages_bytes = one_in(&a->dice, 2) ? 0 : any_size(&a->dice, 28);
	r = pst_limits_set(&l);
	if (r != -EBUSY && r != -EPERM)
		must(a, r, "pst_limits_set()");
}

static const struct deed {
	const char *name;
	void (*fn)(struct actor *a);
	unsigned weight;
} deeds[] = {
	{ "preparing", deed_prepare, 300 },
	{ "reaping", deed_reap, 250 },
	{ "sleeping on the descriptor", deed_sleep, 50 },
	{ "cancelling", deed_cancel, 40 },
	{ "closing and opening a file", deed_reopen, 10 },
	{ "replacing memory", deed_replace_bank, 10 },
	{ "replacing the queue", deed_replace_queue, 3 },
	{ "shrinking memory", deed_shrink, 10 },
	{ "using a window", deed_window, 10 },
	{ "forking", deed_fork, 2 },
	{ "setting limits", deed_limits, 4 },
};

static void turn(struct actor *a)
{
	unsigned all = 0, at;
	const struct deed *d = deeds;

	for (unsigned i = 0; i < RIG_NR(deeds); i++)
		all += deeds[i].weight;
	for (at = (unsigned)below(&a->dice, all); at >= d->weight; d++)
		at -= d->weight;
	atomic_store(&a->doing, d->name);
	d->fn(a);
	slots_look(a);
	atomic_fetch_add(&a->deeds, 1);
}

/* Wait until every request has completed and all memory is quiet. */
static void wind_up(struct actor *a)
{
	bool busy = true;

	atomic_store(&a->doing, "winding up");
	must(a, pst_queue_submit(a->q), "pst_queue_submit()");
	while (a->flying) {
		deed_reap(a);
		slots_look(a);
		atomic_fetch_add(&a->deeds, 1);
	}
	while (busy) {
		deed_reap(a);
		slots_look(a);
		busy = false;
		for (unsigned i = 0; i < NR_SLOTS; i++)
			busy |= a->slots[i].state == SLOT_BUSY;
		atomic_fetch_add(&a->deeds, 1);
		(void)usleep(busy ? 1000 : 0);
	}
	for (unsigned i = 0; i < NR_SLOTS; i++)
		slot_check_sum(a, &a->slots[i]);
}

void *actor_main(void *arg)
{
	struct actor *a = arg;

	queue_open(a);
	for (unsigned i = 0; i < a->plan.nr_grounds; i++)
		file_open(a, i);
	for (unsigned i = 0; i < NR_BANKS; i++)
		bank_open(a, &a->banks[i]);
	while (a->plan.deeds ? actor_deeds(a) < a->plan.deeds : t_now() < a->plan.end_ns)
		turn(a);
	wind_up(a);
	for (unsigned i = 0; i < NR_BANKS; i++)
		bank_close(&a->banks[i]);
	for (unsigned i = 0; i < a->plan.nr_grounds; i++)
		a->files[i] = pst_file_close(a->files[i]);
	a->q = pst_queue_free(a->q);
	return NULL;
}

/* -------------------------------------------------------------- from outside */

struct actor *actor_new(const struct actor_plan *plan)
{
	struct actor *a = calloc(1, sizeof(*a));

	a->plan = *plan;
	a->dice = dice_new(plan->seed, plan->nr);
	a->buf = malloc(SLOT_LEN);
	a->doing = "starting";
	slots_init(a);
	return a;
}

void actor_free(struct actor *a)
{
	slots_done(a);
	free(a->buf);
	free(a);
}

uint64_t actor_deeds(const struct actor *a)
{
	return atomic_load(&a->deeds);
}

uint64_t actor_requests(const struct actor *a)
{
	return atomic_load(&a->requests);
}

/* Print an actor's state without a lock: the actor may run or hang. */
void actor_show(const struct actor *a)
{
	printf("# actor %u is %s, %" PRIu64 " deeds, %" PRIu64 " requests, %u in flight\n",
	       a->plan.nr, atomic_load(&a->doing), actor_deeds(a), actor_requests(a), a->flying);
	for (unsigned i = 0; i < NR_SLOTS; i++) {
		const struct slot *sl = &a->slots[i];

		if (sl->state != SLOT_FREE)
			printf("#   slot %u: op %u of %s, %s for %" PRIu64 " ms\n", i, sl->io.op,
			       sl->ground->path, sl->state == SLOT_BUSY ? "busy" : "in flight",
			       (t_now() - sl->since) / MS);
	}
}
