/* SPDX-License-Identifier: MIT */
/*
 * PEER: memory of another process, which is mapped into this one.  PEER is the file hop of files
 * from pst_peer_open().
 *
 * If both sides are device memory of one kind, the file is a source (source.h): the device copies
 * from memory to memory, without a slot and without a CPU. Two kinds of requests are staged all the
 * same: reads for which a stream waits, and requests whose caller lists another device path.
 */
#include "core/queue/object.h"
#include "core/queue/req.h"
#include "core/ways/part.h"
#include "core/ways/path.h"
#include "core/ways/source.h"
#include "core/ways/way.h"

/* Maximum bytes of a job.  Large, because a device copies a MiB in less time than a job takes to
 * begin and end.  Limited, because closing a share waits until a job ends. */
#define JOB_MAX MIB(16)

/* Device memory of another process, opened as a file. */
struct peer_memory {
	struct source source;
	struct file *file;
	uint64_t len; /* length of the file, bytes */
	/* The allocation, and the offset in it where the file begins.  Valid from begin() to
	 * end(). */
	const struct mem_alloc *alloc;
	uint64_t off;
	const struct mem_ops *ops;
};

static struct peer_memory *memory_of(const struct source *s)
{
	return container_of((struct source *)s, struct peer_memory, source);
}

static bool peer_ready(struct source *s, uint64_t off, uint64_t len, bool now)
{
	const struct peer_memory *m = memory_of(s);

	(void)now;
	return off <= m->len && len <= m->len - off;
}

static void peer_aim(const struct source *s, uint64_t off, struct mem_copy *c)
{
	const struct peer_memory *m = memory_of(s);

	c->other = m->alloc;
	c->other_off = m->off + off;
}

static bool peer_still(struct source *s)
{
	(void)s;
	return true;
}

static void peer_seen(struct source *s, uint64_t off, uint64_t len, uint32_t hops)
{
	(void)s;
	(void)off;
	(void)len;
	(void)hops;
}

static int peer_source_begin(struct source *s)
{
	struct peer_memory *m = memory_of(s);
	const struct mem_alloc *a;
	uint64_t off, len;

	/* memory() returns the same allocation each time, until the peer revokes it. */
	return m->file->ops->memory(m->file, &a, &off, &len);
}

static void peer_source_end(struct source *s)
{
	struct peer_memory *m = memory_of(s);

	m->file->ops->memory_put(m->file);
}

static const struct source_ops peer_source = {
	.path = PST_PATH_PEER,
	.job_max = JOB_MAX,
	.ready = peer_ready,
	.aim = peer_aim,
	.still = peer_still,
	.seen = peer_seen,
	.begin = peer_source_begin,
	.end = peer_source_end,
};

/* Return the file's struct peer_memory, created at the first call; NULL if it has no device
 * memory. */
static struct peer_memory *peer_memory_get(const struct pst_file *f)
{
	_Atomic(void *) *kept = &((struct pst_file *)f)->by_path[PST_PATH_PEER];
	struct peer_memory *m = atomic_load_explicit(kept, memory_order_acquire);
	struct file *file = f->file;

	if (m || !file->ops->memory)
		return m;
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	m->source.ops = &peer_source;
	m->file = file;
	if (file->ops->memory(file, &m->alloc, &m->off, &m->len) < 0) {
		free(m);
		return NULL;
	}
	m->ops = m->alloc->ops;
	file->ops->memory_put(file);
	return path_keep(kept, m);
}

static void peer_plan(const struct req *r, struct plan *p, uint32_t listed)
{
	const struct mem_ops *ops = mem_ops_of(req_mem(r));
	struct peer_memory *m;

	if (r->io.flags & PST_IO_STREAM_WAIT || listed & ~path_hops() ||
	    !(ops->caps & MEM_CAP_BETWEEN))
		return;
	m = peer_memory_get(r->io.file);
	if (m && m->ops == ops)
		p->from = &m->source;
}

static void peer_file_end(struct pst_file *f)
{
	free(f->by_path[PST_PATH_PEER]);
}

static enum pst_why peer_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			     int *ret_detail)
{
	(void)m;
	(void)op;
	(void)ret_detail;
	if (f->file->ops->hop == PST_PATH_PEER)
		return PST_WHY_NONE;
	/* Without a mapping, a peer's memory is reached only over the connection, by the file's own
	 * hop. */
	return f->file->ops->hop ? PST_WHY_NO_PEER : PST_WHY_NO_PROVIDER;
}

static enum pst_why peer_fit(struct part *p, int *ret_detail)
{
	(void)p;
	(void)ret_detail;
	return PST_WHY_NONE;
}

const struct path_ops path_peer = {
	.path = PST_PATH_PEER,
	.quiet = true, /* report no reason if this hop is skipped: files of other providers
		        * have other hops */
	.why = peer_why,
	.fit = peer_fit,
	.plan = peer_plan,
	.file_end = peer_file_end,
};
