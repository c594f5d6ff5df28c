/* SPDX-License-Identifier: MIT */
/* An object being written: upload.c publishes it, upload_life.c creates and closes the upload. */
#ifndef PST_S3_UPLOAD_H
#define PST_S3_UPLOAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "file/op.h"
#include "s3/http.h"

#define SPANS_MAX 64u /* maximum separate ranges that writes filled in one part */

struct span {
	uint64_t from, to;
};

/* A buffer, and the part in it. */
struct part {
	struct upload *up;
	bool used, full, sending;
	unsigned nr; /* number of the part, from 0 */
	char *buf;
	struct span spans[SPANS_MAX]; /* sorted and disjoint, with gaps between them */
	unsigned nr_spans;
	struct call call;
};

struct upload {
	struct upload *next;
	struct http_job begin_job; /* may still be queued when the upload is closed */
	struct s3_file *file;
	bool excl;
	_Atomic uint64_t size;
	char *id; /* S3's id of the multi-part upload, or NULL */
	struct part parts[PARTS_MAX];
	unsigned nr_sending;
	char **etags; /* ETags of sent parts */
	unsigned nr_etags;
	struct io_fifo writes, syncs; /* waiting operations */
	int err;
	char why[ERR_TEXT_MAX], lost_why[ERR_TEXT_MAX];
	bool published;
	char mark[MARK_LEN + 1]; /* mark of the object that this upload creates */
	int lost_err;            /* error of publishing, while upload_looked_at() is pending */
	bool sealed;             /* no more writes: the object or its last part was sent */
	bool busy;               /* call is in flight */
	unsigned complete_tries;
	struct call call; /* creates, completes or aborts, or PUTs a small object */
	char *body;

	/* Jobs of closing. */
	struct http_job close_job, hurry_job;
	pthread_mutex_t lock; /* covers ended */
	pthread_cond_t cond;
	bool closing, ended, hurried;
};

/* All open uploads; used by the thread pst-http only. */
extern struct upload *uploads;

/* Make the upload fail, so that nothing becomes visible, and end all waiting operations. */
void upload_fail(struct upload *u, int err, const char *why);

/* Start a call on the upload itself, with the query pairs q. */
void upload_call(struct upload *u, const char *method, const struct pair *q, size_t nr,
		 call_fn done);
/* End a call of upload_call().  Return 0, or the error that u->call.why explains. */
int upload_call_end(struct upload *u);

/* Abort an unpublished upload once nothing is in flight; in upload_life.c. */
void upload_close_step(struct upload *u);

#endif
