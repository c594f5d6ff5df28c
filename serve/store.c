/* SPDX-License-Identifier: MIT */
/* Execute requests on a store of blocks: docs/PROTOCOL.md, "A store of blocks". */
#include <errno.h>

#include "base/crc32c.h"
#include "serve/server.h"

static void store_put_attr(struct job *j, uint32_t kind, uint64_t size)
{
	struct wire_attr attr = { .size = size, .kind = kind };

	wire_put_attr(&attr, j->buf + WIRE_HEAD);
	j->len += WIRE_ATTR_LEN;
}

/* Return the name of the client's key, or NULL without TLS. */
static const char *store_key(const struct job *j)
{
	return *j->conn->key ? j->conn->key : NULL;
}

static int store_open(const struct server *s, struct job *j)
{
	const struct serve_store *st = s->o.store;
	bool write = j->q.how == (WIRE_O_WRITE | WIRE_O_CREATE | WIRE_O_EXCL);
	uint64_t len = 0;
	int r;

	if (!write && j->q.how != WIRE_O_READ)
		return -EOPNOTSUPP;
	if (write && !s->o.write)
		return -EROFS;
	r = st->open(st->arg, j->name, store_key(j), j->conn->who, write, &j->lent, &j->new_fd,
		     &len);
	if (r == 0)
		store_put_attr(j, WIRE_KIND_FILE, len);
	return r;
}

uint64_t store_new_bytes(const struct server *s, const struct job *j)
{
	const char *last = strrchr(j->name, '/');
	uint64_t len;

	if (!s->o.store || !s->o.write || !(j->q.how & WIRE_O_WRITE) || !last)
		return 0;
	len = strtoull(last + 1, NULL, 10);
	/* Cap the client's number: no block is larger. */
	return MIN(len, (uint64_t)GIB(1));
}

static int store_write(const struct server *s, struct job *j)
{
	const uint8_t *data = j->buf + WIRE_HEAD;
	int r;

	if (!j->handle->write)
		return -EBADF;
	if (j->q.flags & WIRE_F_CRC && crc32c(0, data, j->q.count) != j->q.crc)
		return -EBADMSG;
	r = s->o.store->write(j->handle->lent, data, j->q.count, j->q.off);
	if (r == 0)
		j->count = j->q.count;
	return r;
}

static int store_stat(const struct server *s, struct job *j)
{
	const struct serve_store *st = s->o.store;
	uint64_t len;
	int r;

	if (j->handle)
		return -EOPNOTSUPP;
	if (!strcmp(j->name, st->root)) {
		store_put_attr(j, WIRE_KIND_DIR, 0);
		return 0;
	}
	r = st->find(st->arg, j->name, store_key(j), &len);
	if (r == 0)
		store_put_attr(j, WIRE_KIND_FILE, len);
	return r;
}

int store_op(const struct server *s, struct job *j)
{
	const struct serve_store *st = s->o.store;

	switch (j->q.op) {
	case WIRE_OPEN:
		return store_open(s, j);
	case WIRE_READ:
		return j->handle->write ? -EBADF : exec_read(j);
	case WIRE_WRITE:
		return store_write(s, j);
	case WIRE_SYNC:
		return j->handle->write ? st->publish(j->handle->lent) : -EBADF;
	case WIRE_STAT:
		return store_stat(s, j);
	case WIRE_UNLINK:
		return s->o.write ? st->remove(st->arg, j->name, store_key(j)) : -EROFS;
	default:
		return -EOPNOTSUPP;
	}
}
