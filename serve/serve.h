/* SPDX-License-Identifier: MIT */
/* The server that exports a directory by the protocol of docs/PROTOCOL.md. */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include <stdio.h>

#include "base/base.h"
#include "net/addr.h"
#include "net/tls.h"

#define SERVE_LISTEN_MAX 8u

/*
 * A store of blocks that is served instead of a directory.  Any thread makes the calls.  key is the
 * name of the client's key, or NULL without TLS; who is the same for all connections of a client,
 * as --rate counts clients.  Each call returns 0 or -errno.
 */
struct serve_store {
	void *arg;
	const char *root; /* the name that tells clients of a store */
	/* Open the file of a block: for reading with its descriptor, which belongs to *ret, and its
	 * bytes. */
	int (*open)(void *arg, const char *name, const char *key, const char *who, bool write,
		    void **ret, int *ret_fd, uint64_t *ret_len);
	int (*write)(void *file, const void *buf, uint32_t len, uint64_t off);
	int (*publish)(void *file);
	void (*close)(void *file);
	int (*find)(void *arg, const char *name, const char *key, uint64_t *ret_len);
	int (*remove)(void *arg, const char *name, const char *key);
	/* Write its metrics in the text format of Prometheus. */
	void (*metrics)(void *arg, FILE *to);
};

enum serve_rdma {
	SERVE_RDMA_NO,
	SERVE_RDMA_TRY, /* where there is a device */
	SERVE_RDMA_YES, /* serve_run() fails where there is none */
};

struct serve_opts {
	int root;                        /* the directory, O_PATH or not */
	const struct serve_store *store; /* NULL: the directory is served */
	unsigned nr_listen;
	struct net_addr listen[SERVE_LISTEN_MAX];
	bool write;
	struct net_addr metrics;       /* address for metrics by HTTP; len 0: none */
	const struct net_tls_ops *tls; /* TLS of TCP connections; NULL: no encryption */
	const struct net_keys *keys;   /* keys of clients; used only with tls */
	unsigned clients;              /* most connections at a time */
	unsigned files;                /* most open files of each connection */
	unsigned requests;             /* most unanswered requests of one connection */
	enum serve_rdma rdma;
	unsigned rdma_clients; /* most connections with a queue pair */
	unsigned threads;      /* number of threads for operations that may block */
	uint64_t memory;       /* bytes for payloads, in addition to what is reserved for each
			   * connection */
	uint64_t rate;         /* most bytes a second of each client; 0: no limit */
	unsigned stall_s;      /* seconds after which a client that takes no bytes is dropped */
	unsigned drain_s; /* most seconds that requests may still take after the signal to stop */
	/* Logs a line, which has no newline.  Any thread may call it. */
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
