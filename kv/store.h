/* SPDX-License-Identifier: MIT */
/*
 * An open store.  One lock protects all of it, and is not held during calls that may wait for a
 * disk.  A thread that changes both the file of a block and the index (rename, unlink) takes the
 * space's lock against a drop, then the block's stripe, which is another lock, and then the store's
 * lock.  used counts the bytes of each file from their reservation until the file is unlinked and
 * nobody reads it; files is the number of these files.  The policies hold only published blocks, so
 * the sum of their bytes never exceeds used.
 */
#ifndef KV_STORE_H
#define KV_STORE_H

#include <pthread.h>
#include <stdatomic.h>

#include <penstock_kv.h>

#include "base/base.h"
#include "base/list.h"
#include "tier/index.h"
#include "tier/policy.h"

#include "kv/block.h"
#include "kv/hash.h"
#include "kv/root.h"

#define STRIPES 64u
#define UNIT 4096u /* bytes; file lengths are rounded up to multiples of this */
#define BUDGET_MIN MIB(1)
#define TEMP_LEN 32u /* bytes of a temporary file's name */
/* Maximum callers of pst_kv_run() that read blocks themselves at the same time. */
#define CALLERS_MAX 16u

/* The blocks that one policy manages: those of all spaces without a quota, or those of one space
 * with a quota. */
struct cache {
	struct tier_policy *policy;
	uint64_t capacity, used;
	uint64_t remembered; /* evicted keys in the policy, as cache_trim() counted them last */
};

struct space {
	uint64_t hash;
	char *prefix;            /* served store: start of its blocks' names */
	char *identity, *tenant; /* NULL if the space was found on disk without its file of words */
	uint64_t quota;
	struct cache *cache;
	struct cache own;
	pthread_rwlock_t dropping; /* held shared to change a block's file, and exclusively by a
				    * drop */
};

enum job_state {
	JOB_QUEUED,
	JOB_PATH, /* a thread executes the job, without using the caller's memory */
	JOB_IO,   /* a request uses the caller's memory, and ends at the deadline */
	JOB_DONE, /* the job has a result; a thread may still be in a call begun in JOB_PATH */
};

struct batch;

/* One block of a batch. */
struct job {
	struct batch *batch;
	struct list link; /* on kv->queue */
	enum job_state state;
	struct pst_kv_item item; /* the key is a copy in the batch */
	uint64_t hash;
	uint64_t size; /* bytes that a SET reserved */
};

struct batch {
	struct list link; /* on kv->batches or kv->ended */
	struct pst_kv *kv;
	uint32_t op, space;
	uint64_t deadline_ns;
	int64_t *results;
	unsigned left; /* number of jobs without a result */
	unsigned refs; /* held by the store, and by threads that execute its jobs */
	bool waited;   /* true: pst_kv_run() takes the completion, pst_kv_reap() does not */
	bool ended;
	struct pst_kv_done done;
	struct job *jobs;
	unsigned nr;
};

/* A thread of the store, or a caller of pst_kv_run() that reads blocks itself. */
struct worker {
	struct pst_kv *kv;
	bool is_caller; /* must not wait for a disk, and has no queue */
	bool taken;     /* for a caller: the entry is in use */
	pthread_t thread;
	bool started;
	bool running; /* the thread has not ended */
	struct pst_queue *queue;
	struct remote_talk *talk; /* connection to the server of the store, or NULL */
	struct pst_mem *bounce;
	uint64_t bounce_len;
	uint64_t reading; /* if is_reading: hash of the block whose file is open */
	bool is_reading;
	uint64_t zombie;  /* bytes and cache of the open file if it was unlinked meanwhile */
	uint64_t zombies; /* number of unlinked files: a block may be set again more than once */
	struct cache *zombie_cache;
};

struct pst_kv {
	pthread_mutex_t lock;
	pthread_cond_t work;   /* wakes workers: there are jobs, or the store closes */
	pthread_cond_t tick;   /* wakes the owner thread: there is a new batch, or the store
			        * closes */
	pthread_cond_t reaped; /* signalled when there are completions */
	pthread_mutex_t stripes[STRIPES];
	pthread_mutex_t naming; /* held to write a file of words; taken before lock */

	struct root root;
	struct remote_server *server;              /* NULL unless the store is served */
	bool reader, sync, bounce, ending, broken; /* broken: used may be wrong */
	uint64_t budget, reserve, used, touch_ns, timeout_ns;
	uint64_t max_blocks, files; /* max_blocks: maximum files that used may include; files: their
				     * number now */
	uint64_t remembered;        /* sum of all caches' remembered; at most max_blocks */
	uint64_t quota; /* replaces the quotas of spaces on disk; 0: they keep their own */
	const struct tier_policy_ops *ops;
	struct cache common;
	struct space *spaces[PST_KV_SPACES_MAX];
	unsigned nr_spaces;
	uint64_t pending[DIRS_MAX]; /* by directory: bytes reserved for sets that are not written
				     * yet */

	struct list queue;   /* jobs that wait for a thread */
	struct list batches; /* batches in flight */
	struct list ended;   /* completed batches to be reaped */
	int efd;
	pthread_t owner;
	bool owner_started;
	struct worker workers[PST_KV_THREADS_MAX];
	unsigned nr_workers;
	struct worker callers[CALLERS_MAX];
	uint64_t next_look; /* CLOCK_MONOTONIC ns when the owner thread checks deadlines next */
	unsigned refs;      /* held by the caller and by each running worker */
	uint64_t next_temp;
	struct list busy; /* list of struct busy: memory that the kernel may still use */
	unsigned nr_busy;
	uint64_t use; /* logical clock of the policies */

	struct list lent;    /* files of blocks that a server lends: lend.c */
	uint64_t lent_bytes; /* bytes reserved for files that clients write */
	uint64_t lent_files; /* number of files that clients write */
	struct list shares;  /* list of struct share: the part of each client in lent_bytes */

	struct list events; /* queues of events: event.c */

	struct pst_kv_stat stat;
};

/* Return true if this process has the index of the blocks. */
static inline bool store_has_index(const struct pst_kv *kv)
{
	return !kv->reader && !kv->server;
}

/* ------------------------------------------------------- kv.c */

/* Open a store as pst_kv_open() does, but apply a quota to each space on disk, unless quota is 0.
 * The spaces' files keep their own quotas. */
int kv_open(const char *const *dirs, unsigned nr, const struct pst_kv_opts *opts, uint64_t quota,
	    struct pst_kv **ret_kv);
/* Check whether a store could be opened, and change nothing.  Return 0, or -errno with a
 * sentence. */
int kv_check(const char *const *dirs, unsigned nr, const struct pst_kv_opts *o);

/* ------------------------------------------------------- cache.c */

/* Make entry.user: slack (the entry's size minus the file's length) and the space. */
static inline uint32_t user_of(uint32_t slack, uint32_t space)
{
	return slack | space << 12;
}

static inline uint32_t user_space(uint32_t user)
{
	return user >> 12;
}

static inline uint32_t user_slack(uint32_t user)
{
	return user & (UNIT - 1);
}

static inline uint64_t size_of_file(uint64_t len)
{
	return align_up(len, UNIT);
}

uint64_t kv_key_hash(const struct pst_kv *kv, const struct space *sp, const void *key, size_t len);

/* Lock and unlock a block's file, before it is renamed, opened to be lent, or unlinked.  Called
 * without the lock. */
void cache_lock_file(struct pst_kv *kv, uint32_t space, uint64_t hash);
void cache_unlock_file(struct pst_kv *kv, uint32_t space, uint64_t hash);

/* Return the published block with that hash, or NULL.  Called with the lock. */
struct entry *cache_find(const struct cache *c, uint64_t hash);

/* Reserve size bytes for a new file in a space, and evict other blocks if necessary.  Called
 * without the lock.  Return 0, or -ENOSPC with a sentence. */
int cache_reserve(struct pst_kv *kv, uint32_t space, uint64_t hash, uint64_t size);
void cache_unreserve(struct pst_kv *kv, uint32_t space, uint64_t size);

/* Create a temporary file.  If the file system has no inode left, evict some blocks.  Return a
 * descriptor or -errno. */
int cache_create(struct pst_kv *kv, unsigned dir, char ret_temp[TEMP_LEN]);

/* Rename a finished file, for which size bytes are reserved, and add it to the index.  Evicts some
 * blocks if the file system has no room for the name.  Return 0 or -errno. */
int cache_publish(struct pst_kv *kv, uint32_t space, const struct block_id *id, uint64_t file_len,
		  int dir, const char *temp);

/* Remove a block and its file.  Return 1 if it was in the index, 0 if not, or -errno. */
int cache_remove(struct pst_kv *kv, uint32_t space, const struct block_id *id);
/* Remove a block because its user asked for that, and count it. */
int cache_delete(struct pst_kv *kv, uint32_t space, const struct block_id *id);

/* Add a block that is on disk, without eviction.  Called with the lock.  Return 0 or -ENOMEM. */
int cache_insert(struct pst_kv *kv, uint32_t space, uint64_t hash, uint64_t file_len);

/* Called with the lock, after a policy has changed: forget evicted keys that are too many, and free
 * memory.  Pointers to entries are invalid afterwards. */
void cache_trim(struct pst_kv *kv, struct cache *c);

/* Evict until the used bytes fit the budget, and the blocks their bound. */
void cache_shrink(struct pst_kv *kv);

/* Note that a worker has closed the file that it read.  Called with the lock. */
void cache_read_ends(struct worker *w);

/* ------------------------------------------------------- space.c */

/* Return the hash of a space's name. */
uint64_t space_hash(const struct pst_kv *kv, const char *identity, const char *tenant,
		    const char *salt);
/* Find the space with that hash, or add it.  Called with the lock, or while no other thread uses
 * the store.  Return 0, -ENOSPC or -ENOMEM. */
int space_add(struct pst_kv *kv, uint64_t hash, uint64_t quota, uint32_t *ret);
/* Get the number of the space with that hash.  Called with the lock.  Return false if there is
 * none. */
bool space_find(const struct pst_kv *kv, uint64_t hash, uint32_t *ret);
/* Read all files of words.  An owner removes those of spaces without blocks. */
int space_load(struct pst_kv *kv);
void space_free(struct space *sp);

/* Read the words of a space from its file; the caller frees the strings.  Return 0 or -errno. */
int space_words(int dir, const char *name, char **identity, char **tenant, uint64_t *ret_quota);

/* ------------------------------------------------- scan.c, snapshot.c */

/* Fill the index from the directories, oldest first. */
int scan_load(struct pst_kv *kv);

/* Read the index file and remove it.  Return 1; 0 if there is none or it is damaged; or -errno. */
int snapshot_load(struct pst_kv *kv);
int snapshot_save(struct pst_kv *kv);

/* ------------------------------------------------------- worker.c */

void *kv_worker_main(void *arg);
/* Make room in w->bounce, memory of the worker, for a block of len bytes.  Return 0 or -errno. */
int worker_room(struct worker *w, uint64_t len);
/* Copy a checked block from w->bounce to the caller's memory.  Return len, or -errno. */
int64_t worker_deliver(struct worker *w, struct job *job, uint64_t len);
/* Copy a block from the caller's memory to w->bounce, which must have room.  Return 0 or -errno. */
int worker_gather(struct worker *w, struct job *job);
/*
 * Execute on this thread the jobs of a batch that need no disk, and leave the others in the queue.
 * Called with the lock, which is released in between.  Return how many were left.
 */
unsigned worker_help(struct pst_kv *kv, struct batch *b);

/* ------------------------------------------------------- front.c */

void *owner_main(void *arg);
/* Set the result of a job.  Called with the lock. */
void job_end(struct job *job, int64_t result);
void batch_unref(struct batch *b);
/* Cancel jobs that have not begun, because the store is closed.  Called with the lock. */
void front_cancel(struct pst_kv *kv);
/* Keep memory that the kernel may still use, and free it later. */
void busy_keep(struct pst_kv *kv, struct pst_mem *mem);
/* Leave to the library all memory that the kernel may still use: the library frees it when the
 * kernel does not use it any more.  Called when there are no threads. */
void busy_free_all(struct pst_kv *kv);

/* Drop a reference.  The last one frees the store. */
void kv_unref(struct pst_kv *kv);

#endif
