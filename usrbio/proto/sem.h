/* SPDX-License-Identifier: MIT */
/*
 * Semaphores in memory that another process can write to.
 *
 * glibc's calls take the futex operation from the semaphore's memory, and end the process if the
 * kernel refuses it.  These functions use the same memory, so the other side may use glibc's, but
 * only its first 8 bytes: the value in the lower half and the number of waiters in the upper half,
 * which is glibc's layout on 64-bit little-endian machines since 2.21.
 */
#ifndef PST_USRBIO_SEM_H
#define PST_USRBIO_SEM_H

#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

/* Increment the semaphore and wake a waiter.  The memory must stay mapped, or the caller must
 * handle the fault. */
void usrbio_sem_post(sem_t *sem);

/*
 * Post in such a way that only the kernel touches the memory.  Return 0, or -EFAULT if the memory's
 * file was truncated.
 */
int usrbio_sem_post_by_kernel(sem_t *sem);

/* Return true if the semaphore is not 0.  The memory must stay mapped. */
static inline bool usrbio_sem_is_posted(const sem_t *sem)
{
	/* The value is the lower half, which comes first. */
	return __atomic_load_n((const uint32_t *)(const void *)sem, __ATOMIC_SEQ_CST);
}

/* Reset the semaphore to 0.  The memory must stay mapped. */
void usrbio_sem_reset(sem_t *sem);

/*
 * Sleep until the semaphore is not 0, a signal arrives, or CLOCK_MONOTONIC reaches until_ns.  The
 * memory must stay mapped.
 */
void usrbio_sem_wait(sem_t *sem, uint64_t until_ns);

#endif
