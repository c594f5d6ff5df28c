/* SPDX-License-Identifier: MIT */
/*
 * TLS 1.3 with an external pre-shared key (psk_dhe_ke), by OpenSSL in the module
 * libpenstock-tls.so.
 *
 * A session belongs to one socket and one thread.  No call blocks.  Encrypted bytes stay in a
 * buffer until the socket takes them, so a record is encrypted once, and the caller may reuse its
 * bytes after net_tls_send().
 */
#ifndef PST_NET_TLS_H
#define PST_NET_TLS_H

#include <sys/uio.h>

#include <penstock.h>

#include "net/keys.h"

#define NET_TLS_RECORD KIB(16)                   /* bytes of plaintext in a record */
#define NET_TLS_RECORD_MAX KIB(17)               /* maximum bytes of an encrypted record */
#define NET_TLS_OUT_MAX (8 * NET_TLS_RECORD_MAX) /* bytes; a session's buffer of encrypted output */
#define NET_TLS_IN_MAX KIB(64) /* bytes received but not yet decrypted, per session */

#define NET_TLS_STR_(x) #x
#define NET_TLS_STR(x) NET_TLS_STR_(x)
/* Module and library must come from one build. */
#define NET_TLS_VERSION                \
	NET_TLS_STR(PST_VERSION_MAJOR) \
	"." NET_TLS_STR(PST_VERSION_MINOR) "." NET_TLS_STR(PST_VERSION_PATCH)

struct net_tls;

/* Functions of the module. */
struct net_tls_ops {
	char version[16];
	size_t size; /* sizeof(struct net_tls_ops) */
	/*
	 * Begin a session: with key as client, or with keys as server.  The keys must outlive the
	 * session.
	 */
	int (*begin)(int fd, const struct net_key *key, const struct net_keys *keys,
		     struct net_tls **ret);
	void (*end)(struct net_tls *t);
	int (*handshake)(struct net_tls *t);
	/* Encrypt at most NET_TLS_RECORD bytes into the output buffer, which must have room. */
	int (*put)(struct net_tls *t, const void *buf, size_t len);
	ssize_t (*get)(struct net_tls *t, void *buf, size_t len);
};

/* The first member of the module's own session struct. */
struct net_tls {
	const struct net_tls_ops *ops;
	int fd;
	bool ready;                      /* the handshake is complete */
	char peer[NET_KEY_NAME_MAX + 1]; /* name of the peer's key, once ready */
	uint8_t *out;                    /* encrypted output; NET_TLS_OUT_MAX bytes */
	size_t out_at, out_len;          /* out_at: bytes of out that were sent; out_len: bytes
					  * in out */
	char why[160];                   /* the sentence of a failed handshake */
};

#define NET_TLS_SYMBOL "pst_tls_module"

/**
 * net_tls_load() - load the module
 * @near: any address in libpenstock; the module is searched in that library's folder
 * @ret:  the module's table
 *
 * Return: 0; an error of beside_path(); -ELIBACC; -ELIBBAD; each with a sentence.
 */
int net_tls_load(const void *near, const struct net_tls_ops **ret);

/* Return true if the socket has not taken all encrypted bytes. */
static inline bool net_tls_unsent(const struct net_tls *t)
{
	return t->out_at < t->out_len;
}

/* Send what the socket takes.  Return 0 if all was sent; -EAGAIN; -errno. */
int net_tls_flush(struct net_tls *t);

/*
 * Continue the handshake.
 *
 * Return: 0 if complete; -EAGAIN: wait for the socket; -EKEYREJECTED or -EPROTO with a sentence in
 * t->why; -errno of the socket, -ECONNRESET if the peer closed it.
 */
int net_tls_handshake(struct net_tls *t);

/*
 * Encrypt bytes, and send what the socket takes.
 * @copy: copies the caller's bytes and returns 0 or -errno; NULL if they stay mapped
 *
 * Return: bytes encrypted, which may be fewer than all; -EAGAIN for none; -errno.
 */
ssize_t net_tls_send(struct net_tls *t, const struct iovec *iov, size_t nr,
		     int (*copy)(void *to, const void *from, uint64_t len));

/* Decrypt received bytes.  Return their number; 0 at the end of the session; -EAGAIN; -errno. */
static inline ssize_t net_tls_receive(struct net_tls *t, void *buf, size_t len)
{
	ssize_t n = t->ops->get(t, buf, len);

	/* Receiving may produce output, such as the answer to the peer's key update. */
	if (net_tls_unsent(t))
		(void)net_tls_flush(t);
	return n;
}

/* End a session; NULL is ignored. */
static inline void net_tls_end(struct net_tls *t)
{
	if (t)
		t->ops->end(t);
}

#endif
