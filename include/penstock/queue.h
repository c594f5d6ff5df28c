/* SPDX-License-Identifier: MIT */
/* Queues of requests; manual page: pst_queue(3). */
#ifndef PENSTOCK_QUEUE_H
#define PENSTOCK_QUEUE_H

#include <penstock/io.h>
#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* io_uring if the kernel and the container allow it, else threads */
#define PST_BACKEND_AUTO 0u
/* io_uring, or fail */
#define PST_BACKEND_URING 1u
/* threads that make system calls */
#define PST_BACKEND_THREADS 2u

/* Only pst_queue_fd() arms the descriptor, each time for one sleep. */
#define PST_QUEUE_FD_ONCE (1u << 0)

struct pst_queue_opts {
	size_t sz;           /* sizeof(struct pst_queue_opts) */
	uint32_t depth;      /* maximum requests in flight, 1 to 4096; 0 means 128 */
	uint32_t backend;    /* PST_BACKEND_*, for file operations */
	uint32_t timeout_ms; /* time limit of requests without a deadline, ms; 0: 300,000 */
	uint32_t flags;      /* PST_QUEUE_* */
};

/**
 * pst_queue_new() - create a queue
 * @opts:      NULL for the defaults
 * @ret_queue: the queue, to be freed with pst_queue_free()
 *
 * Allocates all memory that pst_queue_prep(), pst_queue_submit() and pst_queue_reap() need.
 *
 * Return: 0; -EINVAL for an option out of range; -E2BIG for an option that this version does not
 * know; -EPERM or -ENOSYS if @opts asks for io_uring and the machine forbids it; -ENOMEM;
 * -EMFILE; -EAGAIN if no thread can be started.
 */
PST_API int pst_queue_new(const struct pst_queue_opts *opts, struct pst_queue **ret_queue);

/**
 * pst_queue_free() - free a queue
 * @queue: the queue; its requests are cancelled and their completions dropped
 *
 * Waits at most 100 ms.  If a request cannot be cancelled by then, the library keeps its file and
 * memory open until the request ends; see pst_mem_drain().
 *
 * Return: NULL.
 */
PST_API struct pst_queue *pst_queue_free(struct pst_queue *queue);

/**
 * pst_queue_prep() - add a request to a queue
 * @queue: the queue
 * @io:    the request, which is copied; io->segs is not copied
 *
 * Checks everything that can be checked without touching the file, and starts nothing.
 *
 * Return: 0; -EAGAIN only if the queue is full: submit, reap and try again; -EINVAL for an unknown
 * op or flag, a zero length, more than PST_SEGS_MAX segments or PST_PIECES_MAX pieces, a reserved
 * member that is not 0, or a stream of another device; -ERANGE for a piece past the end of the
 * memory; -EOVERFLOW for an offset plus length above INT64_MAX; -EBADF if the file is not open for
 * that direction; -EACCES for a right that the grant of the memory does not give; -EBUSY while
 * io->stream is captured, or if the limit of staging memory has no room for one more queue (see
 * pst_limits_set()); -EOPNOTSUPP for what this version, this kind of memory or its driver cannot
 * do; -ENOMEM, -EMFILE, -EBUSY or -EIO if the device's engine cannot start.
 */
PST_API int pst_queue_prep(struct pst_queue *queue, const struct pst_io *io);

/**
 * pst_queue_try() - copy cached reads within the call
 * @queue:    the queue
 * @ios:      reads
 * @nr:       number of reads
 * @ret_done: room for @nr completions, in the order of @ios
 *
 * The calling thread copies bytes that the page cache holds; such a read needs neither
 * pst_queue_submit() nor pst_queue_reap().  The call serves reads of up to 1 MiB into host memory,
 * and those into device memory for which a window is the best path.  File and memory must have been
 * used in the queue before.  The read must have no flags, segments, stream or deadline.  Any other
 * read, even one with invalid arguments, gets -EAGAIN as res of its completion: give it to
 * pst_queue_prep().  Some bytes of such a read may be in memory already, but the read is not in
 * flight.
 *
 * Return: number of reads that completed, 0 to @nr; -EOWNERDEAD in a forked child.
 */
PST_API int pst_queue_try(struct pst_queue *queue, const struct pst_io *ios, unsigned nr,
			  struct pst_done *ret_done);

/**
 * pst_queue_submit() - start the prepared requests
 * @queue: the queue
 *
 * Never waits for a disk.  Small reads from the page cache may be complete on return.
 *
 * Return: number of requests that were started; the rest stay prepared.  -errno only in a forked
 * child.
 */
PST_API int pst_queue_submit(struct pst_queue *queue);

/**
 * pst_queue_reap() - take completions
 * @queue:       the queue
 * @ret_done:    room for @max completions
 * @min:         wait for this many completions, or until nothing is in flight
 * @max:         at least 1, and at least @min
 * @deadline_ns: when to stop waiting; 0 does not wait, PST_NO_DEADLINE waits without limit
 *
 * Every submitted request completes exactly once, at the latest with -ETIMEDOUT at its deadline.
 * A signal does not end the wait.
 *
 * Return: number of completions, 0 to @max; -EINVAL for bad arguments.
 */
PST_API int pst_queue_reap(struct pst_queue *queue, struct pst_done *ret_done, unsigned min,
			   unsigned max, uint64_t deadline_ns);

/**
 * pst_queue_cancel() - cancel requests
 * @queue:     the queue
 * @user_data: cancel every request with this value
 *
 * Each request still completes exactly once, within 100 ms: with its own result if it had ended,
 * else with -ECANCELED.
 *
 * Return: number of requests that are cancelled; -ENOENT if no request with this @user_data is
 * prepared or in flight.
 */
PST_API int pst_queue_cancel(struct pst_queue *queue, uint64_t user_data);

/**
 * pst_queue_fd() - return a descriptor for an event loop
 * @queue: the queue
 *
 * The descriptor is readable (poll, select, epoll) when pst_queue_reap() can make progress, and
 * every pst_queue_reap() arms it again.  Repeat: submit, reap, sleep.  After a wake-up there may be
 * no completion, and epoll_wait(2) may fail with EINTR.  Never read or close the descriptor.
 *
 * With PST_QUEUE_FD_ONCE only this call arms the descriptor, for one sleep, which costs less: call
 * it if requests are still in flight after a reap.
 *
 * Return: an eventfd that lives as long as the queue; -EAGAIN if the thread that watches deadlines
 * cannot be started; -ENOMEM or another -errno of the kernel.  After a failure pst_queue_reap()
 * works as before.
 */
PST_API int pst_queue_fd(struct pst_queue *queue);

#ifdef __cplusplus
}
#endif
#endif
