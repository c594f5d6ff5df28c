/* SPDX-License-Identifier: MIT */
/*
 * The engine of a device: its workers and slots.
 *
 * turns.c decides which request gets the next slot, wake.c which worker takes it, job_size.c how
 * much of the request, and pool.c provides slots.  In core/carry, engines.c creates engines, and
 * worker.c runs their threads, on which job.c moves the pieces of a slot between file and device.
 *
 * A slot belongs to one worker from engine_next() to engine_job_done().  An engine exists as long
 * as a queue that used its device.  Its workers take turns over the requests of all queues under
 * one lock, which they take once for each slot.
 */
#ifndef PST_ENGINE_H
#define PST_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include <penstock.h>

#include "base/list.h"
#include "base/work.h"
#include "mem/mem.h"
#include "file/disk.h"
#include "file/io.h"
#include "file/own.h"
#include "core/queue/clock.h"
#include "core/queue/cursor.h"
#include "core/sched/share.h"
#include "core/ways/part.h"

#define JOB_PIECES 256u /* maximum pieces in one slot */
/* A worker fills slots of this many bytes before it leaves work to other workers. */
#define WORKER_BYTES MIB(8)
/* Jobs that a worker may have in any case: one reads while another copies. */
#define WORKER_JOBS_MIN 2u
/* Maximum bytes that jobs read at a time from a disk with one hardware queue. */
#define DISK_BYTES MIB(8)
#define DISK_OLD_NS 500000000u /* ns after which a job no longer counts against DISK_BYTES */
#define CTX_DEPTH 512u         /* maximum file operations in flight of one worker */
/* Maximum workers: more were not faster with PCIe 5 x16 and sixteen CPUs. */
#define WORKERS_MAX 15u
#define WORKERS_USUAL 12u   /* maximum workers that take requests of all kinds */
#define FEEDERS 4u          /* threads for reads that a stream waits for */
#define SHARED_MIN KIB(256) /* a longer read is divided among workers: engine_part() */
#define PART_MIN KIB(128)   /* least bytes of a job of a divided read */
#define PART_COLD KIB(512)  /* replaces PART_MIN while reads wait for a disk, bytes */
/* Least bytes of a long piece.  If such a piece needs no slot, it waits, so that one batch copies
 * several. */
#define LONG_PIECE KIB(256)
#define LONG_JOBS 48u /* with this many jobs at the copier, no LONG_PIECE is taken */
/* After this many consecutive jobs that waited for a disk, reads are assumed to wait for disks and
 * not for CPUs. */
#define COLD_JOBS 8u

/* One batch is copied while the next one waits, so that the device is never idle. */
#define COPIER_BATCHES 2u
#define COPIER_PIECES 1024u /* maximum pieces of a batch without lists */
#define COPIER_BYTES MIB(8) /* maximum bytes of a batch; one job may exceed it */

struct check;
struct engine;
struct job;

/* Contiguous bytes of device memory, moved by one device copy. */
struct span {
	uint64_t mem_off; /* offset in the allocation */
	uint64_t len;
	char *data;    /* the bytes in the slot */
	unsigned part; /* index in job->parts of the part that holds the bytes */
};

/* A slot of staging memory and the pieces in it. */
struct job {
	struct list link;   /* on a list of the job's worker or of the copier */
	struct list of_req; /* on the list of the job's request */
	struct job *next_free;
	struct arena *arena;
	char *buf;      /* slot_size bytes, page aligned, pinned */
	char *sgl_room; /* pinned memory for sgl, or NULL if the device reads no lists */
	struct io_buf *reg;
	struct engine *engine;
	struct req *req;
	uint64_t pos, len; /* range of the request, bytes in piece order */
	unsigned nr_parts, nr_spans;
	unsigned nr_moving; /* parts whose file operations are in flight */
	struct cursor from; /* claimed pieces that are not in parts and spans yet */
	bool claimed;
	struct mem_sgl sgl; /* list of the copies in pinned memory; sgl.nr is 0 if there is none */
	uint64_t ticket;    /* ticket of the copies on the worker's stream */
	int copy_err;       /* positive errno of the batch that copied the job */
	uint64_t limit, err_pos;
	int err;
	uint32_t why;
	int detail;
	uint32_t flags;
	uint32_t paths;
	uint64_t hop_bytes[HOPS_MAX]; /* bytes moved by each hop of the plan */
	uint32_t dev_path;            /* PST_PATH_* of the device copies */
	uint32_t crc;
	uint64_t crc_len;
	struct worker *worker;
	bool mapped;         /* the device copies from or to req_plan(req)->from, not the slot */
	bool source_used;    /* the source's begin() was called, so end() must be called */
	bool beyond_slot;    /* the only piece, mapped, may be longer than the slot */
	bool alone;          /* copy the job alone, because a batch with this job failed */
	bool at_copier;      /* the job is counted in worker->nr_copying */
	bool warm;           /* a CPU filled the slot, or memory is the source; counted in
			      * nr_warm */
	bool bounded;        /* the limit under contention applies */
	bool touches;        /* the job's copies may touch device memory: counted in the
			      * request's nr_touch, else in its nr_file */
	uint8_t disk;        /* index in engine->disks, which counts the job; or DISK_NONE */
	uint64_t disk_len;   /* bytes of the job that engine->disks counts */
	uint64_t disk_since; /* CLOCK_MONOTONIC ns when engine->disks began to count disk_len */
	struct list of_disk; /* on engine->disks[disk].jobs */
	bool lost; /* the job's request was stopped, so worker->nr_jobs excludes the job */
	struct list of_lost; /* on worker->lost */
	bool fed;            /* the slot is reserved for reads that a stream waits for; fixed */
	uint64_t sent_at;    /* CLOCK_MONOTONIC ns when the copy of a fed job was sent */
	struct part parts[JOB_PIECES]; /* file operations; pieces that are adjacent in the file
				        * share one */
	struct span spans[JOB_PIECES];
};

/* Contention for the engine's CPUs, see contention.h. */
struct contention {
	atomic_bool here;
	_Atomic uint64_t since; /* CLOCK_MONOTONIC ns when contention was last seen */
};

/* Counts of a worker's thread at its last check for contention. */
struct contention_check {
	unsigned nr_jobs;     /* jobs begun since the last check */
	uint64_t nr_switches; /* involuntary context switches until the last check */
	uint64_t cpu_ns;      /* CPU time until the last check, ns */
};

struct worker {
	struct engine *engine;
	pthread_t thread;
	bool started;
	struct io_ctx *ctx;
	struct io_others others;   /* I/O contexts of providers whose files were used */
	struct own_files files;    /* private descriptors of files that are read in many pieces */
	struct mem_stream *stream; /* for writes, and for many pieces without a list; created on
				    * first use */
	int efd;                   /* eventfd that wakes the worker for new requests and for its I/O
				    * context */
	atomic_bool begun;         /* the worker's thread is ready */
	atomic_bool sleeping;      /* the worker sleeps, or is about to; written under the engine's
				    * lock */
	bool woken;                /* woken, and did not look for a job yet; under the engine's
				    * lock */
	unsigned nr_jobs;          /* jobs in progress; under the engine's lock */
	/* Jobs taken since the last sleep.  A long job counts as COLD_ROW jobs.  Under the engine's
	 * lock. */
	unsigned nr_row;
	bool clogged;           /* too many operations in the I/O contexts, or the thread is not
				 * ready yet */
	atomic_uint nr_copying; /* the worker's jobs at the copier; written under the lock */
	atomic_uint nr_warm;    /* jobs of nr_copying that are warm */
	bool spare;             /* worker_is_spare() was true when the worker went to sleep */
	bool gets_slots;        /* the worker went to sleep while the pool was growing and requests
				 * were active */
	bool flush_again;       /* the kernel did not accept all operations, so flush again */
	bool feeds;             /* the worker is one of engine->feeders; fixed */
	struct mover mover;     /* moves the parts of the worker's jobs */
	struct list lost;       /* jobs whose operations must be cancelled; under the lock */
	atomic_bool has_lost;   /* lost is not empty; readable without the lock */
	struct list to_copy;    /* jobs whose copies found the stream full */
	struct list copying;    /* jobs whose copies are on the stream, in the order of tickets */
	uint64_t copying_since; /* CLOCK_MONOTONIC ns since when the first job of @copying is the
				 * first */
	struct contention_check look; /* used only by the worker's thread */
	struct check *check;          /* created on first use; only the worker's thread uses check
				       * and check_runs */
	bool check_runs;              /* the device is computing checksums for the check */
	struct job *own;              /* free slots that the worker used last; under the engine's
				       * lock */
	unsigned nr_own;
};

/* The slots of an engine; pool.h. */
struct pool {
	struct list link; /* on the list of all pools */
	/* The pools' lock covers nr_shares and reserve. */
	unsigned nr_shares; /* number of shares; changed under both locks */
	uint64_t reserve;   /* bytes reserved for shares */

	/* The engine's lock covers these. */
	struct list arenas; /* oldest first */
	struct list *roomy; /* first arena that may have a free slot; all arenas before it have
			     * none */
	unsigned ages;      /* arena.age of the next arena */
	unsigned nr_slots, nr_free;
	unsigned nr_busy;    /* number of shares that use a slot */
	unsigned max_slots;  /* maximum slots of this pool: its share of the limit */
	unsigned unmet;      /* free slots that are reserved for shares that use fewer than
			      * SLOT_RESERVED */
	bool growing;        /* growing was requested or is running */
	bool failed;         /* the last attempt to grow failed */
	uint64_t not_before; /* CLOCK_MONOTONIC ns; do not try to grow earlier */
	struct work work;    /* grows the pool, and frees surplus arenas */

	/* Slots only for reads that a stream waits for, because the holder of any other slot may
	 * have to wait for that stream.  Under the engine's lock. */
	struct list feed_arenas;
	struct job *feed_free;
	unsigned nr_feed;
	unsigned nr_feed_lost; /* slots of feed_arenas in use by stopped requests */
	uint64_t feed_bytes;   /* bytes of reserve that are for feed_arenas; under the pools'
			        * lock */
	struct work feed_work; /* adds slots to feed_arenas; ended by feeders_done() */
};

/* Copies that start together; copier.h. */
struct batch {
	struct list jobs;
	uint64_t ticket;
};

struct copier {
	pthread_mutex_t lock; /* taken before the engine's lock; covers the members down to v */
	struct mem_stream *stream;
	struct batch batches[COPIER_BATCHES]; /* ring of batches in flight; the oldest is at index
					       * first */
	unsigned first, nr_batches;
	bool full; /* the stream has no room until a batch completes */
	struct mem_copy v[COPIER_PIECES];
	struct mem_sgl sgls[MEM_SGLS];

	struct list filled; /* jobs that wait to be put into a batch; under the engine's lock */
	atomic_uint nr_filled;
	atomic_uint nr;            /* number of jobs that wait or are in a batch */
	atomic_uint nr_warm;       /* number of jobs in nr that are warm */
	_Atomic uint64_t nr_bytes; /* bytes of the jobs in nr */
	_Atomic uint64_t moved_at; /* CLOCK_MONOTONIC ns when a batch last began or ended, or the
				    * first job was added */
};

struct engine {
	struct list link;
	const struct mem_ops *ops;
	unsigned device;
	uint64_t life; /* mem_life() of the device that the engine serves; a reset of the device
		        * begins another life */
	int node;      /* NUMA node of the device, -1 if unknown */
	const struct io_backend *backend;
	_Atomic int ring_err; /* 0, or the positive errno that made threads replace a worker's
			       * io_uring */
	unsigned refs;        /* number of shares; under the engines' lock */
	bool starts;          /* a thread is creating the engine; under the engines' lock */

	pthread_mutex_t lock; /* covers all members below, and the members of requests that req.h
			       * names */
	struct list active;   /* requests with something to start; they take turns */
	struct list held;     /* requests that wait until their stream reaches an event */
	struct list orders;   /* list of struct order: events that no stream has reached.  Orders
			       * that a worker is querying are not on the list. */
	unsigned nr_asked;    /* orders that a worker is querying now */
	/* The worker that sleeps until streams must be queried again, or was just woken to query
	 * them; or NULL. */
	struct worker *stream_watcher;
	uint64_t nr_asks;   /* how many times all orders were queried */
	uint64_t seen_asks; /* nr_asks when the clock last compared nr_asks */
	/* CLOCK_MONOTONIC ns when the clock compares nr_asks again; or PST_NO_DEADLINE. */
	uint64_t ask_at;
	struct list fed;       /* reads that a stream waits for, with something to start; the first
			        * gets all slots that it can use */
	struct list feeds;     /* all reads that a stream waits for */
	uint64_t feeds_next;   /* CLOCK_MONOTONIC ns; no deadline of feeds is before it */
	struct alarm alarm;    /* rings at feeds_next or ask_at, whichever is earlier; under the
			        * clock's lock */
	struct list checks;    /* requests whose checksums are to be computed; carry/check.h */
	atomic_uint nr_checks; /* length of checks; written under the lock */
	struct pool pool;
	unsigned nr_reqs;     /* active requests that were neither stopped nor returned */
	unsigned nr_slotless; /* requests of nr_reqs with pieces that a path moves without slots */
	unsigned nr_single;   /* reads that their callers copy (single.c) */
	uint64_t many_at;     /* CLOCK_MONOTONIC ns when too many callers last copied (single.c) */
	unsigned nr_cold;     /* consecutive jobs that waited only for a disk; at most COLD_JOBS */
	struct {
		uint64_t bytes;   /* bytes that jobs are reading from the disk, or copying
				   * afterwards */
		struct list jobs; /* jobs counted in @bytes, oldest first */
	} disks[DISKS];           /* the index is the disk's number, see disk.h */
	struct list parking;      /* shares that may have parked requests, served in turn */
	atomic_uint nr_stopping;  /* threads that wait until all segments of a stopped request were
				   * read */
	pthread_cond_t built;     /* signalled when a job's segments were read */
	struct worker *watcher;   /* the worker that sleeps until the copier's batches complete, or
				   * NULL */
	bool stop;

	/* CLOCK_MONOTONIC ns when a worker checks again: paths without slots, old jobs of disks, a
	 * pool that could not grow. */
	uint64_t look;

	atomic_uint nr_orders; /* number of orders; readable without the lock as a hint */

	unsigned worker_jobs; /* jobs after which a worker leaves work to others; fixed */
	uint64_t slot_size;   /* bytes of a slot; fixed */
	uint64_t slot_bytes;  /* slot_size plus the bytes of a slot's list of copies */
	struct proof *proof;  /* proof of the device's copies */
	struct copier copier;
	struct contention contention;
	uint64_t slotted; /* bytes in slots of bounded jobs at the copier; under the lock */
	bool begun;       /* the first worker is ready, or failed to start */
	int begin_err;    /* 0, or the -errno with which the first worker failed to start */
	char begin_text[256];
	pthread_cond_t has_begun;
	unsigned nr_workers;
	unsigned nr_usual;   /* number of workers that take requests of all kinds */
	unsigned nr_needed;  /* number of workers that suffice to keep the device busy; under the
			      * lock */
	unsigned nr_clogged; /* usual workers that are clogged; under the lock */
	struct {
		uint64_t start;     /* CLOCK_MONOTONIC ns when nr_needed was last computed */
		unsigned nr;        /* jobs taken since start */
		uint64_t len;       /* bytes of the jobs counted in nr */
		uint64_t at_copier; /* sum of the bytes at the copier when each of those jobs was
				     * taken */
	} window;
	struct worker workers[WORKERS_MAX];

	pthread_mutex_t feeders_lock; /* held while feeders start, and while slots for them are
				       * allocated */
	bool has_feeders;             /* feeders were started; under feeders_lock */
	unsigned nr_feeders;          /* number of running feeders; under the engine's lock */
	struct worker feeders[FEEDERS];
};

/*
 * Return true if reads wait for a disk.  Then only the first workers take jobs, as many as the disk
 * keeps busy.  If every worker had a few jobs, a disk that completes many reads at once would wake
 * them all, and they would contend for the engine's lock.
 */
static inline bool engine_waits_for_disk(const struct engine *e)
{
	return e->nr_cold >= COLD_JOBS;
}

/* Let the clock ring e->alarm for requests with streams.  Return 0, or -EAGAIN if its thread cannot
 * start. */
static inline int engine_clock(struct engine *e)
{
	return clock_add(&e->alarm);
}

#endif
