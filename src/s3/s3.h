/* SPDX-License-Identifier: MIT */
/*
 * Objects as files: s3://BUCKET/KEY, https://HOST/PATH, http://HOST/PATH.  A module,
 * libpenstock-s3.so, because libcurl and OpenSSL are more than libc.
 *
 * One thread, pst-http, owns a curl multi handle and runs every HTTP exchange (struct call).  Other
 * threads hand calls and file operations to it (http.h), and the thread pushes finished operations
 * into the inbox of their I/O context.
 *
 * Signing is our own Signature Version 4 (sign.c) over OpenSSL's SHA-256.  CURLOPT_AWS_SIGV4 of
 * libcurl 7.88 does not send x-amz-content-sha256, signs queries and paths as they are given, and
 * sorts headers by the whole line; five later releases changed each of these.  Our own gives the
 * same signature with every libcurl.
 *
 * No torn reads.  The first request of an open is a range of one byte.  Its answer gives the size
 * and the validator: a strong ETag, or a Last-Modified that is older than the answer by a second.
 * Every later range sends If-Match with that ETag, and every answer is compared with validator,
 * size and range before a byte is stored, because some servers ignore If-Match.
 *
 * Writes make a whole object, by one PUT or by a multi-part upload.  It becomes visible by SYNC,
 * and only then: close() cannot report a failure, so a close without SYNC discards the bytes.
 *
 * Bounds: CALLS_MAX exchanges at a time with CURL_BUFFER bytes each, TEXT_MAX bytes for each answer
 * that is text, and PARTS_MAX buffers of PART_LEN bytes for a file that is written.
 *
 * Secrets stay out of sentences and logs: names are shown without their query, and no header of a
 * request is ever printed.
 */
#ifndef PST_S3_H
#define PST_S3_H

#include <pthread.h>

#include "base/base.h"
#include "file/io.h"

#define CALLS_MAX 64u        /* exchanges at a time, in a process */
#define ORIGIN_CALLS_MAX 32u /* exchanges with one server: a slow one leaves room for others */
#define CURL_BUFFER KIB(512) /* libcurl's receive buffer, for each of them */
#define RANGE_LEN MIB(8)     /* bytes of one ranged GET */
#define PART_LEN MIB(16)     /* of a multi-part upload */
#define PARTS_MAX 8u         /* buffers of PART_LEN for a file */
#define MARK_LEN 32u         /* hexadecimal digits that tell an upload from all others */
#define PART_NR_MAX 10000u   /* S3's own limit */
#define TEXT_MAX MIB(2)      /* of an answer that is text: a page of a listing */
#define KEY_MAX 1024u        /* bytes, S3's own limit */
#define TRIES_MAX 5u         /* in a row without progress */
#define PROGRESS_MIN KIB(64) /* bytes that count as progress */
#define REDIRECTS_MAX 5u
#define CONNECT_MS 5000L
#define SILENCE_S 20L               /* no byte for so long: a new connection */
#define COMPLETE_SILENCE_S 300L     /* a server joins thousands of parts */
#define OPEN_NS (60 * NSEC_PER_SEC) /* for the request of an open, with its retries */
#define ABORT_NS (5 * NSEC_PER_SEC) /* for the DELETE of an unfinished upload, at close */
#define CLOSE_NS (5 * NSEC_PER_SEC) /* for what is under way then, before that */

/* ------------------------------------------------------------------ sign.c */

struct keys {
	char id[192], secret[192];
	char *token; /* of a session, or NULL */
};

/* A name and a value of a header or of a query; neither is encoded. */
struct pair {
	const char *name, *value;
};

/* What a signature covers. */
struct to_sign {
	const char *method;
	const char *path;  /* encoded by encode_uri() */
	const char *query; /* by encode_query(), or "" */
	const struct pair *headers;
	size_t nr_headers;
	const char *payload; /* SHA-256 in hex, or UNSIGNED-PAYLOAD */
	const char *date;    /* 20130524T000000Z */
	const char *region, *service;
};

#define SIGN_HEADERS_MAX 64u
#define SIGN_DATE_LEN 17u
#define SHA_HEX_LEN 65u
#define UNSIGNED_PAYLOAD "UNSIGNED-PAYLOAD"

/* Percent-encode all but unreserved characters; a slash stays where slash says so.  NULL: no
 * memory */
char *encode_uri(const char *text, bool slash);
/* The canonical form of a query: encoded, sorted by name and value.  NULL: no memory */
char *encode_query(const struct pair *pairs, size_t nr);
/* The value of the header Authorization, to be freed.  NULL with a sentence. */
char *sign(const struct keys *k, const struct to_sign *s);
void sha256_hex(const void *data, size_t len, char ret[SHA_HEX_LEN]);
/* The time for a signature: now, plus an offset that a server's clock taught.  False: no such date
 * can be written. */
bool sign_date(int64_t skew_s, char ret[SIGN_DATE_LEN]);

/* ----------------------------------------------------------------- creds.c */

/*
 * Find the keys: AWS_ACCESS_KEY_ID, web identity, the profile's files, the container's service, the
 * machine's service, in this order.  May block for some seconds.  Keys that expire are fetched
 * again five minutes before.
 *
 * Return: 0; -ENOKEY with a sentence that names where was looked.
 */
int creds_get(struct keys *ret);
void keys_wipe(struct keys *k);
/* A value of the profile's files, such as region; "" for none. */
void profile_value(const char *name, char *ret, size_t len);

/* ------------------------------------------------------------------ name.c */

/* Where an object is, and how a request for it is made.  Changes in the thread pst-http alone. */
struct where {
	char *shown; /* for sentences: no query */
	bool s3;     /* sign, or at least address as S3 */
	bool sign;
	bool path_style, custom; /* BUCKET in the path; an endpoint was given */
	char *bucket;
	char *origin;  /* https://HOST:PORT */
	char *path;    /* encoded, begins with a slash */
	size_t key_at; /* of s3://: where the key begins in path */
	char *query;   /* of https://: as given; or NULL */
	char *moved;   /* the URL that a redirect led to, or NULL */
	char region[64];
	int64_t skew_s; /* of the server's clock */
	struct keys keys;
	unsigned keys_nr;      /* counts each change of keys */
	uint64_t keys_wait_ns; /* fetching keys failed: do not try again before */
};

int where_new(const char *name, struct where **ret);
void where_free(struct where *w);
/* The bucket is in another region, as its server said; false: the endpoint stays. */
bool where_set_region(struct where *w, const char *region);
/* True for http:// on this machine. */
bool is_loopback_url(const char *url);
/* May the bytes of that URL go over the wire in clear text?  0, or -EPERM with a sentence. */
int check_plain(const char *url, const char *shown);
/* Value of a variable, NULL in set-uid programs and where it is empty. */
const char *env(const char *name);

/* ------------------------------------------------------------------ file.c */

struct upload;

struct s3_file {
	struct file file; /* first */
	struct where *where;
	uint64_t size;
	char *etag;        /* strong, with its quotes; or NULL */
	char *modified;    /* Last-Modified, where there is no such ETag */
	struct upload *up; /* NULL: for reading */
};

static inline struct s3_file *s3_file_of(const struct file *f)
{
	return container_of((struct file *)(uintptr_t)f, struct s3_file, file);
}

extern const struct io_backend s3_backend;

/* upload.c: may be called by the thread pst-http alone, but for new and close. */
int upload_new(struct s3_file *f, bool excl, struct upload **ret);
/* Wait for what is under way, at most CLOSE_NS, and for the abort of what was not published, at
 * most ABORT_NS. */
void upload_close(struct upload *u);
void upload_op(struct upload *u, struct io_op *op);
uint64_t upload_size(const struct upload *u);

#endif
