/* SPDX-License-Identifier: MIT */
/*
 * Objects as files: s3://BUCKET/KEY, https://HOST/PATH, http://HOST/PATH.  A module,
 * libpenstock-s3.so, because libcurl and OpenSSL are more than libc.
 *
 * One thread, pst-http, owns a curl multi handle and runs every HTTP exchange (struct call).  Other
 * threads pass calls and file operations to it (http.h), and it pushes finished operations into the
 * inbox of their I/O context.
 *
 * Requests are signed by sign.c (Signature Version 4) over OpenSSL's SHA-256.  CURLOPT_AWS_SIGV4 of
 * libcurl 7.88 does not send x-amz-content-sha256, signs queries and paths unencoded, and sorts
 * headers by the whole line; five later releases changed this behaviour.  sign.c gives the same
 * signature with every libcurl.
 *
 * No torn reads.  The first request of an open is a range of one byte.  The answer gives the size
 * and the validator: a strong ETag, or a Last-Modified at least a second older than the answer.
 * Every later range sends If-Match with that ETag, and every answer is compared with validator,
 * size and range before a byte is stored, because some servers ignore If-Match.
 *
 * Writes create a whole object, by one PUT or by a multi-part upload.  Only SYNC makes the object
 * visible: close() cannot report a failure, so a close without SYNC discards the bytes.
 *
 * Limits: CALLS_MAX concurrent exchanges with CURL_BUFFER bytes each, TEXT_MAX bytes per text
 * answer, and PARTS_MAX buffers of PART_LEN bytes per file that is written.
 *
 * Secrets never appear in sentences or logs: names are shown without their query, and request
 * headers are never printed.
 */
#ifndef PST_S3_H
#define PST_S3_H

#include <pthread.h>

#include "base/base.h"
#include "file/io.h"

#define CALLS_MAX 64u          /* concurrent exchanges of a process */
#define ORIGIN_CALLS_MAX 32u   /* concurrent exchanges with one server; leaves some for others */
#define CURL_BUFFER KIB(512)   /* bytes of libcurl's receive buffer, per exchange */
#define RANGE_LEN MIB(8)       /* bytes of one ranged GET */
#define PART_LEN MIB(16)       /* bytes of one part of a multi-part upload */
#define PARTS_MAX 8u           /* buffers of PART_LEN per file */
#define MARK_LEN 32u           /* hexadecimal digits that identify an upload */
#define PART_NR_MAX 10000u     /* maximum parts of an upload; S3's limit */
#define TEXT_MAX MIB(2)        /* bytes of a text answer, such as a page of a listing */
#define ERROR_TEXT_MAX KIB(64) /* bytes of the text of an error */
#define KEY_MAX 1024u          /* bytes, S3's own limit */
#define TRIES_MAX 5u           /* consecutive attempts without progress */
#define PROGRESS_MIN KIB(64)   /* bytes received that count as progress */
#define REDIRECTS_MAX 5u
#define CONNECT_MS 5000L
#define SILENCE_S 20L               /* seconds without a byte; then reconnect */
#define COMPLETE_SILENCE_S 300L     /* seconds; a server may join thousands of parts */
#define OPEN_NS (60 * NSEC_PER_SEC) /* time limit of an open's request, with its retries */
#define ABORT_NS (5 * NSEC_PER_SEC) /* time limit of the DELETE of an unfinished upload, at close */
#define CLOSE_NS (5 * NSEC_PER_SEC) /* time limit of requests in flight at close, before DELETE */

/* ------------------------------------------------------------------ sign.c */

struct keys {
	char id[192], secret[192];
	char *token; /* session token, or NULL */
};

/* Name and value of a header or query parameter; not encoded. */
struct pair {
	const char *name, *value;
};

/* The input of a signature. */
struct to_sign {
	const char *method;
	const char *path;  /* encoded path, from encode_uri() */
	const char *query; /* encoded query, from encode_query(), or "" */
	const struct pair *headers;
	size_t nr_headers;
	const char *payload; /* SHA-256 in hex, or UNSIGNED-PAYLOAD */
	const char *date;    /* date, such as 20130524T000000Z */
	const char *region, *service;
};

#define SIGN_HEADERS_MAX 64u
#define SIGN_DATE_LEN 17u
#define SHA_HEX_LEN 65u
#define UNSIGNED_PAYLOAD "UNSIGNED-PAYLOAD"

/* Percent-encode all except unreserved characters; slash: keep slashes.  NULL if out of memory. */
char *encode_uri(const char *text, bool slash);
/* Return the canonical form of a query: encoded, sorted by name and value.  NULL if out of
 * memory. */
char *encode_query(const struct pair *pairs, size_t nr);
/* Return the value of the Authorization header, to be freed; NULL with a sentence. */
char *sign(const struct keys *k, const struct to_sign *s);
void sha256_hex(const void *data, size_t len, char ret[SHA_HEX_LEN]);
/* Write the date for a signature: now plus skew_s, the offset of the server's clock.  Return false
 * if the date cannot be represented. */
bool sign_date(int64_t skew_s, char ret[SIGN_DATE_LEN]);

/* ----------------------------------------------------------------- creds.c */

/*
 * Find keys, in this order: AWS_ACCESS_KEY_ID, web identity, the profile's files, the container's
 * service, the machine's service.  May block for some seconds.  Keys that expire are renewed five
 * minutes early.
 *
 * Return: 0; -ENOKEY with a sentence that lists the places searched.
 */
int creds_get(struct keys *ret);
void keys_wipe(struct keys *k);
/* Return a value of the profile's files, such as region; "" if there is none. */
void profile_value(const char *name, char *ret, size_t len);

/* ------------------------------------------------------------------ name.c */

/* Location of an object, and how to address it.  Only the thread pst-http changes it. */
struct where {
	char *shown; /* name for sentences, without query */
	bool s3;     /* the name begins with s3:// */
	bool sign;
	bool path_style, custom; /* path_style: BUCKET is in the path; custom: an endpoint was
				  * configured */
	char *bucket;
	char *origin;  /* such as https://HOST:PORT */
	char *path;    /* encoded; begins with a slash */
	size_t key_at; /* s3://: index of the key in path */
	char *query;   /* https://: query as given; or NULL */
	char *moved;   /* target of a redirect, or NULL */
	bool unplain;  /* the server gives answers that plain.c does not take */
	char region[64];
	int64_t skew_s; /* seconds that the server's clock is ahead */
	struct keys keys;
	unsigned keys_nr;      /* number of key changes so far */
	uint64_t keys_wait_ns; /* now_ns() until which keys are not fetched again */
};

int where_new(const char *name, struct where **ret);
void where_free(struct where *w);
/* Switch to the bucket's region, as told by the server; return false if the endpoint stays. */
bool where_set_region(struct where *w, const char *region);
/* Return true for an http:// URL whose host is this machine. */
bool is_loopback_url(const char *url);
/* Check that the URL's bytes may be sent unencrypted.  Return 0, or -EPERM with a sentence. */
int check_plain(const char *url, const char *shown);
/* Return a variable's value; NULL in set-uid programs and for empty values. */
const char *env(const char *name);

/* ------------------------------------------------------------------ file.c */

struct upload;

struct s3_file {
	struct file file; /* must be the first member */
	struct where *where;
	uint64_t size;
	char *etag;        /* strong ETag with its quotes, or NULL */
	char *modified;    /* Last-Modified, if there is no such ETag */
	struct upload *up; /* NULL: open for reading */
};

static inline struct s3_file *s3_file_of(const struct file *f)
{
	return container_of((struct file *)(uintptr_t)f, struct s3_file, file);
}

extern const struct io_backend s3_backend;

/* Functions of upload.c.  All except new and close run on the thread pst-http. */
int upload_new(struct s3_file *f, bool excl, struct upload **ret);
/* Wait at most CLOSE_NS for requests in flight, and at most ABORT_NS for the abort of an
 * unpublished upload. */
void upload_close(struct upload *u);
void upload_op(struct upload *u, struct io_op *op);
uint64_t upload_size(const struct upload *u);

#endif
