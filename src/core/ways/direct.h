/* SPDX-License-Identifier: MIT */
/* Functions that all paths with O_DIRECT share (direct.c). */
#ifndef PST_DIRECT_H
#define PST_DIRECT_H

#include "core/ways/path.h"
#include "core/ways/proof.h"

/* Return why the file does not support O_DIRECT, or PST_WHY_NONE. */
enum pst_why direct_of_file(const struct pst_file *f, int *ret_detail);

/* Return why O_DIRECT on the file cannot be trusted, or PST_WHY_NONE if it was proven or can be
 * proven. */
enum pst_why direct_trust(const struct pst_file *f, const struct proof *proof);

/* Cut the part's next operation to whole blocks, and set IO_OP_DIRECT.  An implementation of fit()
 * in struct path_ops. */
enum pst_why direct_cut(struct part *p, struct proof *proof, int *ret_detail);

#endif
