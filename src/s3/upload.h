/* SPDX-License-Identifier: MIT */
/* An object that is written: upload.c publishes it, upload_life.c makes and closes it. */
#ifndef PST_S3_UPLOAD_H
#define PST_S3_UPLOAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "file/op.h"
#include "s3/http.h"

#define SPANS_MAX 64u /* separate ranges of one part that writes have filled */

struct span {
	uint64_t from, to;
};

/* A buffer, and the part that it holds. */
struct part {
	struct upload *up;
	bool used, full, sending;
	unsigned nr; /* from 0 on */
	char *buf;
	struct span spans[SPANS_MAX]; /* sorted, none touches the next */
	unsigned nr_spans;
	struct call call;
};

struct upload {
	struct upload *next;
	struct http_job begin_job; /* may be queued still when the upload is closed */
	struct s3_file *file;
	bool excl;
	_Atomic uint64_t size;
	char *id; /* of the multi-part upload, or NULL */
	struct part parts[PARTS_MAX];
	unsigned nr_sending;
	char **etags; /* of parts that were sent */
	unsigned nr_etags;
	struct io_fifo writes, syncs; /* that wait */
	int err;
	char why[ERR_TEXT_MAX], lost_why[ERR_TEXT_MAX];
	bool published;
	char mark[MARK_LEN + 1]; /* of the object that this upload makes */
	int lost_err;            /* what publishing gave, while the object is looked at */
	bool sealed;             /* its size is fixed: the object, or its last part, was sent */
	bool busy;               /* call is under way */
	unsigned complete_tries;
	struct call call; /* to create, complete or abort, or the PUT of a small object */
	char *body;

	/* Closing. */
	struct http_job close_job, hurry_job;
	pthread_mutex_t lock; /* of ended */
	pthread_cond_t cond;
	bool closing, ended, hurried;
};

/* All that are open.  The thread pst-http's own. */
extern struct upload *uploads;

/* After an error nothing becomes visible any more: end all operations that wait. */
void upload_fail(struct upload *u, int err, const char *why);

/* Start a call of the upload itself.  The names and values of its query go in pairs. */
void upload_call(struct upload *u, const char *method, const struct pair *q, size_t nr,
		 call_fn done);
/* The end of it: 0, or the error, which u->call.why explains. */
int upload_call_end(struct upload *u);

/* upload_life.c: abort what was not published, once nothing is under way. */
void upload_close_step(struct upload *u);

#endif
