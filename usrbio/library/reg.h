/* SPDX-License-Identifier: MIT */
/*
 * Registered files: rings know a file by its descriptor's number.
 *
 * A registration is found by two numbers: the program's descriptor and the library's duplicate.
 * The open duplicate makes a daemon keep the inode.  Each request holds a reference, so that a file
 * deregistered with requests in flight stays until the last one completes.
 */
#ifndef USRBIO_REG_H
#define USRBIO_REG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct server_file;

/* A registration.  Never freed, only reused, so that readers need no lock. */
struct reg {
	_Atomic unsigned refs; /* 0: unused */

	/* Constant while refs is not 0. */
	bool plain;               /* served by this process */
	bool reads, writes;       /* directions for which it is open */
	uint64_t number;          /* the file's number in requests: its inode number, or the
				   * server's number */
	int fd;                   /* the program's descriptor */
	int dup;                  /* our duplicate */
	unsigned forks;           /* lock_forks() of the process that registered it */
	struct server_file *file; /* only if plain */

	struct reg *next_free; /* under LOCK_FDS */
};

/*
 * Get the registration of a descriptor or of hf3fs_reg_fd()'s result, with a reference; NULL if
 * there is none.  Takes no lock.
 */
struct reg *reg_get(int fd);
void reg_put(struct reg *reg);

#endif
