/* SPDX-License-Identifier: MIT */
/*
 * The process of a way.  For each cell it starts threads with memory and registrations, and lets
 * each read one block; then it runs turns on order.  Before a turn the memory is overwritten, and
 * after it the last blocks are compared with the file; both are not timed.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "cufile.h"

struct work work = { .fd = -1, .fd_direct = -1 };

static struct lane *lanes;
static unsigned nr_lanes;
static pthread_barrier_t gate;
static bool over; /* changed only between two calls of worker_gate_wait() */
static unsigned turn;

bool lane_take(struct lane *l, uint64_t now, uint64_t *ret_off)
{
	if (now - l->begun >= work.ns || l->taken >= l->most)
		return false;
	*ret_off = (l->first + l->taken++ % l->nr) * work.cell.block;
	return true;
}

void lane_count(struct lane *l, unsigned slot, uint64_t off, uint64_t ns)
{
	hist_add(&l->hist, ns);
	l->moved[slot] = off;
	l->ops++;
}

/* ------------------------------------------------------------------- lanes */

static void worker_gate_wait(void)
{
	(void)pthread_barrier_wait(&gate);
}

/* Record a lane's first failure. */
static void worker_keep(struct lane *l, int r)
{
	if (r >= 0 || l->status != DONE)
		return;
	l->status = r == -EOPNOTSUPP ? REFUSED : r == -EILSEQ ? WRONG : FAILED;
	(void)snprintf(l->text, sizeof(l->text), "%s", fail_text());
}

static void cufile_worker_begin(struct lane *l, uint64_t most)
{
	l->taken = l->ops = 0;
	l->most = most;
	l->paths = 0;
	memset(&l->whys, 0, sizeof(l->whys));
	memset(&l->hist, 0, sizeof(l->hist));
	for (unsigned i = 0; i < work.slots; i++)
		l->moved[i] = NOWHERE;
	l->begun = l->ended = now_ns();
}

static int lane_init(struct lane *l)
{
	uint64_t all = set.size / work.cell.block, block = work.cell.block;
	size_t len = align_up(block, 4096);
	int r = CU(cuCtxPushCurrent_v2(work.ctx));

	l->first = all * l->idx / nr_lanes;
	l->nr = all * (l->idx + 1) / nr_lanes - l->first;
	l->check = malloc(block);
	l->host = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (l->host == MAP_FAILED)
		l->host = NULL;
	if (!l->host || !l->check)
		return fail(ENOMEM, "out of memory");
	if (r == 0)
		r = CU(cuMemHostRegister_v2(l->host, len, CU_REGISTER_PORTABLE));
	if (r == 0)
		r = CU(cuStreamCreate(&l->stream, CU_NON_BLOCKING));
	if (r == 0)
		r = CU(cuMemAlloc_v2(&l->dev, align_up(work.slots * block, MIB(2))));
	if (r == 0)
		r = way_init(l);
	if (r < 0)
		return r;
	cufile_worker_begin(l, 1);
	return way_pass(l);
}

static void lane_done(struct lane *l)
{
	cu_ctx ctx;

	way_done(l);
	if (l->dev)
		(void)cu.cuMemFree_v2(l->dev);
	if (l->stream)
		(void)cu.cuStreamDestroy_v2(l->stream);
	if (l->host) {
		(void)cu.cuMemHostUnregister(l->host);
		(void)munmap(l->host, align_up(work.cell.block, 4096));
	}
	free(l->check);
	(void)cu.cuCtxPopCurrent_v2(&ctx);
}

/* Overwrite the memory with bytes that the file does not contain, if possible. */
static int lane_spoil(struct lane *l)
{
	int r = 0;

	memset(l->host, 0x5a + (int)turn, work.cell.block);
	for (unsigned i = 0; r == 0 && i < work.slots; i++)
		r = CU(cuMemcpyHtoDAsync_v2(l->dev + i * work.cell.block, l->host, work.cell.block,
					    l->stream));
	return r < 0 ? r : CU(cuStreamSynchronize(l->stream));
}

static int lane_verify(struct lane *l)
{
	uint64_t block = work.cell.block;

	for (unsigned i = 0; i < work.slots; i++) {
		int r;

		if (l->moved[i] == NOWHERE)
			continue;
		r = CU(cuMemcpyDtoHAsync_v2(l->host, l->dev + i * block, block, l->stream));
		if (r == 0)
			r = CU(cuStreamSynchronize(l->stream));
		if (r == 0)
			r = pread_all(work.fd, l->check, block, l->moved[i], set.path);
		if (r < 0)
			return r;
		if (memcmp(l->host, l->check, block) != 0)
			return fail(EILSEQ, "wrong bytes: the block at %llu of the file",
				    (unsigned long long)l->moved[i]);
	}
	return 0;
}

/* Pass the same gates as worker_set_up() and run_turn(), even after the lane failed: the other
 * threads wait there. */
static void *worker_lane_main(void *arg)
{
	struct lane *l = arg;

	worker_keep(l, lane_init(l));
	worker_gate_wait(); /* wait until all are set up */
	for (;;) {
		worker_gate_wait(); /* wait for the next turn, or for the end of the work */
		if (over)
			break;
		if (l->status == DONE)
			worker_keep(l, lane_spoil(l));
		worker_gate_wait(); /* wait until all are ready */
		cufile_worker_begin(l, work.cell.cold ? l->nr : UINT64_MAX);
		if (l->status == DONE)
			worker_keep(l, way_pass(l));
		l->ended = now_ns();
		worker_gate_wait(); /* wait until all have finished */
		if (l->status == DONE)
			worker_keep(l, lane_verify(l));
		worker_gate_wait();
	}
	lane_done(l);
	return NULL;
}

/* ------------------------------------------------------------------ orders */

static void lanes_end(void)
{
	if (!nr_lanes)
		return;
	over = true;
	worker_gate_wait();
	for (unsigned i = 0; i < nr_lanes; i++)
		(void)pthread_join(lanes[i].thread, NULL);
	over = false;
	nr_lanes = 0;
	(void)pthread_barrier_destroy(&gate);
	free(lanes);
	lanes = NULL;
}

static void worker_failed(struct answer *a, enum status status, const char *text)
{
	a->status = status;
	(void)snprintf(a->text, sizeof(a->text), "%s", text);
}

static void worker_collect(struct answer *a)
{
	uint64_t begun = UINT64_MAX, ended = 0;

	for (unsigned i = 0; i < nr_lanes; i++) {
		const struct lane *l = &lanes[i];

		if (l->status != DONE && a->status == DONE)
			worker_failed(a, l->status, l->text);
		a->ops += l->ops;
		a->paths |= l->paths;
		whys_merge(&a->whys, &l->whys);
		hist_merge(&a->hist, &l->hist);
		begun = MIN(begun, l->begun);
		ended = MAX(ended, l->ended);
	}
	a->bytes = a->ops * work.cell.block;
	a->ns = ended - begun;
}

static void worker_set_up(const struct order *o, struct answer *a)
{
	lanes_end();
	work.cell = *o;
	work.slots = way_slots(work.way, o->block);
	work.ns = UINT64_MAX;
	lanes = calloc(o->threads, sizeof(*lanes));
	if (!lanes || pthread_barrier_init(&gate, NULL, o->threads + 1) != 0) {
		worker_failed(a, FAILED, "out of memory");
		return;
	}
	nr_lanes = o->threads;
	for (unsigned i = 0; i < nr_lanes; i++) {
		lanes[i].idx = i;
		if (pthread_create(&lanes[i].thread, NULL, worker_lane_main, &lanes[i]) != 0)
			_exit(1); /* threads that wait at the gate can never continue */
	}
	worker_gate_wait();
	worker_collect(a);
}

static void run_turn(const struct order *o, struct answer *a)
{
	work.cell.cold = o->cold;
	turn++;
	work.ns = o->ns;
	for (unsigned i = 0; i < 4; i++)
		worker_gate_wait();
	worker_collect(a);
}

/* -------------------------------------------------------------------- main */

static int open_all(void)
{
	int r = cuda_open(&work.ctx);

	if (r < 0)
		return r;
	work.fd = open(set.path, O_RDONLY | O_CLOEXEC);
	if (work.fd < 0)
		return fail(errno, "cannot open %s: %s", set.path, strerror(errno));
	work.fd_direct = open(set.path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	return work.way == FACTS ? 0 : way_open();
}

static void worker_tell(int sock, const struct answer *a)
{
	const char *p = (const char *)a;

	for (size_t at = 0; at < sizeof(*a);) {
		ssize_t n = send(sock, p + at, sizeof(*a) - at, MSG_NOSIGNAL);

		if (n <= 0)
			_exit(1);
		at += (size_t)n;
	}
}

void cufile_worker_main(enum way way, int sock)
{
	_cleanup_(freep) struct answer *a = calloc(1, sizeof(*a));
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC), r;
	struct order o;

	/* Libraries print to standard output, which carries only our answers. */
	if (!a || null < 0 || dup2(null, STDOUT_FILENO) < 0)
		_exit(1);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	work.way = way;
	r = open_all();
	if (r < 0)
		worker_failed(a, r == -EOPNOTSUPP || r == -ENODEV ? REFUSED : FAILED, fail_text());
	else if (way == FACTS)
		facts_gpu(&a->facts);
	worker_tell(sock, a);
	while (recv(sock, &o, sizeof(o), MSG_WAITALL) == (ssize_t)sizeof(o)) {
		memset(a, 0, sizeof(*a));
		if (way == FACTS)
			facts_cufile(a);
		else if (o.what == ORDER_CELL)
			worker_set_up(&o, a);
		else
			run_turn(&o, a);
		worker_tell(sock, a);
	}
	/* Do not close drivers: that takes long and may hang. */
	_exit(0);
}
