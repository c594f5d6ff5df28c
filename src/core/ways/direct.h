/* SPDX-License-Identifier: MIT */
/*
 * What all paths by O_DIRECT share (direct.c).
 */
#ifndef PST_DIRECT_H
#define PST_DIRECT_H

#include "core/ways/path.h"
#include "core/ways/proof.h"

/* Why does the file take no O_DIRECT at all?  PST_WHY_NONE if it does. */
enum pst_why direct_of_file(const struct pst_file *f, int *ret_detail);

/* Why can bytes by O_DIRECT not be trusted on the file?  PST_WHY_NONE if they can, or may be
 * compared. */
enum pst_why direct_trust(const struct pst_file *f, const struct proof *proof);

/* Make the part's next operation one by O_DIRECT, of whole blocks.  As fit() of struct path_ops. */
enum pst_why direct_cut(struct part *p, struct proof *proof, int *ret_detail);

#endif
