/* SPDX-License-Identifier: MIT */
/*
 * Memory and files as queues know them: the objects behind the handles, and their holders.
 */
#ifndef PST_OBJECT_H
#define PST_OBJECT_H

#include <pthread.h>
#include <stdatomic.h>

#include <penstock.h>

#include "base/list.h"
#include "base/work.h"
#include "file/io.h"
#include "mem/mem.h"

struct proof;

/*
 * The common part of pst_mem and pst_file: the user's handle and every queue that used the
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

/* One allocation, shared by all pst_mem on it. */
struct region {
	struct region *next; /* with the same hash */
	struct mem_alloc *alloc;
	struct io_buf *reg; /* host memory that I/O contexts may register; NULL: none */
	unsigned users;     /* under the regions' lock, as is: */
	bool ends;          /* the user's last handle is gone: paths let go of it */
	_Atomic(void *) by_path[PST_PATH_MAX + 1]; /* what each path keeps for it; path.h */
};

struct pst_mem {
	struct object obj;
	struct region *region;
	uint64_t off; /* of the range in the allocation */
	uint64_t len;
	bool on_host;    /* the CPU reaches it; asked for each request */
	uint32_t flags;  /* PST_MEM_* */
	uint32_t rights; /* PST_RIGHT_* */
};

struct pst_file {
	struct object obj;
	struct file *file;
	struct file *reader; /* for proofs where file is open for writing only, or NULL */
	/* Proofs of O_DIRECT on this mount, of reads and of writes: by enum proof_dir, direct.c.
	 * They are not in by_path, which would cost each part one more load. */
	struct proof *direct[2];
	_Atomic(void *) by_path[PST_PATH_MAX + 1]; /* what each path keeps for it; path.h */
};

/* A queue, as paths that keep something open know it. */
struct holder {
	unsigned number; /* in the order of their making */
	uint64_t now;    /* when the queue was last looked after, to a few milliseconds */
};

/* Something that a path keeps open for a request or a part.  A path's own struct has it. */
struct hold {
	void (*put)(const struct holder *by, struct hold *h);
};

/* It need not stay open for us, if there is one. */
static inline void hold_put(const struct holder *by, struct hold **h)
{
	if (unlikely(*h))
		(*h)->put(by, TAKE_PTR(*h));
}

static inline const struct mem_ops *mem_ops_of(const struct pst_mem *m)
{
	return m->region->alloc->ops;
}

static inline bool mem_on_host(const struct pst_mem *m)
{
	return m->on_host;
}

/* Of host memory. */
static inline char *mem_host(const struct pst_mem *m, uint64_t mem_off)
{
	return (char *)m->region->alloc->host + m->off + mem_off;
}

void object_put(struct object *obj);
/* True when that was the last: release() is the caller's. */
bool object_unref(struct object *obj);

/* ------------------------------------------------------------------- uses */

/* The table of a new queue, which ends by free(); false: out of memory. */
bool uses_init(struct pst_queue *q);
/* The use of an object that is not *last, which it becomes.  NULL: out of memory. */
struct use *use_find(struct pst_queue *q, struct object *obj, struct use **last);

/* A queue's hold on objects, under its lock.  *last is the result of the call before, or NULL:
 * most requests are on the same object. */
static inline struct use *use_get(struct pst_queue *q, struct object *obj, struct use **last)
{
	struct use *u = *last;

	if (unlikely(!u || u->obj != obj)) {
		u = use_find(q, obj, last);
		if (!u)
			return NULL;
	}
	u->nr++;
	return u;
}

/* The queue lets go of an object that it has no requests on. */
void use_drop(struct pst_queue *q, struct use *u);

static inline void use_put(struct pst_queue *q, struct use *u)
{
	/* Pairs with the store in registry_release(): either we see the handle gone here, or
	 * that call finds us idle under the queue's lock. */
	if (--u->nr == 0 && unlikely(atomic_load(&u->obj->dying)))
		use_drop(q, u);
}

unsigned use_count(struct pst_queue *q, const struct object *obj);
void use_release(struct pst_queue *q, const struct object *obj);
/* Every object whose handle is gone. */
void use_release_dying(struct pst_queue *q);
/* Without the lock: these are dropped now. */
void use_end(struct use *dropped);
void use_release_all(struct pst_queue *q);

#endif
