/* SPDX-License-Identifier: MIT */
/*
 * Proofs of paths (proof.c).
 */
#ifndef PST_PROOF_H
#define PST_PROOF_H

#include <stdbool.h>

#include <penstock.h>

#include "file/io.h"

#define PROOF_MAX MIB(1) /* most that a proof compares */

enum proof_dir { PROOF_READ, PROOF_WRITE, PROOF_DIR_NR };

/* The entry for O_DIRECT on the file's mount in one direction; lives for ever. */
struct proof *proof_direct(const struct local_file *lf, enum proof_dir dir);
/* For the copies of a device. */
struct proof *proof_copies(const struct pst_device *dev);
enum pst_state proof_state(const struct proof *p);
bool proof_is_bad(const struct proof *p);
void proof_good(struct proof *p);
/* Wrong data was seen: it is never proven in this process, and soon not used any more. */
void proof_failed(struct proof *p);

#endif
