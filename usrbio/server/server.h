/* SPDX-License-Identifier: MIT */
/*
 * Execute the requests of usrbio rings with libpenstock, on spawned threads.
 *
 * A server serves one user: the process itself, or one uid of a mount.  It trusts nothing in a
 * ring's memory: markers, indices and entries are read once into private memory and checked there;
 * an entry can only name files and buffers that were added here.  A ring with impossible markers is
 * broken: its requests in flight end, no entry is taken any more, and other rings are not affected.
 *
 * The requests of a ring start in order.  Requests of one batch complete in order; different
 * batches may overtake each other.  Overlapping writes of one ring are done one after the other.
 *
 * The result of a completion is the number of bytes moved, which is short only at the end of the
 * file, or
 *
 * -EBADF	no file has the number
 * -EACCES	no file of that number is open for the ring's direction
 * -EINVAL	no buffer has the UUID; the range exceeds the buffer or crosses a block;
 *	a length of 0; the file range ends above INT64_MAX; an invalid slot
 * -ENODATA	a hole, where holes are forbidden
 * -EINTR	the request was cancelled
 * -errno	of libpenstock, if it is in 3FS's list of errors or one of EBUSY EDQUOT
 *	EFAULT ENODEV EOPNOTSUPP ESTALE ETIMEDOUT; -EIO for any other
 *
 * Only the server's owner makes these calls, from any thread; clients do not.  int results are 0 or
 * -errno, with the text of pst_error_text() if libpenstock gave one.  In a forked child they are
 * -EOWNERDEAD, and the other calls do nothing.
 */
#ifndef PST_SERVER_H
#define PST_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "usrbio/proto/name.h"
#include "usrbio/proto/tally.h"

struct pst_grant;
struct pst_mem;
struct server;
struct server_buffer;
struct server_file;
struct server_ring;

/* A range of the file that requests name by number; off and len in bytes. */
struct server_range {
	uint64_t number, off, len;
	bool ends; /* false: before the write; true: it has ended, perhaps with an error */
};

struct server_opts {
	unsigned threads; /* threads that execute, up to 64; 0: the library chooses */
	/*
	 * Called with ranges that requests write to, of files added by server_file_add_told():
	 * before the writes begin, and again before their completions are published.  Runs on any
	 * thread of the server; may block, but must not call the server.  May be NULL.
	 */
	void (*writes)(const struct server_range *ranges, unsigned nr);
	bool guard; /* survive SIGBUS when a client truncates ring memory.  Installs a process-wide
		     * handler, so only for processes that do nothing but serve */
	struct usrbio_tally *tally; /* memory for counters, or NULL; limits the threads to
				     * TALLY_LANES */
};

/* Create a server.  opts may be NULL. Adding rings starts threads, which stay until server_free().
 * Return 0, -EINVAL or -ENOMEM. */
int server_new(const struct server_opts *opts, struct server **ret);

/* Free a server after all its rings, buffers and files were removed.  NULL is accepted.  Return
 * NULL. */
struct server *server_free(struct server *w);

/* ------------------------------------------------------------------- files */

/*
 * Let entries name an open file by a number.  The descriptor is duplicated; its access mode
 * determines which rings may use it.  A number may be added several times: a request uses a file of
 * that number that is open for its direction.
 *
 * Return: 0; -EBADF, -EINVAL, -ENXIO, -EMFILE as pst_file_wrap(); -ENOMEM.
 */
int server_file_add(struct server *w, uint64_t number, int fd, struct server_file **ret);

/* As server_file_add(), but server_opts.writes is also called for writes to the file. */
int server_file_add_told(struct server *w, uint64_t number, int fd, struct server_file **ret);

/*
 * Let entries name a file by a number; libpenstock opens it by its name at the first request.
 * Requests wait in their ring until the file is open.
 * @flags: PST_FILE_READ, PST_FILE_WRITE: how to open it, and which rings may use it
 * @told:  server_opts.writes is called for writes to the file
 */
int server_file_add_name(struct server *w, uint64_t number, const char *name, uint32_t flags,
			 bool told, struct server_file **ret);

/*
 * Remove a file.  Requests that were already started continue with it; other requests do not find
 * it.
 */
void server_file_remove(struct server *w, struct server_file *file);

/* ----------------------------------------------------------------- buffers */

/*
 * Let entries name memory by its UUID.  @mem belongs to the caller, and must stay valid until
 * server_buffer_remove().  If several have one UUID, the latest is used.  No request may cross a
 * multiple of @block_size bytes; 0: no limit.
 *
 * Return: 0; -EINVAL for a block size above @len or a length of 0; -ENOMEM.
 */
int server_buffer_add(struct server *w, const uint8_t id[USRBIO_ID_LEN], struct pst_mem *mem,
		      uint64_t len, uint64_t block_size, struct server_buffer **ret);

/*
 * As server_buffer_add(), for memory of which this process may already have mappings under the same
 * UUID; the longest one is used.
 */
int server_buffer_add_view(struct server *w, const uint8_t id[USRBIO_ID_LEN], struct pst_mem *mem,
			   uint64_t len, uint64_t block_size, struct server_buffer **ret);

/*
 * Let entries name device memory of another process.  @grant belongs to the caller.  A grant of
 * CUDA memory may lack the device's UUID; @number is then the device's number at its owner.  Small
 * requests go through a window if possible, so that the vendor's library is loaded only for larger
 * ones (import.h).
 *
 * Return: 0; errors of pst_window_open_grant() and pst_mem_import(); -ENOMEM, -EMFILE.
 */
int server_buffer_add_grant(struct server *w, const uint8_t id[USRBIO_ID_LEN],
			    const struct pst_grant *grant, unsigned number,
			    struct server_buffer **ret);

/* Return true if a buffer has this UUID. */
bool server_buffer_known(struct server *w, const uint8_t id[USRBIO_ID_LEN]);

/*
 * Remove a buffer.  Requests that were already started continue with it; wait for them by
 * pst_mem_drain().  For memory of a grant this call waits for them itself, for up to a second.
 */
void server_buffer_remove(struct server *w, struct server_buffer *buffer);

/* ------------------------------------------------------------------- rings */

#define SERVER_RING_READ_UNCOMMITTED 1u /* ignored here */
/* reads give -ENODATA for a hole that precedes data in the range */
#define SERVER_RING_FORBID_HOLES 2u

struct server_ring_opts {
	void *base;  /* must stay mapped until server_ring_remove() */
	size_t size; /* bytes of the mapping */
	bool for_read;
	int32_t io_depth;
	enum usrbio_priority priority;
	int32_t timeout_ms;
	uint64_t flags;
};

/*
 * Serve a ring.  The call initialises the semaphore.  The rest of the memory is as the client left
 * it, usually zeros: entries are taken from sq_tail on, completions are put from cq_head on.
 *
 * Return: 0; -EINVAL if the memory is no ring, or io_depth is above its entries, or a flag is
 * unknown; -ENOMEM, -EMFILE; -EAGAIN if no thread could be started.
 */
int server_ring_add(struct server *w, const struct server_ring_opts *opts,
		    struct server_ring **ret);

/*
 * Cancel the ring's requests and wait until they have ended, for a tenth of a second at most.
 * Nothing touches the ring's memory afterwards, and no further completion is published.  Other
 * rings are not delayed.  A request that the kernel still executes may touch its buffer: see
 * pst_mem_drain().
 */
void server_ring_remove(struct server *w, struct server_ring *ring);

/* Tell the server that the ring has entries, or room for completions.  Async-signal-safe. */
void server_ring_kick(struct server_ring *ring);

enum server_help {
	SERVER_RESTS,  /* nothing to do at present, or another thread must do it */
	SERVER_MOVED,  /* this call did something; the next one may do more */
	SERVER_MOVING, /* other threads are moving bytes for the ring */
};

/*
 * Do some of the ring's work on the calling thread, in parallel with the server's threads: bytes in
 * memory then move without a thread switch.  For clients that wait.  Never blocks.
 */
enum server_help server_ring_help(struct server_ring *ring);

/*
 * Do the ring's work on this thread of the owner, instead of server_ring_kick(), when told of new
 * entries.  Work that would block is left to the server's threads.  Blocks at most for copying some
 * MiB.
 */
void server_ring_serve(struct server_ring *ring);

/* Estimate how long server_ring_serve() takes, in ns; 0: no entries.  Only a hint.  Any thread. */
uint64_t server_ring_work(const struct server_ring *ring);

struct server_ring_stats {
	uint64_t requests; /* completed requests */
	uint64_t errors;   /* completed requests with an error */
	uint64_t bytes;
	uint32_t paths; /* set of PST_PATH_BIT() that requests took */
	uint32_t why;   /* enum pst_why of the latest request that had one */
	int32_t detail; /* detail of why */
	bool broken;    /* the ring's markers were impossible, or its memory is gone */
};

void server_ring_stats(struct server_ring *ring, struct server_ring_stats *ret);

#endif
