/* SPDX-License-Identifier: MIT */
/*
 * The worker of this process, which serves the rings of every plain directory.
 */
#ifndef USRBIO_PLAIN_H
#define USRBIO_PLAIN_H

struct worker;

/*
 * The worker, made at the first call and kept: files and buffers are added to it before rings
 * are.  NULL with -errno in *ret_err without memory, and -EOWNERDEAD in a child of the process
 * that made it.
 */
struct worker *plain_worker(int *ret_err);

#endif
