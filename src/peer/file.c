/* SPDX-License-Identifier: MIT */
/* A peer's memory as a file. */
#include <stdio.h>

#include "base/err.h"
#include "base/log.h"
#include "base/thread.h"
#include "peer/ctx.h"

/* Refuse: no name leads to a peer's memory. */
static int no_open(const char *name, uint32_t flags, uint32_t mode, struct file **ret)
{
	(void)flags;
	(void)mode;
	(void)ret;
	return err_set(EINVAL, "%s: memory of a peer is opened by pst_peer_open()", name);
}

static void peer_file_free(struct file *file)
{
	struct peer_file *f = peer_file_of(file);
	struct pst_peer *p = f->peer;

	import_free(f->import);
	peer_reach_free(p, f->reach);
	(void)pthread_mutex_lock(&p->lock);
	if (f->close && !p->err && !p->closing) {
		peer_items_push(&p->out, TAKE_PTR(f->close));
		peer_kick(p);
	}
	(void)pthread_mutex_unlock(&p->lock);
	peer_item_free(f->close);
	peer_put(p);
	free(f);
}

static int peer_file_size(const struct file *file, uint64_t *ret_size)
{
	*ret_size = peer_file_of(file)->len;
	return 0;
}

static int peer_file_memory(struct file *file, const struct mem_alloc **ret, uint64_t *ret_off,
			    uint64_t *ret_len)
{
	struct import *i = peer_file_of(file)->import;
	int r = i ? import_use(i) : -EOPNOTSUPP;

	if (r < 0)
		return r;
	*ret = i->alloc;
	*ret_off = i->off;
	*ret_len = peer_file_of(file)->len;
	return 0;
}

static void peer_file_memory_put(struct file *file)
{
	import_unuse(peer_file_of(file)->import);
}

/* After RDMA has ended, operations use the socket. */
static int peer_file_rdma_err(const struct file *file)
{
	const struct peer_file *f = peer_file_of(file);

	return f->reach ? atomic_load(&f->peer->rdma.err) : f->rdma_err;
}

#define OPS(HOP, OR_HOP)                                                                      \
	{                                                                                     \
		.scheme = "peer", .backend = &peer_backend, .hop = (HOP), .or_hop = (OR_HOP), \
		.rdma_err = peer_file_rdma_err, .open = no_open, .free = peer_file_free,      \
		.size = peer_file_size, .memory = peer_file_memory,                           \
		.memory_put = peer_file_memory_put                                            \
	}

static const struct file_ops by_socket_ops = OPS(PST_PATH_TCP, 0);
static const struct file_ops by_memory_ops = OPS(PST_PATH_PEER, 0);
static const struct file_ops by_rdma_ops = OPS(PST_PATH_RDMA, PST_PATH_TCP);

/* Return false if a side has no NIC or forbids RDMA: completions then do not report that each
 * time. */
static bool rdma_is_possible(int err)
{
	return err != -ENODEV && err != -ECANCELED && err != -EPROTONOSUPPORT;
}

static const struct file_ops *peer_file_ops(const struct peer_file *f)
{
	if (f->import)
		return &by_memory_ops;
	return rdma_is_possible(-f->rdma_err) ? &by_rdma_ops : &by_socket_ops;
}

/* --------------------------------------------------------------------- open */

static int check_key(const void *key, size_t len, uint32_t flags, struct peer_key *ret)
{
	uint32_t need = (flags & PST_FILE_READ ? PST_RIGHT_READ : 0) |
			(flags & PST_FILE_WRITE ? PST_RIGHT_WRITE : 0);

	if (!need || flags & ~(PST_FILE_READ | PST_FILE_WRITE))
		return err_set(EINVAL, "give PST_FILE_READ, PST_FILE_WRITE or both");
	if (!key || peer_get_key(key, len, ret) < 0)
		return err_set(EBADMSG, "the key is damaged, or is none of pst_share_pack()");
	if (need & ~ret->rights)
		return err_set(EACCES,
			       "the key does not give the right to %s; share the memory with "
			       "that right",
			       need & ~ret->rights & PST_RIGHT_READ ? "read" : "write");
	return 0;
}

/* Send the item, after waiting for a free request slot. */
static int peer_ask_send(struct pst_peer *p, struct item *it, struct peer_opening *o,
			 uint64_t share, uint64_t deadline_ns, uint64_t *ret_id)
{
	struct peer_request *q;
	int r;

	for (;;) {
		r = peer_check(p);
		if (r == 0)
			r = peer_request_new(p, (uint8_t)it->m.type, &q, ret_id);
		if (r != -EAGAIN)
			break;
		if (cond_wait_until(&p->more, &p->lock, deadline_ns) == ETIMEDOUT)
			return err_set(ETIMEDOUT, "the peer answers no request");
	}
	if (r < 0)
		return r;
	q->opening = o;
	q->share = share;
	it->m.id = *ret_id;
	peer_items_push(&p->out, it);
	peer_kick(p);
	return 0;
}

int peer_ask(struct pst_peer *p, struct item *it, struct peer_opening *o, uint64_t share,
	     uint64_t deadline_ns)
{
	uint8_t type = (uint8_t)it->m.type;
	struct peer_request *q;
	uint64_t id = UINT64_MAX;
	int r;

	(void)pthread_mutex_lock(&p->lock);
	r = peer_ask_send(p, it, o, share, deadline_ns, &id);
	if (r < 0)
		peer_item_free(it);
	while (r == 0 && !o->done)
		if (cond_wait_until(&p->more, &p->lock, deadline_ns) == ETIMEDOUT && !o->done)
			r = err_set(ETIMEDOUT, "the peer does not answer");
	/* If nobody waits for the reply, its handler closes what it opened. */
	q = r < 0 ? peer_request_find(p, id, type) : NULL;
	if (q && q->opening == o)
		q->opening = NULL;
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}

/* Open the share at the other side. */
static int open_there(struct pst_peer *p, const void *key, size_t len, struct peer_opening *o,
		      uint64_t deadline_ns)
{
	struct item *it = peer_item_new(PEER_OPEN, (uint32_t)len);

	if (!it)
		return err_set(ENOMEM, "out of memory");
	memcpy(it->payload, key, len);
	return peer_ask(p, it, o, o->import->share, deadline_ns);
}

static int open_err(struct pst_peer *p, int err)
{
	int r;

	if (err == -ESTALE)
		return err_set(ESTALE, "the peer's memory is not shared any more, or the key is of "
				       "another connection");
	if (err != -EPIPE)
		return err_set(err, "the peer refused the key: %s", err_name(err));
	(void)pthread_mutex_lock(&p->lock);
	r = peer_check(p);
	(void)pthread_mutex_unlock(&p->lock);
	return r < 0 ? r : err_set(err, "the connection to the peer ended");
}

int peer_open(struct pst_peer *p, const void *key, size_t len, uint32_t flags, uint64_t deadline_ns,
	      struct file **ret)
{
	struct peer_opening o = { .fd = -1 };
	struct peer_file *f;
	struct peer_key k;
	int r = check_key(key, len, flags, &k);

	if (r < 0)
		return r;
	f = calloc(1, sizeof(*f));
	if (!f)
		return err_set(ENOMEM, "out of memory");
	o.import = peer_import_new(p, k.share);
	f->close = peer_item_new(PEER_CLOSE, 0);
	r = f->close && o.import ? open_there(p, key, len, &o, deadline_ns)
				 : err_set(ENOMEM, "out of memory");
	if (r == 0 && o.err)
		r = open_err(p, o.err);
	if (r == 0 && o.has_grant && import_open(o.import, &k, o.grant, o.fd) == 0)
		f->import = TAKE_PTR(o.import);
	else if (r == 0 && o.has_grant)
		log_info("the peer's memory is reached over the connection: %s", err_text());
	closep(&o.fd);
	explicit_bzero(o.grant, sizeof(o.grant));
	import_free(o.import);
	if (r == 0 && f->import) {
		f->rdma_err = EALREADY;
	} else if (r == 0) {
		f->rdma_err = -peer_reach(p, &k, deadline_ns, &f->reach);
		if (f->rdma_err)
			log_debug("a peer's memory is reached over the socket: %s", err_text());
	}
	if (r < 0) {
		peer_item_free(f->close);
		free(f);
		return r;
	}
	f->close->m.share = k.share;
	f->peer = peer_get(p);
	f->share = k.share;
	f->len = k.len;
	f->file = (struct file){
		.ops = peer_file_ops(f),
		.flags = flags,
		.caps = FILE_STALE,
	};
	(void)snprintf(f->file.name, sizeof(f->file.name), "peer");
	*ret = &f->file;
	return 0;
}
