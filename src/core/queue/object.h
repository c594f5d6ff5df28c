/* SPDX-License-Identifier: MIT */
/*
 * Memory and files as queues know them: what their handles stand for, and who holds them.
 */
#ifndef PST_OBJECT_H
#define PST_OBJECT_H

#include <pthread.h>
#include <stdatomic.h>

#include <penstock.h>

#include "base/list.h"
#include "base/work.h"
#include "core/path/proof.h"
#include "file/io.h"
#include "mem/mem.h"

/*
 * What pst_mem and pst_file have in common: the user's handle and every queue that used the
 * object hold a reference each; requests are counted in the queue (struct use), so that a
 * request costs no atomic operation on a line that other threads write.
 */
struct object {
	atomic_uint refs;
	atomic_bool dying; /* the user's handle is gone: queues let go when idle */
	void (*release)(struct object *obj); /* may take long: no lock is held */
	bool hangs;                          /* it may hang: nobody waits for it beside */
};

/* A queue's hold on an object. */
struct use {
	struct use *next;
	struct object *obj;
	uint32_t nr;      /* requests of this queue on it, until they are quiet */
	struct work work; /* closes it and those behind it, if that may hang */
};

/* One allocation: what all pst_mem on it share. */
struct region {
	struct region *next; /* with the same hash */
	struct mem_alloc *alloc;
	struct io_buf *reg; /* host memory that I/O contexts may register; NULL: none */
	_Atomic(struct window_cache *) window_cache; /* window_cache.c; NULL: none yet */
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

struct pst_file {
	struct object obj;
	struct local_file *lf;
	struct proof *direct[PROOF_DIR_NR]; /* of O_DIRECT on this mount */
	pthread_mutex_t maps_lock;
	struct mapping *maps;      /* of its pages, for devices; pagecache.c */
	struct local_file *reader; /* for proofs where lf is open for writing only, or NULL */
	_Atomic(struct cufile_file *) gds; /* its registration; gds/path/end.c */
	_Atomic int gds_err;               /* why it has none for good */
};

static inline const struct mem_ops *mem_ops_of(const struct pst_mem *m)
{
	return m->region->alloc->ops;
}

static inline bool mem_on_host(const struct pst_mem *m)
{
	return mem_ops_of(m)->caps & MEM_CAP_CPU;
}

void object_put(struct object *obj);
/* True when that was the last: release() is the caller's. */
bool object_unref(struct object *obj);

/* ------------------------------------------------------------------- uses */

/* The table of a new queue, which ends by free(); false: out of memory. */
bool uses_init(struct pst_queue *q);
/* A queue's hold on objects, under its lock. */
struct use *use_get(struct pst_queue *q, struct object *obj);
void use_put(struct pst_queue *q, struct use *u);
unsigned use_count(struct pst_queue *q, const struct object *obj);
void use_release(struct pst_queue *q, const struct object *obj);
/* Every object whose handle is gone. */
void use_release_dying(struct pst_queue *q);
/* Without the lock: these are dropped now. */
void use_end(struct use *dropped);
void use_release_all(struct pst_queue *q);

/* ---------------------------------------------------------------- regions */

/* The region of an allocation just made or found; takes @a over, also on failure. */
int region_get(struct mem_alloc *a, struct region **ret);
/* One more reference. */
struct region *region_again(struct region *r);
void region_put(struct region *r);

int object_new_mem(struct region *r, uint64_t off, uint64_t len, struct pst_mem **ret);

#endif
