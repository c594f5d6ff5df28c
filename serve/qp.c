/* SPDX-License-Identifier: MIT */
/*
 * Move file bytes by RDMA between slots of this process and client memory.
 *
 * A client asks for a queue pair with WIRE_RDMA. A worker creates it together with SLOTS registered
 * slots, so no client uses another one's memory.  Each request takes a slot.  For a read, the slot
 * is filled from the file, and the NIC writes it to client memory in chunks.  For a write, the NIC
 * reads client memory into the slot; when all bytes have arrived and match the checksum, a worker
 * writes them to the file.
 *
 * The reply is a message on the same queue pair, posted after the chunks with one doorbell.  A
 * reliable connection executes in order, so a client that has the message also has the bytes.
 *
 * Clients cannot access this process by the queue pair: its memory is registered for local use
 * only.
 *
 * The first failure ends the client's connection, and its requests with it.  A client that fails
 * again and again gets no further queue pair for some time: making one costs much more than a
 * request does.
 *
 * Workers make queue pairs and end them, because a device can take long for both.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>

#include "base/err.h"
#include "net/verbs/endpoint.h"
#include "serve/server.h"

#define SLOTS 8u
/* Bytes from the start of a slot to the data; the reply's header comes before. */
#define SLOT_DATA KIB(4)
#define SLOT_LEN (SLOT_DATA + (uint64_t)WIRE_DATA_MAX)
#define CHUNKS (WIRE_DATA_MAX / WIRE_RDMA_CHUNK)
#define DEADLINE_MS 10000u /* milliseconds until an unresponsive client NIC is given up */
#define POLL_MAX 16
/* A client may fail FAULTS_MAX times at once, and then once per FAULT_NS. */
#define FAULTS_MAX 32u
#define FAULT_NS NSEC_PER_SEC

struct rdma {
	struct nic *nic;
	struct nic_domain *domain;
	struct endpoint *ep; /* NULL after the queue pair has ended */
	uint8_t *mem;        /* memory of SLOTS slots */
	struct mem_reg *reg;
	struct job *jobs[SLOTS]; /* the user of each slot */
	unsigned nr_posted;      /* operations that the device has not completed */
	bool armed;              /* the device may send an event */
	int failed;              /* errno of the first failure, or 0 */
	bool all;                /* the worker frees everything, and not only the queue pair */
	struct job end;          /* the job of the worker that ends the queue pair */
	uint8_t blob[ENDPOINT_BLOB];
};

/* --------------------------------------------------------------- begin, end */

int qp_begin(struct server *s)
{
	struct nic *n = NULL;
	int r;

	if (s->o.rdma == SERVE_RDMA_NO)
		return 0;
	r = nics_get(NULL, &n);
	if (r < 0 && s->o.rdma == SERVE_RDMA_YES)
		return err_set(r, "--rdma=yes: %s", err_text());
	if (r < 0)
		return 0;
	(void)snprintf(s->rdma_by, sizeof(s->rdma_by), "%s, port %u", n->name, n->port);
	s->rdma = true;
	/* Close the device after this check: the first client opens it again. */
	nics_put(n);
	return 0;
}

void qp_say(const struct server *s)
{
	char line[128];

	if (!s->rdma)
		return;
	(void)snprintf(line, sizeof(line), "RDMA is by the device %s", s->rdma_by);
	s->o.say(line);
}

uint64_t qp_features(struct conn *c)
{
	/* Blocks of a store are only sent over the socket. */
	c->rdma_agreed = c->s->rdma && !c->s->o.store && c->hello.features & WIRE_FEATURE_RDMA;
	return c->rdma_agreed ? WIRE_FEATURE_RDMA : 0;
}

bool qp_may(const struct conn *c, const struct wire_request *q)
{
	switch (q->op) {
	case WIRE_RDMA:
		return c->rdma_agreed && !c->rdma_counted;
	case WIRE_READ_RDMA:
	case WIRE_WRITE_RDMA:
		return c->rdma;
	default:
		return true;
	}
}

/* Return what is known of failures of the connection's client, or NULL. */
static struct fault *fault_of(struct conn *c)
{
	for (struct fault *f = c->s->faults; f < c->s->faults + FAULTS; f++)
		if (!strcmp(f->who, c->who))
			return f;
	return NULL;
}

/* Record that a queue pair of the client failed.  Failures of too many clients displace the oldest
 * ones. */
static void fault_add(struct conn *c)
{
	struct fault *f = fault_of(c);
	uint64_t now = about_now_ns();

	if (!f) {
		f = c->s->faults;
		for (unsigned i = 1; i < FAULTS; i++)
			if (c->s->faults[i].paid_ns < f->paid_ns)
				f = &c->s->faults[i];
		memcpy(f->who, c->who, sizeof(f->who));
		f->paid_ns = 0;
	}
	f->paid_ns = MAX(f->paid_ns, now) + FAULT_NS;
}

static bool fault_is_too_many(struct conn *c)
{
	const struct fault *f = fault_of(c);

	return f && f->paid_ns > about_now_ns() + (FAULTS_MAX - 1) * FAULT_NS;
}

bool qp_ask(struct conn *c, struct job *j, const uint8_t *payload)
{
	struct server *s = c->s;

	c->rdma_agreed = false; /* a connection may ask only once */
	if (s->nr_rdma >= s->o.rdma_clients || fault_is_too_many(c)) {
		s->counts.rdma_refused++;
		reply_queue_err(j, EBUSY);
		return false;
	}
	s->nr_rdma++;
	c->rdma_counted = true;
	memcpy(j->buf + WIRE_HEAD, payload, WIRE_RDMA_BLOB_LEN);
	return true;
}

static void qp_free(struct rdma *r)
{
	r->all = true;
	qp_work(r);
	free(r);
}

static int qp_fill(struct rdma *r, const uint8_t *blob)
{
	struct endpoint_opts o = {
		.send_slots = SLOTS * (CHUNKS + 1),
		.recv_slots = 1,
		.deadline_ms = DEADLINE_MS,
		.events = true,
	};
	int err = nics_get(NULL, &r->nic);

	if (err == 0)
		err = nic_domain_host_new(r->nic, &r->domain);
	if (err == 0)
		err = endpoint_new(r->domain, &o, &r->ep);
	if (err == 0) {
		endpoint_blob(r->ep, r->blob);
		err = endpoint_connect(r->ep, blob, WIRE_RDMA_BLOB_LEN);
	}
	if (err < 0)
		return err;
	r->mem = aligned_alloc(KIB(4), SLOTS * SLOT_LEN);
	if (!r->mem)
		return -ENOMEM;
	return mr_reg_host(r->domain, r->mem, SLOTS * SLOT_LEN, 0, &r->reg);
}

int qp_make(struct job *j)
{
	struct rdma *r = calloc(1, sizeof(*r));
	uint8_t *blob = j->buf + WIRE_HEAD;
	int err;

	_Static_assert(ENDPOINT_BLOB == WIRE_RDMA_BLOB_LEN, "one size");
	if (!r)
		return -ENOMEM;
	r->end = (struct job){ .conn = j->conn, .new_fd = -1, .ends = r };
	err = qp_fill(r, blob);
	if (err < 0) {
		qp_free(r);
		return err;
	}
	memcpy(blob, r->blob, ENDPOINT_BLOB);
	j->len += ENDPOINT_BLOB;
	j->joined = r;
	return 0;
}

void qp_join(struct job *j)
{
	struct conn *c = j->conn;
	struct rdma *r = TAKE_PTR(j->joined);
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };

	if (r && epoll_ctl(c->s->epfd, EPOLL_CTL_ADD, endpoint_fd(r->ep), &ev) < 0) {
		qp_forget(c, TAKE_PTR(r));
		j->err = ENOMEM;
	}
	c->rdma = r;
	if (!r) {
		/* A lack of resources on the server is no failure of the client. */
		if (j->err != ENODEV && j->err != ENOMEM)
			fault_add(c);
		c->s->nr_rdma--;
		c->rdma_counted = false;
		c->s->counts.rdma_refused++;
		exec_reply(c->s, j);
	}
}

/* Let a worker end the queue pair; without workers, end it here. */
static void qp_put(struct rdma *r)
{
	struct conn *c = r->end.conn;
	struct pool *p = &c->s->pool;
	bool stop;

	c->nr_pool++;
	c->nr_ends++;
	(void)pthread_mutex_lock(&p->lock);
	stop = p->stop;
	if (!stop)
		jobs_push(&p->ends, &r->end);
	(void)pthread_cond_signal(&p->work);
	(void)pthread_mutex_unlock(&p->lock);
	if (!stop)
		return;
	qp_work(r);
	c->nr_pool--;
	qp_ended(r);
}

void qp_work(struct rdma *r)
{
	endpoint_free(TAKE_PTR(r->ep));
	if (!r->all)
		return;
	if (r->reg)
		mr_dereg(r->domain, r->reg);
	(void)nic_domain_free(r->domain);
	nics_put(r->nic);
	free(r->mem);
}

void qp_ended(struct rdma *r)
{
	struct conn *c = r->end.conn;

	c->nr_ends--;
	if (!r->all)
		return; /* qp_end() frees the rest once no worker uses a slot */
	if (c->rdma == r) {
		c->rdma = NULL;
		c->s->nr_rdma--;
		c->rdma_counted = false;
	}
	free(r);
}

void qp_forget(struct conn *c, struct rdma *r)
{
	if (!r)
		return;
	r->end.conn = c;
	r->all = true;
	qp_put(r);
}

void qp_stop(struct conn *c)
{
	struct rdma *r = c->rdma;

	if (!r)
		return;
	/* Remove the failed queue pair's event: nobody takes the event, so it would wake the loop
	 * forever. */
	(void)epoll_ctl(c->s->epfd, EPOLL_CTL_DEL, endpoint_fd(r->ep), NULL);
	qp_put(r);
	/* The slots stay until the queue pair has ended. */
	for (unsigned i = 0; i < SLOTS; i++) {
		struct job *j = r->jobs[i];

		if (!j || !j->left)
			continue;
		if (j->pulls)
			handle_unref(c, j->handle);
		job_free(j);
	}
}

bool qp_end(struct conn *c)
{
	if (c->rdma) {
		c->rdma->all = true;
		qp_put(c->rdma);
		return !c->rdma;
	}
	/* The queue pair was requested, but not created. */
	if (c->rdma_counted)
		c->s->nr_rdma--;
	c->rdma_counted = false;
	return true;
}

/* -------------------------------------------------------------------- slots */

bool qp_room(struct job *j)
{
	struct rdma *r = j->conn->rdma;

	for (uint8_t i = 0; i < SLOTS; i++) {
		if (r->jobs[i])
			continue;
		r->jobs[i] = j;
		j->slot = i;
		j->buf = r->mem + i * SLOT_LEN + SLOT_DATA - WIRE_HEAD;
		return true;
	}
	return false;
}

void qp_room_free(struct job *j)
{
	j->conn->rdma->jobs[j->slot] = NULL;
	j->buf = NULL;
}

/* --------------------------------------------------------------- operations */

/* Split count bytes of a job into chunks.  Return their number. */
static unsigned qp_chunks(const struct rdma *r, const struct job *j, enum endpoint_op op,
			  uint32_t count, struct endpoint_io v[CHUNKS])
{
	unsigned nr = 0;

	for (uint32_t at = 0; at < count; at += WIRE_RDMA_CHUNK)
		v[nr++] = (struct endpoint_io){
			.op = op,
			.len = MIN(count - at, (uint32_t)WIRE_RDMA_CHUNK),
			.local = (uintptr_t)j->buf + WIRE_HEAD + at,
			.lkey = r->reg->lkey,
			.remote = j->key.addr + at,
			.rkey = j->key.rkey,
			.id = j->slot,
		};
	return nr;
}

/* Post a job's chunks.  The NIC uses the job's memory until job->left is 0 or the queue pair
 * ends. */
static void qp_post(struct rdma *r, struct job *j, const struct endpoint_io *v, unsigned nr)
{
	int n = endpoint_post(r->ep, v, nr);

	j->left = (uint8_t)nr;
	r->nr_posted += nr;
	if (n != (int)nr)
		r->failed = n < 0 ? -n : EIO;
}

void qp_request(struct job *j, const uint8_t *payload)
{
	struct conn *c = j->conn;
	struct rdma *r = c->rdma;
	struct endpoint_io v[CHUNKS];
	unsigned nr;

	if (wire_get_rdma_key(payload, wire_payload(j->q.len), j->q.count, &j->key) < 0) {
		reply_queue_err(j, EINVAL);
	} else if (j->q.op == WIRE_READ_RDMA) {
		conn_request(c, j, NULL);
	} else if (!(j->handle = handle_of(c, j->q.handle))) {
		reply_queue_err(j, EBADF);
	} else {
		/* Hold the handle: the client may close it, and its number may be reused. */
		j->handle->refs++;
		j->pulls = true;
		nr = qp_chunks(r, j, ENDPOINT_READ, j->q.count, v);
		c->s->counts.rdma_reads += nr;
		qp_post(r, j, v, nr);
	}
}

void qp_answer(struct job *j)
{
	struct rdma *r = j->conn->rdma;
	struct counts *n = &j->conn->s->counts;
	struct endpoint_io v[CHUNKS + 1];
	uint32_t count = j->q.op == WIRE_READ_RDMA && !j->err ? j->count : 0;
	unsigned nr = qp_chunks(r, j, ENDPOINT_WRITE, count, v);

	n->rdma_writes += nr;
	n->rdma_sends++;
	v[nr++] = (struct endpoint_io){
		.op = ENDPOINT_SEND,
		.len = WIRE_HEAD,
		.local = (uintptr_t)j->buf,
		.lkey = r->reg->lkey,
		.id = j->slot,
	};
	qp_post(r, j, v, nr);
}

/* Handle a completed operation of a job.  Return true if the job ended. */
static bool qp_job_done(struct conn *c, struct job *j)
{
	c->rdma->nr_posted--;
	if (--j->left)
		return false;
	c->since_ns = about_now_ns();
	if (j->pulls) {
		j->pulls = false;
		conn_pulled(j);
		return false;
	}
	c->nr_jobs--;
	job_free(j);
	return true;
}

static bool qp_poll(struct conn *c, bool *ret_any)
{
	struct rdma *r = c->rdma;
	struct endpoint_done done[POLL_MAX];
	int n = endpoint_poll(r->ep, done, POLL_MAX);
	bool freed = false;

	for (int i = 0; i < n && !r->failed; i++) {
		if (done[i].res < 0)
			r->failed = -done[i].res;
		else if (done[i].op != ENDPOINT_RECV)
			freed |= qp_job_done(c, r->jobs[done[i].id]);
	}
	*ret_any = n > 0;
	return freed;
}

bool qp_is_busy(const struct conn *c)
{
	const struct rdma *r = c->rdma;

	if (!r)
		return false;
	/* Nobody else reads the events of the device while its connections are idle. */
	nic_events(r->nic);
	return r->nr_posted || atomic_load(&r->nic->dead);
}

bool qp_turn(struct conn *c)
{
	struct rdma *r = c->rdma;
	bool any = true, freed = false;
	char text[80];

	if (!r || c->fd < 0)
		return false;
	if (atomic_load(&r->nic->dead))
		r->failed = ENODEV;
	while (any && !r->failed)
		freed |= qp_poll(c, &any);
	/* Arm again after each event, so that no later event is missed. */
	if (!r->failed && (r->nr_posted || r->armed)) {
		int err = endpoint_arm(r->ep);

		r->armed = true;
		if (err < 0)
			r->failed = -err;
		else
			freed |= qp_poll(c, &any);
	}
	if (!r->failed)
		return freed;
	c->s->counts.rdma_failed++;
	if (!atomic_load(&r->nic->dead)) /* a NIC that is dead is no failure of the client */
		fault_add(c);
	(void)snprintf(text, sizeof(text), "its connection by RDMA failed: %s",
		       err_name(r->failed));
	conn_kill(c, text);
	return false;
}
