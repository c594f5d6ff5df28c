/* SPDX-License-Identifier: MIT */
/*
 * Transfers: a plan of requests of the library, made once, and its state.
 *
 * Descriptors are sorted by file, memory and offset, so that one request has all pieces of a file
 * and a region, and neighbours become one piece.  Large requests are cut, so that all workers have
 * something to do.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plug_int.h"

#define FREE_WAIT 10 /* seconds that the release of a transfer waits for its end */
/* Bytes of a part: large enough that a part costs nothing, small enough for all workers. */
#define PART_MIN (1u << 20)
#define PART_MAX (8u << 20)
/* Segments of a part. */
#define SEGS_MIN 32u
#define SEGS_MAX 4096u
/* Pieces that the descriptors of one transfer are cut into, apart from their own number. */
#define CUTS_MAX 65536u

struct move {
	struct plug_region *mem;
	struct plug_region *file;
	uint64_t mem_off; /* in the region */
	uint64_t file_off;
	uint64_t len;
};

static int move_compare(const void *a, const void *b)
{
	const struct move *x = a, *y = b;

	if (x->file != y->file)
		return (uintptr_t)x->file < (uintptr_t)y->file ? -1 : 1;
	if (x->mem != y->mem)
		return (uintptr_t)x->mem < (uintptr_t)y->mem ? -1 : 1;
	if (x->file_off != y->file_off)
		return x->file_off < y->file_off ? -1 : 1;
	return 0;
}

/* Is a range within a region?  The sums may overflow. */
static int descriptor_check(const struct plug_range *at, size_t i, const char *what)
{
	const struct plug_region *r = at->region;

	if (at->addr >= r->addr && at->addr - r->addr <= r->len &&
	    at->len <= r->len - (at->addr - r->addr))
		return 0;
	plug_log("descriptor %zu, %llu bytes at %#llx, is not within the registered %s of %llu "
		 "bytes at %#llx",
		 i, (unsigned long long)at->len, (unsigned long long)at->addr, what,
		 (unsigned long long)r->len, (unsigned long long)r->addr);
	return -ERANGE;
}

static int move_init(const struct plug_range *mem, const struct plug_range *file, size_t i,
		     struct move *ret)
{
	int err;

	if (!mem->region || mem->region->kind == PLUG_FILE || !file->region ||
	    file->region->kind != PLUG_FILE) {
		plug_log("descriptor %zu is not registered: register memory and file first", i);
		return -EINVAL;
	}
	if (mem->len != file->len) {
		plug_log("descriptor %zu has %llu bytes of memory and %llu bytes of a file: make "
			 "them equal",
			 i, (unsigned long long)mem->len, (unsigned long long)file->len);
		return -EINVAL;
	}
	err = descriptor_check(mem, i, "memory");
	if (!err)
		err = descriptor_check(file, i, "file");
	if (!err && (file->addr > INT64_MAX || file->len > INT64_MAX - file->addr)) {
		plug_log("descriptor %zu ends past the largest offset of a file, 2^63 - 1", i);
		err = -EOVERFLOW;
	}
	*ret = (struct move){ .mem = mem->region,
			      .file = file->region,
			      .mem_off = mem->addr - mem->region->addr,
			      .file_off = file->addr,
			      .len = mem->len };
	return err;
}

/* Check all descriptors and sort them.  Empty ones are left out. */
static int moves_new(const struct plug_range *mem, const struct plug_range *file, size_t nr,
		     struct move **ret_moves, size_t *ret_nr, uint64_t *ret_total)
{
	struct move *moves = calloc(nr ? nr : 1, sizeof(*moves));
	uint64_t total = 0;
	size_t i, n = 0;
	int err = 0;

	if (!moves)
		return -ENOMEM;
	for (i = 0; i < nr && !err; i++) {
		err = move_init(&mem[i], &file[i], i, &moves[n]);
		if (!err && __builtin_add_overflow(total, moves[n].len, &total)) {
			plug_log("the descriptors have more than 2^64 bytes in total");
			err = -EOVERFLOW;
		}
		if (!err && moves[n].len)
			n++;
	}
	if (err) {
		free(moves);
		return err;
	}
	qsort(moves, n, sizeof(*moves), move_compare);
	*ret_moves = moves;
	*ret_nr = n;
	*ret_total = total;
	return 0;
}

/* The limits of one part. */
struct sizes {
	uint64_t bytes;
	uint64_t segs;
};

static struct sizes sizes_of(const struct plug_engine *e, size_t nr, uint64_t total)
{
	struct sizes s = { .bytes = total / (2 * e->opts.threads),
			   .segs = nr / (2 * e->opts.threads) };

	if (s.bytes < PART_MIN)
		s.bytes = PART_MIN;
	if (s.bytes > PART_MAX)
		s.bytes = PART_MAX;
	if (s.bytes < total / CUTS_MAX)
		s.bytes = total / CUTS_MAX;
	/* A cut at a multiple of 1 MiB in the file keeps O_DIRECT possible. */
	s.bytes -= s.bytes % PART_MIN;
	if (s.segs < SEGS_MIN)
		s.segs = SEGS_MIN;
	if (s.segs > SEGS_MAX)
		s.segs = SEGS_MAX;
	return s;
}

/* Return how many bytes of m fit into a part that has had bytes. */
static uint64_t cut(const struct move *m, uint64_t had, const struct sizes *s)
{
	uint64_t room = s->bytes - had, end;

	if (m->len <= room)
		return m->len;
	end = m->file_off + room;
	end -= end % PART_MIN;
	if (end > m->file_off)
		return end - m->file_off;
	return had ? 0 : room;
}

/* Where planning is.  A part's limits count pieces before neighbours become one, so that counting
 * the parts and filling them in cut alike. */
struct planner {
	struct plug_req *req; /* NULL: only count */
	size_t nr_parts;
	size_t nr_segs;
	uint64_t pieces; /* of the last part */
	uint64_t bytes;  /* of the last part */
};

static void plan_part(struct planner *p, const struct move *m)
{
	if (p->req)
		p->req->parts[p->nr_parts] = (struct plug_part){
			.req = p->req,
			.mem = m->mem,
			.file = m->file,
			.segs = &p->req->segs[p->nr_segs],
		};
	p->nr_parts++;
	p->pieces = 0;
	p->bytes = 0;
}

static void plan_piece(struct planner *p, const struct move *m, uint64_t len)
{
	p->pieces++;
	p->bytes += len;
	if (p->req) {
		struct plug_part *part = &p->req->parts[p->nr_parts - 1];
		struct pst_seg *seg = &p->req->segs[p->nr_segs];

		part->len += len;
		if (part->nr_segs && seg[-1].file_off + seg[-1].len == m->file_off &&
		    seg[-1].mem_off + seg[-1].len == m->mem_off) {
			seg[-1].len += len;
			return;
		}
		*seg = (struct pst_seg){ .file_off = m->file_off,
					 .mem_off = m->mem_off,
					 .len = len };
		part->nr_segs++;
	}
	p->nr_segs++;
}

static void plan_move(struct planner *p, struct move m, bool fresh, const struct sizes *s)
{
	uint64_t len;

	if (fresh)
		plan_part(p, &m);
	while (m.len) {
		if (p->pieces == s->segs || !cut(&m, p->bytes, s))
			plan_part(p, &m);
		len = cut(&m, p->bytes, s);
		plan_piece(p, &m, len);
		m.file_off += len;
		m.mem_off += len;
		m.len -= len;
	}
}

static struct planner plan_moves(struct plug_req *req, const struct move *moves, size_t nr,
				 const struct sizes *s)
{
	struct planner p = { .req = req };
	size_t i;

	for (i = 0; i < nr; i++)
		plan_move(&p, moves[i],
			  !i || moves[i].file != moves[i - 1].file ||
				  moves[i].mem != moves[i - 1].mem,
			  s);
	return p;
}

/* Hold each region once, and note files that want a sync.  Moves are sorted. */
static int regions_hold(struct plug_req *req, const struct move *moves, size_t nr)
{
	size_t i;

	req->regions = calloc(2 * nr + 1, sizeof(struct plug_region *));
	if (!req->regions)
		return -ENOMEM;
	for (i = 0; i < nr; i++) {
		bool file = !i || moves[i].file != moves[i - 1].file;
		bool mem = file || moves[i].mem != moves[i - 1].mem;

		if (mem && !plug_region_ref(moves[i].mem))
			break;
		if (mem)
			req->regions[req->nr_regions++] = moves[i].mem;
		if (file && !plug_region_ref(moves[i].file))
			break;
		if (file)
			req->regions[req->nr_regions++] = moves[i].file;
		req->nr_syncs += file && req->write && moves[i].file->sync;
	}
	if (i == nr)
		return 0;
	plug_log("memory or a file of the transfer was deregistered: register it again");
	return -ENOENT;
}

static struct plug_req *transfer_free(struct plug_req *req)
{
	size_t i;

	for (i = 0; i < req->nr_regions; i++)
		plug_region_unref(req->regions[i]);
	free(req->regions);
	free(req->parts);
	free(req->segs);
	free(req);
	return NULL;
}

static int parts_new(struct plug_req *req, const struct move *moves, size_t nr,
		     const struct sizes *s)
{
	struct planner counted = plan_moves(NULL, moves, nr, s);
	unsigned sync;
	size_t i;

	/* No array is empty: calloc() may return NULL for no bytes. */
	req->parts = calloc(counted.nr_parts + req->nr_syncs + 1, sizeof(*req->parts));
	req->segs = calloc(counted.nr_segs + 1, sizeof(*req->segs));
	if (!req->parts || !req->segs)
		return -ENOMEM;
	plan_moves(req, moves, nr, s);
	req->nr_parts = (unsigned)counted.nr_parts;
	sync = req->nr_parts;
	for (i = 0; i < nr; i++)
		if ((!i || moves[i].file != moves[i - 1].file) && req->write && moves[i].file->sync)
			req->parts[sync++] = (struct plug_part){ .req = req,
								 .file = moves[i].file };
	return 0;
}

int plug_req_new(struct plug_engine *e, bool write, const struct plug_range *mem,
		 const struct plug_range *file, size_t nr, struct plug_req **ret_req)
{
	struct move *moves = NULL;
	struct plug_req *req;
	struct sizes s;
	uint64_t total;
	size_t n;
	int err;

	if (!plug_engine_is_ours(e))
		return -EOWNERDEAD;
	err = moves_new(mem, file, nr, &moves, &n, &total);
	if (err)
		return err;
	s = sizes_of(e, n, total);
	req = calloc(1, sizeof(*req));
	if (!req) {
		free(moves);
		return -ENOMEM;
	}
	req->engine = e;
	req->write = write;
	err = regions_hold(req, moves, n);
	if (!err)
		err = parts_new(req, moves, n, &s);
	free(moves);
	if (err) {
		transfer_free(req);
		return err;
	}
	*ret_req = req;
	return 0;
}

/* End a transfer.  Any other thread may free it from the store of the state on. */
static void transfer_end(struct plug_req *req, int result)
{
	struct plug_engine *e = req->engine;

	req->result = result;
	pthread_mutex_lock(&e->lock);
	/* Pairs with the load in plug_req_check(), which then reads the result. */
	atomic_store_explicit(&req->state, PLUG_ENDED, memory_order_release);
	pthread_cond_broadcast(&e->ended);
	pthread_mutex_unlock(&e->lock);
}

void plug_req_parts_end(struct plug_req *req, unsigned nr)
{
	int err;

	/* The last part reads what all others stored in err. */
	if (!nr || atomic_fetch_sub(&req->left, nr) != nr)
		return;
	err = atomic_load(&req->err);
	if (!err && req->nr_syncs && !req->syncing) {
		req->syncing = true;
		atomic_store(&req->left, req->nr_syncs);
		plug_engine_push(req->engine, &req->parts[req->nr_parts], req->nr_syncs);
		return;
	}
	transfer_end(req, err);
}

void plug_part_fail(struct plug_part *part, int err, const char *text)
{
	struct plug_req *req = part->req;
	char name[256];
	int none = 0;

	if (!atomic_compare_exchange_strong(&req->err, &none, err) || !text)
		return;
	plug_region_name(part->file, name, sizeof(name));
	if (!part->mem)
		plug_log("sync of %s: %s", name, text);
	else
		plug_log("%s of %llu bytes %s %s, from offset %llu on: %s",
			 req->write ? "write" : "read", (unsigned long long)part->len,
			 req->write ? "to" : "of", name, (unsigned long long)part->segs[0].file_off,
			 text);
}

int plug_req_post(struct plug_engine *e, struct plug_req *req)
{
	enum plug_state was = atomic_load(&req->state);
	size_t i;

	if (was == PLUG_RUNS)
		return -EALREADY;
	if (!plug_engine_is_ours(e)) {
		plug_log("a forked child cannot use its parent's agent: create one in the child");
		return -EOWNERDEAD;
	}
	for (i = 0; i < req->nr_regions; i++)
		if (!plug_region_alive(req->regions[i])) {
			plug_log("memory or a file of the transfer was deregistered: prepare "
				 "another transfer");
			return -ENOENT;
		}
	if (!atomic_compare_exchange_strong(&req->state, &was, PLUG_RUNS))
		return -EALREADY;
	req->syncing = false;
	atomic_store(&req->err, 0);
	atomic_store(&req->cancel, false);
	if (!req->nr_parts) {
		transfer_end(req, 0);
		return 0;
	}
	atomic_store(&req->left, req->nr_parts);
	plug_engine_push(e, req->parts, req->nr_parts);
	return 1;
}

int plug_req_check(const struct plug_req *req)
{
	switch (atomic_load_explicit(&req->state, memory_order_acquire)) {
	case PLUG_RUNS:
		return 1;
	case PLUG_ENDED:
		return req->result;
	default:
		return -ENOTCONN;
	}
}

static void parts_cancel(struct plug_engine *e, struct plug_req *req)
{
	unsigned nr = plug_engine_remove(e, req);
	int none = 0;

	if (nr)
		atomic_compare_exchange_strong(&req->err, &none, -ECANCELED);
	plug_engine_cancel(e);
	plug_req_parts_end(req, nr);
}

int plug_req_free(struct plug_engine *e, struct plug_req *req)
{
	struct timespec until = plug_after(FREE_WAIT);
	bool runs;

	if (!plug_engine_is_ours(e))
		return 0;
	if (atomic_load(&req->state) == PLUG_RUNS) {
		atomic_store(&req->cancel, true);
		/* Parts that are still in the inbox end here.  A worker ends its own. */
		parts_cancel(e, req);
		pthread_mutex_lock(&e->lock);
		while (atomic_load(&req->state) == PLUG_RUNS)
			if (pthread_cond_timedwait(&e->ended, &e->lock, &until))
				break;
		runs = atomic_load(&req->state) == PLUG_RUNS;
		pthread_mutex_unlock(&e->lock);
		if (runs) {
			plug_log("a cancelled transfer may still touch its memory: do not free or "
				 "reuse the memory, and release the transfer again later");
			return -EBUSY;
		}
	}
	transfer_free(req);
	return 0;
}
