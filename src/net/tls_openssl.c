/* SPDX-License-Identifier: MIT */
/*
 * The module libpenstock-tls.so: implement the sessions of net/tls.h by OpenSSL 3.
 *
 * OpenSSL reads and writes buffers of the session through a custom BIO: its own socket BIO would
 * raise SIGPIPE, and make one system call per record.  There are no certificates.  A peer is
 * accepted only if the handshake used a key of the file; both sides check that.
 */
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>

#include "net/tls.h"

/* psktool's keys name no hash function; TLS 1.3 prescribes SHA-256 then. */
#define SUITES "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
#define ALERT 1000 /* OpenSSL's reason for a peer's alert, minus the alert's number */

__attribute__((visibility("default"))) extern const struct net_tls_ops pst_tls_module;

struct session {
	struct net_tls base;
	SSL *ssl;
	const struct net_key *key;   /* the client's key; NULL on a server */
	const struct net_keys *keys; /* the server's keys; NULL on a client */
	bool asked;                  /* the client named a key */
	bool found;                  /* keys has the key that the client named */
	bool closed;                 /* the peer closed the connection */
	int err;                     /* positive errno of the socket, or 0 */
	uint8_t *in;                 /* received bytes; room for NET_TLS_IN_MAX */
	size_t in_at, in_len;
};

/* ------------------------------------------------------------------------ bytes */

static int bio_write(BIO *b, const char *buf, int len)
{
	struct session *s = BIO_get_data(b);
	size_t n = MIN((size_t)len, NET_TLS_OUT_MAX - s->base.out_len);

	BIO_clear_retry_flags(b);
	if (!n) {
		BIO_set_retry_write(b);
		return -1;
	}
	memcpy(s->base.out + s->base.out_len, buf, n);
	s->base.out_len += n;
	return (int)n;
}

/* Fill the input buffer.  Return 1; 0 at the end; -1 on error or if nothing has arrived. */
static int receive(struct session *s, BIO *b)
{
	ssize_t n;

	do
		n = recv(s->base.fd, s->in, NET_TLS_IN_MAX, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		s->in_at = 0;
		s->in_len = (size_t)n;
		return 1;
	}
	if (n == 0)
		s->closed = true;
	else if (errno == EAGAIN)
		BIO_set_retry_read(b);
	else
		s->err = errno;
	return (int)n;
}

static int bio_read(BIO *b, char *buf, int len)
{
	struct session *s = BIO_get_data(b);
	size_t n;

	BIO_clear_retry_flags(b);
	if (s->in_at == s->in_len) {
		int r = receive(s, b);

		if (r <= 0)
			return r;
	}
	n = MIN((size_t)len, s->in_len - s->in_at);
	memcpy(buf, s->in + s->in_at, n);
	s->in_at += n;
	return (int)n;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
	const struct session *s = BIO_get_data(b);

	(void)num;
	(void)ptr;
	if (cmd == BIO_CTRL_EOF)
		return s->closed;
	return cmd == BIO_CTRL_FLUSH;
}

/* ------------------------------------------------------------------------- keys */

static unsigned client_key(SSL *ssl, const char *hint, char *name, unsigned name_size,
			   unsigned char *key, unsigned key_size)
{
	const struct session *s = SSL_get_app_data(ssl);

	(void)hint;
	if (strlen(s->key->name) >= name_size || s->key->len > key_size)
		return 0;
	(void)snprintf(name, name_size, "%s", s->key->name);
	memcpy(key, s->key->key, s->key->len);
	return s->key->len;
}

/* Store the client's name with unprintable characters replaced, because logs show it. */
static void keep_name(struct session *s, const char *name)
{
	size_t n = 0;

	for (; name[n] && n < sizeof(s->base.peer) - 1; n++)
		s->base.peer[n] = name[n] > ' ' && name[n] <= '~' ? name[n] : '?';
	s->base.peer[n] = '\0';
}

static unsigned server_key(SSL *ssl, const char *name, unsigned char *key, unsigned key_size)
{
	struct session *s = SSL_get_app_data(ssl);
	const struct net_key *k = net_keys_find(s->keys, name, strlen(name));

	s->asked = true;
	s->found = k && k->len <= key_size;
	keep_name(s, name);
	if (!s->found)
		return 0;
	memcpy(key, k->key, k->len);
	return k->len;
}

/* --------------------------------------------------------------------- contexts */

static struct {
	pthread_once_t once;
	BIO_METHOD *bio;
	SSL_CTX *client, *server;
} all = { .once = PTHREAD_ONCE_INIT };

static SSL_CTX *ctx_new(const SSL_METHOD *method)
{
	SSL_CTX *c = SSL_CTX_new(method);

	if (!c)
		return NULL;
	if (SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) != 1 ||
	    SSL_CTX_set_ciphersuites(c, SUITES) != 1) {
		SSL_CTX_free(c);
		return NULL;
	}
	/* Never resume a session: each connection must prove the key, which may have been
	 * revoked. */
	(void)SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
	(void)SSL_CTX_set_num_tickets(c, 0);
	(void)SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
	(void)SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS);
	return c;
}

static void make_all(void)
{
	BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "penstock");

	if (!m)
		return;
	(void)BIO_meth_set_write(m, bio_write);
	(void)BIO_meth_set_read(m, bio_read);
	(void)BIO_meth_set_ctrl(m, bio_ctrl);
	all.bio = m;
	all.client = ctx_new(TLS_client_method());
	all.server = ctx_new(TLS_server_method());
	if (all.client) {
		/* Reject every certificate: there are no trusted authorities. */
		SSL_CTX_set_verify(all.client, SSL_VERIFY_PEER, NULL);
		SSL_CTX_set_psk_client_callback(all.client, client_key);
	}
	if (all.server)
		SSL_CTX_set_psk_server_callback(all.server, server_key);
}

/* --------------------------------------------------------------------- sessions */

static void openssl_end(struct net_tls *t)
{
	struct session *s = container_of(t, struct session, base);

	SSL_free(s->ssl);
	free(s->base.out);
	free(s->in);
	free(s);
}

static int openssl_begin(int fd, const struct net_key *key, const struct net_keys *keys,
			 struct net_tls **ret)
{
	struct session *s;
	BIO *b;

	(void)pthread_once(&all.once, make_all);
	if (!all.client || !all.server)
		return -ENOMEM;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->base.ops = &pst_tls_module;
	s->base.fd = fd;
	s->key = key;
	s->keys = keys;
	s->base.out = malloc(NET_TLS_OUT_MAX);
	s->in = malloc(NET_TLS_IN_MAX);
	s->ssl = SSL_new(key ? all.client : all.server);
	b = s->ssl ? BIO_new(all.bio) : NULL;
	if (!s->base.out || !s->in || !b) {
		BIO_free(b);
		openssl_end(&s->base);
		return -ENOMEM;
	}
	BIO_set_data(b, s);
	BIO_set_init(b, 1);
	SSL_set_bio(s->ssl, b, b);
	SSL_set_app_data(s->ssl, s);
	if (key)
		SSL_set_connect_state(s->ssl);
	else
		SSL_set_accept_state(s->ssl);
	if (key)
		keep_name(s, key->name);
	*ret = &s->base;
	return 0;
}

#define WHY(s, ...) ((void)snprintf((s)->base.why, sizeof((s)->base.why), __VA_ARGS__))

static int client_failed(struct session *s, int reason)
{
	switch (reason) {
	case ALERT + SSL_AD_HANDSHAKE_FAILURE:
	case ALERT + SSL_AD_UNKNOWN_PSK_IDENTITY:
		WHY(s, "the server does not know the key %s; add its line to the server's keys",
		    s->key->name);
		return -EKEYREJECTED;
	case ALERT + SSL_AD_DECRYPT_ERROR:
	case ALERT + SSL_AD_ILLEGAL_PARAMETER:
	case ALERT + SSL_AD_BAD_RECORD_MAC:
		WHY(s, "the server has another key %s; copy its line from the server's keys",
		    s->key->name);
		return -EKEYREJECTED;
	case SSL_R_CERTIFICATE_VERIFY_FAILED:
		WHY(s,
		    "the server shows a certificate instead of the key %s; give the address of "
		    "penstock serve --keys",
		    s->key->name);
		return -EKEYREJECTED;
	case SSL_R_UNSUPPORTED_PROTOCOL:
	case SSL_R_WRONG_SSL_VERSION:
	case ALERT + SSL_AD_PROTOCOL_VERSION:
		WHY(s, "the server does not speak TLS 1.3; give the address of penstock serve "
		       "--keys");
		return -EPROTO;
	default:
		WHY(s, "what listens there does not speak TLS; give pst:// for a server without "
		       "--keys");
		return -EPROTO;
	}
}

/* Refuse a peer that does not speak TLS.  OpenSSL sends no alert then, so send one: the alert tells
 * Penstock's own clients to use TLS. */
static void not_tls(struct session *s)
{
	static const uint8_t alert[] = { 21, 3, 3, 0, 2, SSL3_AL_FATAL, SSL_AD_PROTOCOL_VERSION };

	WHY(s, "it does not speak TLS, which --keys asks for");
	if (!s->base.out_len) {
		memcpy(s->base.out, alert, sizeof(alert));
		s->base.out_len = sizeof(alert);
	}
}

static int server_failed(struct session *s, int reason)
{
	if (s->asked && !s->found)
		WHY(s, "it has the key %s, which is not among the keys", s->base.peer);
	else if (s->asked && reason == SSL_R_BINDER_DOES_NOT_VERIFY)
		WHY(s, "its key %s differs from that of the keys", s->base.peer);
	else if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST ||
		 reason == SSL_R_HTTPS_PROXY_REQUEST)
		not_tls(s);
	else if (s->asked)
		WHY(s, "the TLS handshake with the key %s failed: %s", s->base.peer,
		    ERR_reason_error_string(ERR_peek_error()));
	else
		WHY(s, "it offers no key by TLS 1.3 with psk_dhe_ke");
	return -EKEYREJECTED;
}

static int openssl_handshake(struct net_tls *t)
{
	struct session *s = container_of(t, struct session, base);
	int r, reason;

	ERR_clear_error();
	r = SSL_do_handshake(s->ssl);
	if (r == 1) {
		/* OpenSSL reports a handshake with a pre-shared key as a resumed session. */
		if (SSL_session_reused(s->ssl) != 1)
			return s->key ? client_failed(s, SSL_R_CERTIFICATE_VERIFY_FAILED)
				      : server_failed(s, 0);
		t->ready = true;
		return 0;
	}
	r = SSL_get_error(s->ssl, r);
	if (r == SSL_ERROR_WANT_READ || r == SSL_ERROR_WANT_WRITE)
		return -EAGAIN;
	if (s->err)
		return -s->err;
	if (s->closed)
		return -ECONNRESET;
	reason = ERR_GET_REASON(ERR_peek_error());
	return s->key ? client_failed(s, reason) : server_failed(s, reason);
}

static int openssl_put(struct net_tls *t, const void *buf, size_t len)
{
	struct session *s = container_of(t, struct session, base);

	ERR_clear_error();
	/* Partial writes cannot happen: the buffer has room. */
	return SSL_write(s->ssl, buf, (int)len) == (int)len ? 0 : -EPROTO;
}

static ssize_t openssl_get(struct net_tls *t, void *buf, size_t len)
{
	struct session *s = container_of(t, struct session, base);
	int n;

	ERR_clear_error();
	n = SSL_read(s->ssl, buf, (int)MIN(len, (size_t)NET_TLS_RECORD));
	if (n > 0)
		return n;
	switch (SSL_get_error(s->ssl, n)) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE:
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	default:
		/* A truncated stream may count as an end: the message's length reveals the loss. */
		return s->closed ? 0 : s->err ? -s->err : -EBADMSG;
	}
}

const struct net_tls_ops pst_tls_module = {
	.version = NET_TLS_VERSION,
	.size = sizeof(struct net_tls_ops),
	.begin = openssl_begin,
	.end = openssl_end,
	.handshake = openssl_handshake,
	.put = openssl_put,
	.get = openssl_get,
};
