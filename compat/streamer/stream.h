/* SPDX-License-Identifier: MIT */
/* A streamer: its work, its readers and the responses that wait to be taken. */
#ifndef STREAMER_STREAM_H
#define STREAMER_STREAM_H

#include <pthread.h>

#include "files.h"
#include "submission.h"

#define READERS_MAX 16u
#define DEPTH 16u /* reads under way of one reader */

struct reader {
	struct streamer *st;
	struct pst_queue *queue;
	pthread_t thread;
	unsigned nr; /* which of the streamer's */
	unsigned in_flight;
	unsigned prepared; /* of those, not submitted */
	struct piece pieces[DEPTH];
	uint32_t free; /* a bit for each piece that is not used */
};

struct streamer {
	pthread_mutex_t lock;
	pthread_cond_t work;     /* there is a job, or the end */
	pthread_cond_t answered; /* there is a response, or the end */
	pthread_cond_t left;     /* the last caller has left */
	uint64_t forks;          /* of the process that started it: see streamer.c */
	unsigned callers;        /* threads inside a call */
	bool ending;
	uint64_t submissions;
	uint64_t ranges; /* not answered */
	struct job *jobs, **jobs_end;
	struct job *busy; /* over, with memory that may still be written to */
	struct range *ready, **ready_end;
	struct files files;
	struct reader *readers[READERS_MAX];
	unsigned nr_readers;
	char *credentials;
	size_t credentials_len;
};

/* Codes. */
int stream_new(struct streamer **ret);
/* @alone: RUNAI_BUSY while ranges of others are not answered. */
int stream_submit(struct streamer *st, struct submission *sub, bool alone, uint64_t *ret_id);

struct answer {
	uint64_t submission;
	uint32_t file, range;
	int done;
};

/*
 * The next response within timeout_ms (0: for ever); RUNAI_TIMED_OUT, RUNAI_FINISHED.
 * @asked: RUNAI_FINISHED also when no request has a range that is not answered
 */
int stream_answer(struct streamer *st, unsigned timeout_ms, bool asked, struct answer *ret);

/* Wakes all that wait in it; stream_free() then waits for I/O. */
void stream_stop(struct streamer *st);
void stream_free(struct streamer *st);

/* Under the lock: bytes of a piece are good, what is behind them has the code. */
void stream_settle(struct streamer *st, const struct piece *p, uint64_t good, int code);
/* Under the lock: a piece is over, or the last was taken. */
void stream_job_step(struct streamer *st, struct job *job);

/* reader.c: a reader with its thread; a code. */
int reader_start(struct streamer *st);
void reader_free(struct reader *rd);

#endif
