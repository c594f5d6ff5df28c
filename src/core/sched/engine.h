/* SPDX-License-Identifier: MIT */
/*
 * The engine of a device: its workers and slots.
 *
 * turns.c decides which request gets the next slot, wake.c which worker takes it, job_size.c how
 * much of the request, and pool.c provides slots.  In core/carry, engines.c creates engines, and
 * worker.c runs their threads, on which job.c moves the pieces of a slot through file and device.
 *
 * A slot belongs to one worker from engine_next() to engine_job_done().  An engine exists while a
 * queue that used its device exists.  Its workers take turns over the requests of all queues under
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

#define JOB_PIECES 256u /* most pieces in one slot */
/* Bytes of slots that a worker fills before it leaves some to others. */
#define WORKER_BYTES MIB(8)
#define WORKER_JOBS_MIN 2u /* but at least these jobs: one is read while another is copied */
/* Bytes that jobs read at a time from a disk with one hardware queue. */
#define DISK_BYTES MIB(8)
#define DISK_OLD_NS 500000000u /* nanoseconds after which a job of such a disk no longer counts */
#define CTX_DEPTH 512u         /* most file operations of one worker */
/* Most workers: more were not faster with PCIe 5 x16 and sixteen CPUs. */
#define WORKERS_MAX 15u
#define WORKERS_USUAL 12u   /* workers that take requests of all kinds */
#define FEEDERS 4u          /* threads for reads that a stream waits for */
#define SHARED_MIN KIB(256) /* a longer read is divided among workers, see engine_part() */
#define PART_MIN KIB(128)   /* least bytes of a job of a divided read */
#define PART_COLD KIB(512)  /* the same if a disk must be waited for */
/* Longer pieces without a slot wait until they are copied together. */
#define LONG_PIECE KIB(256)
#define LONG_JOBS 48u /* most jobs with such pieces */
/* Consecutive jobs after which reads are said to wait for a disk and not for CPUs. */
#define COLD_JOBS 8u

#define COPIER_BATCHES 2u   /* one is copied, and one waits so that the device is never idle */
#define COPIER_PIECES 1024u /* most pieces of a batch without lists */
#define COPIER_BYTES MIB(8) /* most bytes of a batch, unless one slot has more */

struct check;
struct engine;
struct job;

/* Contiguous bytes of device memory, moved by one device copy. */
struct span {
	uint64_t mem_off; /* offset in the allocation */
	uint64_t len;
	char *data;    /* the bytes in the slot */
	unsigned part; /* index of the part that holds the bytes */
};

/* A slot of staging memory and the pieces in it. */
struct job {
	struct list link;   /* on the worker's list for the job's state */
	struct list of_req; /* on the list of its request */
	struct job *next_free;
	struct arena *arena;
	char *buf;      /* slot_size bytes, page aligned, pinned */
	char *sgl_room; /* pinned memory for the list of copies, or NULL if the device reads no
			 * lists */
	struct io_buf *reg;
	struct engine *engine;
	struct req *req;
	uint64_t pos, len; /* range in piece order */
	unsigned nr_parts, nr_spans;
	unsigned nr_moving; /* parts */
	struct cursor from; /* claimed pieces that are not in parts and spans yet */
	bool claimed;
	struct mem_sgl sgl; /* list of the copies; nr is 0 if they have none */
	uint64_t ticket;    /* ticket on the worker's stream */
	int copy_err;       /* positive errno of the copier's batch */
	uint64_t limit, err_pos;
	int err;
	uint32_t why;
	int detail;
	uint32_t flags;
	uint32_t paths;
	uint64_t hop_bytes[HOPS_MAX]; /* bytes moved by each hop of the plan */
	uint32_t dev_path;            /* path of the copies */
	uint32_t crc;
	uint64_t crc_len;
	struct worker *worker;
	bool mapped;         /* the device copies from or to req_plan(req)->from, not the slot */
	bool source_used;    /* the source was begun, and end() is due */
	bool beyond_slot;    /* its one piece may be longer than the slot */
	bool alone;          /* copied alone, because a batch with it failed */
	bool at_copier;      /* the job is counted in worker->nr_copying */
	bool warm;           /* counted in nr_warm */
	bool bounded;        /* limited under contention */
	bool touches;        /* counted in nr_touch of its request, else in nr_file */
	uint8_t disk;        /* index in engine->disks, which counts the job; or DISK_NONE */
	uint64_t disk_len;   /* bytes of the job that engine->disks counts */
	uint64_t disk_since; /* when engine->disks began to count them */
	struct list of_disk; /* the disk's list of jobs */
	bool lost;           /* its request was stopped, so it is not counted in worker->nr_jobs */
	struct list of_lost; /* on worker->lost */
	bool fed;            /* the slot is only for reads that a stream waits for; fixed */
	uint64_t sent_at;    /* when the copy of such a read was sent */
	struct part parts[JOB_PIECES]; /* parts; pieces that are adjacent in the file share one */
	struct span spans[JOB_PIECES];
};

/* Contention for the engine's CPUs, see contention.h. */
struct contention {
	atomic_bool here;
	_Atomic uint64_t since; /* when contention was last seen */
};

/* What a worker's thread had counted at its last check. */
struct contention_check {
	unsigned nr_jobs;     /* jobs begun since the check */
	uint64_t nr_switches; /* interruptions of the thread until the check */
	uint64_t cpu_ns;      /* CPU time of the thread until the check */
};

struct worker {
	struct engine *engine;
	pthread_t thread;
	bool started;
	struct io_ctx *ctx;
	struct io_others others;   /* I/O contexts of providers whose files were used */
	struct own_files files;    /* descriptors of its own for files that are read in many
				    * pieces */
	struct mem_stream *stream; /* for writes, and for many pieces without a list; created
				    * when needed */
	int efd;                   /* eventfd that wakes the worker: new requests, its I/O
				    * context */
	atomic_bool begun;         /* the worker is ready */
	atomic_bool sleeping;      /* written under the engine's lock */
	bool woken;                /* woken, and has not looked for a job since; under the
				    * engine's lock */
	unsigned nr_jobs;          /* jobs of the worker; under the engine's lock */
	/* Jobs taken since it slept, long ones counted several times; under the engine's lock. */
	unsigned nr_row;
	bool clogged;           /* too many operations in its I/O contexts, or not ready yet */
	atomic_uint nr_copying; /* jobs at the copier; written under the lock */
	atomic_uint nr_warm;    /* those of nr_copying for which is_warm() of job.c is true */
	bool spare;             /* it was spare when it went to sleep */
	bool gets_slots;        /* it went to sleep while the pool was growing and there was
				    * work */
	bool flush_again;       /* the kernel did not accept all operations */
	bool feeds;             /* it is one of engine->feeders; fixed */
	struct mover mover;     /* mover of its jobs' parts */
	struct list lost;       /* jobs whose operations must be cancelled; under the lock */
	atomic_bool has_lost;   /* lost is not empty; read without the lock */
	struct list to_copy;    /* jobs whose copies the stream had no room for */
	struct list copying;    /* jobs on the stream, in the order of tickets */
	uint64_t copying_since; /* when the first job of copying became the first */
	struct contention_check look; /* used by its thread only */
	struct check *check;          /* made when needed; its thread's, as is check_runs */
	bool check_runs;              /* the device computes checksums for the check */
	struct job *own;              /* free slots that it used last; under the engine's lock */
	unsigned nr_own;
};

/* The slots of an engine; pool.h. */
struct pool {
	struct list link; /* on the list of all pools */
	/* Under the pools' lock. */
	unsigned nr_shares; /* changed under both locks */
	uint64_t reserve;   /* bytes reserved for shares */

	/* Under the engine's lock. */
	struct list arenas; /* oldest first */
	struct list *roomy; /* no arena before this one has a free slot */
	unsigned ages;      /* age of the next arena */
	unsigned nr_slots, nr_free;
	unsigned nr_busy;    /* shares that have a slot */
	unsigned max_slots;  /* the pool's share of the limit */
	unsigned unmet;      /* free slots reserved for shares that have fewer than SLOT_RESERVED */
	bool growing;        /* growing was requested or is running */
	bool failed;         /* the last attempt to grow failed */
	uint64_t not_before; /* when to try to grow again */
	struct work work;    /* grows the pool, and frees surplus arenas */

	/* Slots only for reads that a stream waits for: a job with any other slot may have to wait
	 * for that stream.  Under the engine's lock. */
	struct list feed_arenas;
	struct job *feed_free;
	unsigned nr_feed;
	unsigned nr_feed_lost; /* slots of feed_arenas in use by stopped requests */
	uint64_t feed_bytes;   /* part of reserve; under the pools' lock */
	struct work feed_work; /* adds such slots; feeders_done() ends it */
};

/* Copies that start together; copier.h. */
struct batch {
	struct list jobs;
	uint64_t ticket;
};

struct copier {
	pthread_mutex_t lock; /* taken before the engine's lock; covers the members down to v */
	struct mem_stream *stream;
	struct batch batches[COPIER_BATCHES]; /* batches in flight, in order from first on */
	unsigned first, nr_batches;
	bool full; /* the stream has no room until a batch ends */
	struct mem_copy v[COPIER_PIECES];
	struct mem_sgl sgls[MEM_SGLS];

	struct list filled; /* jobs that wait for a batch; under the engine's lock */
	atomic_uint nr_filled;
	atomic_uint nr;            /* jobs that wait or are in a batch */
	atomic_uint nr_warm;       /* jobs of nr that are warm */
	_Atomic uint64_t nr_bytes; /* bytes of the jobs in nr */
	_Atomic uint64_t moved_at; /* when a batch last began or ended, or the first job came */
};

struct engine {
	struct list link;
	const struct mem_ops *ops;
	unsigned device;
	uint64_t life; /* the device's life when the engine began; it serves only memory of that
			* life */
	int node;      /* NUMA node of the device, -1 if unknown */
	const struct io_backend *backend;
	_Atomic int ring_err; /* 0, or the positive errno because of which threads replaced a
			       * worker's io_uring */
	unsigned refs;        /* shares; under the engines' lock */
	bool starts;          /* a thread is starting the engine; under the engines' lock */

	pthread_mutex_t lock; /* covers everything below, and the members of requests that req.h
			       * names */
	struct list active;   /* requests with something to start, by turns */
	struct list held;     /* requests whose stream has not come to its event */
	struct list orders;   /* orders whose event no stream has reached */
	unsigned nr_asked;    /* orders that a worker is querying, which are not on orders */
	/* The worker that sleeps until streams must be queried again, or was just woken for it; or
	 * NULL. */
	struct worker *stream_watcher;
	uint64_t nr_asks;      /* number of times that all orders were queried */
	uint64_t seen_asks;    /* nr_asks when the clock last looked */
	uint64_t ask_at;       /* when the clock looks again, or PST_NO_DEADLINE */
	struct list fed;       /* reads that a stream waits for, with something to start; the first
			      * one gets all slots that it can use */
	struct list feeds;     /* reads that a stream waits for now */
	uint64_t feeds_next;   /* no deadline of feeds is earlier */
	struct alarm alarm;    /* rings at feeds_next and ask_at; under the clock's lock */
	struct list checks;    /* requests whose bytes are to be checked; carry/check.h */
	atomic_uint nr_checks; /* on that list; written under the lock */
	struct pool pool;
	unsigned nr_reqs;     /* activated requests that were neither stopped nor returned */
	unsigned nr_slotless; /* those of nr_reqs with pieces that a path moves without slots */
	unsigned nr_single;   /* reads that their callers copy (single.c) */
	uint64_t many_at;     /* when too many requests waited for callers to copy */
	unsigned nr_cold;     /* consecutive jobs that waited only for a disk, up to a few */
	struct {
		uint64_t bytes;   /* bytes that jobs read or copy now */
		struct list jobs; /* those jobs, oldest first */
	} disks[DISKS];           /* indexed as disk.h numbers disks */
	struct list parking;      /* shares that have or had parked requests, served in turn */
	atomic_uint nr_stopping;  /* threads that wait until segments are built */
	pthread_cond_t built;     /* signalled when they are built */
	struct worker *watcher;   /* the worker that sleeps until the copier's batches end, or
				   * NULL */
	bool stop;

	/* When to look again at paths that move pieces without slots, at old disks, and at a pool
	 * that could not grow. */
	uint64_t look;

	atomic_uint nr_orders; /* number of orders; a hint without the lock */

	unsigned worker_jobs; /* slots that a worker takes although others could; fixed */
	uint64_t slot_size;   /* bytes of a slot; fixed */
	uint64_t slot_bytes;  /* bytes of a slot and its list of copies */
	struct proof *proof;  /* proof of the device's copies */
	struct copier copier;
	struct contention contention;
	uint64_t slotted; /* bytes in slots of jobs at the copier that are limited under
			   * contention; under the lock */
	bool begun;       /* the first worker is ready, or cannot be */
	int begin_err;    /* why the first worker cannot be ready */
	char begin_text[256];
	pthread_cond_t has_begun;
	unsigned nr_workers;
	unsigned nr_usual;   /* workers that take requests of all kinds */
	unsigned nr_needed;  /* workers that keep the device busy; under the lock */
	unsigned nr_clogged; /* usual workers that are clogged; under the lock */
	struct {
		uint64_t start;     /* when nr_needed was last computed */
		unsigned nr;        /* jobs taken since start */
		uint64_t len;       /* bytes of those jobs */
		uint64_t at_copier; /* sum of the bytes at the copier when each of those jobs was
				     * taken */
	} window;
	struct worker workers[WORKERS_MAX];

	pthread_mutex_t feeders_lock; /* held while feeders start, and while they get slots */
	bool has_feeders;             /* feeders exist; under feeders_lock */
	unsigned nr_feeders;          /* feeders; under the engine's lock */
	struct worker feeders[FEEDERS];
};

/*
 * Return true if reads wait for a disk.  Then the first workers do all of the work, as many as that
 * keeps busy.  If all workers had a few jobs, a disk that ends many at once would wake all of them,
 * and they would contend for the engine's lock.
 */
static inline bool engine_waits_for_disk(const struct engine *e)
{
	return e->nr_cold >= COLD_JOBS;
}

/* Let the clock watch requests with streams.  Return 0, or -EAGAIN if its thread cannot start. */
static inline int engine_clock(struct engine *e)
{
	return clock_add(&e->alarm);
}

#endif
