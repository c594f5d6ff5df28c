/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the plug-in's C files share.
 *
 * A transfer is planned as parts: requests of libpenstock, each between one file and one region of
 * memory.  Posting a transfer puts its parts into the engine's inbox.  Each worker takes parts out
 * of the inbox and runs them in a queue of its own, so checking a transfer is one atomic load and
 * needs no lock.
 */
#ifndef PENSTOCK_NIXL_PLUG_INT_H
#define PENSTOCK_NIXL_PLUG_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include <penstock.h>

#include "plug.h"

#define PLUG_THREADS_MAX 64

struct plug_opts {
	uint64_t policy; /* PST_POLICY* */
	uint32_t strict;
	uint32_t threads;    /* 1 to PLUG_THREADS_MAX */
	uint32_t depth;      /* requests in flight per worker */
	uint32_t timeout_ms; /* time limit of a request */
	uint32_t backend;    /* PST_BACKEND_* */
	uint32_t sync;       /* a write ends when its bytes are durable */
	uint32_t stable;     /* no program changes the registered files */
};

int plug_opts_parse(const struct plug_param *params, size_t nr, struct plug_opts *ret_opts);

/* ------------------------------------------------------------ regions */

/*
 * An opening of a region.  If a request was lost and may still touch the memory or the file, later
 * requests use a new opening, so that the old one becomes unused even under load.
 */
struct plug_handle {
	unsigned refs; /* parts that use it, and 1 while it is the current one */
	struct pst_mem *mem;
	struct pst_file *file;
};

struct plug_region {
	struct plug_engine *engine;
	enum plug_kind kind;
	uint64_t addr;
	uint64_t len;
	uint64_t dev;
	uint32_t flags; /* PST_FILE_* for opening path */
	bool sync;      /* each write of the file is synced */
	int fd;         /* a duplicate of the program's descriptor, or -1 */
	dev_t st_dev;   /* of the file, which st_ino belongs to */
	ino_t st_ino;
	char *path;                    /* or NULL */
	struct plug_region *next_file; /* under engine->files_lock */

	/* Taken after no other lock but engine->files_lock. */
	pthread_mutex_t lock;
	pthread_cond_t idle; /* active became 0 */
	unsigned refs;       /* the registration's, and one for each planned transfer */
	unsigned active;     /* parts that may touch the memory or the file */
	bool dead;           /* deregistered */
	bool renewing;       /* current is being replaced */
	struct plug_handle *current;
};

/* Hold a region for a planned transfer.  Return false if it is deregistered. */
bool plug_region_ref(struct plug_region *r);
void plug_region_unref(struct plug_region *r);
bool plug_region_alive(struct plug_region *r);
/* Begin to use a region.  Return its opening, or NULL if the region is deregistered. */
struct plug_handle *plug_region_begin(struct plug_region *r);
void plug_region_end(struct plug_region *r, struct plug_handle *h);
/*
 * Give later users another opening than h.  A file is opened by another thread, and only if its
 * path still names it.
 */
void plug_region_renew(struct plug_region *r, struct plug_handle *h);
/* Name a file for the log. */
const char *plug_region_name(const struct plug_region *r, char *buf, size_t len);

/* ---------------------------------------------------------- transfers */

struct plug_part {
	struct plug_req *req;
	struct plug_part *next;  /* in the inbox, or among a worker's lost parts */
	struct plug_region *mem; /* NULL: sync the file */
	struct plug_region *file;
	struct plug_handle *mem_handle;
	struct plug_handle *file_handle;
	const struct pst_seg *segs;
	uint64_t nr_segs;
	uint64_t len;  /* bytes of all segments */
	unsigned slot; /* index in the worker's flight */
};

enum plug_state {
	PLUG_IDLE, /* never posted */
	PLUG_RUNS,
	PLUG_ENDED, /* req->result is valid */
};

struct plug_req {
	struct plug_engine *engine;
	bool write;
	bool syncing; /* the writes ended and the syncs run */
	unsigned nr_parts;
	unsigned nr_syncs;
	struct plug_part *parts; /* nr_parts, then nr_syncs */
	struct pst_seg *segs;
	struct plug_region **regions; /* each held once */
	size_t nr_regions;
	atomic_uint left;   /* parts that have not ended */
	atomic_int err;     /* -errno of the first part that failed */
	atomic_bool cancel; /* end as soon as possible */
	int result;
	_Atomic enum plug_state state; /* stored with release order, after result */
};

/* Note that a part failed.  The first failure is logged with text and becomes the result. */
void plug_part_fail(struct plug_part *part, int err, const char *text);
/* End nr parts of a transfer, which nothing touches any more; the last one ends the transfer. */
void plug_req_parts_end(struct plug_req *req, unsigned nr);

/* ------------------------------------------------------------- engine */

struct plug_worker {
	struct plug_engine *engine;
	pthread_t thread;
	bool started;
	struct pst_queue *queue;
	int wake;                  /* eventfd */
	bool asleep;               /* under engine->lock: a write to wake is needed */
	bool full;                 /* under engine->lock: sleeps and can take no part */
	struct plug_part **flight; /* nr_flight parts in the queue */
	unsigned nr_flight;
	unsigned nr_prepared;   /* of these, not submitted yet */
	struct plug_part *lost; /* completed, but something may still touch their memory */
	unsigned cancels;       /* value of engine->cancels that was acted upon */
};

struct plug_engine {
	struct plug_opts opts;
	pid_t pid; /* process with the worker threads */
	pthread_mutex_t files_lock;
	struct plug_region *files;

	/* Taken after no other lock. */
	pthread_mutex_t lock;
	pthread_cond_t ended;            /* a transfer ended */
	struct plug_part *first, **last; /* the inbox */
	unsigned nr_inbox;
	unsigned cancels; /* number of cancelled transfers */
	bool stop;

	unsigned nr_workers;
	struct plug_worker workers[PLUG_THREADS_MAX];
};

/*
 * Return true in the process that created the engine.  In a forked child no worker runs, and a lock
 * may be held for ever, so calls there fail or do nothing.
 */
bool plug_engine_is_ours(const struct plug_engine *e);
/* Put parts[0] to parts[nr - 1] into the inbox, and wake workers. */
void plug_engine_push(struct plug_engine *e, struct plug_part *parts, unsigned nr);
/* Take all parts of a transfer out of the inbox.  Return their number. */
unsigned plug_engine_remove(struct plug_engine *e, const struct plug_req *req);
/* Make all workers cancel the transfers that have cancel set. */
void plug_engine_cancel(struct plug_engine *e);
void *plug_worker_main(void *arg);

/* Initialize a condition for waits until a time of CLOCK_MONOTONIC. */
int plug_cond_init(pthread_cond_t *cond);
/* Return the time seconds from now. */
struct timespec plug_after(unsigned seconds);

#endif
