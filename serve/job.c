/* SPDX-License-Identifier: MIT */
/* Jobs with their memory and names; handles. */
#include "serve/server.h"

/* ------------------------------------------------------------------ memory */

static uint64_t above_sure(uint64_t mem)
{
	return mem > CONN_SURE ? mem - CONN_SURE : 0;
}

static bool mem_take(struct conn *c, uint64_t len)
{
	uint64_t more = above_sure(c->mem + len) - above_sure(c->mem);

	if (more && c->s->shared + more > c->s->o.memory)
		return false;
	c->s->shared += more;
	c->mem += len;
	return true;
}

static void mem_give(struct conn *c, uint64_t len)
{
	c->s->shared -= above_sure(c->mem) - above_sure(c->mem - len);
	c->mem -= len;
}

void job_free(struct job *j)
{
	if (j->buf && job_by_rdma(j))
		qp_room_free(j);
	else if (j->buf)
		mem_give(j->conn, WIRE_HEAD + j->size);
	if (j->lent)
		j->conn->s->o.store->close(j->lent);
	else if (j->new_fd >= 0)
		(void)close(j->new_fd);
	qp_forget(j->conn, j->joined);
	free(j->buf);
	free(j->name);
	free(j->to);
	free(j);
}

/* Create a job whose memory is a slot of the RDMA connection. */
static struct job *job_new_rdma(struct conn *c, const struct wire_request *q)
{
	struct job *j = malloc(sizeof(*j));

	if (!j)
		return NULL;
	*j = (struct job){ .conn = c, .q = *q, .size = q->count, .len = WIRE_HEAD, .new_fd = -1 };
	if (!qp_room(j)) {
		free(j);
		return NULL;
	}
	c->nr_jobs++;
	c->nr_taken++;
	return j;
}

struct job *job_new(struct conn *c, const struct wire_request *q, uint32_t size)
{
	struct job *j;

	if (q->op == WIRE_READ_RDMA || q->op == WIRE_WRITE_RDMA)
		return job_new_rdma(c, q);
	if (!mem_take(c, WIRE_HEAD + (uint64_t)size))
		return NULL;
	j = malloc(sizeof(*j));
	if (!j) {
		mem_give(c, WIRE_HEAD + (uint64_t)size);
		return NULL;
	}
	*j = (struct job){ .conn = c, .q = *q, .size = size, .len = WIRE_HEAD, .new_fd = -1 };
	j->buf = malloc(WIRE_HEAD + (size_t)size);
	if (!j->buf) {
		mem_give(c, WIRE_HEAD + (uint64_t)size);
		free(j);
		return NULL;
	}
	c->nr_jobs++;
	c->nr_taken++;
	return j;
}

/* ----------------------------------------------------------------- handles */

/* Return the handle with this number, or NULL.  Numbers begin at 1. */
struct handle *handle_of(const struct conn *c, uint32_t nr)
{
	return nr && nr <= c->s->o.files && c->handles ? c->handles[nr - 1] : NULL;
}

uint32_t handle_room(struct conn *c)
{
	if (!c->handles)
		c->handles = calloc(c->s->o.files, sizeof(*c->handles));
	for (uint32_t i = 0; c->handles && i < c->s->o.files; i++)
		if (!c->handles[i])
			return i + 1;
	return 0;
}

/* Close a handle without users on a worker, because close(2) may block. */
static void handle_close(struct conn *c, struct handle *h)
{
	struct job *j = c->s->pool.stop ? NULL : malloc(sizeof(*j));

	if (!j) { /* no worker, or no memory for a job: close here, even if that blocks */
		exec_close(c->s, h);
		return;
	}
	*j = (struct job){ .conn = c, .handle = h, .new_fd = -1, .closes = true };
	c->nr_pool++;
	pool_put(c->s, j);
}

void handle_unref(struct conn *c, struct handle *h)
{
	if (h && --h->refs == 0)
		handle_close(c, h);
}

/* ------------------------------------------------------------------- names */

bool job_has_name(const struct job *j)
{
	switch (j->q.op) {
	case WIRE_OPEN:
	case WIRE_LIST:
	case WIRE_UNLINK:
	case WIRE_RENAME:
		return true;
	default:
		return j->q.op == WIRE_STAT && !j->q.handle;
	}
}

static int copy_name(const uint8_t *from, uint32_t len, bool may_be_empty, char **ret)
{
	if (!wire_name_ok((const char *)from, len, may_be_empty))
		return -EINVAL;
	*ret = strndup((const char *)from, len);
	return *ret ? 0 : -ENOMEM;
}

int job_take_names(struct job *j, const uint8_t *payload)
{
	uint32_t len = wire_payload(j->q.len);
	int r = 0;

	if (j->q.op == WIRE_RENAME) {
		r = copy_name(payload + j->q.count, len - j->q.count, false, &j->to);
		len = j->q.count;
	}
	return r < 0 ? r : copy_name(payload, len, j->q.op == WIRE_LIST, &j->name);
}
