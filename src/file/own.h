/* SPDX-License-Identifier: MIT */
/*
 * Descriptors of a thread's own, for files that it reads in many small pieces.
 *
 * Each read through a description that threads share takes and drops a reference to it, on one
 * cache line for all of them.  Twelve threads with pieces of 4 KiB spend a quarter of their time
 * there.  io_uring's registered files avoid it, but file systems in memory are read without
 * io_uring.
 *
 * A descriptor stays until its file is freed, and files beyond OWN_FILES have none meanwhile:
 * whenever a process closes one of a file, its record locks on that file end (fcntl(2)).
 */
#ifndef PST_FILE_OWN_H
#define PST_FILE_OWN_H

#include <pthread.h>

#include "file/file.h"
#include "file/io.h"

#define OWN_FILES 8u /* at a time */

struct own_files {
	struct ctx_tables tables;
	pthread_mutex_t lock;
	struct own_file {
		uint32_t idx, gen; /* gen 0: free */
		int fd;            /* negative: it cannot be opened once more */
	} files[OWN_FILES];
};

void own_files_init(struct own_files *o);
void own_files_done(struct own_files *o);

/* The thread's descriptor of the file, to be used while the file is; negative: it has none. */
int own_files_get(struct own_files *o, const struct file *f);

/* As file_read_now() by such a descriptor. */
int64_t own_file_read(int fd, void *buf, uint64_t off, uint64_t len);

#endif
