/* SPDX-License-Identifier: MIT */
/*
 * Reader threads.  Each has a queue of its own and takes one piece at a time, so that the readers
 * share the work of copying from the page cache, each on its own thread.
 */
#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/thread.h"

#include "stream.h"

/* Longest sleep, in ns, while reads are in flight and the reader could start more. */
#define LOOK_NS (10 * NSEC_PER_MSEC)

/* Only the first reader reads into device memory. */
static bool reader_may_take(const struct reader *rd, const struct job *job)
{
	return job->state != JOB_OPENING &&
	       (job->sub->device.type != RUNAI_DEVICE_CUDA || rd->nr == 0);
}

static struct job *reader_next_job(const struct reader *rd)
{
	for (struct job *job = rd->st->jobs; job; job = job->next)
		if (reader_may_take(rd, job))
			return job;
	return NULL;
}

/* Open a job's file.  The lock is held, and dropped during the open. */
static void open_job(struct streamer *st, struct job *job)
{
	job->state = JOB_OPENING;
	(void)pthread_mutex_unlock(&st->lock);
	job_open(job, &st->files);
	(void)pthread_mutex_lock(&st->lock);
	job->state = JOB_OPEN;
	/* Other readers may now read the job's file. */
	(void)pthread_cond_broadcast(&st->work);
}

/* Take a piece to read, settling pieces that need no reading.  The lock is held. */
static bool take_piece(struct reader *rd, struct piece *ret)
{
	struct streamer *st = rd->st;
	struct job *job;

	while (!st->ending && (job = reader_next_job(rd))) {
		if (job->state == JOB_NEW) {
			open_job(st, job);
			continue;
		}
		if (!job_piece(job, ret))
			continue;
		if (ret->target) {
			job->in_flight++;
			stream_job_step(st, job);
			return true;
		}
		stream_settle(st, ret, ret->len, RUNAI_SUCCESS);
		stream_job_step(st, job);
	}
	return false;
}

/* Return a range's code for a completion that failed or was short. */
static int code_of_done(const struct piece *p, const struct pst_done *done)
{
	if (done->flags & PST_DONE_BUSY)
		return RUNAI_UNKNOWN;
	if (done->res >= 0)
		return RUNAI_EOF;
	if (p->job->sub->device.type == RUNAI_DEVICE_CUDA && done->res == -ENOMEM)
		return RUNAI_DEVICE_MEMORY;
	return code_of((int)done->res);
}

static void reader_failed(const struct piece *p, const struct pst_done *done)
{
	char text[256];

	if (!atomic_exchange(&p->job->told, true))
		log_error("%s, %" PRIu64 " bytes from %" PRIu64 " on: %s", p->job->path, p->len,
			  p->off, pst_done_text(done, text, sizeof(text)));
}

static void reader_finish(struct reader *rd, const struct pst_done *done)
{
	const struct piece *p = &rd->pieces[done->user_data];
	struct streamer *st = rd->st;
	uint64_t good = done->res >= 0 ? (uint64_t)done->res : done->prefix;
	bool whole = done->res >= 0 && good >= p->len;

	if (!whole)
		reader_failed(p, done);
	(void)pthread_mutex_lock(&st->lock);
	if (done->flags & PST_DONE_BUSY)
		p->job->busy = true;
	stream_settle(st, p, good, whole ? RUNAI_SUCCESS : code_of_done(p, done));
	p->job->in_flight--;
	stream_job_step(st, p->job);
	(void)pthread_mutex_unlock(&st->lock);
	rd->free |= UINT32_C(1) << done->user_data;
	rd->in_flight--;
}

static void reader_submit(struct reader *rd)
{
	int n = pst_queue_submit(rd->queue);

	rd->prepared -= n > 0 ? (unsigned)n : 0;
}

static void reader_begin(struct reader *rd, unsigned slot)
{
	const struct piece *p = &rd->pieces[slot];
	struct pst_io io = {
		.op = PST_OP_READ,
		.file = p->job->file->file,
		.mem = p->target->mem,
		.file_off = p->off,
		.mem_off = p->mem_off,
		.len = p->len,
		.user_data = slot,
	};
	struct pst_done done = { .user_data = slot };
	int r = pst_queue_prep(rd->queue, &io);

	rd->free &= ~(UINT32_C(1) << slot);
	rd->in_flight++;
	if (r == 0) {
		rd->prepared++;
		reader_submit(rd);
		return;
	}
	log_error("%s: %s", p->job->path, pst_error_text());
	done.res = r;
	reader_finish(rd, &done);
}

static void reader_reap(struct reader *rd, bool more)
{
	uint64_t until = rd->in_flight == DEPTH ? PST_NO_DEADLINE : more ? 0 : now_ns() + LOOK_NS;
	struct pst_done done[DEPTH];
	int n;

	if (rd->prepared)
		reader_submit(rd);
	n = pst_queue_reap(rd->queue, done, until ? 1 : 0, DEPTH, until);

	for (int i = 0; i < n; i++)
		reader_finish(rd, &done[i]);
}

/* Wait until there is something to do; return false when the streamer ends. The lock is held. */
static bool wait_for_work(struct reader *rd)
{
	while (!rd->in_flight && !reader_next_job(rd)) {
		if (rd->st->ending)
			return false;
		(void)pthread_cond_wait(&rd->st->work, &rd->st->lock);
	}
	return rd->in_flight || !rd->st->ending;
}

static void *reader_main(void *arg)
{
	struct reader *rd = arg;
	struct streamer *st = rd->st;

	(void)pthread_setname_np(pthread_self(), "pst-streamer");
	for (;;) {
		unsigned slot = rd->free ? (unsigned)__builtin_ctz(rd->free) : DEPTH;
		bool more = false, on;

		(void)pthread_mutex_lock(&st->lock);
		on = wait_for_work(rd);
		if (on && slot < DEPTH)
			more = take_piece(rd, &rd->pieces[slot]);
		(void)pthread_mutex_unlock(&st->lock);
		if (!on)
			return NULL;
		if (more)
			reader_begin(rd, slot);
		if (rd->in_flight)
			reader_reap(rd, more);
	}
}

int reader_start(struct streamer *st)
{
	struct pst_queue_opts opts = { .sz = sizeof(opts), .depth = DEPTH };
	struct reader *rd = calloc(1, sizeof(*rd));
	int r;

	if (!rd) {
		log_error("request: out of memory");
		return RUNAI_UNKNOWN;
	}
	rd->st = st;
	rd->nr = st->nr_readers;
	rd->free = (UINT32_C(1) << DEPTH) - 1;
	r = pst_queue_new(&opts, &rd->queue);
	if (r < 0)
		log_error("request: %s", pst_error_text());
	else {
		r = thread_start(&rd->thread, reader_main, rd);
		if (r < 0)
			log_error("request: %s", err_text());
	}
	if (r < 0) {
		reader_free(rd);
		return code_of(r) == RUNAI_FD_LIMIT ? RUNAI_FD_LIMIT : RUNAI_UNKNOWN;
	}
	st->readers[st->nr_readers++] = rd;
	return RUNAI_SUCCESS;
}

void reader_free(struct reader *rd)
{
	pst_queue_free(rd->queue);
	free(rd);
}
