/* SPDX-License-Identifier: MIT */
/* Handle messages from the other side. */
#include "base/err.h"
#include "base/log.h"
#include "file/op.h"
#include "peer/peer.h"

/* Count one more request of the other side.  Return 0, or -EPROTO if there are too many. */
static int got_owe(struct pst_peer *p)
{
	if (p->nr_owed == PEER_REQUESTS_MAX)
		return -EPROTO;
	p->nr_owed++;
	return 0;
}

static void got_serve(struct pst_peer *p, const struct peer_msg *m, int err)
{
	struct served *s = &p->served[(p->served_at + p->nr_served++) % PEER_REQUESTS_MAX];

	*s = (struct served){
		.type = m->type,
		.id = m->id,
		.share = m->share,
		.off = m->off,
		.count = m->count,
		.err = (uint32_t)-err,
	};
}

static int got_request(struct pst_peer *p, const struct peer_msg *m, uint8_t *payload)
{
	int r = got_owe(p);

	if (r < 0)
		return r;
	if (m->type == PEER_OPEN)
		return share_opened(p, m->id, payload, peer_payload(m));
	if (m->type == PEER_REACH)
		return share_reached(p, m);
	/* A GET is served when the send buffer has room for its reply. */
	got_serve(p, m, m->type == PEER_PUT ? share_move(p, MEM_TO_DEVICE, m, payload) : 0);
	return 0;
}

/* Take the oldest descriptor that arrived.  Return 0; -EMFILE if it was lost; -EPROTO if none
 * came. */
static int got_take_fd(struct pst_peer *p, int *ret)
{
	if (!p->nr_fds)
		return -EPROTO;
	*ret = p->fds[0];
	memmove(p->fds, p->fds + 1, --p->nr_fds * sizeof(p->fds[0]));
	return *ret >= 0 ? 0 : -EMFILE;
}

/* Close the share: nobody waits for it any more.  The lock is held. */
static int got_close_again(struct pst_peer *p, uint64_t share)
{
	struct item *i = peer_item_new(PEER_CLOSE, 0);

	if (!i)
		return -ENOMEM;
	i->m.share = share;
	peer_items_push(&p->out, i);
	return 0;
}

/*
 * Translate the error of a reply.  EFAULT, ENOMEM and ETIMEDOUT must not be passed on: a caller
 * would relate them to this process's memory and deadlines.
 */
static int got_reply_err(uint32_t err)
{
	switch (err) {
	case 0:
	case ESTALE:
	case EACCES:
	case ERANGE:
	case EBUSY:
		return -(int)err;
	case EOPNOTSUPP:
		log_info("network cards alone reach a peer's memory, and RDMA does not serve; see "
			 "penstock doctor --rdma on both machines");
		return -EOPNOTSUPP;
	default:
		log_info("a peer cannot use its own memory: %s", err_name((int)err));
		return -EIO;
	}
}

/* Handle OPENED.  The lock is held. */
static int got_opened(struct pst_peer *p, const struct peer_msg *m, const uint8_t *payload)
{
	struct peer_request *q = peer_request_find(p, m->id, PEER_OPEN);
	bool has_grant = peer_payload(m);
	struct peer_opening *o;
	int r = 0, fd = -1;

	if (!q || (has_grant && (m->err || !(p->info & PST_PEER_LOCAL))))
		return -EPROTO;
	if (has_grant && grant_has_fd(payload)) {
		r = got_take_fd(p, &fd);
		if (r == -EPROTO)
			return r;
		if (r < 0) {
			log_warn("no free descriptor for a peer's grant, so its memory is reached "
				 "over the connection; raise RLIMIT_NOFILE");
			has_grant = false;
			r = 0;
		}
	}
	o = q->opening;
	if (o) {
		o->err = got_reply_err(m->err);
		o->has_grant = has_grant;
		o->fd = TAKE_FD(fd);
		if (has_grant) {
			memcpy(o->grant, payload, GRANT_LEN);
			import_list(p, o->import);
		}
		o->done = true;
	} else if (!m->err) {
		r = got_close_again(p, q->share);
	}
	closep(&fd);
	peer_request_end(p, q, 0);
	return r;
}

/* Handle REACHED.  The lock is held. */
static int got_reached(struct pst_peer *p, const struct peer_msg *m, const uint8_t *payload)
{
	struct peer_request *q = peer_request_find(p, m->id, PEER_REACH);
	struct peer_opening *o = q ? q->opening : NULL;

	if (!q)
		return -EPROTO;
	if (o) {
		o->err = -(int)m->err;
		memcpy(o->nic_key, payload, peer_payload(m));
		o->done = true;
	}
	peer_request_end(p, q, 0);
	return 0;
}

char *peer_place_of(const struct peer_request *q, uint32_t at)
{
	return q->task ? (char *)q->task->op->buf + q->off + at : NULL;
}

int peer_store(const struct peer_request *q, uint32_t at, const void *from, uint32_t len)
{
	char *to = peer_place_of(q, at);

	if (!to || !len)
		return 0;
	return io_op_store(q->task->op, to, from, len);
}

/* Handle the reply to a GET or PUT.  The lock is held. */
static int got_reply(struct pst_peer *p, const struct peer_msg *m, const uint8_t *payload)
{
	bool get = m->type == PEER_DATA;
	struct peer_request *q = peer_request_find(p, m->id, get ? PEER_GET : PEER_PUT);
	int r = got_reply_err(m->err);

	if (!q || (get && !m->err && m->count != q->len))
		return -EPROTO;
	if (get && r == 0)
		r = peer_store(q, 0, payload, m->count);
	peer_request_end(p, q, r);
	return 0;
}

/* Handle MESSAGE and OFFER.  The lock is held. */
static int got_message(struct pst_peer *p, const struct peer_msg *m, const uint8_t *payload)
{
	struct item *i;
	struct peer_key k;

	if (p->nr_untaken == PEER_MESSAGES_MAX)
		return -EPROTO;
	if (m->type == PEER_OFFER && (peer_get_key(payload, peer_payload(m), &k) < 0 ||
				      k.len != m->off || !(k.rights & PST_RIGHT_READ)))
		return -EPROTO;
	i = peer_item_new(m->type, peer_payload(m));
	if (!i)
		return -ENOMEM;
	i->m = *m;
	memcpy(i->payload, payload, i->len);
	peer_items_push(&p->in, i);
	p->nr_in++;
	p->nr_untaken++;
	return 0;
}

/* Handle TAKEN.  The lock is held. */
static int got_taken(struct pst_peer *p, const struct peer_msg *m)
{
	for (unsigned i = 0; i < PEER_MESSAGES_MAX; i++) {
		struct peer_sent *s = &p->sent[i];

		if (!s->used || s->done || s->id != m->id)
			continue;
		s->done = true;
		s->err = (int)m->err;
		if (!s->waits) {
			s->used = false;
			p->nr_sent--;
		}
		return 0;
	}
	return -EPROTO;
}

/* Handle types that need the lock, which is held. */
static int got_locked(struct pst_peer *p, const struct peer_msg *m, const uint8_t *payload)
{
	switch (m->type) {
	case PEER_OPENED:
		return got_opened(p, m, payload);
	case PEER_DATA:
	case PEER_DONE:
		return got_reply(p, m, payload);
	case PEER_MESSAGE:
	case PEER_OFFER:
		return got_message(p, m, payload);
	case PEER_TAKEN:
		return got_taken(p, m);
	case PEER_REVOKE:
		return rdma_revoke(p, m->share);
	case PEER_REACHED:
		return got_reached(p, m, payload);
	case PEER_UNREACH:
		return rdma_unreach(p);
	default:
		return -EPROTO;
	}
}

int peer_got(struct pst_peer *p, const struct peer_msg *m, uint8_t *payload)
{
	int r;

	switch (m->type) {
	case PEER_OPEN:
	case PEER_GET:
	case PEER_PUT:
	case PEER_REACH:
		return got_request(p, m, payload);
	case PEER_RDMA:
		return rdma_got(p, m, payload);
	case PEER_CLOSE:
		share_closed(p, m->share);
		return 0;
	case PEER_REVOKED:
		share_revoked(p, m->share);
		return 0;
	default:
		(void)pthread_mutex_lock(&p->lock);
		r = got_locked(p, m, payload);
		(void)pthread_cond_broadcast(&p->more);
		(void)pthread_mutex_unlock(&p->lock);
		return r;
	}
}
