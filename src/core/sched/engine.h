/* SPDX-License-Identifier: MIT */
/*
 * The engine of a device, its workers and slots.
 *
 * turns.c decides which request gets the next slot, wake.c which worker takes it, job_size.c how
 * much of the request, and pool.c has slots for it.  In core/carry, engines.c has the engines, and
 * worker.c is the threads, on which job.c takes a slot with its pieces through file and device.  A
 * slot belongs to one worker from engine_next() to engine_job_done().
 *
 * An engine exists while a queue that used its device does.  Its workers take turns over the
 * requests of all queues under one lock, once for each slot.
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

#define JOB_PIECES 256u        /* pieces in one slot */
#define WORKER_BYTES MIB(8)    /* slots that a worker fills before it leaves some to others: */
#define WORKER_JOBS_MIN 2u     /* one is read while another is copied */
#define DISK_BYTES MIB(8)      /* of a disk with one queue that jobs have at a time, */
#define DISK_OLD_NS 500000000u /* but for those that are not through after so long */
#define CTX_DEPTH 512u         /* file operations of one worker */
#define WORKERS_MAX 15u        /* as far as PCIe 5 x16 and sixteen CPUs were measured, */
#define WORKERS_USUAL 12u      /* of which so many take requests of all kinds */
#define FEEDERS 4u             /* threads for reads that a stream waits for */
#define SHARED_MIN KIB(256)    /* a read beyond this is shared out, see engine_part(), */
#define PART_MIN KIB(128)      /* in jobs of at least that, */
#define PART_COLD KIB(512)     /* or that where a disk is waited for */
#define LONG_PIECE KIB(256)    /* pieces from here on that need no slot wait for one another, */
#define LONG_JOBS 48u          /* so many jobs at most */
#define COLD_JOBS 8u           /* in a row: reads wait for a disk, and not for CPUs */

#define COPIER_BATCHES 2u   /* one is copied, and one waits so that the device does not */
#define COPIER_PIECES 1024u /* of a batch without lists */
#define COPIER_BYTES MIB(8) /* of a batch; more where one slot has more */

struct engine;
struct job;

/* Contiguous bytes of device memory, for one device copy. */
struct span {
	uint64_t mem_off; /* in the allocation */
	uint64_t len;
	char *data;    /* in the slot */
	unsigned part; /* which holds the bytes */
};

/* A slot of staging memory and the pieces in it. */
struct job {
	struct list link;   /* worker's list for its state */
	struct list of_req; /* of its request */
	struct job *next_free;
	struct arena *arena;
	char *buf;      /* slot_size bytes, page aligned, pinned */
	char *sgl_room; /* pinned, for the list of its copies; NULL: the device reads none */
	struct io_buf *reg;
	struct engine *engine;
	struct req *req;
	uint64_t pos, len; /* range in piece order */
	unsigned nr_parts, nr_spans;
	unsigned nr_moving; /* parts */
	struct cursor from; /* of claimed pieces, which are not in parts and spans yet */
	bool claimed;
	struct mem_sgl sgl; /* of its copies; nr is 0 where they have no list */
	uint64_t ticket;    /* on its worker's stream */
	int copy_err;       /* of the copier's batch, positive */
	uint64_t limit, err_pos;
	int err;
	uint32_t why;
	int detail;
	uint32_t flags;
	uint32_t paths;
	uint64_t hop_bytes[HOPS_MAX]; /* by hops of the plan */
	uint32_t dev_path;            /* that the copies took */
	uint32_t crc;
	uint64_t crc_len;
	struct worker *worker;
	bool mapped;         /* copies come from req_plan(req)->from, the slot is not filled */
	bool alone;          /* copied by itself, because a batch with it failed */
	bool at_copier;      /* the job is counted in worker->nr_copying */
	bool warm;           /* the job is counted in nr_warm */
	bool bounded;        /* of a read that waits for other bytes in a contention */
	bool touches;        /* counted in nr_touch of its request, else in nr_file */
	uint8_t disk;        /* index in engine->disks, which counts the job; or DISK_NONE */
	uint64_t disk_len;   /* bytes of the job that engine->disks counts */
	uint64_t disk_since; /* when engine->disks began to count them */
	struct list of_disk; /* the disk's list of jobs */
	bool lost;           /* its request was stopped: not counted in worker->nr_jobs */
	struct list of_lost; /* worker->lost */
	bool fed;            /* the slot is for reads that a stream waits for, fixed */
	uint64_t sent_at;    /* when such a read's copy was sent */
	struct part parts[JOB_PIECES]; /* pieces that are adjacent in the file are one */
	struct span spans[JOB_PIECES];
};

/* Do others want its CPUs?  contention.h. */
struct contention {
	atomic_bool here;
	_Atomic uint64_t since; /* seen last */
};

/* A worker keeps this of its own thread, from its last look on. */
struct contention_check {
	unsigned nr_jobs;     /* begun since */
	uint64_t nr_switches; /* how often the thread was interrupted since it began */
	uint64_t cpu_ns;      /* how long the thread has run since it began */
};

struct worker {
	struct engine *engine;
	pthread_t thread;
	bool started;
	struct io_ctx *ctx;
	struct io_others others;   /* of providers whose files it has seen */
	struct own_files files;    /* read in many pieces */
	struct mem_stream *stream; /* of writes, and of many pieces without a list; NULL at first */
	int efd;                   /* wakes it: new requests, its I/O context */
	atomic_bool begun;         /* it has all that it needs */
	atomic_bool sleeping;      /* written under the engine's lock */
	bool woken;                /* and has not looked for a job since; under the engine's lock */
	unsigned nr_jobs;          /* under the engine's lock, as is: */
	unsigned nr_row;           /* jobs taken since it slept, long ones counted several times */
	bool clogged;              /* by operations in its I/O contexts, or it has not begun */
	atomic_uint nr_copying;    /* jobs at the copier; written under the lock; */
	atomic_uint nr_warm;       /* of these, job.c's is_warm() */
	bool spare;                /* as it went to sleep, */
	bool gets_slots;           /* while the pool grew and there was work */
	bool flush_again;          /* the kernel could not take all operations */
	bool feeds;                /* it is one of engine->feeders, fixed */
	struct mover mover;        /* of the job's parts */
	struct list lost;          /* jobs whose operations are to be canceled; under the lock */
	atomic_bool has_lost;      /* lost is not empty; for a look without the lock */
	struct list to_copy;       /* jobs whose copies the stream had no room for */
	struct list copying;       /* on the stream, in order of tickets, */
	uint64_t copying_since;    /* and when the first of them became that */
	struct contention_check look; /* by its thread */
	struct job *own;              /* free slots that it used last; under the engine's lock */
	unsigned nr_own;
};

/* The slots of an engine; pool.h. */
struct pool {
	struct list link; /* of all pools */
	/* Under the pools' lock. */
	unsigned nr_shares; /* changes under the engine's lock, too */
	uint64_t reserve;   /* bytes that they are sure of */

	/* Under the engine's lock. */
	struct list arenas; /* oldest first */
	struct list *roomy; /* none before it has a free slot */
	unsigned ages;      /* of the next arena */
	unsigned nr_slots, nr_free;
	unsigned nr_busy;    /* shares that have a slot */
	unsigned max_slots;  /* its part of the bound */
	unsigned unmet;      /* free slots that shares below SLOT_RESERVED may claim */
	bool growing;        /* asked for, or under way */
	bool failed;         /* the last time it was tried */
	uint64_t not_before; /* when to try again */
	struct work work;    /* grows, and gives back */

	/* Slots for reads that a stream waits for, and for nothing else: a job with any other slot
	 * may have to wait for that stream.  Under the engine's lock. */
	struct list feed_arenas;
	struct job *feed_free;
	unsigned nr_feed;
	unsigned nr_feed_lost; /* of these, in use by requests that were stopped */
	uint64_t feed_bytes;   /* part of reserve; under the pools' lock */
	struct work feed_work; /* has more of them; feeders_done() ends it */
};

/* Copies that go together; copier.h. */
struct batch {
	struct list jobs;
	uint64_t ticket;
};

struct copier {
	pthread_mutex_t lock; /* taken before the engine's; of everything up to v */
	struct mem_stream *stream;
	struct batch batches[COPIER_BATCHES]; /* under way, in order from first on */
	unsigned first, nr_batches;
	bool full; /* the stream has no room until a batch ends */
	struct mem_copy v[COPIER_PIECES];
	struct mem_sgl sgls[MEM_SGLS];

	struct list filled; /* jobs that wait; under the engine's lock */
	atomic_uint nr_filled;
	atomic_uint nr;            /* jobs that wait or are in a batch */
	atomic_uint nr_warm;       /* those of nr that are warm */
	_Atomic uint64_t nr_bytes; /* bytes of the jobs of nr */
	_Atomic uint64_t moved_at; /* when a batch last began or ended, or the first job came */
};

struct engine {
	struct list link;
	const struct mem_ops *ops;
	unsigned device;
	uint64_t life; /* of the device when it began: it serves memory of that one alone */
	int node;      /* of the device, -1 for unknown */
	const struct io_backend *backend;
	_Atomic int ring_err; /* 0, or why threads stand in for a worker's ring: a positive errno */
	unsigned refs;        /* shares; under the engines' lock */
	bool starts;          /* a thread starts the engine; under the engines' lock */

	pthread_mutex_t lock; /* everything below, and the members of requests that req.h names */
	struct list active;   /* requests with something to start, by turns */
	struct list held;     /* requests whose stream has not come to its event */
	struct list orders;   /* with events that no stream has come to, */
	unsigned nr_asked;    /* but those that a worker asks for just now */
	struct worker
		*stream_watcher; /* sleeps until they are to be asked for again, or was just woken
				 * for that, or NULL */
	uint64_t nr_asks;        /* times that somebody has asked for all of them, */
	uint64_t seen_asks;      /* when the clock looked last; */
	uint64_t ask_at;         /* then it looks again, PST_NO_DEADLINE where there are none */
	struct list fed;     /* reads that a stream waits for, with something to start; the first
			      * gets all slots that it can use */
	struct list feeds;   /* reads that a stream waits for now */
	uint64_t feeds_next; /* no deadline of these is earlier */
	struct alarm alarm;  /* for that, and ask_at; under the clock's lock */
	struct pool pool;
	unsigned nr_reqs;     /* activated, and neither stopped nor handed back, */
	unsigned nr_slotless; /* and of these, those with pieces that a path moves without slots */
	unsigned nr_single;   /* reads that their callers copy: single.c; */
	uint64_t many_at;     /* when too many waited for that */
	unsigned nr_cold;     /* jobs in a row that waited for a disk alone, up to a few */
	struct {
		uint64_t bytes;   /* that jobs read or copy now, */
		struct list jobs; /* these, the first to begin first */
	} disks[DISKS];           /* as disk.h counts them */
	struct list parking;      /* shares with parked requests, or that had some, by turns */
	atomic_uint nr_stopping;  /* threads that wait until segments are built, */
	pthread_cond_t built;     /* for this */
	struct worker *watcher;   /* who sleeps until the copier's batches end, or NULL */
	bool stop;

	/* When to look again at paths that move pieces without slots, at old disks, and at a pool
	 * that could not grow. */
	uint64_t look;

	atomic_uint nr_orders; /* there are; a hint where the lock is not held */

	unsigned worker_jobs; /* slots a worker takes without need, fixed */
	uint64_t slot_size;   /* bytes of a slot, fixed, */
	uint64_t slot_bytes;  /* with its list of copies */
	struct proof *proof;  /* of the device's copies */
	struct copier copier;
	struct contention contention;
	uint64_t slotted; /* bytes in slots of bounded jobs at the copier; under the lock */
	bool begun;       /* the first worker, or it cannot: */
	int begin_err;    /* why */
	char begin_text[256];
	pthread_cond_t has_begun;
	unsigned nr_workers;
	unsigned nr_usual;   /* of these, workers that take requests of all kinds, */
	unsigned nr_needed;  /* and those that keep the device busy; under the lock, as are: */
	unsigned nr_clogged; /* of the usual ones */
	struct {
		uint64_t start;     /* when nr_needed was looked at; since then */
		unsigned nr;        /* jobs were taken, */
		uint64_t len;       /* of so many bytes in all, */
		uint64_t at_copier; /* and the copier had these each time, in all */
	} window;
	struct worker workers[WORKERS_MAX];

	pthread_mutex_t feeders_lock; /* is held while they start, and while they get slots */
	bool has_feeders;             /* under that lock */
	unsigned nr_feeders;          /* under the engine's lock */
	struct worker feeders[FEEDERS];
};

/*
 * Do reads wait for a disk?  Then the first workers do all of it, as many as that keeps busy.  If
 * all had a few jobs, a disk that ends many at once would wake all at once, and they would spend
 * their time on the engine's lock.
 */
static inline bool engine_waits_for_disk(const struct engine *e)
{
	return e->nr_cold >= COLD_JOBS;
}

/* The clock looks after requests with streams from now on: 0, or -EAGAIN without a thread. */
static inline int engine_clock(struct engine *e)
{
	return clock_add(&e->alarm);
}

#endif
