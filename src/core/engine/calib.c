/* SPDX-License-Identifier: MIT */
/*
 * Before an engine's first job a pattern goes to a scratch allocation on the device and back, in
 * one piece and in many small ones.  That proves the copies.
 *
 * Then two sizes are timed, the best of CALIB_ROUNDS each, or of CALIB_LEAST when CALIB_LIMIT_NS
 * are over.  A job is so large that starting a copy costs an eighth of it.
 */
#include <inttypes.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "base/log.h"
#include "core/engine/engine.h"
#include "core/engine/pool.h"
#include "core/path/proof.h"

#define CALIB_LEN MIB(1)
#define CALIB_SMALL KIB(4)
#define CALIB_LIMIT_NS (20 * NSEC_PER_MSEC)
#define CALIB_ROUNDS 8u
#define CALIB_LEAST 3u /* of them in any case: the first may have been interrupted */
#define CALIB_PATIENCE_NS (5 * NSEC_PER_SEC)
#define CALIB_PIECES 128u
#define CHUNK_MIN KIB(256)
#define CHUNK_MAX MIB(4)
#define CHUNK_DEFAULT MIB(1)

struct calib {
	struct engine *e;
	struct mem_stream *stream;
	struct mem_alloc *scratch;
	char *host;   /* two halves of CALIB_LEN: pattern, what came back */
	uint64_t end; /* when to stop */
};

/* A batch of copies, waited for; its time in *ret_ns. */
static int calib_batch(struct calib *c, enum mem_dir dir, const struct mem_copy *v, unsigned nr,
		       uint64_t *ret_ns)
{
	uint64_t ticket, start = now_ns();
	int r = mem_copy(c->stream, dir, v, nr, &ticket);

	while (r == 0) {
		r = mem_poll(c->stream, ticket);
		/* A device that does not answer for so long is not going to be used. */
		if (r == 0 && now_ns() - start > CALIB_PATIENCE_NS)
			r = err_set(ETIMEDOUT, "the device did not finish %u copies in %u seconds",
				    nr, (unsigned)(CALIB_PATIENCE_NS / NSEC_PER_SEC));
	}
	*ret_ns = now_ns() - start;
	return r < 0 ? r : 0;
}

static int calib_copy(struct calib *c, enum mem_dir dir, char *host, uint64_t len, uint64_t *ret_ns)
{
	struct mem_copy v = { .alloc = c->scratch, .host = host, .len = len };

	return calib_batch(c, dir, &v, 1, ret_ns);
}

static int calib_time(struct calib *c, uint64_t len, uint64_t *ret_ns)
{
	uint64_t best = UINT64_MAX, ns;

	for (unsigned i = 0; i < CALIB_ROUNDS; i++) {
		int r = calib_copy(c, MEM_TO_DEVICE, c->host, len, &ns);

		if (r < 0)
			return r;
		best = MIN(best, ns);
		if (i + 1 >= CALIB_LEAST && now_ns() > c->end)
			break;
	}
	*ret_ns = best;
	return 0;
}

static int calib_differs(const struct calib *c)
{
	return err_set(EIO, "%s %u gave back other bytes than were copied to it; it is not used",
		       c->e->ops->name, c->e->device);
}

/* There and back in one piece. */
static int calib_prove(struct calib *c)
{
	uint64_t ns;
	int r;

	for (uint64_t i = 0; i < CALIB_LEN / 8; i++)
		((uint64_t *)c->host)[i] = (i + c->end) * UINT64_C(0x9e3779b97f4a7c15);
	r = calib_copy(c, MEM_TO_DEVICE, c->host, CALIB_LEN, &ns);
	if (r == 0)
		r = calib_copy(c, MEM_FROM_DEVICE, c->host + CALIB_LEN, CALIB_LEN, &ns);
	if (r == 0 && memcmp(c->host, c->host + CALIB_LEN, CALIB_LEN) != 0)
		r = calib_differs(c);
	return r;
}

/*
 * Many small pieces may go by other means than one large copy (a kernel), so each
 * direction is proven against that: scattered and fetched whole, sent whole and gathered.
 */
static int calib_prove_pieces(struct calib *c)
{
	char *back = c->host + CALIB_LEN;
	struct mem_copy v[CALIB_PIECES];
	uint64_t ns;
	int r;

	for (unsigned i = 0; i < CALIB_PIECES; i++)
		v[i] = (struct mem_copy){
			.alloc = c->scratch,
			.off = i * CALIB_SMALL + i % 32,
			.host = c->host + (CALIB_PIECES - 1 - i) * CALIB_SMALL + i % 7,
			.len = CALIB_SMALL - 64 - i % 48,
		};
	r = calib_batch(c, MEM_TO_DEVICE, v, CALIB_PIECES, &ns);
	if (r == 0)
		r = calib_copy(c, MEM_FROM_DEVICE, back, CALIB_LEN, &ns);
	for (unsigned i = 0; r == 0 && i < CALIB_PIECES; i++)
		if (memcmp(back + v[i].off, v[i].host, v[i].len) != 0)
			r = calib_differs(c);
	if (r == 0)
		r = calib_copy(c, MEM_TO_DEVICE, c->host, CALIB_LEN, &ns);
	for (unsigned i = 0; i < CALIB_PIECES; i++)
		v[i].host = back + ((char *)v[i].host - c->host);
	if (r == 0)
		r = calib_batch(c, MEM_FROM_DEVICE, v, CALIB_PIECES, &ns);
	for (unsigned i = 0; r == 0 && i < CALIB_PIECES; i++)
		if (memcmp(v[i].host, c->host + v[i].off, v[i].len) != 0)
			r = calib_differs(c);
	return r;
}

static int calib_run(struct calib *c)
{
	struct engine *e = c->e;
	uint64_t small = 0, large = 0, chunk;
	int r = calib_prove(c);

	if (r == 0)
		r = calib_prove_pieces(c);
	if (r == 0)
		proof_good(e->proof);
	if (r == 0)
		r = calib_time(c, CALIB_SMALL, &small);
	if (r == 0)
		r = calib_time(c, CALIB_LEN, &large);
	if (r < 0)
		return r;
	/* Starting a copy may cost an eighth of it. */
	chunk = large > small ? 8 * small * (CALIB_LEN - CALIB_SMALL) / (large - small) : CHUNK_MAX;
	for (e->chunk = CHUNK_MIN; e->chunk < chunk && e->chunk < CHUNK_MAX;)
		e->chunk *= 2;
	log_debug("%s %u: 4 KiB take %" PRIu64 " ns, 1 MiB %" PRIu64 " ns, jobs of %" PRIu64
		  " bytes",
		  e->ops->name, e->device, small, large, e->chunk);
	return 0;
}

/* Half of the CPUs this process may use: the other half belongs to the program. */
unsigned engine_width(void)
{
	cpu_set_t set;
	int cpus = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 2;

	return (unsigned)MIN(MAX(cpus / 2, 1), (int)WORKERS_MAX);
}

int engine_calibrate(struct engine *e)
{
	struct calib c = { .e = e, .end = now_ns() + CALIB_LIMIT_NS };
	struct pst_device dev = { .sz = sizeof(dev) };
	bool pinned;
	int r;

	e->chunk = CHUNK_DEFAULT;
	e->ops->device_info(e->device, &dev);
	e->node = dev.numa_node;
	e->proof = proof_copies(&dev);
	if (!e->proof)
		return err_set(ENOMEM, "out of memory");
	r = pool_charge(2 * CALIB_LEN);
	if (r < 0)
		return r;
	c.host = mmap(NULL, 2 * CALIB_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	if (c.host == MAP_FAILED) {
		pool_uncharge(2 * CALIB_LEN);
		return err_set(ENOMEM, "out of memory");
	}
	r = mem_pin(e->ops, e->device, c.host, 2 * CALIB_LEN);
	pinned = r == 0;
	if (r == 0)
		r = mem_stream_new(e->ops, e->device, &c.stream);
	if (r == 0 && mem_alloc(e->ops, e->device, CALIB_LEN, 0, &c.scratch) < 0)
		/* A full device is common; its copies were proven before, or are not. */
		log_info("no scratch memory on %s %u, not calibrated: %s", e->ops->name, e->device,
			 err_text());
	else if (r == 0)
		r = calib_run(&c);
	if (c.stream)
		mem_stream_free(c.stream); /* waits for a copy that was given up */
	if (c.scratch)
		mem_free(c.scratch);
	if (pinned)
		mem_unpin(e->ops, e->device, c.host, 2 * CALIB_LEN);
	(void)munmap(c.host, 2 * CALIB_LEN);
	pool_uncharge(2 * CALIB_LEN);
	e->slot_size = e->chunk;
	return r;
}
