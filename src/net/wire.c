/* SPDX-License-Identifier: MIT */
#include "base/crc32c.h"
#include "base/le.h"
#include "net/wire.h"

/* Byte offsets in the headers of requests and replies. */
enum {
	AT_LEN = 0,
	AT_OP = 4,
	AT_FLAGS = 6,
	AT_ID = 8,
	AT_Q_OFF = 16,
	AT_Q_COUNT = 24,
	AT_Q_HANDLE = 28,
	AT_Q_HOW = 32,
	AT_Q_MODE = 36,
	AT_R_BOOT = 16,
	AT_R_ERR = 24,
	AT_R_COUNT = 28,
	AT_R_VALUE = 32,
	AT_CRC = 40,
	AT_HEAD_CRC = 44,
};

/* ---------------------------------------------------------------- headers */

static void put_head_crc(uint8_t *head)
{
	put32(head + AT_HEAD_CRC, crc32c(0, head, AT_HEAD_CRC));
}

static bool head_crc_ok(const uint8_t *head)
{
	return get32(head + AT_HEAD_CRC) == crc32c(0, head, AT_HEAD_CRC);
}

void wire_put_request(const struct wire_request *q, uint8_t to[WIRE_HEAD])
{
	put32(to + AT_LEN, q->len);
	put16(to + AT_OP, q->op);
	put16(to + AT_FLAGS, q->flags);
	put64(to + AT_ID, q->id);
	put64(to + AT_Q_OFF, q->off);
	put32(to + AT_Q_COUNT, q->count);
	put32(to + AT_Q_HANDLE, q->handle);
	put32(to + AT_Q_HOW, q->how);
	put32(to + AT_Q_MODE, q->mode);
	put32(to + AT_CRC, q->crc);
	put_head_crc(to);
}

void wire_put_reply(const struct wire_reply *r, uint8_t to[WIRE_HEAD])
{
	put32(to + AT_LEN, r->len);
	put16(to + AT_OP, r->op);
	put16(to + AT_FLAGS, r->flags);
	put64(to + AT_ID, r->id);
	put64(to + AT_R_BOOT, r->boot);
	put32(to + AT_R_ERR, r->err);
	put32(to + AT_R_COUNT, r->count);
	put64(to + AT_R_VALUE, r->value);
	put32(to + AT_CRC, r->crc);
	put_head_crc(to);
}

/* Return true if the whole range fits into off_t. */
static bool range_ok(uint64_t off, uint32_t count)
{
	return off <= INT64_MAX && count <= (uint64_t)INT64_MAX - off;
}

static bool open_ok(const struct wire_request *q)
{
	if (q->how & ~WIRE_O_ALL || !(q->how & (WIRE_O_READ | WIRE_O_WRITE)) || q->mode & ~07777u)
		return false;
	if (q->how & (WIRE_O_CREATE | WIRE_O_TRUNC) && !(q->how & WIRE_O_WRITE))
		return false;
	return !(q->how & WIRE_O_EXCL) || q->how & WIRE_O_CREATE;
}

/* Check the limits of each operation. */
static bool request_ok(const struct wire_request *q)
{
	uint32_t pay = wire_payload(q->len);

	switch (q->op) {
	case WIRE_HELLO:
		return pay >= WIRE_HELLO_LEN && pay <= WIRE_HELLO_MAX;
	case WIRE_OPEN:
		return pay >= 1 && pay <= WIRE_NAME_MAX && open_ok(q);
	case WIRE_CLOSE:
	case WIRE_SYNC:
		return !pay;
	case WIRE_READ:
		return !pay && q->count && q->count <= WIRE_DATA_MAX && range_ok(q->off, q->count);
	case WIRE_WRITE:
		return pay && pay <= WIRE_DATA_MAX && q->count == pay && range_ok(q->off, q->count);
	case WIRE_RDMA:
		return pay == WIRE_RDMA_BLOB_LEN;
	case WIRE_READ_RDMA:
	case WIRE_WRITE_RDMA:
		return pay == WIRE_RDMA_KEY_LEN && q->count && q->count <= WIRE_DATA_MAX &&
		       range_ok(q->off, q->count);
	case WIRE_TRUNCATE:
		return !pay && range_ok(q->off, 0);
	case WIRE_STAT:
		return pay <= WIRE_NAME_MAX && (q->handle ? !pay : pay >= 1);
	case WIRE_LIST:
		return pay <= WIRE_NAME_MAX && q->count >= 512 && q->count <= WIRE_DATA_MAX &&
		       q->off <= INT64_MAX;
	case WIRE_UNLINK:
		return pay >= 1 && pay <= WIRE_NAME_MAX;
	case WIRE_RENAME:
		return q->count >= 1 && q->count <= WIRE_NAME_MAX && pay > q->count &&
		       pay - q->count <= WIRE_NAME_MAX;
	default:
		return false;
	}
}

int wire_get_request(const uint8_t from[WIRE_HEAD], struct wire_request *ret)
{
	struct wire_request q = {
		.len = get32(from + AT_LEN),
		.op = get16(from + AT_OP),
		.flags = get16(from + AT_FLAGS),
		.id = get64(from + AT_ID),
		.off = get64(from + AT_Q_OFF),
		.count = get32(from + AT_Q_COUNT),
		.handle = get32(from + AT_Q_HANDLE),
		.how = get32(from + AT_Q_HOW),
		.mode = get32(from + AT_Q_MODE),
		.crc = get32(from + AT_CRC),
	};

	if (!head_crc_ok(from) || q.len < WIRE_HEAD || q.flags & ~WIRE_F_ALL || !request_ok(&q))
		return -EBADMSG;
	*ret = q;
	return 0;
}

static bool reply_ok(const struct wire_reply *r)
{
	uint32_t pay = wire_payload(r->len);

	if (r->err)
		return !pay && r->err <= 4095;
	switch (r->op) {
	case WIRE_HELLO:
		return pay >= WIRE_HELLO_LEN && pay <= WIRE_HELLO_MAX;
	case WIRE_OPEN:
		return pay == WIRE_ATTR_LEN && r->count;
	case WIRE_STAT:
		return pay == WIRE_ATTR_LEN;
	case WIRE_READ:
	case WIRE_LIST:
		return pay <= WIRE_DATA_MAX && r->count == pay;
	case WIRE_WRITE:
	case WIRE_WRITE_RDMA:
		return !pay && r->count && r->count <= WIRE_DATA_MAX;
	case WIRE_RDMA:
		return pay == WIRE_RDMA_BLOB_LEN;
	case WIRE_READ_RDMA:
		return !pay && r->count <= WIRE_DATA_MAX;
	case WIRE_CLOSE:
	case WIRE_SYNC:
	case WIRE_TRUNCATE:
	case WIRE_UNLINK:
	case WIRE_RENAME:
		return !pay;
	default:
		return false;
	}
}

int wire_get_reply(const uint8_t from[WIRE_HEAD], struct wire_reply *ret)
{
	struct wire_reply r = {
		.len = get32(from + AT_LEN),
		.op = get16(from + AT_OP),
		.flags = get16(from + AT_FLAGS),
		.id = get64(from + AT_ID),
		.boot = get64(from + AT_R_BOOT),
		.err = get32(from + AT_R_ERR),
		.count = get32(from + AT_R_COUNT),
		.value = get64(from + AT_R_VALUE),
		.crc = get32(from + AT_CRC),
	};

	if (!head_crc_ok(from) || r.len < WIRE_HEAD || r.flags & ~WIRE_F_ALL || !r.op ||
	    r.op > WIRE_OP_MAX || !r.boot || !reply_ok(&r))
		return -EBADMSG;
	*ret = r;
	return 0;
}

/* --------------------------------------------------------------- payloads */

/* First bytes of a hello and its answer. */
static const uint8_t magic[8] = { 'P', 'E', 'N', 'S', 'T', 'O', 'C', 'K' };

void wire_put_hello(const struct wire_hello *h, uint8_t to[WIRE_HELLO_LEN])
{
	memset(to, 0, WIRE_HELLO_LEN);
	memcpy(to, magic, sizeof(magic));
	put32(to + 8, h->version);
	put32(to + 12, h->oldest);
	put64(to + 16, h->features);
	memcpy(to + 24, h->client, sizeof(h->client));
	put64(to + 40, h->channel);
	put64(to + 48, h->epoch);
}

int wire_get_hello(const uint8_t *from, uint32_t len, struct wire_hello *ret)
{
	struct wire_hello h;

	if (len < WIRE_HELLO_LEN || memcmp(from, magic, sizeof(magic)) != 0)
		return -EBADMSG;
	h.version = get32(from + 8);
	h.oldest = get32(from + 12);
	h.features = get64(from + 16);
	memcpy(h.client, from + 24, sizeof(h.client));
	h.channel = get64(from + 40);
	h.epoch = get64(from + 48);
	if (h.oldest > h.version)
		return -EBADMSG;
	if (h.oldest > WIRE_VERSION || h.version < WIRE_VERSION)
		return -EPROTONOSUPPORT;
	*ret = h;
	return 0;
}

void wire_put_welcome(const struct wire_welcome *w, uint8_t to[WIRE_HELLO_LEN])
{
	memset(to, 0, WIRE_HELLO_LEN);
	memcpy(to, magic, sizeof(magic));
	put32(to + 8, w->version);
	put32(to + 12, w->data_max);
	put64(to + 16, w->features);
	put32(to + 24, w->requests_max);
	put32(to + 28, w->files_max);
	put32(to + 32, w->flags);
}

int wire_get_welcome(const uint8_t *from, uint32_t len, struct wire_welcome *ret)
{
	struct wire_welcome w;

	if (len < WIRE_HELLO_LEN || memcmp(from, magic, sizeof(magic)) != 0)
		return -EBADMSG;
	w.version = get32(from + 8);
	w.data_max = get32(from + 12);
	w.features = get64(from + 16);
	w.requests_max = get32(from + 24);
	w.files_max = get32(from + 28);
	w.flags = get32(from + 32);
	if (w.version != WIRE_VERSION)
		return -EPROTONOSUPPORT;
	if (w.data_max < 4096 || !w.requests_max || !w.files_max)
		return -EBADMSG;
	*ret = w;
	return 0;
}

void wire_put_rdma_key(const struct wire_rdma_key *k, uint8_t to[WIRE_RDMA_KEY_LEN])
{
	put64(to, k->addr);
	put32(to + 8, k->rkey);
	put32(to + 12, 0);
}

int wire_get_rdma_key(const uint8_t *from, uint32_t len, uint32_t count, struct wire_rdma_key *ret)
{
	struct wire_rdma_key k;

	if (len != WIRE_RDMA_KEY_LEN)
		return -EBADMSG;
	k.addr = get64(from);
	k.rkey = get32(from + 8);
	if (count > UINT64_MAX - k.addr)
		return -EBADMSG;
	*ret = k;
	return 0;
}

void wire_put_attr(const struct wire_attr *a, uint8_t to[WIRE_ATTR_LEN])
{
	memset(to, 0, WIRE_ATTR_LEN);
	put64(to, a->size);
	put64(to + 8, a->mtime_ns);
	put64(to + 16, a->ctime_ns);
	put64(to + 24, a->dev);
	put64(to + 32, a->ino);
	put64(to + 40, a->btime_ns);
	put32(to + 48, a->mode);
	put32(to + 52, a->kind);
}

int wire_get_attr(const uint8_t *from, uint32_t len, struct wire_attr *ret)
{
	struct wire_attr a;

	if (len < WIRE_ATTR_LEN)
		return -EBADMSG;
	a.size = get64(from);
	a.mtime_ns = get64(from + 8);
	a.ctime_ns = get64(from + 16);
	a.dev = get64(from + 24);
	a.ino = get64(from + 32);
	a.btime_ns = get64(from + 40);
	a.mode = get32(from + 48);
	a.kind = get32(from + 52);
	if (a.size > INT64_MAX || a.kind < WIRE_KIND_FILE || a.kind > WIRE_KIND_OTHER)
		return -EBADMSG;
	*ret = a;
	return 0;
}

uint32_t wire_put_entry(const struct wire_entry *e, uint8_t *to, uint32_t room)
{
	uint32_t len = (uint32_t)align_up(WIRE_ENTRY_LEN + (uint64_t)e->name_len, 8);

	if (len > room)
		return 0;
	memset(to, 0, len);
	put64(to, e->next);
	put16(to + 8, e->name_len);
	to[10] = e->kind;
	memcpy(to + WIRE_ENTRY_LEN, e->name, e->name_len);
	return len;
}

int wire_get_entry(const uint8_t *from, uint32_t len, uint32_t *at, struct wire_entry *ret)
{
	const uint8_t *p = from + *at;
	uint32_t left = len - *at;
	struct wire_entry e;

	if (!left)
		return 0;
	if (left < WIRE_ENTRY_LEN)
		return -EBADMSG;
	e.next = get64(p);
	e.name_len = get16(p + 8);
	e.kind = p[10];
	e.name = (const char *)p + WIRE_ENTRY_LEN;
	if (align_up(WIRE_ENTRY_LEN + (uint64_t)e.name_len, 8) > left ||
	    !wire_name_ok(e.name, e.name_len, false) || memchr(e.name, '/', e.name_len) ||
	    e.kind < WIRE_KIND_FILE || e.kind > WIRE_KIND_OTHER)
		return -EBADMSG;
	*at += (uint32_t)align_up(WIRE_ENTRY_LEN + (uint64_t)e.name_len, 8);
	*ret = e;
	return 1;
}

bool wire_name_ok(const char *name, uint32_t len, bool may_be_empty)
{
	if (!len)
		return may_be_empty;
	return len <= WIRE_NAME_MAX && name[0] != '/' && !memchr(name, '\0', len);
}
