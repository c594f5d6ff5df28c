/* SPDX-License-Identifier: MIT */
/*
 * Files that stand for another file, the lower one (file_ops.lower in file/file.h).
 *
 * When a request on such a file starts, it asks for the lower file and becomes a request on it.
 * Plans, paths, proofs and reasons are those of the lower file.  The request stays counted for the
 * file that the program named, so that pst_file_drain() works.
 */
#ifndef PST_LOWER_H
#define PST_LOWER_H

#include "core/queue/object.h"

/*
 * Find the file whose properties apply to @f: @f itself, or its lower file.  The caller ends the
 * use with lower_drop(). Return 0, or -errno with a sentence.
 */
int lower_look(struct pst_file *f, uint32_t op, struct pst_file **ret);
void lower_drop(struct pst_file *f, uint32_t op, struct pst_file *beneath);

#endif
