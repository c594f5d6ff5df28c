/* SPDX-License-Identifier: MIT */
/*
 * Files that a provider answers for with files beneath them (file_ops.lower in file/file.h).
 *
 * A request on such a file asks for the file beneath when it starts, and from then on it is a
 * request on that file.  Plans, paths, proofs and reasons are those of the file beneath.  The use
 * of the file that the program named stays, so that it can be drained.
 */
#ifndef PST_LOWER_H
#define PST_LOWER_H

#include "core/queue/object.h"

/*
 * The file whose properties are those of @f now: @f, or one beneath.  lower_drop() ends its use.
 * 0 or -errno with a sentence.
 */
int lower_look(struct pst_file *f, uint32_t op, struct pst_file **ret);
void lower_drop(struct pst_file *f, uint32_t op, struct pst_file *beneath);

#endif
