/* SPDX-License-Identifier: MIT */
/*
 * The server of this process, which serves the rings of every plain directory.
 */
#ifndef USRBIO_PLAIN_H
#define USRBIO_PLAIN_H

struct server;

/*
 * The server, made at the first call and kept: files and buffers are added to it before rings
 * are.  NULL with -errno in *ret_err without memory, and -EOWNERDEAD in a child of the process
 * that made it.
 */
struct server *plain_server(int *ret_err);

#endif
