/* SPDX-License-Identifier: MIT */
/*
 * Semaphores in memory that another process writes to.
 *
 * glibc's calls take the operation of their futex call from the semaphore, and end the process
 * when the kernel does not know what somebody put there.  These use the same memory, so that
 * either side may be glibc's, and nothing of it but its first word: the value in the lower half,
 * the number of waiters in the upper, as glibc has it on 64-bit little-endian machines since 2.21.
 */
#ifndef PST_USRBIO_SEM_H
#define PST_USRBIO_SEM_H

#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

/* Increment the semaphore and wake a waiter.  The memory must stay mapped, or the access be
 * guarded. */
void usrbio_sem_post(sem_t *sem);

/*
 * Post so that only the kernel touches the memory.  Return 0, or -EFAULT if the memory is gone
 * because its file was truncated.
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
 * Sleep until the semaphore is not 0, or until that time of CLOCK_MONOTONIC; a signal may end the
 * sleep too.  The memory must stay mapped.
 */
void usrbio_sem_wait(sem_t *sem, uint64_t until_ns);

#endif
