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

#define PROOF_MAX MIB(1) /* most bytes that a proof compares */

#define PROOF_KEY_MAX 96u
#define PROOF_FAILURES_MAX 3u /* failures after which this process stops using the path */

enum proof_dir { PROOF_READ, PROOF_WRITE, PROOF_DIR_NR };

/* The proof of a path on a mount or device.  Other files read only good and failures. */
struct proof {
	struct proof *next;
	atomic_bool good;
	atomic_uint failures;
	atomic_bool doubted; /* bytes differed and nothing said why: never proven in this process */
	bool keep;           /* the key identifies what was proven, so the cache may keep it */
	bool unsaved;        /* proven, but not in the cache yet; under the lock */
	char key[PROOF_KEY_MAX];
};

/* Return the entry for O_DIRECT on the file's mount in one direction; it is never freed. */
struct proof *proof_direct(const struct file *file, enum proof_dir dir);
/* Return the entry for O_DIRECT between the file's mount and a PCI device's memory. */
struct proof *proof_p2p(const struct file *file, const char *pci, enum proof_dir dir);
/* Return the entry for the copies of a device. */
struct proof *proof_copies(const struct pst_device *dev);
enum pst_state proof_state(const struct proof *p);

/* Return true if the path was proven and nothing wrong was seen since. */
static inline bool proof_is_good(const struct proof *p)
{
	return atomic_load_explicit(&p->good, memory_order_relaxed);
}

/* Return true if the path must not be used any more. */
static inline bool proof_is_bad(const struct proof *p)
{
	return atomic_load_explicit(&p->failures, memory_order_relaxed) >= PROOF_FAILURES_MAX;
}

void proof_good(struct proof *p);
/* Bytes differed and no trial could find out why: compare every request from now on. */
void proof_doubt(struct proof *p);
/* Count wrong data: the path stays unproven in this process, and is soon not used any more. */
void proof_failed(struct proof *p);

#endif
