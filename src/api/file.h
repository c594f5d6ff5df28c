/* SPDX-License-Identifier: MIT */
#ifndef PST_API_FILE_H
#define PST_API_FILE_H

#include "core/queue/object.h"

/* Create the handle of a file that a provider opened.  Takes over @file, even on failure. */
int file_new(struct file *file, struct pst_file **ret);

#endif
