/* SPDX-License-Identifier: MIT */
/*
 * Prove a device's copies before an engine's first job: copy a pattern to a scratch allocation on
 * the device and back, in one piece and in many small ones.
 */
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "base/log.h"
#include "core/carry/prove.h"
#include "core/sched/engine.h"
#include "core/sched/pool.h"
#include "core/ways/proof.h"

#define PROVE_LEN MIB(1)
#define PROVE_SMALL KIB(4)
#define PROVE_PATIENCE_NS (5 * NSEC_PER_SEC)
#define PROVE_PIECES 128u

struct pattern {
	struct mem_late late;
	const struct engine *e; /* the engine whose copies are proven */
	const struct mem_ops *ops;
	unsigned device;
	uint64_t pinned; /* bytes charged as pinned */
	struct mem_stream *stream;
	struct mem_alloc *scratch;
	char *host;    /* two halves of PROVE_LEN bytes: the pattern, and the bytes that came
		        * back */
	uint64_t seed; /* seed of the pattern */
};

/* Start a batch of copies and wait for it. */
static int copy_batch(struct pattern *c, enum mem_dir dir, const struct mem_copy *v, unsigned nr)
{
	uint64_t ticket, start = now_ns();
	int r = mem_copy(c->stream, dir, v, nr, &ticket);

	while (r == 0) {
		r = mem_poll(c->stream, ticket);
		/* Give up on a device that does not answer for this long. */
		if (r == 0 && now_ns() - start > PROVE_PATIENCE_NS)
			r = err_set(ETIMEDOUT, "the device did not finish %u copies in %u seconds",
				    nr, (unsigned)(PROVE_PATIENCE_NS / NSEC_PER_SEC));
	}
	return r < 0 ? r : 0;
}

static int copy_one(struct pattern *c, enum mem_dir dir, char *host, uint64_t len)
{
	struct mem_copy v = { .alloc = c->scratch, .host = host, .len = len };

	return copy_batch(c, dir, &v, 1);
}

static int differs(const struct pattern *c)
{
	return err_set(EIO, "%s %u gave back other bytes than were copied to it; it is not used",
		       c->ops->name, c->device);
}

/* Prove copies in one piece, to the device and back. */
static int prove_whole(struct pattern *c)
{
	int r;

	for (uint64_t i = 0; i < PROVE_LEN / 8; i++)
		((uint64_t *)c->host)[i] = (i + c->seed) * UINT64_C(0x9e3779b97f4a7c15);
	r = copy_one(c, MEM_TO_DEVICE, c->host, PROVE_LEN);
	if (r == 0)
		r = copy_one(c, MEM_FROM_DEVICE, c->host + PROVE_LEN, PROVE_LEN);
	if (r == 0 && memcmp(c->host, c->host + PROVE_LEN, PROVE_LEN) != 0)
		r = differs(c);
	return r;
}

/*
 * Prove copies of many small pieces, which a device may make by other means, such as a kernel.
 * Each direction is compared with a copy in one piece: scatter pieces and fetch them whole, then
 * send the whole and gather its pieces.
 */
static int prove_pieces(struct pattern *c)
{
	char *back = c->host + PROVE_LEN;
	struct mem_copy v[PROVE_PIECES];
	int r;

	for (unsigned i = 0; i < PROVE_PIECES; i++)
		v[i] = (struct mem_copy){
			.alloc = c->scratch,
			.off = i * PROVE_SMALL + i % 32,
			.host = c->host + (PROVE_PIECES - 1 - i) * PROVE_SMALL + i % 7,
			.len = PROVE_SMALL - 64 - i % 48,
		};
	r = copy_batch(c, MEM_TO_DEVICE, v, PROVE_PIECES);
	if (r == 0)
		r = copy_one(c, MEM_FROM_DEVICE, back, PROVE_LEN);
	for (unsigned i = 0; r == 0 && i < PROVE_PIECES; i++)
		if (memcmp(back + v[i].off, v[i].host, v[i].len) != 0)
			r = differs(c);
	if (r == 0)
		r = copy_one(c, MEM_TO_DEVICE, c->host, PROVE_LEN);
	for (unsigned i = 0; i < PROVE_PIECES; i++)
		v[i].host = back + ((char *)v[i].host - c->host);
	if (r == 0)
		r = copy_batch(c, MEM_FROM_DEVICE, v, PROVE_PIECES);
	for (unsigned i = 0; r == 0 && i < PROVE_PIECES; i++)
		if (memcmp(v[i].host, c->host + v[i].off, v[i].len) != 0)
			r = differs(c);
	return r;
}

static int prove_run(struct pattern *c)
{
	int r = prove_whole(c);

	if (r == 0)
		r = prove_pieces(c);
	if (r == 0)
		proof_good(c->e->proof);
	return r;
}

static void pattern_end(struct mem_late *l)
{
	struct pattern *c = container_of(l, struct pattern, late);

	mem_unpin(c->ops, c->device, c->host, c->pinned);
	if (c->host != MAP_FAILED)
		(void)munmap(c->host, 2 * PROVE_LEN);
	pool_uncharge(2 * PROVE_LEN);
	free(c);
}

static int pattern_new(struct engine *e, struct pattern **ret)
{
	struct pattern *c = calloc(1, sizeof(*c));
	int r = c ? pool_charge(2 * PROVE_LEN) : err_set(ENOMEM, "out of memory");

	if (r < 0) {
		free(c);
		return r;
	}
	*c = (struct pattern){
		.e = e,
		.ops = e->ops,
		.device = e->device,
		.seed = now_ns(),
		.late.run = pattern_end,
	};
	c->host = mmap(NULL, 2 * PROVE_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);
	r = c->host == MAP_FAILED
		    ? err_set(ENOMEM, "out of memory")
		    : mem_pin(c->ops, c->device, e->life, c->host, 2 * PROVE_LEN, &c->pinned);
	if (r < 0) {
		if (c->pinned)
			mem_late(c->ops, &c->late);
		else
			pattern_end(&c->late);
		return r;
	}
	*ret = c;
	return 0;
}

int engine_prove(struct engine *e)
{
	struct pst_device dev = { .sz = sizeof(dev) };
	struct pattern *c;
	int r;

	e->ops->device_info(e->device, &dev);
	e->node = dev.numa_node;
	e->proof = proof_copies(&dev);
	if (!e->proof)
		return err_set(ENOMEM, "out of memory");
	r = pattern_new(e, &c);
	if (r < 0)
		return r;
	r = mem_stream_new(e->ops, e->device, &c->stream);
	if (r == 0 && mem_alloc(e->ops, e->device, PROVE_LEN, 0, &c->scratch) < 0)
		/* Continue if the device's memory is full, which is common: its copies stay
		 * unproven, unless they were proven before. */
		log_info("no scratch memory on %s %u, its copies are not proven: %s", e->ops->name,
			 e->device, err_text());
	else if (r == 0)
		r = prove_run(c);
	if (c->stream)
		mem_stream_free(c->stream); /* waits for a copy that timed out */
	if (c->scratch)
		mem_free(c->scratch);
	mem_late(c->ops, &c->late);
	return r;
}
