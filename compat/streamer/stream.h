/* SPDX-License-Identifier: MIT */
/* A streamer: its work, its readers, and responses that wait to be taken. */
#ifndef STREAMER_STREAM_H
#define STREAMER_STREAM_H

#include <pthread.h>

#include "files.h"
#include "submission.h"

#define READERS_MAX 16u
#define DEPTH 16u /* reads in flight per reader */

struct reader {
	struct streamer *st;
	struct pst_queue *queue;
	pthread_t thread;
	unsigned nr; /* index among the streamer's readers */
	unsigned in_flight;
	unsigned prepared; /* reads prepared but not submitted */
	struct piece pieces[DEPTH];
	uint32_t free; /* bit set of unused pieces */
};

struct streamer {
	pthread_mutex_t lock;
	pthread_cond_t work;     /* signalled for a new job, and at the end */
	pthread_cond_t answered; /* signalled for a new response, and at the end */
	pthread_cond_t left;     /* signalled when the last caller leaves */
	uint64_t forks;          /* value of forks in streamer.c when the streamer was created */
	unsigned callers;        /* threads inside a call */
	bool ending;
	uint64_t submissions;
	uint64_t ranges; /* ranges without a taken response */
	struct job *jobs, **jobs_end;
	struct job *busy; /* ended jobs whose memory may still be written to */
	struct range *ready, **ready_end;
	struct files files;
	struct reader *readers[READERS_MAX];
	unsigned nr_readers;
	char *credentials;
	size_t credentials_len;
};

/* Functions that return int return a code (code.h). */
int stream_new(struct streamer **ret);
/* @alone: return RUNAI_BUSY while other ranges are unanswered. */
int stream_submit(struct streamer *st, struct submission *sub, bool alone, uint64_t *ret_id);

struct answer {
	uint64_t submission;
	uint32_t file, range;
	int done;
};

/*
 * Take the next response within timeout_ms (0: wait for ever).  Return its code, RUNAI_TIMED_OUT or
 * RUNAI_FINISHED.
 * @asked: also return RUNAI_FINISHED once all ranges are answered
 */
int stream_answer(struct streamer *st, unsigned timeout_ms, bool asked, struct answer *ret);

/* Wake all threads that wait in the streamer; stream_free() then waits for I/O. */
void stream_stop(struct streamer *st);
void stream_free(struct streamer *st);

/* Settle a piece: its first good bytes succeeded, and the rest gets the code.  The lock is held. */
void stream_settle(struct streamer *st, const struct piece *p, uint64_t good, int code);
/* Advance a job after a piece ended, or after its last piece was taken.  The lock is held. */
void stream_job_step(struct streamer *st, struct job *job);

/* Start a reader with its thread; return a code.  In reader.c. */
int reader_start(struct streamer *st);
void reader_free(struct reader *rd);

#endif
