/* SPDX-License-Identifier: MIT */
/* The server of the storage service: a directory for clients of docs/PROTOCOL.md. */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include "base/base.h"
#include "net/addr.h"
#include "net/tls.h"

#define SERVE_LISTEN_MAX 8u

struct serve_opts {
	int root; /* the directory, O_PATH or not */
	unsigned nr_listen;
	struct net_addr listen[SERVE_LISTEN_MAX];
	bool write;
	struct net_addr metrics;       /* where HTTP answers with numbers; len 0: nowhere */
	const struct net_tls_ops *tls; /* of TCP connections; NULL: they are plain */
	const struct net_keys *keys;   /* of clients, with tls */
	unsigned clients;              /* connections at a time */
	unsigned files;                /* open files of each connection */
	unsigned requests;             /* of each connection that have no reply yet */
	unsigned threads;              /* that do what may block */
	uint64_t memory;  /* bytes for payloads above what each connection is sure of */
	uint64_t rate;    /* bytes a second of each client; 0: any number */
	unsigned stall_s; /* a client that takes no bytes for so long is dropped */
	unsigned drain_s; /* how long requests may take after a signal to end */
	/* A line about what happens, without a newline; any thread. */
	void (*say)(const char *text);
};

/**
 * serve_run() - serve until SIGTERM, SIGINT or SIGHUP
 * @o: what to serve
 *
 * Ignores SIGPIPE, and blocks these signals in the calling thread; the process has no other thread.
 * Calls o->say() with "listening on ADDRESS" for each address, and tells systemd that it serves.
 *
 * Return: 0 after a signal; -errno with a sentence.
 */
int serve_run(const struct serve_opts *o);

#endif
