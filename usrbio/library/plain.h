/* SPDX-License-Identifier: MIT */
/* This process' server, which serves its rings in all plain directories. */
#ifndef USRBIO_PLAIN_H
#define USRBIO_PLAIN_H

struct server;

/*
 * Return the server.  The first call makes it, and it is never freed.  Add files and buffers before
 * rings.  Return NULL with -errno in *ret_err if out of memory, and with -EOWNERDEAD in a child of
 * the process that made it.
 */
struct server *plain_server(int *ret_err);

#endif
