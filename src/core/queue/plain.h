/* SPDX-License-Identifier: MIT */
/*
 * The kind of request that most are: it needs no checks but these.
 */
#ifndef PST_PLAIN_H
#define PST_PLAIN_H

#include "core/queue/cursor.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"

_Static_assert(offsetof(struct pst_mem, obj) == 0, "use_is_of() compares addresses");
_Static_assert(offsetof(struct pst_file, obj) == 0, "use_is_of() compares addresses");

/* Is it that object's?  Either may be NULL. */
static inline bool use_is_of(const struct use *u, const void *object)
{
	return u && (const void *)u->obj == object;
}

/* May the file and the memory be used for that? */
static inline bool may_move(const struct pst_io *io)
{
	uint32_t file = io->file->file->flags, mem = io->mem->rights;

	return io->op == PST_OP_READ ? file & PST_FILE_READ && mem & PST_RIGHT_WRITE
				     : file & PST_FILE_WRITE && mem & PST_RIGHT_READ;
}

/* Is it one piece, on the same memory and file as the request before, and right in everything? */
static inline bool is_usual(const struct pst_queue *q, const struct pst_io *io)
{
	return likely(io->op == PST_OP_READ || io->op == PST_OP_WRITE) &&
	       likely(!(io->flags | io->nr_segs | (uintptr_t)io->segs | (uintptr_t)io->stream)) &&
	       likely(!(io->reserved[0] | io->reserved[1] | io->reserved[2] | io->reserved[3])) &&
	       likely(use_is_of(q->last_mem, io->mem)) &&
	       likely(use_is_of(q->last_file, io->file)) &&
	       likely(!io->file->file->ops->backend && may_move(io)) &&
	       likely(piece_fits(io->file_off, io->mem_off, io->len, io->mem->len));
}

/* Is it that, and of host memory? */
static inline bool is_plain(const struct pst_queue *q, const struct pst_io *io)
{
	return is_usual(q, io) && likely(mem_on_host(io->mem));
}

#endif
