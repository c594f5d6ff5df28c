/* SPDX-License-Identifier: MIT */
/* Create and end connections, and queue work for a connection's thread. */
#include <stdio.h>
#include <sys/eventfd.h>

#include "base/err.h"
#include "base/thread.h"
#include "base/user.h"
#include "peer/peer.h"

/* ------------------------------------------------------------------- items */

struct item *peer_item_new(uint16_t type, uint32_t len)
{
	struct item *i = calloc(1, sizeof(*i) + len);

	if (!i)
		return NULL;
	i->m.type = type;
	i->m.len = PEER_HEAD + len;
	i->len = len;
	i->fd = -1;
	return i;
}

void peer_item_free(struct item *i)
{
	if (!i)
		return;
	/* Payloads may contain keys and grants, which are secret. */
	explicit_bzero(i->payload, i->len);
	closep(&i->fd);
	free(i);
}

void peer_items_push(struct items *q, struct item *i)
{
	i->next = NULL;
	if (q->head)
		q->tail->next = i;
	else
		q->head = i;
	q->tail = i;
}

struct item *peer_items_pop(struct items *q)
{
	struct item *i = q->head;

	if (i)
		q->head = i->next;
	return i;
}

/* --------------------------------------------------------------- life cycle */

static void peer_free(struct pst_peer *p)
{
	struct item *i;

	while ((i = peer_items_pop(&p->out)) || (i = peer_items_pop(&p->in)))
		peer_item_free(i);
	while (p->nr_fds)
		closep(&p->fds[--p->nr_fds]);
	closep(&p->tx_fd);
	rdma_free(p);
	net_tls_end(p->tls);
	peer_keys_put(p->keys);
	closep(&p->fd);
	closep(&p->efd);
	(void)pthread_mutex_destroy(&p->lock);
	(void)pthread_cond_destroy(&p->more);
	(void)pthread_mutex_destroy(&p->share_lock);
	(void)pthread_cond_destroy(&p->share_idle);
	free(p->rx);
	free(p->tx);
	free(p);
}

void peer_put(struct pst_peer *p)
{
	if (atomic_fetch_sub(&p->refs, 1) == 1)
		peer_free(p);
}

/* Ask the kernel which user is at the other end, if the kernel knows. */
static void find_user(struct pst_peer *p, int fd)
{
	socklen_t len = sizeof(int);
	struct ucred cred;
	int domain;

	p->uid = UINT32_MAX;
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0 || domain != AF_UNIX)
		return;
	len = sizeof(cred);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 || len != sizeof(cred))
		return;
	p->uid = cred.uid;
	p->pid = (uint32_t)cred.pid;
	if (cred.uid == geteuid() && user_is_own(cred.uid))
		p->info |= PST_PEER_LOCAL;
}

int peer_start(struct greet *g, struct pst_peer **ret)
{
	struct pst_peer *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return err_set(ENOMEM, "out of memory");
	atomic_init(&p->refs, 1);
	(void)pthread_mutex_init(&p->lock, NULL);
	cond_init_monotonic(&p->more);
	(void)pthread_mutex_init(&p->share_lock, NULL);
	cond_init_monotonic(&p->share_idle);
	list_init(&p->imports);
	list_init(&p->rdma.reaches);
	p->features = g->theirs.features;
	p->fd = p->tx_fd = -1;
	p->data_max = MIN(g->theirs.data_max, (uint32_t)PEER_DATA_MAX);
	p->inline_max = MIN(g->theirs.inline_max, (uint32_t)PST_MESSAGE_INLINE);
	p->requests_max = MIN(g->theirs.requests_max, PEER_REQUESTS_MAX);
	p->messages_max = MIN(g->theirs.messages_max, PEER_MESSAGES_MAX);
	find_user(p, g->fd);
	if (g->tls)
		p->info |= PST_PEER_TLS;
	p->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	p->rx = malloc(PEER_RX_MAX);
	p->tx = malloc(PEER_TX_MAX);
	if (p->efd < 0)
		r = err_set(errno, "no descriptor for a peer: %s", err_name(errno));
	else if (!p->rx || !p->tx)
		r = err_set(ENOMEM, "out of memory");
	else
		r = 0;
	if (r == 0) {
		p->fd = g->fd;
		p->tls = g->tls;
		p->keys = g->keys;
		r = thread_start(&p->thread, peer_thread, p);
	}
	if (r < 0) {
		p->fd = -1;
		p->tls = NULL;
		p->keys = NULL;
		peer_put(p);
		return r;
	}
	g->fd = -1;
	g->tls = NULL;
	g->keys = NULL;
	*ret = p;
	return 0;
}

void peer_end(struct pst_peer *p)
{
	(void)pthread_mutex_lock(&p->lock);
	p->closing = true;
	p->linger_until = now_ns() + PEER_LINGER_NS;
	peer_tasks_fail(p, -EPIPE);
	(void)pthread_cond_broadcast(&p->more);
	peer_kick(p);
	(void)pthread_mutex_unlock(&p->lock);
	(void)pthread_join(p->thread, NULL);
	peer_put(p);
}

/* -------------------------------------------------------------------- calls */

void peer_kick(struct pst_peer *p)
{
	if (p->kicked)
		return;
	p->kicked = true;
	(void)eventfd_write(p->efd, 1);
}

int peer_check(struct pst_peer *p)
{
	if (p->closing)
		return err_set(EPIPE, "the connection to the peer was closed");
	if (!p->err)
		return 0;
	if (p->err == EPIPE)
		return err_set(EPIPE, "the peer has ended the connection, or is gone");
	return err_set(EPIPE, "the connection to the peer ended: %s",
		       p->err == EPROTO ? "the peer broke the protocol" : err_name(p->err));
}

void peer_facts(struct pst_peer *p, struct pst_peer_info *ret)
{
	(void)pthread_mutex_lock(&p->lock);
	ret->flags = p->info;
	ret->err = p->err ? p->err : p->closing ? EPIPE : 0;
	ret->uid = p->uid;
	ret->pid = p->pid;
	ret->nr_messages = p->nr_in;
	(void)pthread_mutex_unlock(&p->lock);
}

/* ---------------------------------------------------------------- messages */

/* Wait for a free slot for a sent message.  The lock is held, and dropped during the wait. */
static int sent_new(struct pst_peer *p, uint64_t deadline_ns, struct peer_sent **ret)
{
	int r = peer_check(p);

	while (r == 0 && p->nr_sent >= p->messages_max) {
		if (cond_wait_until(&p->more, &p->lock, deadline_ns) == ETIMEDOUT)
			return err_set(ETIMEDOUT,
				       "the peer has %u messages that it does not receive",
				       p->nr_sent);
		r = peer_check(p);
	}
	for (unsigned i = 0; r == 0 && i < PEER_MESSAGES_MAX; i++) {
		struct peer_sent *s = &p->sent[i];

		if (s->used)
			continue;
		*s = (struct peer_sent){ .used = true, .id = ++p->last_message };
		p->nr_sent++;
		*ret = s;
		return 0;
	}
	return r < 0 ? r : err_set(EAGAIN, "no room for a message");
}

int peer_send_inline(struct pst_peer *p, const void *buf, uint32_t len, uint64_t deadline_ns)
{
	struct item *i = peer_item_new(PEER_MESSAGE, len);
	struct peer_sent *s;
	int r;

	if (!i)
		return err_set(ENOMEM, "out of memory");
	if (len)
		memcpy(i->payload, buf, len);
	(void)pthread_mutex_lock(&p->lock);
	r = sent_new(p, deadline_ns, &s);
	if (r == 0) {
		i->m.id = s->id;
		peer_items_push(&p->out, TAKE_PTR(i));
		peer_kick(p);
	}
	(void)pthread_mutex_unlock(&p->lock);
	peer_item_free(i);
	return r;
}

int peer_send_offer(struct pst_peer *p, const uint8_t *key, uint64_t len, uint64_t deadline_ns)
{
	struct item *i = peer_item_new(PEER_OFFER, PEER_KEY_LEN);
	struct peer_sent *s;
	int r;

	if (!i)
		return err_set(ENOMEM, "out of memory");
	memcpy(i->payload, key, PEER_KEY_LEN);
	i->m.off = len;
	(void)pthread_mutex_lock(&p->lock);
	r = sent_new(p, deadline_ns, &s);
	if (r == 0) {
		s->waits = true;
		i->m.id = s->id;
		peer_items_push(&p->out, TAKE_PTR(i));
		peer_kick(p);
		while (r == 0 && !s->done) {
			r = peer_check(p);
			if (r == 0 &&
			    cond_wait_until(&p->more, &p->lock, deadline_ns) == ETIMEDOUT &&
			    !s->done)
				r = err_set(ETIMEDOUT,
					    "the peer did not receive the message before "
					    "the deadline");
		}
		if (s->done) {
			r = s->err ? err_set(s->err, "the peer did not receive the message: %s",
					     err_name(s->err))
				   : 0;
			s->used = false;
			p->nr_sent--;
			(void)pthread_cond_broadcast(&p->more);
		}
		/* If the message is not done, its slot stays in use until the peer answers. */
		s->waits = false;
	}
	(void)pthread_mutex_unlock(&p->lock);
	peer_item_free(i);
	return r;
}

/* Wait for the first message.  The lock is held. */
static int wait_message(struct pst_peer *p, bool alone, uint64_t deadline_ns)
{
	while (!p->in.head || (alone && p->receiving)) {
		int r = p->in.head ? 0 : peer_check(p);

		if (r < 0)
			return r;
		if (now_ns() >= deadline_ns ||
		    (cond_wait_until(&p->more, &p->lock, deadline_ns) == ETIMEDOUT &&
		     (!p->in.head || (alone && p->receiving))))
			return err_set(ETIMEDOUT, "no message came before the deadline");
	}
	return 0;
}

int peer_recv_begin(struct pst_peer *p, uint64_t deadline_ns, struct item **ret)
{
	int r;

	(void)pthread_mutex_lock(&p->lock);
	r = wait_message(p, true, deadline_ns);
	if (r == 0) {
		p->receiving = true;
		*ret = p->in.head;
	}
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}

void peer_recv_end(struct pst_peer *p, struct item *i, bool taken, int err)
{
	(void)pthread_mutex_lock(&p->lock);
	p->receiving = false;
	if (taken) {
		(void)peer_items_pop(&p->in);
		p->nr_in--;
		/* Reuse the message's item for the answer. */
		explicit_bzero(i->payload, i->len);
		i->m = (struct peer_msg){
			.len = PEER_HEAD, .type = PEER_TAKEN, .id = i->m.id, .err = (uint32_t)err
		};
		i->len = 0;
		peer_items_push(&p->out, i);
		peer_kick(p);
	}
	(void)pthread_cond_broadcast(&p->more);
	(void)pthread_mutex_unlock(&p->lock);
}

int64_t peer_recv_len(struct pst_peer *p, uint64_t deadline_ns)
{
	int64_t r;

	(void)pthread_mutex_lock(&p->lock);
	r = wait_message(p, false, deadline_ns);
	if (r == 0)
		r = (int64_t)item_message_len(p->in.head);
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}
