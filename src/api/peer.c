/* SPDX-License-Identifier: MIT */
/* The public calls on peers. */
#include <inttypes.h>

#include "base/err.h"
#include "base/opts.h"
#include "core/queue/object.h"
#include "core/ways/registration.h"
#include "mem/dmabuf.h"
#include "peer/peer.h"
#include "api/file.h"
#include "api/guard.h"

int pst_listener_open(const char *addr, const struct pst_peer_opts *opts,
		      struct pst_listener **ret_listener)
{
	GUARD();
	return peer_listen(addr, opts, ret_listener);
}

const char *pst_listener_address(const struct pst_listener *listener, char *buf, size_t len)
{
	peer_listener_text(listener, buf, len);
	return buf;
}

int pst_listener_accept(struct pst_listener *listener, uint64_t deadline_ns,
			struct pst_peer **ret_peer)
{
	GUARD();
	return peer_accept(listener, deadline_ns, ret_peer);
}

struct pst_listener *pst_listener_close(struct pst_listener *listener)
{
	_cleanup_(errno_restore) int saved = errno;
	NO_CANCEL();

	if (listener && fork_guard() == 0)
		peer_listener_free(listener);
	return NULL;
}

int pst_peer_connect(const char *addr, const struct pst_peer_opts *opts, uint64_t deadline_ns,
		     struct pst_peer **ret_peer)
{
	GUARD();
	return peer_connect(addr, opts, deadline_ns, ret_peer);
}

struct pst_peer *pst_peer_close(struct pst_peer *peer)
{
	_cleanup_(errno_restore) int saved = errno;
	NO_CANCEL();

	if (peer && fork_guard() == 0)
		peer_end(peer);
	return NULL;
}

int pst_peer_info(struct pst_peer *peer, struct pst_peer_info *ret)
{
	struct pst_peer_info info = { .sz = sizeof(info) };

	GUARD();
	peer_facts(peer, &info);
	return opts_return(ret, &info, sizeof(info));
}

/* ------------------------------------------------------------------ shares */

/* The memory of a share, and its registration for the peer's device. */
struct share_memory {
	struct pst_mem *mem;
	uint64_t off, len; /* range of the allocation, bytes */
	struct reg_user user;
};

static int share_memory_reg(void *arg, struct mem_registrar *by, uint32_t rights,
			    const struct mem_reg **ret, uint64_t *ret_epoch)
{
	struct share_memory *m = arg;
	int r = registration_get(m->mem->region, by, m->off, m->len, rights, &m->user);

	if (r < 0)
		return r;
	*ret = m->user.reg;
	*ret_epoch = m->user.epoch;
	return 0;
}

static void share_memory_dereg(void *arg)
{
	registration_put(&((struct share_memory *)arg)->user);
}

static void share_memory_done(void *arg)
{
	struct share_memory *m = arg;

	object_put(&m->mem->obj);
	free(m);
}

static const struct share_ops share_memory_ops = {
	.reg = share_memory_reg,
	.dereg = share_memory_dereg,
	.done = share_memory_done,
};

static int peer_check_range(const struct pst_mem *mem, uint64_t off, uint64_t len, uint32_t rights)
{
	uint64_t end;

	if (__builtin_add_overflow(off, len, &end) || end > mem->len)
		return err_set(ERANGE,
			       "%" PRIu64 " bytes at %" PRIu64 " are not within memory of %" PRIu64,
			       len, off, mem->len);
	if (rights & ~mem->rights)
		return err_set(EACCES, "the grant of this memory does not allow that");
	return 0;
}

/* Check that something can move the bytes: the CPU, a device copy, or a network card by a
 * dma-buf. */
static int peer_check_reach(const struct pst_mem *mem, uint64_t off, uint64_t len)
{
	const struct mem_alloc *a = mem->region->alloc;
	struct err_kept why;

	if (a->host || mem_copies(a->ops) || mem_dmabuf_probe(a, mem->off + off, len) == 0)
		return 0;
	err_keep(&why);
	return err_set(EOPNOTSUPP,
		       "nothing here copies memory of kind %s, so network cards alone reach it, by "
		       "its dma-buf: %.300s",
		       mem_kind_name(a->ops->kind), why.text);
}

int pst_peer_share(struct pst_peer *peer, struct pst_mem *mem, uint64_t off, uint64_t len,
		   uint32_t rights, uint32_t flags, struct pst_share **ret_share)
{
	struct share_memory *m;
	struct pst_share s;
	int r;

	GUARD();
	if (!peer || !mem)
		return err_set(EINVAL, "no %s is given", peer ? "memory" : "peer");
	if (!rights || rights & ~(PST_RIGHT_READ | PST_RIGHT_WRITE))
		return err_set(EINVAL, "rights are 0x%x; give PST_RIGHT_READ, _WRITE or both",
			       rights);
	if (flags & ~PST_SHARE_GRANT)
		return err_set(EINVAL, "flags 0x%x are not known", flags);
	if (!len)
		return err_set(EINVAL, "the length is zero");
	r = peer_check_range(mem, off, len, rights);
	if (r < 0)
		return r;
	r = peer_check_reach(mem, off, len);
	if (r < 0)
		return r;
	m = calloc(1, sizeof(*m));
	if (!m)
		return err_set(ENOMEM, "out of memory");
	*m = (struct share_memory){ .mem = mem, .off = mem->off + off, .len = len };
	s = (struct pst_share){
		.alloc = mem->region->alloc,
		.off = mem->off + off,
		.len = len,
		.rights = rights,
		.flags = flags,
		.ops = &share_memory_ops,
		.arg = m,
	};
	atomic_fetch_add(&mem->obj.refs, 1);
	r = peer_share_new(peer, &s, ret_share);
	if (r < 0)
		share_memory_done(m);
	return r;
}

int pst_share_pack(const struct pst_share *share, void *buf, size_t size)
{
	uint8_t key[PEER_KEY_LEN];

	GUARD_LIGHT();
	if (!share || !buf)
		return err_set(EINVAL, "no %s is given", share ? "buffer" : "share");
	if (size < sizeof(key))
		return err_set(ENOSPC, "the key has %zu bytes, the buffer %zu", sizeof(key), size);
	share_key(share, key);
	memcpy(buf, key, sizeof(key));
	explicit_bzero(key, sizeof(key));
	return sizeof(key);
}

int pst_share_close(struct pst_share *share, uint64_t deadline_ns)
{
	GUARD();
	return share ? share_close(share, deadline_ns) : err_set(EINVAL, "no share is given");
}

int pst_peer_open(struct pst_peer *peer, const void *key, size_t len, uint32_t flags,
		  uint64_t deadline_ns, struct pst_file **ret_file)
{
	struct file *f;
	int r;

	GUARD();
	if (!peer)
		return err_set(EINVAL, "no peer is given");
	r = peer_open(peer, key, len, flags, deadline_ns, &f);
	return r < 0 ? r : file_new(f, ret_file);
}

/* ---------------------------------------------------------------- messages */

/* The memory of a message: the caller's pst_mem, or a wrap of an address during the call. */
struct place {
	struct pst_mem *mem;
	struct pst_mem *wrapped;
	uint64_t off;
};

static void message_place_done(struct place *pl)
{
	(void)pst_mem_free(pl->wrapped);
}

static int message_place(struct pst_mem *mem, uint64_t off, uint64_t len, uint32_t rights,
			 struct place *ret)
{
	int r;

	*ret = (struct place){ .mem = mem, .off = off };
	if (mem)
		return peer_check_range(mem, off, len, rights);
	if (!len)
		return 0;
	r = pst_mem_wrap(off, len, NULL, &ret->wrapped);
	ret->mem = ret->wrapped;
	ret->off = 0;
	return r;
}

static int send_short(struct pst_peer *peer, const struct place *pl, uint32_t len,
		      uint64_t deadline_ns)
{
	char buf[PST_MESSAGE_INLINE];
	int r = len ? pst_mem_copy_out(pl->mem, pl->off, buf, len) : 0;

	return r < 0 ? r : peer_send_inline(peer, buf, len, deadline_ns);
}

/* Send a long message: the peer reads a share that exists during the call. */
static int send_long(struct pst_peer *peer, const struct place *pl, uint64_t len, uint32_t flags,
		     uint64_t deadline_ns)
{
	uint8_t key[PEER_KEY_LEN];
	struct pst_share *s;
	int r = pst_peer_share(peer, pl->mem, pl->off, len, PST_RIGHT_READ, flags, &s), closed;

	if (r < 0)
		return r;
	share_key(s, key);
	r = peer_send_offer(peer, key, len, deadline_ns);
	explicit_bzero(key, sizeof(key));
	/* Wait until a peer with a grant drops the grant, or its connection ends, because the
	 * caller may reuse the memory when this call returns. */
	do
		closed = share_close(s, UINT64_MAX);
	while (closed == -EBUSY);
	return r < 0 ? r : closed;
}

int pst_peer_send(struct pst_peer *peer, struct pst_mem *mem, uint64_t off, uint64_t len,
		  uint32_t flags, uint64_t deadline_ns)
{
	_cleanup_(message_place_done) struct place pl = { 0 };
	int r;

	GUARD();
	if (!peer)
		return err_set(EINVAL, "no peer is given");
	if (flags & ~PST_SHARE_GRANT)
		return err_set(EINVAL, "flags 0x%x are not known", flags);
	r = message_place(mem, off, len, PST_RIGHT_READ, &pl);
	if (r < 0)
		return r;
	if (len <= peer->inline_max)
		return send_short(peer, &pl, (uint32_t)len, deadline_ns);
	return send_long(peer, &pl, len, flags, deadline_ns);
}

/* Return true if a later call may receive the same message.  If not, the message's sender is told
 * the error. */
static bool message_stays(int r)
{
	switch (-r) {
	case ETIMEDOUT:
	case EFAULT: /* an error of this process, like those in the cases below */
	case ENOMEM:
	case ECANCELED:
	case EAGAIN:
	case EMFILE:
	case ENFILE:
		return true;
	default:
		return false;
	}
}

/* Read a long message from its sender's memory. */
static int message_fetch(struct pst_peer *peer, const struct item *i, const struct place *pl,
			 uint64_t deadline_ns)
{
	struct pst_call_opts o = { .sz = sizeof(o), .deadline_ns = deadline_ns };
	struct pst_vec v = { .mem = pl->mem, .mem_off = pl->off, .len = i->m.off };
	struct pst_file *f;
	int64_t n;
	int r;

	r = pst_peer_open(peer, i->payload, i->len, PST_FILE_READ, deadline_ns, &f);
	if (r < 0)
		return r;
	n = pst_readv(f, &v, 1, &o, NULL);
	(void)pst_file_close(f);
	if (n >= 0 && (uint64_t)n < v.len)
		return err_set(EIO, "the message ended early");
	return n < 0 ? (int)n : 0;
}

int64_t pst_peer_recv(struct pst_peer *peer, struct pst_mem *mem, uint64_t off, uint64_t max,
		      uint64_t deadline_ns)
{
	_cleanup_(message_place_done) struct place pl = { 0 };
	uint64_t len;
	int r;

	GUARD();
	if (!peer)
		return err_set(EINVAL, "no peer is given");
	r = message_place(mem, off, max, PST_RIGHT_WRITE, &pl);
	while (r == 0) {
		struct item *i;
		bool offer;

		r = peer_recv_begin(peer, deadline_ns, &i);
		if (r < 0)
			break;
		len = item_message_len(i);
		if (len > max) {
			peer_recv_end(peer, i, false, 0);
			return err_set(EMSGSIZE,
				       "the message has %" PRIu64 " bytes, the room %" PRIu64, len,
				       max);
		}
		if (i->m.type == PEER_OFFER)
			r = message_fetch(peer, i, &pl, deadline_ns);
		else
			r = len ? pst_mem_copy_in(pl.mem, pl.off, i->payload, len) : 0;
		offer = i->m.type == PEER_OFFER;
		peer_recv_end(peer, i, !r || (offer && !message_stays(r)), -r);
		if (r == 0)
			return (int64_t)len;
		/* The sender has given up or ended.  Messages that came earlier may still be
		 * waiting. */
		if (offer && (r == -ESTALE || r == -EPIPE))
			r = 0;
	}
	return r;
}

int64_t pst_peer_next(struct pst_peer *peer, uint64_t deadline_ns)
{
	GUARD();
	return peer ? peer_recv_len(peer, deadline_ns) : err_set(EINVAL, "no peer is given");
}
