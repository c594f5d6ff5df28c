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

/* Up by one, and wake a waiter.  Memory that stays, or a guarded access. */
void usrbio_sem_post(sem_t *sem);

/*
 * The same, but only the kernel touches the memory.  0; -EFAULT when it is gone because its file
 * was cut.
 */
int usrbio_sem_post_by_kernel(sem_t *sem);

/* Is it not 0?  Memory that stays. */
static inline bool usrbio_sem_is_posted(const sem_t *sem)
{
	/* The lower half, which is the first. */
	return __atomic_load_n((const uint32_t *)(const void *)sem, __ATOMIC_SEQ_CST);
}

/* Down to 0.  Memory that stays. */
void usrbio_sem_reset(sem_t *sem);

/*
 * Sleep until it is not 0, or until that time of CLOCK_MONOTONIC; a signal may end it too.  Memory
 * that stays.
 */
void usrbio_sem_wait(sem_t *sem, uint64_t until_ns);

#endif
