/* SPDX-License-Identifier: MIT */
/*
 * Where memory, files and queues meet.
 *
 * A request is cut into parts (host memory: one file operation each, on the caller's
 * thread, direct.c) or into jobs (device memory: one staging slot each, on the workers of
 * the device's engine, staged.c; or one transfer by cuFile, gds.h).  plan.c chooses the hops,
 * queue.c owns the life of a request from pst_queue_prep() to pst_queue_reap().
 *
 * Lock order: queue -> registry -> clock -> engines -> pools -> engine -> gds -> regions ->
 * what is inside mem/ and file/ -> work.
 */
#ifndef PST_CORE_H
#define PST_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <penstock.h>

#include "base/base.h"
#include "base/list.h"
#include "base/work.h"
#include "mem/mem.h"
#include "file/store.h"

#define PAGE UINT64_C(4096) /* unit of O_DIRECT writes; see direct.c */
#define QUEUE_DEPTH_DEFAULT 128u
#define QUEUE_DEPTH_MAX 4096u
#define TIMEOUT_DEFAULT_MS 300000u
#define CANCEL_GRACE_NS (100 * NSEC_PER_MSEC) /* what pst_queue_cancel() promises */
#define NAP_NS NSEC_PER_MSEC                  /* longest sleep where no event tells all there is */
#define PART_MAX MIB(4)                       /* one file operation of the direct path */
#define SUBMIT_COPY_MAX MIB(1)                /* out of the page cache within pst_queue_submit() */
#define PROOF_MAX MIB(1)                      /* most that a proof compares */
#define PIECES_MAX (UINT64_C(1) << 24)        /* of one request */

/* ---------------------------------------------------------------- objects */

/*
 * What pst_mem and pst_file have in common: the user's handle and every queue that used the
 * object hold a reference each; requests are counted in the queue (struct use), so that a
 * request costs no atomic operation on a line that other threads write.
 */
struct object {
	atomic_uint refs;
	atomic_bool dying; /* the user's handle is gone: queues let go when idle */
	void (*release)(struct object *obj); /* may take long: no lock is held */
	bool hangs;			     /* it may hang: nobody waits for it beside */
};

/* A queue's hold on an object. */
struct use {
	struct use *next;
	struct object *obj;
	uint32_t nr; /* requests of this queue on it, until they are quiet */
	struct work work; /* closes it and those behind it, if that may hang */
};

#define USE_BUCKETS 64u

/* One allocation: what all pst_mem on it share. */
struct region {
	struct list link;
	struct mem_alloc *alloc;
	struct store_buf *sbuf;        /* host memory that lanes may register; NULL: none */
	_Atomic(struct views *) views; /* view.c; NULL: none yet */
	_Atomic(struct gds_mem *) gds; /* gds/path/end.c; NULL: cuFile does not know it */
	unsigned users;                /* under the regions' lock */
};

struct pst_mem {
	struct object obj;
	struct region *region;
	uint64_t off; /* of the range in the allocation */
	uint64_t len;
	uint32_t flags;  /* PST_MEM_* */
	uint32_t rights; /* PST_RIGHT_* */
};

enum proof_dir { PROOF_READ, PROOF_WRITE, PROOF_DIR_NR };

struct pst_file {
	struct object obj;
	struct store_file *sf;
	struct proof *direct[PROOF_DIR_NR]; /* of O_DIRECT on this mount */
	pthread_mutex_t maps_lock;
	struct mapping *maps;      /* of its pages, for devices; pagecache.c */
	struct store_file *reader; /* for proofs where sf is open for writing only, or NULL */
	_Atomic(struct cufile_file *) gds; /* its registration; gds/path/end.c */
	_Atomic int gds_err;               /* why it has none for good */
};

static inline const struct mem_ops *mem_kind(const struct pst_mem *m)
{
	return m->region->alloc->ops;
}

static inline bool mem_on_host(const struct pst_mem *m)
{
	return mem_kind(m)->caps & MEM_CAP_CPU;
}

void object_put(struct object *obj);
/* True when that was the last: release() is the caller's. */
bool object_unref(struct object *obj);

/* ----------------------------------------------------------------- pieces */

/* A contiguous run of a request. */
struct piece {
	uint64_t file_off;
	uint64_t mem_off; /* in the pst_mem */
	uint64_t len;
	uint64_t pos; /* bytes of the request before it, in piece order */
};

/* Walks the pieces of a request in order. */
struct cursor {
	const struct pst_seg *segs;
	uint64_t nr;
	uint64_t seg; /* which segment */
	uint64_t rep; /* which repetition of it */
	uint64_t off; /* bytes of that piece already given out */
	uint64_t pos; /* bytes given out in all */
};

void cursor_init(struct cursor *c, const struct pst_seg *segs, uint64_t nr);

/* The next piece without moving on; false at the end. */
bool cursor_peek(const struct cursor *c, struct piece *ret);

/* Move on by len bytes of the piece that peek shows. */
void cursor_skip(struct cursor *c, uint64_t len);

static inline bool cursor_at_end(const struct cursor *c)
{
	return c->seg >= c->nr;
}

/* Check segments against the memory's length; the sum of bytes in *ret_total. */
int segs_check(const struct pst_seg *segs, uint64_t nr, uint64_t mem_len, uint64_t *ret_total);

/* ------------------------------------------------------------------ plans */

#define HOPS_MAX 3u

/* How a request is going to run; made once, at submit. */
struct plan {
	uint8_t hop[HOPS_MAX]; /* file hops in order of preference, enum pst_path */
	uint8_t nr_hops;
	uint8_t dev;         /* device hop: as listed, else PST_PATH_STAGED; 0 for host memory */
	bool small;          /* a write that goes through the page cache for its size */
	bool unaligned;      /* a write of which O_DIRECT, which cannot move all, moves nothing */
	bool window;         /* small requests may go by a window */
	bool restage;        /* WINDOW: by the engine after all, if it is not resident */
	bool listed;         /* by the caller: skipping CACHED is worth a `why' */
	bool ahead;          /* the kernel reads ahead for it: the page cache, and no O_DIRECT */
	bool pin_now;        /* the caller listed PAGECACHE */
	bool staged;         /* the pool may be used; false: PAGECACHE alone was listed */
	struct mapping *map; /* of the file's pages, or NULL */
	struct gds_way *gds; /* by which long pieces go, or NULL; under the engine's lock */
	uint32_t why;        /* known before the first byte moves */
	int detail;
};

/* Is all of the range in the page cache?  False also when the kernel cannot tell. */
bool plan_resident(const struct store_file *sf, uint64_t off, uint64_t len);

/* A queue's last plan, and what it was made for. */
struct plan_memo {
	const struct pst_file *file;
	const struct mem_ops *ops;
	unsigned device;
	uint32_t op, flags;
	uint64_t policy;
	struct plan plan;
};

struct req;

/* The checksum of a run of bytes of a request, in piece order. */
struct crc_run {
	uint64_t pos, len;
	uint32_t crc;
};

/* 0, or -EOPNOTSUPP with a sentence and req's why and detail set. */
int plan_make(struct req *req);

/* Why a path cannot serve this file and memory, PST_WHY_NONE when it can. */
enum pst_why plan_path_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			   uint32_t path, int *ret_detail);

/* Was a path that can serve them proven with data? */
bool plan_path_proven(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
		      uint32_t path);

/* Is CACHED worth trying for these bytes?  The answer that came of it goes to plan_cached(). */
bool plan_try_cached(const struct req *r, uint64_t off, uint64_t len);
void plan_cached(const struct req *r, bool hit);
/* Did so many hits in a row come of it that nothing needs asking? */
bool plan_is_warm(const struct store_file *sf);
/* Does RWF_NOWAIT do what it says there?  Else a resident read is a plain one. */
bool plan_nowait(const struct store_file *sf);
/* A short NOWAIT read stopped at off: because the file ends there?  Asks local file systems
 * only: others may hang, and then the next hop finds out. */
bool plan_at_end(const struct store_file *sf, uint64_t off);
/* May wrong data in a proof of this request be held against the path?  Not where its own
 * pieces may overlap.  Asked while the caller's segments are there: can_judge keeps it. */
bool plan_can_judge(const struct req *r);
/* Where the plain bytes of a proof can be read from, or NULL. */
struct store_file *plan_reader(const struct pst_file *f);

#define AHEAD_NR 16u

/* Where reads of a queue may be going front to back; ahead.c. */
struct ahead {
	uint64_t key; /* of the file, and where the last one ended */
	int nr;       /* in a row, as far as that matters; below 0: too many at once */
	bool found;   /* since its place was last asked for */
};

/* The request has its plan: if it is a small read that goes on where others ended, the
 * kernel's read-ahead serves it better than O_DIRECT. */
void ahead_choose(struct req *r);

/* --------------------------------------------------------------- requests */

enum req_state {
	REQ_FREE,
	REQ_PREPARED, /* q->prepared */
	REQ_HELD,     /* a sync behind writes: q->held */
	REQ_ACTIVE,   /* parts or jobs are under way or still to start */
	REQ_PROVING,  /* its data is compared before it completes */
	REQ_DONE,     /* q->done, waiting for pst_queue_reap() */
	REQ_ZOMBIE,   /* reaped, but the kernel has parts of it still */
};

struct req {
	struct list link; /* on the list that state names */
	struct list all;  /* q->inflight from submit to the end */
	struct req *next; /* on q->finished */
	struct pst_queue *q;
	struct pst_io io;
	struct pst_seg seg; /* the inline piece */
	struct use *mem_use, *file_use;
	struct plan plan;
	struct cursor cur; /* what has not been started */
	bool one_run;      /* a single piece: behind the end of the file is nothing of it */
	uint64_t total;    /* bytes in all pieces */
	uint64_t deadline;
	uint64_t seq; /* order of submission */
	enum req_state state;
	bool started;        /* counted in q->nr_writes */
	_Atomic int end_err; /* what an early end means: ETIMEDOUT or ECANCELED */
	bool stop;           /* start nothing more for it */
	bool ended;          /* its completion went out before it was quiet */

	/* direct.c */
	unsigned nr_parts; /* in flight */
	struct list parts; /* these, and those about to be */
	uint64_t edge_pos; /* of the first edge left for the second pass; UINT64_MAX */
	bool starting;     /* more parts may come in this call: not ended by one */
	bool second;       /* in the second pass */
	bool left;         /* the engine has to do it; see small.c */
	char *bounce;      /* a small write's bytes, loaded through a window, or NULL */
	struct view *view; /* whose window its next part will use, or NULL */

	/* sync */
	unsigned nr_before; /* writes that must complete first */
	bool sync_started;

	/* engine, under its lock */
	struct share *share;
	struct list active;  /* engine's list of requests with something to start */
	struct order *order; /* with the stream that it names, or NULL */
	struct list gated;   /* engine's list of reads that keep a stream waiting */
	uint64_t gate_until; /* when that has to end */
	bool handed_back;
	bool dead;            /* its completion went out: results are nobody's any more */
	unsigned nr_jobs;     /* in flight */
	struct list jobs;     /* of these, those with a slot */
	unsigned nr_touch;    /* jobs whose copies may touch the memory now */
	unsigned nr_file;     /* jobs whose file operations are in flight */
	struct gds_job *redo; /* what cuFile did not move: to be staged */
	struct crc_run *crcs; /* checksums of jobs, in any order */
	unsigned nr_crcs, max_crcs;

	/* what the completion will say */
	uint64_t limit;   /* position of the first byte that did not arrive */
	uint64_t err_pos; /* position of the first error */
	int err;          /* positive errno of that */
	uint32_t paths;
	uint32_t why;
	int detail;
	uint32_t flags;
	uint32_t crc;
	uint64_t hop_bytes[PST_PATH_MAX + 1];

	/* proof of the direct hop by this request's own data */
	struct proof *proof;
	bool can_judge;
	uint64_t proof_off; /* in the file */
	uint64_t proof_len;
	void *proof_data;    /* host memory with what the direct hop moved */
	void *proof_buf;     /* what a plain read gave */
	struct trial *trial; /* they differ */
};

static inline struct pst_mem *req_mem(const struct req *r)
{
	return r->io.mem;
}

static inline struct store_file *req_sf(const struct req *r)
{
	return r->io.file->sf;
}

/*
 * May the CPU follow addresses that the request's file operations use?  Memory of ours stays,
 * and what is shared is sealed; a wrap may vanish, and then only the kernel touches it.
 */
static inline bool req_stays(const struct req *r)
{
	return req_mem(r)->region->alloc->owned || r->bounce;
}

/* Does an engine do it?  Else file operations on the caller's thread. */
static inline bool req_staged(const struct req *r)
{
	return r->plan.dev && r->plan.dev != PST_PATH_WINDOW;
}

/* Bytes pos..pos+len are settled: got of them arrived, then err (0: end of the file). */
static inline void req_settle(struct req *r, uint64_t pos, uint64_t len, uint64_t got, int err)
{
	if (likely(got == len && !err))
		return;
	if (pos + got < r->limit)
		r->limit = pos + got;
	if (err && pos + got <= r->err_pos) {
		r->err_pos = pos + got;
		r->err = err;
	}
}

/* The first reason stays. */
static inline void req_why(struct req *r, uint32_t why, int detail)
{
	if (r->why == PST_WHY_NONE) {
		r->why = why;
		r->detail = detail;
	}
}

static inline void req_moved(struct req *r, uint32_t path, uint64_t bytes)
{
	r->paths |= PST_PATH_BIT(path);
	r->hop_bytes[path] += bytes;
}

/* ----------------------------------------------------------------- direct */

/* One file operation of a request on host memory. */
struct part {
	struct store_op op;
	struct part *next; /* q->parts or q->parked */
	struct list link;  /* req->parts */
	struct req *req;
	struct view *view; /* whose window it uses, or NULL */
	uint64_t pos;      /* of its first byte, in piece order */
	uint8_t hop;       /* index in the plan */
	bool proving;      /* a proof's, not the request's own */
	bool busy;         /* in the lane */
};

/* Start as many parts as there is room for.  The request ends by itself. */
void direct_start(struct req *r);
/* A part came back from the lane. */
void direct_part_done(struct part *p);
/* Start the request's fsync. */
void direct_sync(struct req *r);
/* Start the writes that had to wait for others, or end them where their request has ended. */
void direct_unpark(struct pst_queue *q);
/* Ask the lane to end the request's parts, when it is flushed. */
void direct_cancel(struct req *r);
/* Compare what the direct hop moved with a plain read; false when that cannot be. */
bool direct_prove(struct req *r);
/* Move everything again through the page cache, because the direct hop cannot be trusted. */
void direct_again(struct req *r);

/* ------------------------------------------------------------------ small */

#define SMALL_MAX KIB(64) /* bytes of a request that may go by a window without being told */

/* A queue as a user of windows; under the queue's lock. */
struct viewer {
	unsigned number; /* in the order of their making */
	uint64_t now;    /* when the queue was last looked after, to a few milliseconds */
};

/* Windows on an allocation (view.c): the one that holds byte off, which is its byte
 * *ret_at; open until view_put(*view).  The caller may have one in *view already, which is put if
 * it is another.  NULL: there is none, *ret_err says why; ENOSPC: not now, because too much is
 * open. */
const struct window *view_get(const struct viewer *by, struct region *r, uint64_t off,
			      uint64_t *ret_at, struct view **view, int *ret_err);
void view_put(const struct viewer *by, struct view *v);
/* Nobody uses the region any more. */
void views_free(struct region *r);

/* Not switched off by PST_WINDOW. */
bool small_enabled(void);
/* plan.window: take the window where it is the better way. */
void small_choose(struct req *r);
/* The caller listed WINDOW: 0 and ready, or staged if that was listed too; -errno. */
int small_listed(struct req *r);
/* Where the CPU finds a piece, and how much of it; NULL with *ret_err: nowhere. */
char *small_addr(struct req *r, const struct piece *p, uint64_t *ret_room, struct view **ret_view,
		 int *ret_err);
/* Nothing is under way, and not all of it was resident: the engine does all of it. */
void small_give_up(struct req *r);

/* ------------------------------------------------------------------ clock */

/* Something to do at a time: by a thread that waits for nothing else. */
struct alarm {
	struct list link;              /* the clock's */
	_Atomic uint64_t at;           /* PST_NO_DEADLINE: never; under the clock's lock */
	void (*ring)(struct alarm *a); /* under the clock's lock; may set at */
};

static inline void alarm_init(struct alarm *a, void (*ring)(struct alarm *a))
{
	list_init(&a->link);
	atomic_init(&a->at, PST_NO_DEADLINE);
	a->ring = ring;
}

/* Let the clock look after it, if it does not yet; -EAGAIN without a thread. */
int clock_add(struct alarm *a);
/* It does not ring any more. */
void clock_del(struct alarm *a);
/* Ring at that time, or when it would have rung earlier; a full barrier before it looks. */
void clock_set(struct alarm *a, uint64_t at);

/* ----------------------------------------------------------------- queues */

struct counters {
	_Atomic uint64_t requests, errors, timeouts, canceled, fallbacks;
	_Atomic uint64_t bytes[PST_PATH_MAX + 1];
	_Atomic uint64_t why[PST_WHY_MAX + 1];
};

/*
 * lock is held inside every call, but not while the owner sleeps in pst_queue_reap(): then
 * waiting is true, and others may look at the uses but leave lane and requests alone.
 * It is there for pst_mem_drain() and pst_mem_free() on other threads; the owner never
 * finds it taken otherwise.  The owner may hold it for as long as a file system or a driver
 * takes, so others only try: queue_unlock() does what they could not.
 */
struct pst_queue {
	pthread_mutex_t lock;
	struct list link;    /* registry */
	unsigned visitors;   /* who stands on it there; under the registry's lock */
	atomic_bool orphan;  /* freed, but something of it is not quiet */
	atomic_bool quiet;   /* freed, and nothing is under way: the last visitor destroys it */
	atomic_bool look;    /* objects died while the lock was taken */
	struct use *dropped; /* objects to be let go of without the lock */
	const struct store_ops *store;
	struct store_lane *lane;
	bool store_auto;    /* the caller left the choice to us */
	uint32_t store_why; /* PST_WHY_NO_URING where threads stand in for it */
	int store_detail;
	uint32_t depth;
	uint64_t timeout_ns;
	uint64_t seq;
	struct viewer viewer;
	bool waiting;

	struct req *reqs; /* depth of them */
	struct list free, prepared, held, started, done, zombies, inflight;
	unsigned nr_prepared, nr_done;
	_Atomic unsigned nr_inflight, nr_zombies; /* by gauge() */
	uint64_t copy_left;     /* bytes that may still be copied before others have a look */
	bool more;              /* that was too little for one on started: it can go on at once */
	unsigned nr_writes;     /* started, not completed */
	unsigned nr_engine;     /* requests that an engine has */
	uint64_t next_deadline; /* no deadline in flight is earlier */

	struct part *part_array;
	struct part *parts;  /* free ones */
	unsigned nr_parts;   /* of these */
	struct part *parked; /* writes that wait for others of their file to end */

	struct use *uses[USE_BUCKETS];
	struct plan_memo memo;
	struct ahead ahead[AHEAD_NR];
	unsigned ahead_turn; /* the place to be taken next */

	struct list shares;             /* of engines */
	struct order *orders;           /* of the pst_queue_submit() under way */
	_Atomic(struct req *) finished; /* from engines, latest first */
	int efd;
	atomic_bool want_wake;    /* engines write efd when they finish something */
	bool armed;               /* lane and engines write efd */
	bool has_fd;              /* the user sleeps on efd */
	bool fd_once;             /* after queue_fd() only, until the next call */
	struct alarm alarm;       /* rings at ring_at or before */
	_Atomic uint64_t ring_at; /* the next deadline while armed, else PST_NO_DEADLINE */

	struct counters st;
};

static inline void count(_Atomic uint64_t *c, uint64_t n)
{
	/* One writer, under the queue's lock; pst_stats() may read from elsewhere. */
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

/* The same for a number that goes down, too. */
static inline void gauge(_Atomic unsigned *g, int by)
{
	atomic_store_explicit(g, atomic_load_explicit(g, memory_order_relaxed) + (unsigned)by,
			      memory_order_relaxed);
}

/* The request needs its window no longer, or does not get that far. */
static inline void small_let_go(struct req *r)
{
	if (unlikely(r->view))
		view_put(&r->q->viewer, TAKE_PTR(r->view));
}

/* Let go of what the request uses. */
void req_release(struct req *r);
/* Everything that can be done without waiting. */
void queue_progress(struct pst_queue *q);
/* End everything, and give what is under way a little time to end by itself; without the lock. */
void queue_wind_up(struct pst_queue *q);
/* The lock of a queue.  Letting go of it may end objects, which takes as long as a close(2). */
void queue_lock(struct pst_queue *q);
void queue_unlock(struct pst_queue *q);
/* The same for who must not wait: the objects go to a list for use_end(), or stay where it is
 * NULL. */
void queue_unlock_to(struct pst_queue *q, struct use **dropped);

/* The request has its data, or its error: prove it where that is due, else complete it. */
void queue_finish(struct req *r);
/* Nothing of the request is under way any more, and its result was delivered before. */
void queue_quiet(struct req *r);
/* Called by engines, under their lock: hand a request back to its queue. */
void queue_hand_back(struct req *r);

/* Requests of any queue that may touch the object; looks for what got quiet meanwhile. */
unsigned registry_uses(const struct object *obj);
/* The object's handle is gone: queues without requests on it let go of it. */
void registry_release(struct object *obj);

/*
 * Take what is done in queues that nobody reaps just now: a write of theirs may be all that
 * another waits for.  Under any lock, and in vain where others hold what it needs.  Objects that
 * go with it are for the caller's use_end(), or stay with their queue where @dropped is NULL.
 */
void registry_progress(struct use **dropped);

/* The counters of one queue, or of all. */
void registry_stats(struct pst_queue *only, struct pst_stats *ret);

/* What penstock.c calls, under the queue's lock but for new and free. */
int queue_new(const struct pst_queue_opts *o, struct pst_queue **ret);
void queue_free(struct pst_queue *q);
int queue_prep(struct pst_queue *q, const struct pst_io *io);
int queue_submit(struct pst_queue *q);
unsigned queue_reap(struct pst_queue *q, struct pst_done *ret, unsigned min, unsigned max,
		    uint64_t deadline_ns);
int queue_cancel(struct pst_queue *q, uint64_t user_data);
/* An eventfd that is written while armed. */
int queue_fd(struct pst_queue *q);
/* The alarm of a queue. */
void queue_ring(struct alarm *a);

/* use.c: a queue's hold on objects, under its lock. */
struct use *use_get(struct pst_queue *q, struct object *obj);
void use_put(struct pst_queue *q, struct use *u);
unsigned use_count(struct pst_queue *q, const struct object *obj);
void use_release(struct pst_queue *q, const struct object *obj);
/* Every object whose handle is gone. */
void use_release_dying(struct pst_queue *q);
/* Without the lock: these are dropped now. */
void use_end(struct use *dropped);
void use_release_all(struct pst_queue *q);

/* ---------------------------------------------------------------- engines */

#define SLOT_RESERVED 2u /* slots that every queue is sure of */

/* A queue's part of an engine. */
struct share {
	struct list link; /* q->shares */
	struct engine *engine;
	unsigned nr_slots; /* in use; under the engine's lock */
};

/* Does it use threads because there was no memory for rings? */
bool share_without_uring(const struct share *s, const struct pst_queue *q);
/* The queue's share of the engine that serves the device; made at the first request. */
int engine_share(struct pst_queue *q, const struct mem_ops *ops, unsigned device,
		 struct share **ret);
void engine_unshare(struct share *s);
/* Give a request to the engine. */
void engine_submit(struct req *r);
/* Start nothing more of it; it comes back when what is under way has ended. */
void engine_stop(struct req *r, int err);
/* The completion goes out now: which of memory and file may its jobs still touch? */
void engine_touches(struct req *r, bool *ret_mem, bool *ret_file);
/* Reads of the share may have gates from now on: 0, or -EAGAIN without a thread. */
int order_prepare(struct share *s);
/*
 * Before engine_submit(), in the thread that submits: put a mark on the stream that the request
 * names and, for a read that asks for it, a gate behind it.  0 or -errno with a sentence.
 */
int order_begin(struct req *r);
/* pst_queue_submit() has started all that it had. */
void order_submitted(struct pst_queue *q);
/* The request is over, or never got to an engine. */
void order_end(struct req *r);

/* ----------------------------------------------------------------- proofs */

/* The entry for O_DIRECT on the file's mount in one direction; lives for ever. */
struct proof *proof_direct(const struct store_file *sf, enum proof_dir dir);
/* For the copies of a device. */
struct proof *proof_copies(const struct pst_device *dev);
enum pst_state proof_state(const struct proof *p);
bool proof_is_bad(const struct proof *p);
void proof_good(struct proof *p);
/* Wrong data was seen: it is never proven in this process, and soon not used any more. */
void proof_failed(struct proof *p);

/* ---------------------------------------------------------------- regions */

/* The region of an allocation just made or found; takes @a over, also on failure. */
int region_get(struct mem_alloc *a, struct region **ret);
/* One more reference. */
struct region *region_again(struct region *r);
void region_put(struct region *r);

int object_new_mem(struct region *r, uint64_t off, uint64_t len, struct pst_mem **ret);

#endif
