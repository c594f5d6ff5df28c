/* SPDX-License-Identifier: MIT */
/* Put, get, send and receive between two processes; manual page: pst_peer(3). */
#ifndef PENSTOCK_PEER_H
#define PENSTOCK_PEER_H

#include <penstock/grant.h>
#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A peer is another process, at the other end of one connection.  Each side can share ranges of its
 * memory, and packs each share into a key.  The side that has the key opens it as a file:
 * pst_read() gets bytes from the peer's memory and pst_write() puts bytes there, with queues,
 * deadlines and memory of every kind as for any file.  Both sides can also send messages of any
 * length.
 */
struct pst_peer;     /* a connection; any thread */
struct pst_listener; /* accepts connections; any thread */
struct pst_share;    /* a range of memory that the peer may use; one thread */

/* Allow connections to other machines without TLS: bytes are not encrypted. */
#define PST_PEER_PLAIN (1u << 0)

struct pst_peer_opts {
	size_t sz;      /* sizeof(struct pst_peer_opts) */
	uint32_t flags; /* PST_PEER_* */
	uint32_t reserved;
	const char *keys; /* file of TLS keys, lines NAME:HEX; NULL: no TLS, as for unix:PATH */
	const char *key;  /* pst_peer_connect(): name of the key; NULL: the file's only key */
};

/* The peer runs on this machine as this user, so grants are possible. */
#define PST_PEER_LOCAL (1u << 0)
/* The connection is encrypted. */
#define PST_PEER_TLS (1u << 1)

struct pst_peer_info {
	size_t sz;            /* sizeof(struct pst_peer_info) */
	uint32_t flags;       /* PST_PEER_LOCAL, PST_PEER_TLS */
	int32_t err;          /* 0, or the errno with which the connection ended */
	uint32_t uid;         /* uid of a peer at an AF_UNIX socket, else UINT32_MAX */
	uint32_t pid;         /* pid of a peer at an AF_UNIX socket, else 0 */
	uint64_t nr_messages; /* messages that arrived and were not received yet */
};

/**
 * pst_listener_open() - listen for peers
 * @addr:         "unix:PATH", "HOST:PORT" or "[IPV6]:PORT"; port 0 chooses a free one
 * @opts:         NULL for the defaults
 * @ret_listener: to be closed with pst_listener_close()
 *
 * Only this user can connect to a socket at PATH; chmod(2) allows others.
 *
 * Return: 0; -EINVAL for an invalid address, or keys for a PATH; -EACCES for an address that other
 * machines reach, without keys and without PST_PEER_PLAIN; errors of reading the keys; -EADDRINUSE
 * or another -errno of bind(2).
 */
PST_API int pst_listener_open(const char *addr, const struct pst_peer_opts *opts,
			      struct pst_listener **ret_listener);

/**
 * pst_listener_address() - return the address of a listener
 * @listener: the listener
 * @buf:      receives the address for pst_peer_connect(), always ended by a 0
 * @len:      size of @buf in bytes, at least 1
 *
 * Return: @buf.
 */
PST_API const char *pst_listener_address(const struct pst_listener *listener, char *buf,
					 size_t len);

/**
 * pst_listener_accept() - wait for the next peer
 * @listener:    the listener; one thread at a time accepts
 * @deadline_ns: when to give up; 0 does not wait
 * @ret_peer:    the peer, to be closed with pst_peer_close()
 *
 * A connection that fails or sends nothing is dropped, and does not delay others.
 *
 * Return: 0; -ETIMEDOUT; -EMFILE, -ENFILE, -ENOMEM, and -EAGAIN if no thread can be started: the
 * connection then waits for the next call.
 */
PST_API int pst_listener_accept(struct pst_listener *listener, uint64_t deadline_ns,
				struct pst_peer **ret_peer);

/**
 * pst_listener_close() - stop listening
 * @listener: the listener; its peers stay connected
 *
 * Return: NULL.
 */
PST_API struct pst_listener *pst_listener_close(struct pst_listener *listener);

/**
 * pst_peer_connect() - connect to a process that listens
 * @addr:        as in pst_listener_open()
 * @opts:        NULL for the defaults
 * @deadline_ns: when to give up
 * @ret_peer:    the peer, to be closed with pst_peer_close()
 *
 * Return: 0; -EINVAL, -EACCES and errors of keys as pst_listener_open(); -ECONNREFUSED or
 * -ENOENT if no process listens; -EKEYREJECTED for a wrong key; -EPROTO if the other side is not a
 * peer; -ETIMEDOUT.
 */
PST_API int pst_peer_connect(const char *addr, const struct pst_peer_opts *opts,
			     uint64_t deadline_ns, struct pst_peer **ret_peer);

/**
 * pst_peer_close() - end a connection
 * @peer: the peer; no other call on it may be running
 *
 * Sends messages that pst_peer_send() accepted, if the peer receives them within a second.
 * Requests on the peer's memory then fail, and so do the peer's requests on memory of this process.
 * The caller must still close files and shares.
 *
 * Return: NULL.
 */
PST_API struct pst_peer *pst_peer_close(struct pst_peer *peer);

/**
 * pst_peer_info() - return facts about a connection
 * @peer: the peer
 * @ret:  filled in
 *
 * Return: 0 or -EINVAL for a bad sz.
 */
PST_API int pst_peer_info(struct pst_peer *peer, struct pst_peer_info *ret);

/* ------------------------------------------------------------- memory */

/* The peer may get a grant (pst_grant(3)), so that bytes are copied only once.  The grant opens the
 * whole allocation, so use this only if the peer may access all of it. */
#define PST_SHARE_GRANT (1u << 0)

/* Maximum bytes of a packed key. */
#define PST_KEY_MAX 256u

/**
 * pst_peer_share() - let the peer use a range of memory
 * @peer:      the peer; only this peer can use the key, and only on this connection
 * @mem:       memory that can be copied, or that can become a dma-buf, which only RDMA reaches
 * @off:       first byte in @mem
 * @len:       bytes, at least 1
 * @rights:    PST_RIGHT_*
 * @flags:     PST_SHARE_*
 * @ret_share: the share.  Close it with pst_share_close() before the memory is reused, or wrapped
 *             memory is freed: pst_mem_drain() waits only for shares that an RDMA device reaches
 *
 * Return: 0; -ERANGE past the end of @mem; -EINVAL for bad rights or flags; -EACCES for rights that
 * @mem lacks; -EOPNOTSUPP if no path can move the memory's bytes; -ENOSPC beyond 1024 shares;
 * -EPIPE if the connection has ended.
 */
PST_API int pst_peer_share(struct pst_peer *peer, struct pst_mem *mem, uint64_t off, uint64_t len,
			   uint32_t rights, uint32_t flags, struct pst_share **ret_share);

/**
 * pst_share_pack() - write the key of a share
 * @share: the share
 * @buf:   receives the key: opaque bytes, which must be kept secret
 * @size:  size of @buf in bytes; PST_KEY_MAX is always enough
 *
 * Return: length of the key in bytes; -ENOSPC if @buf is too small.
 */
PST_API int pst_share_pack(const struct pst_share *share, void *buf, size_t size);

/**
 * pst_share_close() - revoke the peer's right to use memory
 * @share:       the share; freed if the result is 0
 * @deadline_ns: when to stop waiting
 *
 * From now on, new requests with the key fail, and the call waits for requests in flight.  If a
 * device of the peer takes longer than a second, the connection is ended.  A peer that uses a grant
 * is asked to drop it.  If this side ends the connection, for example by pst_peer_close(), such a
 * peer may continue: the call waits until the peer has closed its socket.
 *
 * Return: 0 if the peer does not touch the memory any more; -EBUSY if it may still do so at the
 * deadline: call again.
 */
PST_API int pst_share_close(struct pst_share *share, uint64_t deadline_ns);

/**
 * pst_peer_open() - open the peer's memory as a file
 * @peer:        the peer that shared the memory
 * @key:         key from pst_share_pack() of that process
 * @len:         length of @key in bytes
 * @flags:       PST_FILE_READ, PST_FILE_WRITE or both
 * @deadline_ns: when to give up
 * @ret_file:    file with the bytes of the share, to be closed with pst_file_close()
 *
 * If the share has PST_SHARE_GRANT and the peer is local, bytes are copied from memory to memory
 * (path "peer").  Otherwise the RDMA devices of both sides move them, without encryption (path
 * "rdma").  Without RDMA devices they are sent over the connection (path "tcp").  A put that fails
 * leaves undefined bytes in its range.
 *
 * Return: 0; -EBADMSG for bytes that are not a key; -EACCES for a right that the key does not give;
 * -ESTALE for a share that was closed, or belongs to another peer; -EPIPE if the connection has
 * ended; -ETIMEDOUT.
 */
PST_API int pst_peer_open(struct pst_peer *peer, const void *key, size_t len, uint32_t flags,
			  uint64_t deadline_ns, struct pst_file **ret_file);

/* ----------------------------------------------------------- messages */

/* Bytes of the longest message that the receiver's library stores. */
#define PST_MESSAGE_INLINE 16384u

/**
 * pst_peer_send() - send a message
 * @peer:        the peer
 * @mem:         memory of any kind, or NULL: then @off is an address
 * @off:         first byte in @mem, or the address
 * @len:         bytes; a message may have 0
 * @flags:       PST_SHARE_GRANT or 0
 * @deadline_ns: when to give up
 *
 * Messages arrive whole and in order.  A message of up to PST_MESSAGE_INLINE bytes is copied, and
 * the call returns once the peer has room: a peer stores up to 64 messages.  The peer reads a
 * longer message from @mem while the call waits.  With PST_SHARE_GRANT the call waits, even beyond
 * its deadline, for a peer that is copying.
 *
 * Return: 0; -ETIMEDOUT if the peer has not received the message; a message of more than
 * PST_MESSAGE_INLINE bytes is then never received; -ERANGE; -EACCES; -EFAULT; -EPIPE if the
 * connection has ended.
 */
PST_API int pst_peer_send(struct pst_peer *peer, struct pst_mem *mem, uint64_t off, uint64_t len,
			  uint32_t flags, uint64_t deadline_ns);

/**
 * pst_peer_recv() - receive the next message
 * @peer:        the peer
 * @mem:         memory of any kind, or NULL: then @off is an address
 * @off:         first byte in @mem, or the address
 * @max:         room in bytes
 * @deadline_ns: when to give up
 *
 * If several threads call this, one receives at a time.  After a failure the message remains the
 * next one, unless its sender gave up, or its sender's memory cannot be read; the sender is told
 * so.
 *
 * Return: bytes of the message; -EMSGSIZE if the message is longer than @max: pst_peer_next()
 * returns its length; -ETIMEDOUT; -ERANGE; -EACCES; -EFAULT; -EIO for a message whose sender's
 * memory cannot be read, which is dropped; -EPIPE if the connection has ended and no message
 * remains.
 */
PST_API int64_t pst_peer_recv(struct pst_peer *peer, struct pst_mem *mem, uint64_t off,
			      uint64_t max, uint64_t deadline_ns);

/**
 * pst_peer_next() - wait for a message without receiving it
 * @peer:        the peer
 * @deadline_ns: when to give up; 0 does not wait
 *
 * Return: bytes of the message; -ETIMEDOUT; -EPIPE.
 */
PST_API int64_t pst_peer_next(struct pst_peer *peer, uint64_t deadline_ns);

#ifdef __cplusplus
}
#endif
#endif
