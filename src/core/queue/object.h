/* SPDX-License-Identifier: MIT */
/*
 * Memory and files as queues know them: the objects behind pst_mem and pst_file.
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
 * The common part of pst_mem and pst_file.
 *
 * The user's handle holds a reference, and so does every queue that used the object.  Requests are
 * counted in their queue (struct use), so a request needs no atomic operation on a cache line that
 * other threads write.
 */
struct object {
	atomic_uint refs;
	atomic_bool dying; /* the user's handle was freed: idle queues drop their reference */
	void (*release)(struct object *obj); /* frees the object; called without locks, because it
					      * may take long */
	bool hangs;                          /* release() may hang, so a separate thread calls it */
};

/* A queue's reference to an object. */
struct use {
	struct use *next;
	struct object *obj;
	uint32_t nr;      /* requests of this queue on the object that are not released */
	struct work work; /* releases objects whose release() may hang */
};

/* One allocation, shared by all pst_mem on it. */
struct region {
	struct region *next; /* next region in the hash bucket */
	struct mem_alloc *alloc;
	struct io_buf *reg; /* host memory that I/O contexts may register; NULL: none */
	unsigned users;     /* references, under the regions' lock */
	bool ends;          /* the user's last handle was freed, so paths drop their data for the
			     * region; under the regions' lock */
	struct list regs;   /* registrations for RDMA devices; ways/registration.c */
	/* Called after the user's last handle was freed; NULL: there are no registrations. */
	void (*ended)(struct region *r);
	_Atomic(void *) by_path[PST_PATH_MAX + 1]; /* data of each path for the region; path.h */
};

struct pst_mem {
	struct object obj;
	struct region *region;
	uint64_t off; /* first byte of the range, counted from the allocation's start */
	uint64_t len;
	bool on_host;    /* the CPU can use the memory; stored here, because every request checks
			  * it */
	uint32_t flags;  /* PST_MEM_* */
	uint32_t rights; /* PST_RIGHT_* */
};

struct pst_file {
	struct object obj;
	struct file *file;
	struct file *reader; /* the same file open for reading, for proofs, if file is
			      * write-only; or NULL */
	/* Proofs of O_DIRECT on this mount, for reads and for writes (enum proof_dir, direct.c).
	 * The pointers are not in by_path, because that would cost each part one more load. */
	struct proof *direct[2];
	_Atomic(void *) by_path[PST_PATH_MAX + 1]; /* data of each path for the file; see path.h */
};

/* The queue that holds a resource open; paths see only this part of it. */
struct holder {
	unsigned number; /* serial number of the queue */
	uint64_t now;    /* CLOCK_MONOTONIC ns of the queue's last progress, exact to a few
			  * milliseconds */
};

/* A resource that a path keeps open for a request or a part; embedded in a struct of the path. */
struct hold {
	void (*put)(const struct holder *by, struct hold *h);
};

/* Let a path close a resource that it kept open, if *h is not NULL. */
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

/* Return the address of a byte of host memory. */
static inline char *mem_host(const struct pst_mem *m, uint64_t mem_off)
{
	return (char *)m->region->alloc->host + m->off + mem_off;
}

void object_put(struct object *obj);
/* Drop a reference.  Return true if it was the last; the caller then calls release(). */
bool object_unref(struct object *obj);

/* ------------------------------------------------------------------- uses */

/* Allocate the hash table of a new queue; the caller frees q->uses with free(). Return false
 * without memory. */
bool uses_init(struct pst_queue *q);
/* Find or create the queue's use of an object, and set *last to it.  On entry *last is the use of
 * another object.  Return NULL without memory. */
struct use *use_find(struct pst_queue *q, struct object *obj, struct use **last);

/* Count one more request of the queue on an object, under the queue's lock. *last is the use of the
 * previous call, or NULL: consecutive requests mostly use the same object. */
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

/* Drop the queue's reference to an object that none of its requests uses. */
void use_drop(struct pst_queue *q, struct use *u);

static inline void use_put(struct pst_queue *q, struct use *u)
{
	/* Pairs with the store in registry_release(): either this thread sees that the handle was
	 * freed, or registry_release() finds the object idle under the queue's lock. */
	if (--u->nr == 0 && unlikely(atomic_load(&u->obj->dying)))
		use_drop(q, u);
}

unsigned use_count(struct pst_queue *q, const struct object *obj);
void use_release(struct pst_queue *q, const struct object *obj);
/* Drop every idle object whose handle was freed. */
void use_release_dying(struct pst_queue *q);
/* Release the objects of a list of uses, without the queue's lock. */
void use_end(struct use *dropped);
void use_release_all(struct pst_queue *q);

#endif
