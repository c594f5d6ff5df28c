/* SPDX-License-Identifier: MIT */
/*
 * The wire format of the storage service, described in docs/PROTOCOL.md.
 *
 * Pure format code: nothing here allocates or does I/O.  Each wire_get_*() checks what it reads, so
 * its caller may trust the resulting struct.  All integers on the wire are little-endian.
 */
#ifndef PST_NET_WIRE_H
#define PST_NET_WIRE_H

#include "base/base.h"

#define WIRE_VERSION 1u
#define WIRE_HEAD 48u        /* bytes; header of a request or reply */
#define WIRE_DATA_MAX MIB(1) /* maximum payload bytes: of a read, a write, or part of a list */
#define WIRE_NAME_MAX 4095u  /* bytes of a name, without NUL */
#define WIRE_HELLO_LEN 64u   /* payload bytes of this version's hello */
#define WIRE_HELLO_MAX 4096u /* maximum payload bytes of any version's hello */
#define WIRE_ATTR_LEN 64u
#define WIRE_ENTRY_LEN 16u /* bytes of a list entry, without its name */

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
	WIRE_RENAME = 11, /* payload: the name (count bytes), then the new name */
	/* Operations that need WIRE_FEATURE_RDMA. */
	WIRE_RDMA = 12,       /* connect a queue pair to the one in the payload */
	WIRE_READ_RDMA = 13,  /* READ; the server writes the bytes into client memory */
	WIRE_WRITE_RDMA = 14, /* WRITE; the server reads the bytes from client memory */
	WIRE_OP_MAX = 14,
};

/* Feature bits in a hello and a welcome. */
#define WIRE_FEATURE_RDMA (UINT64_C(1) << 0)

/* Maximum bytes that one RDMA operation of the server moves. */
#define WIRE_RDMA_CHUNK KIB(256)
#define WIRE_RDMA_BLOB_LEN 64u /* bytes; description of a queue pair, net/verbs/blob.h */
#define WIRE_RDMA_KEY_LEN 16u  /* payload bytes of WIRE_READ_RDMA and WIRE_WRITE_RDMA */
#define WIRE_RDMA_REQUESTS 32u /* most RDMA requests in flight per connection */

/* Flags of a header. */
#define WIRE_F_CRC (1u << 0)  /* crc covers the payload; in a READ: ask for one in the reply */
#define WIRE_F_DATA (1u << 1) /* SYNC: flush the bytes, but not the file's times */
#define WIRE_F_ALL (WIRE_F_CRC | WIRE_F_DATA)

/* Flags of an OPEN. */
#define WIRE_O_READ (1u << 0)
#define WIRE_O_WRITE (1u << 1)
#define WIRE_O_CREATE (1u << 2)
#define WIRE_O_EXCL (1u << 3)
#define WIRE_O_TRUNC (1u << 4)
#define WIRE_O_ALL (WIRE_O_READ | WIRE_O_WRITE | WIRE_O_CREATE | WIRE_O_EXCL | WIRE_O_TRUNC)

struct wire_request {
	uint32_t len; /* bytes of the whole message, including the header */
	uint16_t op;  /* enum wire_op */
	uint16_t flags;
	uint64_t id; /* chosen by the client; repeated in the reply */
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
	uint64_t boot; /* never 0; differs after each start of the server */
	uint32_t err;  /* positive Linux errno, or 0 */
	uint32_t count;
	uint64_t value;
	uint32_t crc;
};

struct wire_hello {
	uint32_t version, oldest; /* versions that the client speaks: oldest to version */
	uint64_t features;        /* WIRE_FEATURE_* that the client supports */
	uint8_t client[16];
	uint64_t channel, epoch;
};

#define WIRE_SERVER_READ_ONLY (1u << 0)

struct wire_welcome {
	uint32_t version;
	uint32_t data_max;
	uint64_t features;     /* WIRE_FEATURE_* that both support */
	uint32_t requests_max; /* maximum requests in flight on a connection */
	uint32_t files_max;
	uint32_t flags; /* WIRE_SERVER_* */
};

/* Client memory for an RDMA request.  The request's count is the number of bytes used. */
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
	uint64_t dev, ino, btime_ns; /* identify the file */
	uint32_t mode;
	uint32_t kind;
};

struct wire_entry {
	uint64_t next; /* cursor from which a list continues after this entry */
	uint16_t name_len;
	uint8_t kind;
	const char *name; /* name_len bytes, not NUL-terminated */
};

/* Return the payload bytes after a request's header; check the header first. */
static inline uint32_t wire_payload(uint32_t len)
{
	return len - WIRE_HEAD;
}

void wire_put_request(const struct wire_request *q, uint8_t to[WIRE_HEAD]);
void wire_put_reply(const struct wire_reply *r, uint8_t to[WIRE_HEAD]);

/*
 * Read a header.  On success every member is within the limits of docs/PROTOCOL.md for that
 * operation, and there is a payload, of legal length, if and only if the operation has one.
 *
 * Return: 0, or -EBADMSG: the stream is unusable.
 */
int wire_get_request(const uint8_t from[WIRE_HEAD], struct wire_request *ret);
int wire_get_reply(const uint8_t from[WIRE_HEAD], struct wire_reply *ret);

/* Payloads.  wire_get_*() return -EBADMSG for a short or malformed payload; -EPROTONOSUPPORT if no
 * version is common to both sides. */
void wire_put_hello(const struct wire_hello *h, uint8_t to[WIRE_HELLO_LEN]);
int wire_get_hello(const uint8_t *from, uint32_t len, struct wire_hello *ret);
void wire_put_welcome(const struct wire_welcome *w, uint8_t to[WIRE_HELLO_LEN]);
int wire_get_welcome(const uint8_t *from, uint32_t len, struct wire_welcome *ret);
void wire_put_rdma_key(const struct wire_rdma_key *k, uint8_t to[WIRE_RDMA_KEY_LEN]);
/* Return -EBADMSG if count bytes would wrap around the address space. */
int wire_get_rdma_key(const uint8_t *from, uint32_t len, uint32_t count, struct wire_rdma_key *ret);
void wire_put_attr(const struct wire_attr *a, uint8_t to[WIRE_ATTR_LEN]);
int wire_get_attr(const uint8_t *from, uint32_t len, struct wire_attr *ret);

/*
 * Add an entry to the payload of a list.
 *
 * Return: the bytes used, or 0 if room is too small.
 */
uint32_t wire_put_entry(const struct wire_entry *e, uint8_t *to, uint32_t room);
/*
 * Read the entry at *at, and advance *at past it.
 *
 * Return: 1; 0 at the end; -EBADMSG.
 */
int wire_get_entry(const uint8_t *from, uint32_t len, uint32_t *at, struct wire_entry *ret);

/* Return true if a server may look up the name (len bytes, no NUL).  A directory's name in a list
 * may be empty: that is the root. */
bool wire_name_ok(const char *name, uint32_t len, bool may_be_empty);

#endif
