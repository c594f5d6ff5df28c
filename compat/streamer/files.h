/* SPDX-License-Identifier: MIT */
/*
 * Open files of a streamer.  One that several requests name is opened once, and stays open for a
 * while after the last, because a loader asks for a file in many requests.
 */
#ifndef STREAMER_FILES_H
#define STREAMER_FILES_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include <penstock.h>

#include "base/base.h"

#define FILES_IDLE_MAX 16u /* that stay open with nobody reading them */

struct open_file {
	struct pst_file *file;
	struct open_file *next;
	struct stat
		st; /* of what is open: another file of this name is told by it; 0 of an object */
	unsigned users;
	uint64_t used;    /* when: a count of uses */
	uint64_t used_ns; /* of an object: when it was given back */
	char path[];
};

struct files {
	pthread_mutex_t lock;
	struct open_file *first;
	uint64_t uses;
	atomic_bool keys_given; /* by the program, for object storage */
};

void files_init(struct files *f);

/* Close all; nobody reads any more. */
void streamer_files_done(struct files *f);

/* The file, to be given back; 0, or -errno with a sentence in text. */
int files_get(struct files *f, const char *path, struct open_file **ret, char *text, size_t len);
void files_put(struct files *f, struct open_file *file);

#endif
