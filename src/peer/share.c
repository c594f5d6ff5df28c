/* SPDX-License-Identifier: MIT */
/* Memory of this process that the peer may use. */
#include <poll.h>
#include <sys/random.h>

#include "base/err.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/uaccess.h"
#include "peer/peer.h"

/* ---------------------------------------------------------- for the program */

static void share_free(struct pst_share *s)
{
	peer_item_free(s->revoke);
	free(s);
}

int peer_share_new(struct pst_peer *p, const struct pst_share *from, struct pst_share **ret)
{
	struct pst_share *s = malloc(sizeof(*s));
	uint32_t idx = 0;
	int r;

	if (!s)
		return err_set(ENOMEM, "out of memory");
	*s = *from;
	s->peer = p;
	/* Allocate the message now, so that closing the share needs no memory. */
	s->revoke = peer_item_new(PEER_REVOKE, 0);
	if (!s->revoke) {
		share_free(s);
		return err_set(ENOMEM, "out of memory");
	}
	if (getrandom(s->nonce, sizeof(s->nonce), 0) != sizeof(s->nonce)) {
		share_free(s);
		return err_set(EIO, "the kernel gives no random numbers for a key");
	}
	(void)pthread_mutex_lock(&p->lock);
	r = peer_check(p);
	(void)pthread_mutex_unlock(&p->lock);
	if (r < 0) {
		share_free(s);
		return r;
	}
	(void)pthread_mutex_lock(&p->share_lock);
	while (idx < PEER_SHARES_MAX && p->shares[idx])
		idx++;
	if (idx < PEER_SHARES_MAX) {
		s->id = (uint64_t)++p->share_epoch[idx] << 32 | idx;
		p->shares[idx] = s;
	}
	(void)pthread_mutex_unlock(&p->share_lock);
	if (idx == PEER_SHARES_MAX) {
		share_free(s);
		return err_set(ENOSPC, "the peer has %u shares already; close some",
			       PEER_SHARES_MAX);
	}
	(void)peer_get(p);
	*ret = s;
	return 0;
}

void share_key(const struct pst_share *s, uint8_t to[PEER_KEY_LEN])
{
	struct peer_key k = {
		.share = s->id,
		.len = s->len,
		.rights = s->rights,
		.kind = s->alloc->ops->kind,
	};

	memcpy(k.nonce, s->nonce, sizeof(k.nonce));
	peer_put_key(&k, to);
	explicit_bzero(&k, sizeof(k));
}

/* Ask the peer to release its grants.  The peer's lock is held. */
static void share_ask_back(struct pst_peer *p, struct pst_share *s)
{
	if (s->asked)
		return;
	s->revoke->m.share = s->id;
	peer_items_push(&p->out, TAKE_PTR(s->revoke));
	peer_kick(p);
	s->asked = true;
}

/* Read until the other side closes its socket.  Called after the thread has ended.  Return 0 or
 * -ETIMEDOUT. */
static int wait_until_gone(struct pst_peer *p, uint64_t deadline_ns)
{
	for (;;) {
		struct pollfd at = { .fd = p->fd, .events = POLLIN };
		char buf[4096];
		ssize_t n = recv(p->fd, buf, sizeof(buf), MSG_DONTWAIT);
		uint64_t now = now_ns();

		if (n == 0 || (n < 0 && errno == ECONNRESET))
			return 0;
		if (now >= deadline_ns)
			return -ETIMEDOUT;
		if (n < 0)
			(void)poll(
				&at, 1,
				(int)MIN((deadline_ns - now) / NSEC_PER_MSEC + 1, UINT64_C(60000)));
	}
}

/*
 * Wait until the other side says that it uses no grant of the share, or closes its socket.  The end
 * of the connection at this side proves nothing.  The peer's lock is held.
 */
static int share_wait_back(struct pst_peer *p, struct pst_share *s, uint64_t deadline_ns)
{
	while (s->opens && !s->revoked && !p->gone) {
		int r;

		if (!p->err) {
			r = cond_wait_until(&p->more, &p->lock, deadline_ns) == ETIMEDOUT
				    ? -ETIMEDOUT
				    : 0;
		} else {
			(void)pthread_mutex_unlock(&p->lock);
			r = wait_until_gone(p, deadline_ns);
			(void)pthread_mutex_lock(&p->lock);
			p->gone |= r == 0;
		}
		if (r < 0 && s->opens && !s->revoked && !p->gone)
			return err_set(EBUSY, "the peer has not let go of the memory");
	}
	return 0;
}

/*
 * Give the peer's NIC some time to finish.  If the peer does not answer, its key is still revoked,
 * which breaks its RDMA connection.  The peer's lock is held.
 */
static void share_wait_reach(struct pst_peer *p, struct pst_share *s, uint64_t deadline_ns)
{
	uint64_t until = MIN(deadline_ns, now_ns() + PEER_REVOKE_NS);

	if (!s->registered || p->rdma.state != PEER_RDMA_READY || p->closing)
		return;
	share_ask_back(p, s);
	while (!s->revoked && !p->err && p->rdma.state == PEER_RDMA_READY)
		if (cond_wait_until(&p->more, &p->lock, until) == ETIMEDOUT)
			break;
}

/* End a registration.  No lock is held, because the NIC may take long. */
static void share_unregister(struct pst_peer *p, struct pst_share *s)
{
	s->ops->dereg(s->arg);
	(void)pthread_mutex_lock(&p->share_lock);
	p->nr_registered--;
	(void)pthread_cond_broadcast(&p->share_idle);
	(void)pthread_mutex_unlock(&p->share_lock);
}

int share_close(struct pst_share *s, uint64_t deadline_ns)
{
	struct pst_peer *p = s->peer;
	int r = 0;

	(void)pthread_mutex_lock(&p->share_lock);
	s->gone = true;
	while (r == 0 && s->users)
		if (cond_wait_until(&p->share_idle, &p->share_lock, deadline_ns) == ETIMEDOUT)
			r = err_set(EBUSY, "%u requests of the peer still use the memory",
				    s->users);
	(void)pthread_mutex_unlock(&p->share_lock);
	if (r == 0) {
		(void)pthread_mutex_lock(&p->lock);
		share_wait_reach(p, s, deadline_ns);
		if (s->granted && s->opens && !p->err && !p->closing)
			share_ask_back(p, s);
		if (s->granted)
			r = share_wait_back(p, s, deadline_ns);
		if (r == 0)
			p->nr_granted -= s->granted;
		(void)pthread_mutex_unlock(&p->lock);
	}
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&p->share_lock);
	/* The thread may be ending the registration. */
	while (s->users)
		(void)pthread_cond_wait(&p->share_idle, &p->share_lock);
	p->shares[s->id & UINT32_MAX] = NULL;
	(void)pthread_mutex_unlock(&p->share_lock);
	mem_stream_free(s->stream);
	explicit_bzero(s->nonce, sizeof(s->nonce));
	if (s->registered)
		share_unregister(p, s);
	s->ops->done(s->arg);
	share_free(s);
	peer_put(p);
	return 0;
}

/* ----------------------------------------------------------- for the thread */

/* Return the share with this id, unless it was closed.  The lock is held. */
static struct pst_share *peer_share_find(struct pst_peer *p, uint64_t id)
{
	uint64_t idx = id & UINT32_MAX;
	struct pst_share *s = idx < PEER_SHARES_MAX ? p->shares[idx] : NULL;

	return s && s->id == id && !s->gone ? s : NULL;
}

/* Begin to use the memory.  Return 0 and the share, or -errno. */
static int share_use(struct pst_peer *p, enum mem_dir dir, const struct peer_msg *m,
		     struct pst_share **ret)
{
	uint32_t need = dir == MEM_TO_DEVICE ? PST_RIGHT_WRITE : PST_RIGHT_READ;
	struct pst_share *s;
	int r = 0;

	(void)pthread_mutex_lock(&p->share_lock);
	s = peer_share_find(p, m->share);
	/* The other side must have shown the key before. */
	if (!s || !s->opens)
		r = -ESTALE;
	else if (!(s->rights & need))
		r = -EACCES;
	else if (m->off > s->len || m->count > s->len - m->off)
		r = -ERANGE;
	else
		s->users++;
	(void)pthread_mutex_unlock(&p->share_lock);
	*ret = s;
	return r;
}

static void share_unuse(struct pst_peer *p, struct pst_share *s)
{
	(void)pthread_mutex_lock(&p->share_lock);
	if (--s->users == 0)
		(void)pthread_cond_broadcast(&p->share_idle);
	(void)pthread_mutex_unlock(&p->share_lock);
}

/* Copy carefully, unless the memory is Penstock's own: a program may unmap its memory at any
 * time. */
static int share_move_host(const struct mem_alloc *a, enum mem_dir dir, uint64_t off, void *buf,
			   uint64_t len)
{
	char *at = (char *)a->host + off;

	if (!a->owned)
		return dir == MEM_TO_DEVICE ? uaccess_write(at, buf, len)
					    : uaccess_read(buf, at, len);
	if (dir == MEM_TO_DEVICE)
		memcpy(at, buf, len);
	else
		memcpy(buf, at, len);
	return 0;
}

int share_move(struct pst_peer *p, enum mem_dir dir, const struct peer_msg *m, void *buf)
{
	struct pst_share *s;
	int r = share_use(p, dir, m, &s);

	if (r < 0)
		return r;
	if (s->alloc->host) {
		r = share_move_host(s->alloc, dir, s->off + m->off, buf, m->count);
	} else {
		if (!s->stream)
			r = mem_stream_new(s->alloc->ops, s->alloc->device, &s->stream);
		if (r == 0)
			r = mem_copy_wait(s->stream, s->alloc, dir, s->off + m->off, buf, m->count);
	}
	if (r < 0)
		log_info("a request of a peer failed: %s", err_text());
	share_unuse(p, s);
	return r;
}

/* Compare in constant time, so that timing reveals nothing. */
static bool same_nonce(const uint8_t *a, const uint8_t *b)
{
	uint8_t diff = 0;

	for (unsigned i = 0; i < 16; i++)
		diff |= a[i] ^ b[i];
	return !diff;
}

/* Put a grant for the other process into the reply.  Return true if there is one. */
static bool share_make_grant(struct pst_share *s, struct item *reply)
{
	struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
	int r = mem_export(s->alloc, s->rights, &g);

	if (r == 0) {
		g.rights = s->rights;
		g.off = s->off;
		g.len = s->len;
		r = grant_put(&g, reply->payload);
	}
	if (r == 0) {
		reply->len = GRANT_LEN;
		reply->m.len = PEER_HEAD + GRANT_LEN;
		reply->fd = TAKE_FD(g.fd);
	} else {
		log_info("no grant for a peer, which uses the connection: %s", err_text());
		closep(&g.fd);
	}
	grant_wipe(&g);
	return r == 0;
}

int share_opened(struct pst_peer *p, uint64_t id, const uint8_t *key, uint32_t len)
{
	struct item *reply = peer_item_new(PEER_OPENED, GRANT_LEN);
	struct pst_share *s = NULL;
	bool granted = false;
	struct peer_key k;
	int r = peer_get_key(key, len, &k);

	if (!reply)
		return -ENOMEM;
	reply->len = 0;
	(void)pthread_mutex_lock(&p->share_lock);
	if (r == 0) {
		s = peer_share_find(p, k.share);
		if (!s || !same_nonce(s->nonce, k.nonce) || s->len != k.len ||
		    s->rights != k.rights)
			r = -ESTALE;
		else if (s->opens == UINT32_MAX)
			r = -EBUSY;
	}
	if (r == 0) {
		s->opens++;
		s->users++;
	}
	(void)pthread_mutex_unlock(&p->share_lock);
	explicit_bzero(&k, sizeof(k));
	reply->m = (struct peer_msg){
		.len = PEER_HEAD, .type = PEER_OPENED, .id = id, .err = (uint32_t)-r
	};
	if (r == 0 && s->flags & PST_SHARE_GRANT && p->info & PST_PEER_LOCAL)
		granted = share_make_grant(s, reply);
	(void)pthread_mutex_lock(&p->lock);
	if (granted && !s->granted) {
		s->granted = true;
		p->nr_granted++;
	}
	peer_items_push(&p->out, reply);
	(void)pthread_mutex_unlock(&p->lock);
	/* Release the share only now: share_close() waits for this before it sends REVOKE. */
	if (r == 0)
		share_unuse(p, s);
	return 0;
}

/* Return the share with this id, even while it is being closed.  share_lock is held. */
static struct pst_share *share_find_any(struct pst_peer *p, uint64_t id)
{
	uint64_t idx = id & UINT32_MAX;
	struct pst_share *s = idx < PEER_SHARES_MAX ? p->shares[idx] : NULL;

	return s && s->id == id ? s : NULL;
}

/* Register the share for the peer's NIC.  Return 0, or -errno without a sentence. */
static int share_register(struct pst_peer *p, struct pst_share *s)
{
	uint32_t rights = (s->rights & PST_RIGHT_READ ? MEM_REG_REMOTE_READ : 0) |
			  (s->rights & PST_RIGHT_WRITE ? MEM_REG_REMOTE_WRITE : 0);
	const struct mem_reg *reg;
	uint64_t epoch;
	int r;

	if (s->registered)
		return 0;
	if (p->rdma.state != PEER_RDMA_READY)
		return -ENOTCONN;
	/* Only the connection's thread registers, so no lock is needed. */
	r = s->ops->reg(s->arg, rdma_registrar(p), rights, &reg, &epoch);
	if (r < 0) {
		log_info("a peer's device does not reach a share: %s", err_text());
		return r;
	}
	(void)pthread_mutex_lock(&p->lock);
	s->nic_key = (struct peer_nic_key){
		.share = s->id,
		.addr = reg->addr + (s->off - reg->off),
		.len = s->len,
		.epoch = epoch,
		.rights = s->rights,
		.rkey = reg->rkey,
	};
	(void)pthread_mutex_lock(&p->share_lock);
	s->registered = true;
	p->nr_registered++;
	(void)pthread_mutex_unlock(&p->share_lock);
	(void)pthread_mutex_unlock(&p->lock);
	return 0;
}

/* Return a registered share after marking it as not registered and as used; NULL if there is
 * none. */
static struct pst_share *share_take_registered(struct pst_peer *p)
{
	struct pst_share *ret = NULL;

	(void)pthread_mutex_lock(&p->lock);
	(void)pthread_mutex_lock(&p->share_lock);
	for (unsigned i = 0; i < PEER_SHARES_MAX && !ret; i++) {
		struct pst_share *s = p->shares[i];

		if (!s || !s->registered)
			continue;
		s->registered = false;
		s->users++;
		ret = s;
	}
	(void)pthread_mutex_unlock(&p->share_lock);
	(void)pthread_mutex_unlock(&p->lock);
	return ret;
}

void shares_unregister(struct pst_peer *p)
{
	struct pst_share *s;

	while ((s = share_take_registered(p))) {
		share_unregister(p, s);
		share_unuse(p, s);
	}
	/* Wait for threads that are closing shares. */
	(void)pthread_mutex_lock(&p->share_lock);
	while (p->nr_registered)
		(void)pthread_cond_wait(&p->share_idle, &p->share_lock);
	(void)pthread_mutex_unlock(&p->share_lock);
}

int share_reached(struct pst_peer *p, const struct peer_msg *m)
{
	struct item *reply = peer_item_new(PEER_REACHED, PEER_NIC_KEY_LEN);
	struct pst_share *s;
	int r = reply ? 0 : -ENOMEM;

	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&p->share_lock);
	s = peer_share_find(p, m->share);
	if (s && s->opens)
		s->users++;
	else
		r = -ESTALE;
	(void)pthread_mutex_unlock(&p->share_lock);
	if (r == 0) {
		r = share_register(p, s);
		if (r == 0)
			peer_put_nic_key(&s->nic_key, reply->payload);
	}
	if (r < 0)
		reply->len = 0;
	reply->m = (struct peer_msg){
		.len = PEER_HEAD + reply->len,
		.type = PEER_REACHED,
		.id = m->id,
		.err = (uint32_t)-r,
	};
	(void)pthread_mutex_lock(&p->lock);
	peer_items_push(&p->out, reply);
	(void)pthread_mutex_unlock(&p->lock);
	/* Release the share only now: share_close() waits for this before it sends REVOKE. */
	if (r != -ESTALE)
		share_unuse(p, s);
	return 0;
}

void share_closed(struct pst_peer *p, uint64_t id)
{
	struct pst_share *s;

	(void)pthread_mutex_lock(&p->lock);
	(void)pthread_mutex_lock(&p->share_lock);
	s = share_find_any(p, id);
	if (s && s->opens)
		s->opens--;
	(void)pthread_mutex_unlock(&p->share_lock);
	(void)pthread_cond_broadcast(&p->more);
	(void)pthread_mutex_unlock(&p->lock);
}

void share_revoked(struct pst_peer *p, uint64_t id)
{
	struct pst_share *s;

	(void)pthread_mutex_lock(&p->lock);
	(void)pthread_mutex_lock(&p->share_lock);
	s = share_find_any(p, id);
	if (s && s->asked)
		s->revoked = true;
	(void)pthread_mutex_unlock(&p->share_lock);
	(void)pthread_cond_broadcast(&p->more);
	(void)pthread_mutex_unlock(&p->lock);
}
