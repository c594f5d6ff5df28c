/* SPDX-License-Identifier: MIT */
/*
 * Private descriptors of a thread, for files that it reads in many small pieces.
 *
 * Each read through a shared open file description takes and drops a reference, on one cache line
 * for all threads.  Twelve threads with pieces of 4 KiB spend a quarter of their time there.
 * io_uring's registered files avoid this, but file systems in memory are read without io_uring.
 *
 * A descriptor stays open until its file is freed; until then, files beyond OWN_FILES get none.  A
 * descriptor must not be closed earlier: closing any descriptor of a file drops the process's
 * record locks on it (fcntl(2)).
 */
#ifndef PST_FILE_OWN_H
#define PST_FILE_OWN_H

#include <pthread.h>

#include "file/file.h"
#include "file/io.h"

#define OWN_FILES 8u /* maximum descriptors per thread */

struct own_files {
	struct ctx_tables tables;
	pthread_mutex_t lock;
	struct own_file {
		uint32_t idx, gen; /* gen 0: the entry is free */
		int fd;            /* negative: the file could not be reopened */
	} files[OWN_FILES];
};

void own_files_init(struct own_files *o);
void own_files_done(struct own_files *o);

/* Return the thread's descriptor of the file, valid while the file is open; negative: none. */
int own_files_get(struct own_files *o, const struct file *f);

/* Read as file_read_now() does, through a descriptor of own_files_get(). */
int64_t own_file_read(int fd, void *buf, uint64_t off, uint64_t len);

#endif
