/* SPDX-License-Identifier: MIT */
#include "usrbio/proto/sem.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/base.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the value is what a futex waits for");

#define WAITER (UINT64_C(1) << 32)

static uint64_t *sem_word_of(sem_t *sem)
{
	return (uint64_t *)sem;
}

void usrbio_sem_post(sem_t *sem)
{
	uint64_t *word = sem_word_of(sem);

	/* If the semaphore has its largest value, it is already posted. */
	if ((uint32_t)__atomic_load_n(word, __ATOMIC_RELAXED) >= SEM_VALUE_MAX)
		return;
	if (__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST) >= WAITER)
		(void)syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/*
 * Use FUTEX_WAKE_OP because it adds and wakes in the kernel.  Its second wake is conditional; the
 * condition, an old value of -1, is never true.
 */
int usrbio_sem_post_by_kernel(sem_t *sem)
{
	uint64_t *word = sem_word_of(sem);
	int op = FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, -1);

	return syscall(SYS_futex, word, FUTEX_WAKE_OP, 1, 0l, word, op) < 0 ? -errno : 0;
}

void usrbio_sem_reset(sem_t *sem)
{
	uint64_t *word = sem_word_of(sem);

	if ((uint32_t)__atomic_load_n(word, __ATOMIC_SEQ_CST))
		(void)__atomic_fetch_and(word, ~(WAITER - 1), __ATOMIC_SEQ_CST);
}

void usrbio_sem_wait(sem_t *sem, uint64_t until_ns)
{
	uint64_t *word = sem_word_of(sem);
	struct timespec ts = { .tv_sec = (time_t)(until_ns / NSEC_PER_SEC),
			       .tv_nsec = (long)(until_ns % NSEC_PER_SEC) };

	/* Count as a waiter: otherwise the other side's post wakes nobody. */
	(void)__atomic_fetch_add(word, WAITER, __ATOMIC_SEQ_CST);
	(void)syscall(SYS_futex, word, FUTEX_WAIT_BITSET, 0, &ts, NULL, FUTEX_BITSET_MATCH_ANY);
	(void)__atomic_fetch_sub(word, WAITER, __ATOMIC_SEQ_CST);
}
