/* SPDX-License-Identifier: MIT */
/*
 * Executes the requests of usrbio rings with libpenstock, on threads of its own.
 *
 * A server serves one user: the process itself, or one uid of a mount.  It believes nothing that
 * stands in a ring's memory: markers, indices and entries are read once, into memory of its own,
 * and checked there; an entry can name only files and buffers that were added here.  A ring whose
 * markers make no sense is broken: its requests under way end, it gets no more, and the other rings
 * notice nothing.
 *
 * Requests of one ring are started in their order.  Those of a batch complete in it; those of
 * different batches may overtake each other.  Writes of one ring that overlap are done one after
 * the other.
 *
 * A completion carries the bytes that were moved, fewer only at the end of the file, or
 *
 *	-EBADF		no file has the number
 *	-EACCES		none of that number is open for the ring's direction
 *	-EINVAL		no buffer has the UUID; the range leaves it, or a block of it; no length;
 *			an end in the file beyond INT64_MAX; a slot that is none
 *	-ENODATA	a hole, where they are forbidden
 *	-EINTR		the request was cancelled
 *	-errno		as libpenstock has it, where it is an error of 3FS's list or one of EBUSY
 *			EDQUOT EFAULT ENODEV EOPNOTSUPP ESTALE ETIMEDOUT; -EIO for any other
 *
 * Every call may be made from any thread, and by the server's owner only: none of them is a
 * client's.  int results are 0 or -errno, with the sentence in pst_error_text() where libpenstock
 * gave one.  After fork() they are -EOWNERDEAD in the child, and the other calls do nothing there.
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

/* A range of a file, which is given by the number of the request. */
struct server_range {
	uint64_t number, off, len;
	bool ends; /* it was written, or the request failed; false: it is about to be */
};

struct server_opts {
	unsigned threads; /* threads that execute, up to 64; 0: the library chooses */
	/*
	 * Told of ranges that requests write to, of files that were added by
	 * server_file_add_told(): before they begin, and again before their completions go out.
	 * Any of the server's threads; may wait, and must make no call of the server.  NULL: nobody
	 * wants to know.
	 */
	void (*writes)(const struct server_range *ranges, unsigned nr);
	bool guard; /* survive that ring memory goes away under a mapping (a client shrank
			   * it).  Takes SIGBUS for the process, so it is for processes that
			   * are nothing but a server */
	struct usrbio_tally *tally; /* memory for counters, or NULL; with it, at most TALLY_LANES
				     * threads execute */
};

/* opts may be NULL.  Threads start with rings, and stay.  0; -EINVAL, -ENOMEM. */
int server_new(const struct server_opts *opts, struct server **ret);

/* All its rings, buffers and files were removed.  NULL is accepted.  Returns NULL. */
struct server *server_free(struct server *w);

/* ------------------------------------------------------------------- files */

/*
 * Let entries name an open file by a number.  The descriptor is duplicated, and its access mode
 * tells which rings may use it.  One number may be added several times: a request takes one that is
 * open for its direction.
 *
 * Return: 0; -EBADF, -EINVAL, -ENXIO, -EMFILE as pst_file_wrap(); -ENOMEM.
 */
int server_file_add(struct server *w, uint64_t number, int fd, struct server_file **ret);

/* As server_file_add(), and server_opts.writes is told of what is written to it. */
int server_file_add_told(struct server *w, uint64_t number, int fd, struct server_file **ret);

/*
 * Let entries name a file by a number that libpenstock opens by its name, at the first request.
 * Requests wait for that in their ring.
 * @flags: PST_FILE_READ, PST_FILE_WRITE: how it is opened, and which rings may use it
 * @told:  server_opts.writes is told of what is written to it
 */
int server_file_add_name(struct server *w, uint64_t number, const char *name, uint32_t flags,
			 bool told, struct server_file **ret);

/*
 * Requests that were started end as they would have; the others as if it had never been there.
 */
void server_file_remove(struct server *w, struct server_file *file);

/* ----------------------------------------------------------------- buffers */

/*
 * Let entries name memory by its UUID.  @mem stays the caller's, and valid until
 * server_buffer_remove().  Of several with one UUID the latest is meant.  No request may cross a
 * multiple of @block_size; 0: no such rule.
 *
 * Return: 0; -EINVAL for a block size above @len or no length; -ENOMEM.
 */
int server_buffer_add(struct server *w, const uint8_t id[USRBIO_ID_LEN], struct pst_mem *mem,
		      uint64_t len, uint64_t block_size, struct server_buffer **ret);

/*
 * As server_buffer_add(), but this process may already have mappings of the memory with the same
 * UUID; the longest one is used.
 */
int server_buffer_add_view(struct server *w, const uint8_t id[USRBIO_ID_LEN], struct pst_mem *mem,
			   uint64_t len, uint64_t block_size, struct server_buffer **ret);

/*
 * Let entries name device memory of another process.  @grant stays the caller's.  One of CUDA
 * memory may lack the device's UUID; then @number is the device's at its owner.  Small requests
 * go through a window where there can be one, so that the vendor's library is loaded only for
 * others (import.h).
 *
 * Return: 0; as pst_window_open_grant() and pst_mem_import(); -ENOMEM, -EMFILE.
 */
int server_buffer_add_grant(struct server *w, const uint8_t id[USRBIO_ID_LEN],
			    const struct pst_grant *grant, unsigned number,
			    struct server_buffer **ret);

/* Return true if a buffer has this UUID. */
bool server_buffer_known(struct server *w, const uint8_t id[USRBIO_ID_LEN]);

/*
 * As server_file_remove(); pst_mem_drain() tells when those requests are through.  For memory of a
 * grant this waits for them, for a second at most.
 */
void server_buffer_remove(struct server *w, struct server_buffer *buffer);

/* ------------------------------------------------------------------- rings */

#define SERVER_RING_READ_UNCOMMITTED 1u /* ignored here */
#define SERVER_RING_FORBID_HOLES 2u     /* a hole before data in its range: -ENODATA */

struct server_ring_opts {
	void *base;  /* stays mapped until server_ring_remove() */
	size_t size; /* bytes of the mapping */
	bool for_read;
	int32_t io_depth;
	enum usrbio_priority priority;
	int32_t timeout_ms;
	uint64_t flags;
};

/*
 * Serve a ring.  Its semaphore is initialised, the rest of its memory is as the client left it,
 * zeros as a rule: its entries are taken from sq_tail on, its completions put from cq_head on.
 *
 * Return: 0; -EINVAL when the memory is no ring, or io_depth is more than its entries, or a flag
 * is unknown; -ENOMEM, -EMFILE; -EAGAIN when no thread can be started.
 */
int server_ring_add(struct server *w, const struct server_ring_opts *opts,
		    struct server_ring **ret);

/*
 * Cancel the ring's requests, and wait until they have ended: nothing touches the ring's memory
 * any more, and requests that had not completed before never do.  At most a tenth of a second;
 * other rings go on.  A request that the kernel did not let go of may still touch its buffer:
 * pst_mem_drain() tells.
 */
void server_ring_remove(struct server *w, struct server_ring *ring);

/* The ring has entries, or room for completions.  Async-signal-safe. */
void server_ring_kick(struct server_ring *ring);

enum server_help {
	SERVER_RESTS,  /* there is nothing to do just now, or nobody may do it here */
	SERVER_MOVED,  /* this call did something; the next one may find more */
	SERVER_MOVING, /* other threads move bytes for the ring */
};

/*
 * Do some of the ring's work on the calling thread, beside the server's own: bytes in memory move
 * without a change of threads.  For clients that wait.  Never blocks.
 */
enum server_help server_ring_help(struct server_ring *ring);

/*
 * For a thread of the server's owner that was told of new entries, in place of server_ring_kick():
 * do the work on this thread, as far as it can be done now, and leave the rest to the server's own.
 * Blocks for no more than the copying of some MiB.
 */
void server_ring_serve(struct server_ring *ring);

/*
 * How long that may take, in nanoseconds, as far as entries tell that were not taken yet; 0: there
 * are none.  Only a hint.  Any thread.
 */
uint64_t server_ring_work(const struct server_ring *ring);

struct server_ring_stats {
	uint64_t requests; /* completed */
	uint64_t errors;   /* of these */
	uint64_t bytes;
	uint32_t paths; /* set of PST_PATH_BIT(), of all requests together */
	uint32_t why;   /* enum pst_why of the latest request that had one */
	int32_t detail; /* depends on why */
	bool broken;    /* its markers made no sense */
};

void server_ring_stats(struct server_ring *ring, struct server_ring_stats *ret);

#endif
