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

#define PROOF_MAX MIB(1) /* maximum bytes that a proof compares */

#define PROOF_KEY_MAX 96u
/* Requests with wrong data after which this process stops using the path. */
#define PROOF_FAILURES_MAX 3u

enum proof_dir { PROOF_READ, PROOF_WRITE, PROOF_DIR_NR };

/* The proof of a path on a mount or device.  Other files read only good and failures. */
struct proof {
	struct proof *next;
	atomic_bool good;
	atomic_uint failures;
	atomic_bool doubted; /* bytes differed for an unknown reason: never proven in this
			      * process */
	bool keep;           /* the key is unique among processes, so the cache may store it */
	bool unsaved;        /* proven, but not written to the cache yet; under the lock */
	char key[PROOF_KEY_MAX];
};

/* Return the entry for O_DIRECT on the file's mount in one direction.  Entries are never freed. */
struct proof *proof_direct(const struct file *file, enum proof_dir dir);
/* Return the entry for O_DIRECT between the file's mount and a PCI device's memory. */
struct proof *proof_p2p(const struct file *file, const char *pci, enum proof_dir dir);
/* Return the entry for the copies that a device makes. */
struct proof *proof_copies(const struct pst_device *dev);
enum pst_state proof_state(const struct proof *p);

/* Return true if the path was proven and has moved no wrong bytes since. */
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
/* Compare every request from now on: bytes differed, and no trial could find out why. */
void proof_doubt(struct proof *p);
/* Count a request with wrong data.  The path stays unproven in this process; after
 * PROOF_FAILURES_MAX calls it is not used any more. */
void proof_failed(struct proof *p);

#endif
