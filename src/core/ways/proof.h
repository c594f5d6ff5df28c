/* SPDX-License-Identifier: MIT */
/*
 * Proofs of paths (proof.c).
 */
#ifndef PST_PROOF_H
#define PST_PROOF_H

#include <stdatomic.h>
#include <stdbool.h>

#include <penstock.h>

#include "file/io.h"

#define PROOF_MAX MIB(1) /* most that a proof compares */

#define PROOF_KEY_MAX 64u
#define PROOF_FAILURES_MAX 3u /* then the path is not used any more in this process */

enum proof_dir { PROOF_READ, PROOF_WRITE, PROOF_DIR_NR };

/* The proof of one path of one mount or device.  Others read good and failures only. */
struct proof {
	struct proof *next;
	atomic_bool good;
	atomic_uint failures;
	bool keep;    /* its key says for certain what was proven */
	bool unsaved; /* it was proven, and the cache does not have it; under the lock */
	char key[PROOF_KEY_MAX];
};

/* The entry for O_DIRECT on the file's mount in one direction; lives for ever. */
struct proof *proof_direct(const struct file *file, enum proof_dir dir);
/* For the copies of a device. */
struct proof *proof_copies(const struct pst_device *dev);
enum pst_state proof_state(const struct proof *p);

/* It was proven, and nothing wrong was seen since. */
static inline bool proof_is_good(const struct proof *p)
{
	return atomic_load_explicit(&p->good, memory_order_relaxed);
}

/* The path is not used any more. */
static inline bool proof_is_bad(const struct proof *p)
{
	return atomic_load_explicit(&p->failures, memory_order_relaxed) >= PROOF_FAILURES_MAX;
}

void proof_good(struct proof *p);
/* Wrong data was seen: it is never proven in this process, and soon not used any more. */
void proof_failed(struct proof *p);

#endif
