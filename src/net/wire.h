/* SPDX-License-Identifier: MIT */
/*
 * The wire format of the storage service, as docs/PROTOCOL.md describes it.
 *
 * Pure format code: nothing here allocates, and nothing does I/O.  Each wire_get_*() checks what it
 * reads, so that its caller may trust the struct it gets.  All integers on the wire are
 * little-endian.
 */
#ifndef PST_NET_WIRE_H
#define PST_NET_WIRE_H

#include "base/base.h"

#define WIRE_VERSION 1u
#define WIRE_HEAD 48u /* bytes of the header of a request and of a reply */
#define WIRE_DATA_MAX \
	MIB(1)              /* bytes of a payload: of one read, of one write, of a part of a list */
#define WIRE_NAME_MAX 4095u /* bytes of a name */
#define WIRE_HELLO_LEN 64u  /* bytes of a hello's payload in this version */
#define WIRE_HELLO_MAX 4096u /* bytes of a hello's payload in any version */
#define WIRE_ATTR_LEN 64u
#define WIRE_ENTRY_LEN 16u /* of an entry of a list, without its name */

enum wire_op {
	WIRE_HELLO = 1,
	WIRE_OPEN = 2,
	WIRE_CLOSE = 3,
	WIRE_READ = 4,
	WIRE_WRITE = 5,
	WIRE_SYNC = 6,
	WIRE_TRUNCATE = 7,
	WIRE_STAT = 8,
	WIRE_LIST = 9,
	WIRE_UNLINK = 10,
	WIRE_RENAME = 11, /* its payload: the name, count bytes, and the new one */
	/* With WIRE_FEATURE_RDMA: */
	WIRE_RDMA = 12,       /* connect a queue pair to that of the payload */
	WIRE_READ_RDMA = 13,  /* a READ whose bytes the server writes into memory of the client */
	WIRE_WRITE_RDMA = 14, /* a WRITE whose bytes the server reads from memory of the client */
	WIRE_OP_MAX = 14,
};

/* Features of a hello and of a welcome. */
#define WIRE_FEATURE_RDMA (UINT64_C(1) << 0)

/* Bytes that one RDMA request of the server moves at most. */
#define WIRE_RDMA_CHUNK KIB(256)
#define WIRE_RDMA_BLOB_LEN 64u /* bytes that describe a queue pair, net/verbs/blob.h */
#define WIRE_RDMA_KEY_LEN 16u  /* payload of a request that moves bytes by RDMA */
#define WIRE_RDMA_REQUESTS 32u /* most requests by RDMA of a connection without a reply */

/* Flags of a header. */
#define WIRE_F_CRC (1u << 0)  /* crc is that of the payload; of a READ: the reply has one */
#define WIRE_F_DATA (1u << 1) /* of a SYNC: the bytes, and not the times of the file */
#define WIRE_F_ALL (WIRE_F_CRC | WIRE_F_DATA)

/* Flags of an OPEN. */
#define WIRE_O_READ (1u << 0)
#define WIRE_O_WRITE (1u << 1)
#define WIRE_O_CREATE (1u << 2)
#define WIRE_O_EXCL (1u << 3)
#define WIRE_O_TRUNC (1u << 4)
#define WIRE_O_ALL (WIRE_O_READ | WIRE_O_WRITE | WIRE_O_CREATE | WIRE_O_EXCL | WIRE_O_TRUNC)

struct wire_request {
	uint32_t len; /* bytes of the message, header included */
	uint16_t op;  /* enum wire_op */
	uint16_t flags;
	uint64_t id; /* the client's own; the reply repeats it */
	uint64_t off;
	uint32_t count;
	uint32_t handle;
	uint32_t how; /* WIRE_O_* */
	uint32_t mode;
	uint32_t crc;
};

struct wire_reply {
	uint32_t len;
	uint16_t op;
	uint16_t flags;
	uint64_t id;
	uint64_t boot; /* another number after each start of the server, never 0 */
	uint32_t err;  /* an errno of Linux, or 0 */
	uint32_t count;
	uint64_t value;
	uint32_t crc;
};

struct wire_hello {
	uint32_t version, oldest; /* the client speaks oldest to version */
	uint64_t features;        /* WIRE_FEATURE_* that the client knows */
	uint8_t client[16];
	uint64_t channel, epoch;
};

#define WIRE_SERVER_READ_ONLY (1u << 0)

struct wire_welcome {
	uint32_t version;
	uint32_t data_max;
	uint64_t features;     /* WIRE_FEATURE_* that both know */
	uint32_t requests_max; /* that the server takes from a connection before it replied */
	uint32_t files_max;
	uint32_t flags; /* WIRE_SERVER_* */
};

/* Memory of a client, of which a request by RDMA has as many bytes as its count says. */
struct wire_rdma_key {
	uint64_t addr;
	uint32_t rkey;
};

enum wire_kind {
	WIRE_KIND_FILE = 1,
	WIRE_KIND_DIR = 2,
	WIRE_KIND_OTHER = 3,
};

struct wire_attr {
	uint64_t size, mtime_ns, ctime_ns;
	uint64_t dev, ino, btime_ns; /* together: which file it is */
	uint32_t mode;
	uint32_t kind;
};

struct wire_entry {
	uint64_t next; /* the cursor behind it */
	uint16_t name_len;
	uint8_t kind;
	const char *name; /* name_len bytes, without an end */
};

/* The bytes behind a request's header; check the header first. */
static inline uint32_t wire_payload(uint32_t len)
{
	return len - WIRE_HEAD;
}

void wire_put_request(const struct wire_request *q, uint8_t to[WIRE_HEAD]);
void wire_put_reply(const struct wire_reply *r, uint8_t to[WIRE_HEAD]);

/*
 * Read a header.  On success every member is in the bounds that docs/PROTOCOL.md gives for that
 * operation: a payload is there where one belongs, and no longer than it may be.
 *
 * Return: 0, or -EBADMSG: the stream cannot be read any further.
 */
int wire_get_request(const uint8_t from[WIRE_HEAD], struct wire_request *ret);
int wire_get_reply(const uint8_t from[WIRE_HEAD], struct wire_reply *ret);

/* Payloads.  -EBADMSG for one that is too short or is none; -EPROTONOSUPPORT for versions that have
 * none in common with this one. */
void wire_put_hello(const struct wire_hello *h, uint8_t to[WIRE_HELLO_LEN]);
int wire_get_hello(const uint8_t *from, uint32_t len, struct wire_hello *ret);
void wire_put_welcome(const struct wire_welcome *w, uint8_t to[WIRE_HELLO_LEN]);
int wire_get_welcome(const uint8_t *from, uint32_t len, struct wire_welcome *ret);
void wire_put_rdma_key(const struct wire_rdma_key *k, uint8_t to[WIRE_RDMA_KEY_LEN]);
/* -EBADMSG where count bytes would pass the end of the address space. */
int wire_get_rdma_key(const uint8_t *from, uint32_t len, uint32_t count, struct wire_rdma_key *ret);
void wire_put_attr(const struct wire_attr *a, uint8_t to[WIRE_ATTR_LEN]);
int wire_get_attr(const uint8_t *from, uint32_t len, struct wire_attr *ret);

/*
 * Add an entry to the payload of a list.
 * Return: the bytes that it takes, or 0 where it needs more than room.
 */
uint32_t wire_put_entry(const struct wire_entry *e, uint8_t *to, uint32_t room);
/*
 * Read the entry at *at, and move *at behind it.
 * Return: 1; 0 at the end; -EBADMSG.
 */
int wire_get_entry(const uint8_t *from, uint32_t len, uint32_t *at, struct wire_entry *ret);

/* Is a name one that a server looks up?  Without an end; names of directories of a list may be
 * empty, which is the root. */
bool wire_name_ok(const char *name, uint32_t len, bool may_be_empty);

#endif
