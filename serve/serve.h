/* SPDX-License-Identifier: MIT */
/* Export a directory by the protocol of docs/PROTOCOL.md. */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include <stdio.h>

#include "base/base.h"
#include "net/addr.h"
#include "net/tls.h"

#define SERVE_LISTEN_MAX 8u

/*
 * A store of blocks that is served instead of a directory.  Any thread may call.  key is the name
 * of the client's key, or NULL without TLS. who identifies the client, as for --rate, and is equal
 * for all its connections.  Each call returns 0 or -errno.
 */
struct serve_store {
	void *arg;
	const char *root; /* name by which clients recognise a store */
	/* Open a block.  For reading, return its descriptor, which *ret owns, and its bytes. */
	int (*open)(void *arg, const char *name, const char *key, const char *who, bool write,
		    void **ret, int *ret_fd, uint64_t *ret_len);
	int (*write)(void *file, const void *buf, uint32_t len, uint64_t off);
	int (*publish)(void *file);
	void (*close)(void *file);
	int (*find)(void *arg, const char *name, const char *key, uint64_t *ret_len);
	int (*remove)(void *arg, const char *name, const char *key);
	/* Write the store's metrics in the text format of Prometheus. */
	void (*metrics)(void *arg, FILE *to);
};

enum serve_rdma {
	SERVE_RDMA_NO,
	SERVE_RDMA_TRY, /* use RDMA if there is a NIC */
	SERVE_RDMA_YES, /* serve_run() fails without a NIC */
};

struct serve_opts {
	int root;                        /* descriptor of the directory; may be O_PATH */
	const struct serve_store *store; /* NULL: serve the directory */
	unsigned nr_listen;
	struct net_addr listen[SERVE_LISTEN_MAX];
	bool write;
	struct net_addr metrics;       /* address of the metrics by HTTP; len 0: none */
	const struct net_tls_ops *tls; /* TLS of TCP connections; NULL: no encryption */
	const struct net_keys *keys;   /* clients' keys; needed with tls */
	unsigned clients;              /* maximum connections */
	unsigned files;                /* maximum open files per connection */
	unsigned requests;             /* maximum requests in flight per connection */
	enum serve_rdma rdma;
	unsigned rdma_clients; /* maximum connections with a queue pair */
	unsigned threads;      /* threads for operations that may block */
	uint64_t memory;       /* bytes for payloads, beyond CONN_SURE per connection */
	uint64_t rate;         /* maximum bytes per second per client; 0: unlimited */
	unsigned stall_s;      /* seconds until a client that takes no bytes is dropped */
	unsigned drain_s;      /* seconds that requests may still take after the stop signal */
	/* Log a line, given without a newline.  Any thread may call it. */
	void (*say)(const char *text);
};

/**
 * serve_run() - serve until SIGTERM, SIGINT or SIGHUP
 * @o: what to serve
 *
 * Ignores SIGPIPE, and blocks the three signals in the calling thread, which must be the only one.
 * Calls o->say() with "listening on ADDRESS" for each address, and notifies systemd.
 *
 * Return: 0 after a signal; -errno with a sentence.
 */
int serve_run(const struct serve_opts *o);

#endif
