/* SPDX-License-Identifier: MIT */
/* Queues of requests; manual page: pst_queue(3). */
#ifndef PENSTOCK_QUEUE_H
#define PENSTOCK_QUEUE_H

#include <penstock/io.h>
#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PST_BACKEND_AUTO 0u /* io_uring where it is to be had, else threads */
#define PST_BACKEND_URING 1u
#define PST_BACKEND_THREADS 2u

#define PST_QUEUE_FD_ONCE (1u << 0) /* pst_queue_fd() holds for one sleep; see there */

struct pst_queue_opts {
	size_t sz;           /* sizeof(struct pst_queue_opts) */
	uint32_t depth;      /* requests in flight, 1 to 4096; 0 means 128 */
	uint32_t backend;    /* PST_BACKEND_* for file operations */
	uint32_t timeout_ms; /* deadline of requests that name none; 0 means 300,000 */
	uint32_t flags;      /* PST_QUEUE_* */
};

/**
 * pst_queue_new() - create a queue
 * @opts:      NULL for the defaults
 * @ret_queue: the queue, to be freed with pst_queue_free()
 *
 * Allocates all that preparing, submitting and reaping need.
 *
 * Return: 0; -EINVAL for an option out of range; -E2BIG for one that this version does not
 * know; -EPERM or -ENOSYS when @opts asks for io_uring and the machine forbids it; -ENOMEM;
 * -EMFILE; -EAGAIN when no thread can be started.
 */
PST_API int pst_queue_new(const struct pst_queue_opts *opts, struct pst_queue **ret_queue);

/**
 * pst_queue_free() - end a queue
 * @queue: requests in flight are cancelled and their completions dropped
 *
 * Waits at most 100 ms.  If a request neither ends nor can be cancelled, its file and memory are
 * kept until they are quiet, see pst_mem_drain().
 *
 * Return: NULL.
 */
PST_API struct pst_queue *pst_queue_free(struct pst_queue *queue);

/**
 * pst_queue_prep() - put a request into a queue
 * @queue: the queue
 * @io:    copied; io->segs is not
 *
 * Checks everything that can be checked without touching the file, and starts nothing.
 *
 * Return: 0; -EAGAIN when the queue holds its depth of requests, and for nothing else: submit,
 * reap and try again; -EINVAL for an unknown op or flag, a zero length, more than PST_SEGS_MAX
 * segments or PST_PIECES_MAX pieces, a reserved field that is not 0, or a stream of another
 * device; -ERANGE for a piece past the end of the memory; -EOVERFLOW for an offset plus length
 * beyond int64_t; -EBADF for a direction the file was not opened for; -EACCES for a right that
 * the grant of the memory does not give; -EBUSY while io->stream is captured, and when the
 * bound of staging memory has no room for one more queue (see pst_limits_set());
 * -EOPNOTSUPP for what this version, this kind of memory or its driver has not; and what
 * starting a device's engine met at its first request: -ENOMEM, -EMFILE, -EBUSY, -EIO.
 */
PST_API int pst_queue_prep(struct pst_queue *queue, const struct pst_io *io);

/**
 * pst_queue_try() - move bytes within the call, as far as that needs no waiting
 * @queue:    the queue
 * @ios:      reads
 * @nr:       how many
 * @ret_done: room for as many completions, in the same order
 *
 * The calling thread copies bytes that the page cache holds already; such a read needs neither
 * pst_queue_submit() nor pst_queue_reap().  The call serves reads of up to 1 MiB into host memory,
 * and into memory of a device those that a window serves best, on a file and memory that were used
 * in the queue before, with neither flags, pieces, a stream nor a deadline of their own.  Every
 * other has -EAGAIN as @res of its completion: its memory may hold some of the bytes, nothing of it
 * is under way, and pst_queue_prep() is the way, also for arguments that make no sense.  Requests
 * prepared or under way in the queue go on as they would have.
 *
 * Return: how many have moved, 0 to @nr; -EOWNERDEAD in a forked child.
 */
PST_API int pst_queue_try(struct pst_queue *queue, const struct pst_io *ios, unsigned nr,
			  struct pst_done *ret_done);

/**
 * pst_queue_submit() - start what was prepared
 * @queue: the queue
 *
 * Never blocks on a disk.  Small reads that the page cache holds may be done on return.
 *
 * Return: how many requests were started; the rest stay prepared.  -errno only in a forked
 * child.
 */
PST_API int pst_queue_submit(struct pst_queue *queue);

/**
 * pst_queue_reap() - take completions
 * @queue:       the queue
 * @ret_done:    room for @max completions
 * @min:         wait until there are so many, or nothing more is in flight
 * @max:         at least 1, at least @min
 * @deadline_ns: when to stop waiting; 0 only looks, PST_NO_DEADLINE waits
 *
 * Every request that was submitted completes exactly once, at the latest at its own
 * deadline (-ETIMEDOUT).  A signal does not end the wait.
 *
 * Return: how many were taken, 0 to @max; -EINVAL for bad arguments.
 */
PST_API int pst_queue_reap(struct pst_queue *queue, struct pst_done *ret_done, unsigned min,
			   unsigned max, uint64_t deadline_ns);

/**
 * pst_queue_cancel() - end requests early
 * @queue:     the queue
 * @user_data: every request with this value is meant
 *
 * Each still completes exactly once: with its own result if it was done, else with
 * -ECANCELED, at the latest 100 ms from now.
 *
 * Return: how many requests were asked to end; -ENOENT when no request with this @user_data is
 * prepared or under way.
 */
PST_API int pst_queue_cancel(struct pst_queue *queue, uint64_t user_data);

/**
 * pst_queue_fd() - a descriptor to sleep on
 * @queue: the queue
 *
 * Readable (poll, select, epoll) when pst_queue_reap() has something to do; every
 * pst_queue_reap() arms it anew.  So: submit, reap what is there, sleep, and again.  A wake-up
 * may find nothing, and epoll_wait(2) may end with EINTR.  Never read or close it.
 *
 * With PST_QUEUE_FD_ONCE only this call arms it, for one sleep, which costs less: call it
 * where something is still in flight after a reap.
 *
 * Return: an eventfd that lives as long as the queue; -EAGAIN when the thread that looks
 * after its deadlines cannot be started; -ENOMEM or another -errno of the kernel's.  After a
 * failure pst_queue_reap() still waits as ever.
 */
PST_API int pst_queue_fd(struct pst_queue *queue);

#ifdef __cplusplus
}
#endif
#endif
