/* SPDX-License-Identifier: MIT */
/* The usual kind of request, for which the checks of this file suffice. */
#ifndef PST_PLAIN_H
#define PST_PLAIN_H

#include "core/queue/cursor.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"

_Static_assert(offsetof(struct pst_mem, obj) == 0, "use_is_of() compares addresses");
_Static_assert(offsetof(struct pst_file, obj) == 0, "use_is_of() compares addresses");

/* Return true if the use is of that object; both may be NULL. */
static inline bool use_is_of(const struct use *u, const void *object)
{
	return u && (const void *)u->obj == object;
}

/* Return true if file and memory allow the operation. */
static inline bool may_move(const struct pst_io *io)
{
	uint32_t file = io->file->file->flags, mem = io->mem->rights;

	return io->op == PST_OP_READ ? file & PST_FILE_READ && mem & PST_RIGHT_WRITE
				     : file & PST_FILE_WRITE && mem & PST_RIGHT_READ;
}

/* Return true for a valid request of one piece on the memory and file of the previous request. */
static inline bool is_usual(const struct pst_queue *q, const struct pst_io *io)
{
	return likely(io->op == PST_OP_READ || io->op == PST_OP_WRITE) &&
	       likely(!(io->flags | io->nr_segs | (uintptr_t)io->segs | (uintptr_t)io->stream)) &&
	       likely(!(io->reserved[0] | io->reserved[1] | io->reserved[2])) &&
	       likely(!io->crc32cs) && likely(use_is_of(q->last_mem, io->mem)) &&
	       likely(use_is_of(q->last_file, io->file)) &&
	       likely(!io->file->file->ops->backend && may_move(io)) &&
	       likely(piece_fits(io->file_off, io->mem_off, io->len, io->mem->len));
}

/* Return true for a usual request on host memory. */
static inline bool is_plain(const struct pst_queue *q, const struct pst_io *io)
{
	return is_usual(q, io) && likely(mem_on_host(io->mem));
}

#endif
