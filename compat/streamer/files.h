/* SPDX-License-Identifier: MIT */
/*
 * Open files of a streamer.  A file that several requests name is opened once, and stays open for a
 * while after its last use, because a loader reads a file by many requests.
 */
#ifndef STREAMER_FILES_H
#define STREAMER_FILES_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include <penstock.h>

#include "base/base.h"

#define FILES_IDLE_MAX 16u /* files that stay open without users */

struct open_file {
	struct pst_file *file;
	struct open_file *next;
	struct stat st; /* stat of the open file, to detect a replacement; 0 for objects */
	unsigned users;
	uint64_t used;    /* value of files.uses at the last use */
	uint64_t used_ns; /* objects: now_ns() of the last files_put() */
	char path[];
};

struct files {
	pthread_mutex_t lock;
	struct open_file *first;
	uint64_t uses;
	atomic_bool keys_given; /* the program has given credentials for object storage */
};

void files_init(struct files *f);

/* Close all files; no reads may be in flight. */
void streamer_files_done(struct files *f);

/* Get a file, to be put later.  Return 0, or -errno with a sentence in text. */
int files_get(struct files *f, const char *path, struct open_file **ret, char *text, size_t len);
void files_put(struct files *f, struct open_file *file);

#endif
