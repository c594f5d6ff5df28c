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
 * A peer is another process, at the other end of one connection.  Each side shares ranges of its
 * memory and packs each share into a key.  The side that has the key opens it as a file: pst_read()
 * gets bytes of the peer's memory and pst_write() puts them there, with queues, deadlines and
 * memory of every kind as for any file.  Beside that either side sends messages of any length.
 */
struct pst_peer;     /* a connection; any thread */
struct pst_listener; /* where connections come in; any thread */
struct pst_share;    /* a range of memory that the peer may use; one thread */

/* bytes travel in the clear to another machine, without --keys */
#define PST_PEER_PLAIN (1u << 0)

struct pst_peer_opts {
	size_t sz;      /* sizeof(struct pst_peer_opts) */
	uint32_t flags; /* PST_PEER_* */
	uint32_t reserved;
	const char *keys; /* file of keys for TLS, lines NAME:HEX; NULL: no TLS, as for unix:PATH */
	const char *key;  /* connect: name of the key; NULL: the only one of the file */
};

#define PST_PEER_LOCAL (1u << 0) /* it runs on this machine, under this user: grants are possible */
#define PST_PEER_TLS (1u << 1)   /* the connection is encrypted */

struct pst_peer_info {
	size_t sz;            /* sizeof(struct pst_peer_info) */
	uint32_t flags;       /* PST_PEER_LOCAL, PST_PEER_TLS */
	int32_t err;          /* 0, or the errno with which the connection ended */
	uint32_t uid;         /* of a peer at an AF_UNIX socket, else UINT32_MAX */
	uint32_t pid;         /* likewise, else 0 */
	uint64_t nr_messages; /* that arrived and were not received yet */
};

/**
 * pst_listener_open() - listen for peers
 * @addr:         "unix:PATH", "HOST:PORT" or "[IPV6]:PORT"; port 0 takes a free one
 * @opts:         NULL for the defaults
 * @ret_listener: to be closed with pst_listener_close()
 *
 * A socket at PATH can be connected to by this user alone; chmod(2) opens it to others.
 *
 * Return: 0; -EINVAL for text that is no address, or keys for a PATH; -EACCES for an address beyond
 * this machine without keys and without PST_PEER_PLAIN; errors of a file of keys; -EADDRINUSE and
 * what bind(2) says else.
 */
PST_API int pst_listener_open(const char *addr, const struct pst_peer_opts *opts,
			      struct pst_listener **ret_listener);

/**
 * pst_listener_address() - where a listener listens
 * @listener: the listener
 * @buf:      receives text that pst_peer_connect() takes, always terminated
 * @len:      of @buf, at least 1
 *
 * Return: @buf.
 */
PST_API const char *pst_listener_address(const struct pst_listener *listener, char *buf,
					 size_t len);

/**
 * pst_listener_accept() - take the next peer
 * @listener:    the listener; one thread at a time accepts
 * @deadline_ns: when to give up; 0 only looks
 * @ret_peer:    the peer, to be closed with pst_peer_close()
 *
 * A connection that fails, or is silent, is dropped and keeps no other one waiting.
 *
 * Return: 0; -ETIMEDOUT; -EMFILE, -ENFILE, -ENOMEM, and -EAGAIN where no thread can be started: the
 * connection waits for the next call.
 */
PST_API int pst_listener_accept(struct pst_listener *listener, uint64_t deadline_ns,
				struct pst_peer **ret_peer);

/**
 * pst_listener_close() - listen no more
 * @listener: its peers stay connected
 *
 * Return: NULL.
 */
PST_API struct pst_listener *pst_listener_close(struct pst_listener *listener);

/**
 * pst_peer_connect() - connect to a process that listens
 * @addr:        as pst_listener_open()
 * @opts:        NULL for the defaults
 * @deadline_ns: when to give up
 * @ret_peer:    the peer, to be closed with pst_peer_close()
 *
 * Return: 0; -EINVAL, -EACCES and errors of keys as pst_listener_open(); -ECONNREFUSED, -ENOENT
 * where nobody listens; -EKEYREJECTED for another key; -EPROTO for what is no peer; -ETIMEDOUT.
 */
PST_API int pst_peer_connect(const char *addr, const struct pst_peer_opts *opts,
			     uint64_t deadline_ns, struct pst_peer **ret_peer);

/**
 * pst_peer_close() - end a connection
 * @peer: no other call on it is under way
 *
 * Messages that pst_peer_send() took are sent first, if the peer takes them within a second.
 * Requests on the peer's memory fail, and so do the peer's on memory of this process.
 * Files and shares stay the caller's to close.
 *
 * Return: NULL.
 */
PST_API struct pst_peer *pst_peer_close(struct pst_peer *peer);

/**
 * pst_peer_info() - facts of a connection
 * @peer: the peer
 * @ret:  filled in
 *
 * Return: 0 or -EINVAL for a bad sz.
 */
PST_API int pst_peer_info(struct pst_peer *peer, struct pst_peer_info *ret);

/* ------------------------------------------------------------- memory */

/*
 * the peer may get a grant of the whole allocation (pst_grant(3)), so that bytes are copied once;
 * only for a peer that is trusted with all of it
 */
#define PST_SHARE_GRANT (1u << 0)

#define PST_KEY_MAX 256u /* bytes of a packed key */

/**
 * pst_peer_share() - let the peer use a range of memory
 * @peer:      the peer; the key is of use to it alone, on this connection
 * @mem:       memory that is copied, or that becomes a dma-buf, which only RDMA reaches
 * @off:       first byte in @mem
 * @len:       bytes, at least 1
 * @rights:    PST_RIGHT_*
 * @flags:     PST_SHARE_*
 * @ret_share: to be closed with pst_share_close(), before the memory is used for something else or
 *             wrapped memory is freed; pst_mem_drain() counts only shares that a device reaches
 *
 * Return: 0; -ERANGE past the end of @mem; -EINVAL for bad rights or flags; -EACCES for rights that
 * @mem lacks; -EOPNOTSUPP if nothing moves its bytes; -ENOSPC beyond 1024 shares; -EPIPE: gone.
 */
PST_API int pst_peer_share(struct pst_peer *peer, struct pst_mem *mem, uint64_t off, uint64_t len,
			   uint32_t rights, uint32_t flags, struct pst_share **ret_share);

/**
 * pst_share_pack() - write the key of a share
 * @share: the share
 * @buf:   receives the key: bytes without a meaning to the program, to be kept secret
 * @size:  of @buf; PST_KEY_MAX is always enough
 *
 * Return: bytes of the key; -ENOSPC for a buffer that is too small.
 */
PST_API int pst_share_pack(const struct pst_share *share, void *buf, size_t size);

/**
 * pst_share_close() - take the right to use memory back
 * @share:       freed where the result is 0
 * @deadline_ns: when to stop waiting
 *
 * From the call on, new requests by the key fail, and the call waits for requests in flight.  If a
 * device of the peer takes longer than a second, its connection is ended.  A peer
 * that uses a grant is asked to let go of it.  The end of the connection at this side, also by
 * pst_peer_close(), does not stop such a peer: the call waits until the peer has closed its socket.
 *
 * Return: 0: the peer does not touch the memory any more; -EBUSY: it may, at the deadline: call
 * again.
 */
PST_API int pst_share_close(struct pst_share *share, uint64_t deadline_ns);

/**
 * pst_peer_open() - open the peer's memory as a file
 * @peer:        that shared it
 * @key:         from pst_share_pack() there
 * @len:         bytes of @key
 * @flags:       PST_FILE_READ, PST_FILE_WRITE or both
 * @deadline_ns: when to give up
 * @ret_file:    as many bytes as are shared, to be closed with pst_file_close()
 *
 * Bytes are copied from memory to memory (path "peer") where the share has PST_SHARE_GRANT and the
 * peer is local.  Else the RDMA devices of both sides move them (path "rdma"), in the clear, where
 * there are any, and else they go over the connection (path "tcp").  A put that fails leaves
 * undefined bytes in its range.
 *
 * Return: 0; -EBADMSG for bytes that are no key; -EACCES for a right that the key does not give;
 * -ESTALE for a share that was closed, or is not this peer's; -EPIPE when the connection has ended;
 * -ETIMEDOUT.
 */
PST_API int pst_peer_open(struct pst_peer *peer, const void *key, size_t len, uint32_t flags,
			  uint64_t deadline_ns, struct pst_file **ret_file);

/* ----------------------------------------------------------- messages */

#define PST_MESSAGE_INLINE 16384u /* bytes of a message that the receiver's library keeps */

/**
 * pst_peer_send() - send a message
 * @peer:        the peer
 * @mem:         memory of any kind, or NULL: then @off is an address
 * @off:         first byte in @mem, or the address
 * @len:         bytes; 0 is a message too
 * @flags:       PST_SHARE_GRANT or 0
 * @deadline_ns: when to give up
 *
 * Messages arrive whole and in order.  Up to PST_MESSAGE_INLINE bytes are copied, and the call
 * returns once there is room: a peer keeps 64 messages.  The peer fetches a longer one out of @mem
 * while the call waits.  With PST_SHARE_GRANT the call waits, beyond its deadline too, for a peer
 * that is copying.
 *
 * Return: 0; -ETIMEDOUT: the peer does not receive, and a longer message is not received later
 * either; -ERANGE; -EACCES; -EFAULT; -EPIPE when the connection has ended.
 */
PST_API int pst_peer_send(struct pst_peer *peer, struct pst_mem *mem, uint64_t off, uint64_t len,
			  uint32_t flags, uint64_t deadline_ns);

/**
 * pst_peer_recv() - receive the next message
 * @peer:        the peer
 * @mem:         memory of any kind, or NULL: then @off is an address
 * @off:         first byte in @mem, or the address
 * @max:         bytes that there is room for
 * @deadline_ns: when to give up
 *
 * Of several threads one receives at a time.  After a failure the message is still the next one,
 * unless its sender gave up, or its sender's memory cannot be read: then the sender is told.
 *
 * Return: bytes of the message; -EMSGSIZE for one that is longer than @max: pst_peer_next() tells
 * its length; -ETIMEDOUT; -ERANGE; -EACCES; -EFAULT; -EIO for a message whose sender's memory
 * cannot be read, which is dropped; -EPIPE when the connection has ended and nothing is left.
 */
PST_API int64_t pst_peer_recv(struct pst_peer *peer, struct pst_mem *mem, uint64_t off,
			      uint64_t max, uint64_t deadline_ns);

/**
 * pst_peer_next() - wait for a message, and leave it there
 * @peer:        the peer
 * @deadline_ns: when to give up; 0 only looks
 *
 * Return: bytes of the message; -ETIMEDOUT; -EPIPE.
 */
PST_API int64_t pst_peer_next(struct pst_peer *peer, uint64_t deadline_ns);

#ifdef __cplusplus
}
#endif
#endif
