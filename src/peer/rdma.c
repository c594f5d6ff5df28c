/* SPDX-License-Identifier: MIT */
/*
 * Access to the peer's memory by RDMA.
 *
 * The first open of a share makes both sides create a queue pair, and exchange their descriptions
 * over the connection.  Each share then gives the peer a key of its own, for exactly its bytes.
 *
 * The requesting side moves the bytes through slots of registered memory; the other side's CPU is
 * not involved.  The connection's thread copies, posts and polls.
 *
 * RDMA ends for good at the first failure.  UNREACH is sent before anything else.  So the
 * other side first destroys its queue pair, and packets that are still in the network cannot
 * overwrite what the socket brings later.  Both sides then release the NIC.
 *
 * The thread also waits for the NIC's events, so that an idle connection releases a NIC that
 * failed.
 */
#include "base/err.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/uaccess.h"
#include "net/verbs/endpoint.h"
#include "net/verbs/near.h"
#include "peer/ctx.h"

#define QUEUE_MS 10000u /* milliseconds until an unresponsive NIC is given up */

/* ------------------------------------------------------------ making, ending */

/* Objects of a new RDMA connection. */
struct rdma_made {
	struct nic *nic;
	struct nic_domain *domain;
	struct endpoint *ep;
};

static void rdma_unmake(struct rdma_made *m)
{
	endpoint_free(m->ep);
	(void)nic_domain_free(m->domain);
	nics_put(m->nic);
}

static int rdma_make(struct rdma_made *ret)
{
	struct endpoint_opts o = {
		.send_slots = PEER_SLOTS,
		.recv_slots = 1,
		.deadline_ms = QUEUE_MS,
		.events = true,
	};
	struct rdma_made m = { 0 };
	int r = nics_get(&near_tested, &m.nic);

	if (r == 0)
		r = nic_domain_new(m.nic, &m.domain);
	if (r == 0)
		r = endpoint_new(m.domain, &o, &m.ep);
	if (r < 0) {
		struct err_kept why;

		err_keep(&why);
		rdma_unmake(&m);
		return err_set(r, "%s", why.text);
	}
	*ret = m;
	return 0;
}

/* Send a message about RDMA. The lock is held, as in all functions up to the next section. */
static void rdma_tell(struct pst_peer *p, uint16_t type, int err, const uint8_t *blob)
{
	struct item *i;

	if (type == PEER_UNREACH && p->rdma.unreached)
		return;
	p->rdma.unreached |= type == PEER_UNREACH;
	i = peer_item_new(type, blob ? ENDPOINT_BLOB : 0);
	if (!i) { /* out of memory: the peer waits until its deadline */
		log_warn("out of memory: a peer is not told about RDMA");
		return;
	}
	i->m.err = (uint32_t)-err;
	if (blob)
		memcpy(i->payload, blob, ENDPOINT_BLOB);
	peer_items_push(&p->out, i);
	peer_kick(p);
}

static void rdma_tell_blob(struct pst_peer *p)
{
	uint8_t blob[ENDPOINT_BLOB];

	endpoint_blob(p->rdma.ep, blob);
	rdma_tell(p, PEER_RDMA, 0, blob);
}

static void rdma_over(struct pst_peer *p, int err)
{
	struct peer_rdma *d = &p->rdma;

	if (d->state == PEER_RDMA_OVER)
		return;
	atomic_store(&d->err, -err);
	d->state = PEER_RDMA_OVER;
	(void)pthread_cond_broadcast(&p->more);
}

/* Take over the new objects, unless the connection has ended in between. */
static int rdma_take(struct pst_peer *p, int err, const struct rdma_made *m)
{
	struct peer_rdma *d = &p->rdma;

	d->state = PEER_RDMA_NONE;
	if (err == 0 && (p->err || p->closing)) {
		struct rdma_made gone = *m;

		rdma_unmake(&gone);
		err = -EPIPE;
	}
	if (err < 0) {
		rdma_over(p, err);
		return err;
	}
	d->nic = m->nic;
	d->domain = m->domain;
	d->ep = m->ep;
	d->made = true;
	return 0;
}

/* End RDMA after a NIC failure.  Called on the connection's thread. */
static void rdma_break(struct pst_peer *p, int err)
{
	struct peer_rdma *d = &p->rdma;

	if (d->state == PEER_RDMA_OVER)
		return;
	log_info("RDMA with a peer ended, which is reached over the socket now: %s", err_name(err));
	rdma_over(p, err);
	rdma_tell(p, PEER_UNREACH, 0, NULL);
	endpoint_stop(d->ep);
	for (unsigned i = 0; i < PEER_SLOTS; i++)
		if (d->slots[i].task)
			peer_task_fail(p, d->slots[i].task, err);
	while (d->todo.head)
		peer_task_fail(p, d->todo.head, err);
}

/* Ask the peer for RDMA, at the first open of a share, and wait for its answer. */
static int rdma_begin(struct pst_peer *p, uint64_t deadline_ns)
{
	struct peer_rdma *d = &p->rdma;
	struct rdma_made m = { 0 };
	struct err_kept why = { 0 };
	int r;

	if (d->state == PEER_RDMA_NONE) {
		d->state = PEER_RDMA_MAKING;
		(void)pthread_mutex_unlock(&p->lock);
		r = rdma_make(&m);
		err_keep(&why);
		(void)pthread_mutex_lock(&p->lock);
		r = rdma_take(p, r, &m);
		if (r == 0) {
			d->state = PEER_RDMA_ASKED;
			d->asked = true;
			rdma_tell_blob(p);
		}
		(void)pthread_cond_broadcast(&p->more);
		if (r < 0)
			return err_set(r, "%s", why.text);
	}
	while (d->state != PEER_RDMA_READY) {
		r = peer_check(p);
		if (r == 0 && d->state == PEER_RDMA_OVER)
			r = err_set(atomic_load(&d->err), "no RDMA with the peer: %s",
				    err_name(atomic_load(&d->err)));
		if (r == 0 && cond_wait_until(&p->more, &p->lock, deadline_ns) == ETIMEDOUT &&
		    d->state != PEER_RDMA_READY)
			r = err_set(ETIMEDOUT, "the peer does not answer about RDMA");
		if (r < 0)
			return r;
	}
	return 0;
}

/* ------------------------------------------------------------------ opening */

static void rdma_list(struct pst_peer *p, struct peer_reach *r)
{
	(void)pthread_mutex_lock(&p->lock);
	list_add_tail(&p->rdma.reaches, &r->link);
	(void)pthread_mutex_unlock(&p->lock);
}

void peer_reach_free(struct pst_peer *p, struct peer_reach *r)
{
	if (!r)
		return;
	(void)pthread_mutex_lock(&p->lock);
	list_del(&r->link);
	(void)pthread_mutex_unlock(&p->lock);
	explicit_bzero(&r->key, sizeof(r->key));
	free(r);
}

/* Ask for the share's key.  An answer that does not match the share and its length is refused.
 * @h is on the list already, so its key is changed only under the lock. */
static int rdma_ask_key(struct pst_peer *p, const struct peer_key *k, uint64_t deadline_ns,
			struct peer_reach *h)
{
	struct item *it = peer_item_new(PEER_REACH, 0);
	struct peer_opening o = { .fd = -1 };
	struct peer_nic_key key;
	int r;

	if (!it)
		return err_set(ENOMEM, "out of memory");
	it->m.share = k->share;
	r = peer_ask(p, it, &o, k->share, deadline_ns);
	if (r == 0 && o.err)
		r = err_set(o.err, "the peer's device does not reach its memory: %s",
			    err_name(o.err));
	if (r == 0 && (peer_get_nic_key(o.nic_key, sizeof(o.nic_key), &key) < 0 ||
		       key.share != k->share || key.len != k->len || key.rights != k->rights))
		r = err_set(EBADMSG, "the peer's answer is not the key of that share");
	if (r == 0) {
		(void)pthread_mutex_lock(&p->lock);
		h->key = key;
		(void)pthread_mutex_unlock(&p->lock);
	}
	explicit_bzero(&key, sizeof(key));
	explicit_bzero(o.nic_key, sizeof(o.nic_key));
	return r;
}

int peer_reach(struct pst_peer *p, const struct peer_key *k, uint64_t deadline_ns,
	       struct peer_reach **ret)
{
	uint64_t until = MIN(deadline_ns, now_ns() + PEER_REACH_NS);
	struct peer_reach *h;
	int r;

	if (!(p->features & PEER_KNOWS_RDMA))
		return err_set(EPROTONOSUPPORT, "the peer knows no RDMA");
	(void)pthread_mutex_lock(&p->lock);
	r = rdma_begin(p, until);
	(void)pthread_mutex_unlock(&p->lock);
	if (r < 0)
		return r;
	h = calloc(1, sizeof(*h));
	if (!h)
		return err_set(ENOMEM, "out of memory");
	h->key.share = k->share;
	/* Put the entry on the list before asking for the key, so that a REVOKE right after the
	 * answer finds the entry. */
	rdma_list(p, h);
	r = rdma_ask_key(p, k, until, h);
	if (r < 0) {
		peer_reach_free(p, h);
		return r;
	}
	*ret = h;
	return 0;
}

/* ------------------------------------------------------- messages that came */

/* Connect to the endpoint that the other side announced.  The lock is held. */
static int rdma_connect(struct pst_peer *p, const uint8_t *blob, bool asked)
{
	struct peer_rdma *d = &p->rdma;
	int r = endpoint_connect(d->ep, blob, ENDPOINT_BLOB);

	if (r < 0) {
		log_info("no RDMA with a peer: %s", err_text());
		rdma_over(p, r);
		rdma_tell(p, asked ? PEER_UNREACH : PEER_RDMA, asked ? 0 : r, NULL);
		return 0;
	}
	if (!asked)
		rdma_tell_blob(p);
	d->state = PEER_RDMA_READY;
	(void)pthread_cond_broadcast(&p->more);
	return 0;
}

/* Answer a side that asks first.  The lock is held, and dropped while the endpoint is created. */
static int rdma_answer(struct pst_peer *p, const uint8_t *blob)
{
	struct peer_rdma *d = &p->rdma;
	struct rdma_made m = { 0 };
	int r;

	d->state = PEER_RDMA_MAKING;
	(void)pthread_mutex_unlock(&p->lock);
	r = rdma_make(&m);
	if (r < 0)
		log_debug("a peer wants RDMA: %s", err_text());
	(void)pthread_mutex_lock(&p->lock);
	r = rdma_take(p, r, &m);
	if (r == 0)
		return rdma_connect(p, blob, false);
	rdma_tell(p, PEER_RDMA, r, NULL);
	return 0;
}

int rdma_got(struct pst_peer *p, const struct peer_msg *m, const uint8_t *payload)
{
	struct peer_rdma *d = &p->rdma;
	int r = 0;

	(void)pthread_mutex_lock(&p->lock);
	while (d->state == PEER_RDMA_MAKING)
		(void)pthread_cond_wait(&p->more, &p->lock);
	if (d->told || (m->err && !d->asked))
		r = -EPROTO;
	d->told = true;
	if (r == 0 && m->err)
		rdma_over(p, -(int)m->err);
	else if (r == 0 && d->state == PEER_RDMA_NONE)
		r = rdma_answer(p, payload);
	else if (r == 0 && d->state == PEER_RDMA_ASKED)
		r = rdma_connect(p, payload, true);
	else if (r == 0 && d->asked) /* this side's NIC failed while the other side connected */
		rdma_tell(p, PEER_UNREACH, 0, NULL);
	else if (r == 0) /* this side could not create an endpoint */
		rdma_tell(p, PEER_RDMA, -atomic_load(&d->err), NULL);
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}

int rdma_unreach(struct pst_peer *p)
{
	struct peer_rdma *d = &p->rdma;

	if (d->ended || !d->made)
		return -EPROTO;
	d->ended = true;
	rdma_break(p, -EREMOTEIO);
	/* Also stop an endpoint whose RDMA had ended at this side before. */
	if (d->ep)
		endpoint_stop(d->ep);
	return 0;
}

static bool rdma_share_moves(const struct peer_rdma *d, uint64_t share)
{
	for (unsigned i = 0; i < PEER_SLOTS; i++)
		if (d->slots[i].used && d->slots[i].share == share)
			return true;
	return false;
}

/* Revoke a share that its owner closes, after its slots have ended. */
int rdma_revoke(struct pst_peer *p, uint64_t share)
{
	struct peer_rdma *d = &p->rdma;
	struct list *at;

	list_for_each (at, &d->reaches) {
		struct peer_reach *h = list_entry(at, struct peer_reach, link);

		h->revoked |= h->key.share == share;
	}
	for (struct peer_task *t = d->todo.head, *next; t; t = next) {
		next = t->next;
		if (t->share != share)
			continue;
		t->err = -ESTALE;
		peer_task_unqueue(t);
		peer_task_check(p, t);
	}
	if (!rdma_share_moves(d, share))
		return imports_revoke(p, share);
	for (unsigned i = 0; i < PEER_SLOTS; i++)
		d->slots[i].tell |= d->slots[i].used && d->slots[i].share == share;
	return 0;
}

/* -------------------------------------------------------------------- slots */

void rdma_detach(struct pst_peer *p, struct peer_task *t)
{
	for (unsigned i = 0; i < PEER_SLOTS && t->nr_requests; i++) {
		if (p->rdma.slots[i].task != t)
			continue;
		p->rdma.slots[i].task = NULL;
		t->nr_requests--;
	}
}

static uint8_t *rdma_slot_mem(const struct peer_rdma *d, const struct peer_slot *s)
{
	return d->mem + (size_t)(s - d->slots) * PEER_SLOT_LEN;
}

/* Allocate the slots.  Return 0, or -errno: RDMA is unusable then. */
static int rdma_slots_make(struct peer_rdma *d)
{
	size_t len = PEER_SLOTS * PEER_SLOT_LEN;
	int r;

	if (d->mem)
		return 0;
	d->mem = aligned_alloc(KIB(4), len);
	r = d->mem ? mr_reg_host(d->domain, d->mem, len, 0, &d->reg) : -ENOMEM;
	if (r < 0) {
		free(TAKE_PTR(d->mem));
		log_warn("no memory for RDMA with a peer: %s", err_name(r));
	}
	return r;
}

static struct peer_slot *rdma_slot_find(struct peer_rdma *d)
{
	for (unsigned i = 0; i < PEER_SLOTS; i++)
		if (!d->slots[i].used)
			return &d->slots[i];
	return NULL;
}

/* Copy between a slot and the operation's memory, which the program may unmap at any time. */
static int rdma_slot_copy(const struct peer_rdma *d, const struct peer_slot *s)
{
	const struct io_op *op = s->task->op;
	char *at = (char *)op->buf + s->off;
	uint8_t *mem = rdma_slot_mem(d, s);

	if (!op->reg)
		return s->get ? uaccess_write(at, mem, s->len) : uaccess_read(mem, at, s->len);
	if (s->get)
		memcpy(at, mem, s->len);
	else
		memcpy(mem, at, s->len);
	return 0;
}

/* Put the next bytes of the first task into a slot; return false if the task failed instead. */
static bool rdma_slot_fill(struct pst_peer *p, struct peer_slot *s, struct endpoint_io *ret)
{
	struct peer_rdma *d = &p->rdma;
	struct peer_task *t = d->todo.head;
	int r = 0;

	*s = (struct peer_slot){
		.task = t,
		.share = t->share,
		.off = t->issued,
		.len = (uint32_t)MIN(t->end - t->issued, PEER_SLOT_LEN),
		.get = t->op->kind == IO_READ,
	};
	if (!s->get)
		r = rdma_slot_copy(d, s);
	peer_task_unqueue(t);
	if (r < 0) {
		s->task = NULL;
		t->err = r;
		peer_task_check(p, t);
		return false;
	}
	s->used = true;
	d->nr_used++;
	t->issued += s->len;
	t->nr_requests++;
	*ret = (struct endpoint_io){
		.op = s->get ? ENDPOINT_READ : ENDPOINT_WRITE,
		.len = s->len,
		.local = d->reg->addr + (uint64_t)(rdma_slot_mem(d, s) - d->mem),
		.lkey = d->reg->lkey,
		.remote = t->reach->key.addr + t->op->off + s->off,
		.rkey = t->reach->key.rkey,
		.id = (uint64_t)(s - d->slots),
	};
	if (t->issued < t->end)
		peer_tasks_push(&d->todo, t);
	return true;
}

static void rdma_slot_free(struct pst_peer *p, struct peer_slot *s)
{
	struct peer_rdma *d = &p->rdma;
	bool tell = s->tell;
	uint64_t share = s->share;

	*s = (struct peer_slot){ 0 };
	d->nr_used--;
	if (tell && !rdma_share_moves(d, share) && imports_revoke(p, share) < 0)
		log_warn("a peer is not told that its memory is not used any more");
}

/* Post waiting requests while there is room.  Return true if something was posted. */
static bool rdma_post(struct pst_peer *p)
{
	struct peer_rdma *d = &p->rdma;
	struct endpoint_io v[PEER_SLOTS];
	struct peer_slot *s;
	unsigned nr = 0;
	int r = d->todo.head ? rdma_slots_make(d) : 0;

	if (r < 0) {
		rdma_break(p, r);
		return false;
	}
	while (d->todo.head && nr < endpoint_room(d->ep) && (s = rdma_slot_find(d)))
		if (rdma_slot_fill(p, s, &v[nr]))
			nr++;
	if (!nr)
		return false;
	r = endpoint_post(d->ep, v, nr);
	if (r == (int)nr)
		return true;
	/* The endpoint had ended already: its NIC failed while nothing was in flight. */
	rdma_break(p, r < 0 && r != -ENOTCONN ? r : -EIO);
	for (unsigned i = (unsigned)MAX(r, 0); i < nr; i++)
		rdma_slot_free(p, &d->slots[v[i].id]);
	return false;
}

static void rdma_slot_done(struct pst_peer *p, struct peer_slot *s, int res)
{
	struct peer_task *t = s->task;
	int r = 0;

	if (res < 0)
		rdma_break(p, res); /* ends the tasks of all slots */
	else if (t && s->get && !t->err)
		r = rdma_slot_copy(&p->rdma, s);
	t = TAKE_PTR(s->task);
	if (t) {
		t->nr_requests--;
		if (r < 0 && !t->err) {
			t->err = r;
			peer_task_unqueue(t);
		}
		peer_task_check(p, t);
	}
	rdma_slot_free(p, s);
}

static bool rdma_poll(struct pst_peer *p)
{
	struct peer_rdma *d = &p->rdma;
	struct endpoint_done done[PEER_SLOTS];
	int n = endpoint_poll(d->ep, done, PEER_SLOTS);

	for (int i = 0; i < n; i++)
		rdma_slot_done(p, &d->slots[done[i].id], done[i].res);
	return n > 0;
}

/* Arm the completion event, and poll once more. */
static bool rdma_arm(struct pst_peer *p)
{
	int r = endpoint_arm(p->rdma.ep);

	if (r < 0)
		rdma_break(p, r);
	return rdma_poll(p);
}

/* End RDMA if the NIC has failed.  Before the other side has answered, it may have no queue pair,
 * so do not send UNREACH then. */
static void rdma_look(struct pst_peer *p)
{
	struct peer_rdma *d = &p->rdma;

	if (!atomic_load(&d->nic->dead))
		return;
	if (d->state == PEER_RDMA_ASKED)
		rdma_over(p, -EIO);
	else
		rdma_break(p, -EIO);
}

void rdma_release(struct pst_peer *p)
{
	struct peer_rdma *d = &p->rdma;
	struct endpoint *ep;
	struct nic *nic;

	(void)pthread_mutex_lock(&p->lock);
	ep = TAKE_PTR(d->ep);
	nic = d->nic;
	(void)pthread_mutex_unlock(&p->lock);
	endpoint_free(ep);
	shares_unregister(p);
	if (d->reg)
		mr_dereg(d->domain, TAKE_PTR(d->reg));
	free(TAKE_PTR(d->mem));
	if (nic_domain_free(d->domain) < 0) {
		log_warn("a device keeps what a peer used: %s", err_text());
		return; /* rdma_free() tries again */
	}
	(void)pthread_mutex_lock(&p->lock);
	d->domain = NULL;
	d->nic = NULL;
	(void)pthread_mutex_unlock(&p->lock);
	nics_put(nic);
}

int rdma_turn(struct pst_peer *p, struct nic **ret_nic)
{
	struct peer_rdma *d = &p->rdma;
	bool over;
	int fd = -1;

	(void)pthread_mutex_lock(&p->lock);
	if (d->ep)
		rdma_look(p);
	if (d->ep && (d->nr_used || d->todo.head)) {
		bool more = true;

		while (more) {
			more = rdma_poll(p);
			if (d->state == PEER_RDMA_READY)
				more |= rdma_post(p);
			if (!more && d->nr_used)
				more = rdma_arm(p);
		}
		if (d->nr_used)
			fd = endpoint_fd(d->ep);
	}
	over = d->ep && d->state == PEER_RDMA_OVER && !d->nr_used;
	*ret_nic = d->ep && !over ? d->nic : NULL;
	(void)pthread_mutex_unlock(&p->lock);
	if (over)
		rdma_release(p);
	return fd;
}

/* ---------------------------------------------------------------------- end */

struct mem_registrar *rdma_registrar(struct pst_peer *p)
{
	return &p->rdma.domain->reg;
}

void rdma_end(struct pst_peer *p)
{
	struct peer_rdma *d = &p->rdma;

	while (d->state == PEER_RDMA_MAKING)
		(void)pthread_cond_wait(&p->more, &p->lock);
	rdma_over(p, -EPIPE);
	endpoint_free(TAKE_PTR(d->ep));
	if (d->reg)
		mr_dereg(d->domain, TAKE_PTR(d->reg));
	free(TAKE_PTR(d->mem));
}

void rdma_free(struct pst_peer *p)
{
	struct peer_rdma *d = &p->rdma;

	if (nic_domain_free(d->domain) < 0)
		log_warn("a device keeps what a peer used: %s", err_text());
	nics_put(d->nic);
}
