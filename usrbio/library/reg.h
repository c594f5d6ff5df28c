/* SPDX-License-Identifier: MIT */
/*
 * Registered files: rings know a file by its descriptor's number.
 *
 * A registration is found by two numbers, the program's descriptor and the library's duplicate of
 * it, and keeps the duplicate: a daemon knows the inode while the file is open.  Each
 * request holds a reference, so that a file which is deregistered meanwhile stays until the
 * last of them completed.
 */
#ifndef USRBIO_REG_H
#define USRBIO_REG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct server_file;

/* Never freed but used again, so that looking for one needs no lock. */
struct reg {
	_Atomic unsigned refs; /* 0: none */

	/* Constant while there are references. */
	bool plain;               /* served by this process */
	bool reads, writes;       /* directions for which it is open */
	uint64_t number;          /* in requests: an inode's, or the library's */
	int fd;                   /* the program's */
	int dup;                  /* ours */
	unsigned forks;           /* of the process that registered it */
	struct server_file *file; /* plain */

	struct reg *next_free; /* LOCK_FDS */
};

/*
 * The registration of a descriptor, or of hf3fs_reg_fd()'s result, with a reference; NULL for
 * none.  Without a lock.
 */
struct reg *reg_get(int fd);
void reg_put(struct reg *reg);

#endif
