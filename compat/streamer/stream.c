/* SPDX-License-Identifier: MIT */
#include <sched.h>
#include <string.h>

#include "base/fork.h"
#include "base/log.h"

#include "streamer_int.h"

int stream_new(struct streamer **ret)
{
	struct streamer *st = calloc(1, sizeof(*st));
	pthread_condattr_t monotonic;

	if (!st) {
		log_error("start: out of memory");
		return RUNAI_UNKNOWN;
	}
	(void)pthread_condattr_init(&monotonic);
	(void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	(void)pthread_mutex_init(&st->lock, NULL);
	(void)pthread_cond_init(&st->work, NULL);
	(void)pthread_cond_init(&st->answered, &monotonic);
	(void)pthread_cond_init(&st->left, NULL);
	(void)pthread_condattr_destroy(&monotonic);
	st->jobs_end = &st->jobs;
	st->ready_end = &st->ready;
	files_init(&st->files);
	*ret = st;
	return RUNAI_SUCCESS;
}

/* ----------------------------------------------------------------- settling */

static void stream_ready(struct streamer *st, struct range *r)
{
	r->next = NULL;
	*st->ready_end = r;
	st->ready_end = &r->next;
	(void)pthread_cond_signal(&st->answered);
}

void stream_settle(struct streamer *st, const struct piece *p, uint64_t good, int code)
{
	struct range *r = &p->job->ranges[p->range];
	uint64_t byte = p->byte, at = 0;

	do {
		uint64_t n = MIN(r->size - byte, p->len - at);

		at += n;
		if (at > good && !r->code)
			r->code = code;
		r->left -= n;
		/* Count each range once: a range without bytes has a piece of its own. */
		if (!r->left)
			stream_ready(st, r);
		r++;
		byte = 0;
	} while (at < p->len);
}

static bool submission_over(const struct submission *sub)
{
	return !sub->unanswered && !sub->jobs_left;
}

static void unlink_job(struct streamer *st, struct job *job)
{
	struct job **at = &st->jobs;

	while (*at && *at != job)
		at = &(*at)->next;
	if (!*at)
		return;
	*at = job->next;
	if (st->jobs_end == &job->next)
		st->jobs_end = at;
}

void stream_job_step(struct streamer *st, struct job *job)
{
	struct submission *sub = job->sub;

	if (job->at_range == job->nr && !job->done) {
		job->done = true;
		unlink_job(st, job);
	}
	if (!job->done || job->in_flight)
		return;
	if (job->busy) {
		/* Keep the job's submission until the streamer ends. */
		job->next = st->busy;
		st->busy = job;
		return;
	}
	job_close(job, &st->files);
	sub->jobs_left--;
	if (submission_over(sub))
		submission_free(sub);
}

/* --------------------------------------------------------------- submitting */

static unsigned cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

/* Return how many readers are useful on this machine's CPUs for copies from the page cache, limited
 * by the work. */
static unsigned readers_for(const struct submission *sub)
{
	unsigned most = MIN(MAX(cpus(), 2u), READERS_MAX);
	uint64_t bytes = 0;

	/* One reader suffices for a device: its workers copy, and every queue takes staging
	 * memory. */
	if (sub->device.type == RUNAI_DEVICE_CUDA)
		return 1;
	for (uint64_t i = 0; i < sub->nr && bytes / PIECE < most; i++)
		bytes += MIN(sub->ranges[i].size, (uint64_t)most * PIECE);
	return (unsigned)MIN(1 + bytes / PIECE + sub->nr_jobs / DEPTH, (uint64_t)most);
}

static int start_readers(struct streamer *st, const struct submission *sub)
{
	unsigned want = readers_for(sub);

	while (st->nr_readers < want) {
		int code = reader_start(st);

		if (!code)
			continue;
		/* Continue if at least one reader has started. */
		return st->nr_readers ? RUNAI_SUCCESS : code;
	}
	return RUNAI_SUCCESS;
}

/* Queue the jobs of a submission.  The lock is held. */
static void queue_jobs(struct streamer *st, struct submission *sub)
{
	for (uint32_t i = 0; i < sub->nr_jobs; i++) {
		struct job *job = &sub->jobs[i];

		if (!job->nr) {
			job->done = true;
			sub->jobs_left--;
			continue;
		}
		job->next = NULL;
		*st->jobs_end = job;
		st->jobs_end = &job->next;
	}
	(void)pthread_cond_broadcast(&st->work);
}

int stream_submit(struct streamer *st, struct submission *sub, bool alone, uint64_t *ret_id)
{
	int code = RUNAI_SUCCESS;

	if (sub->nr && fork_guard() < 0) {
		streamer_say("request: this process is a fork of one that has read");
		code = RUNAI_UNKNOWN;
	}
	(void)pthread_mutex_lock(&st->lock);
	if (!code && st->ending)
		code = RUNAI_FINISHED;
	if (!code && alone && st->ranges)
		code = RUNAI_BUSY;
	if (!code && st->ranges + sub->nr > RANGES_MAX) {
		log_error("request: more than 16 Mi ranges are not answered");
		code = RUNAI_INVALID;
	}
	if (!code && sub->nr)
		code = start_readers(st, sub);
	if (!code) {
		sub->id = ++st->submissions;
		st->ranges += sub->nr;
		if (ret_id)
			*ret_id = sub->id;
		queue_jobs(st, sub);
		if (submission_over(sub))
			submission_free(sub);
	}
	(void)pthread_mutex_unlock(&st->lock);
	if (code)
		submission_free(sub);
	return code;
}

/* ---------------------------------------------------------------- responses */

static struct timespec in_ms(unsigned ms)
{
	uint64_t at = now_ns() + ms * NSEC_PER_MSEC;

	return (struct timespec){ .tv_sec = (time_t)(at / NSEC_PER_SEC),
				  .tv_nsec = (long)(at % NSEC_PER_SEC) };
}

static int stream_take(struct streamer *st, struct answer *ret)
{
	struct range *r = st->ready;
	struct job *job = r->job;
	struct submission *sub = job->sub;
	int code = r->code;

	st->ready = r->next;
	if (!st->ready)
		st->ready_end = &st->ready;
	/* Wake waiting threads: no more responses will come. */
	if (--st->ranges == 0)
		(void)pthread_cond_broadcast(&st->answered);
	sub->unanswered--;
	*ret = (struct answer){
		.submission = sub->id,
		.file = (uint32_t)(job - sub->jobs),
		.range = (uint32_t)(r - job->ranges),
		.done = !sub->unanswered,
	};
	if (submission_over(sub))
		submission_free(sub);
	return code;
}

int stream_answer(struct streamer *st, unsigned timeout_ms, bool asked, struct answer *ret)
{
	struct timespec end = { 0 };
	int code = RUNAI_SUCCESS;
	int r = 0;

	if (timeout_ms)
		end = in_ms(timeout_ms);
	(void)pthread_mutex_lock(&st->lock);
	while (!st->ready && !st->ending && r != ETIMEDOUT && !(asked && !st->ranges))
		r = timeout_ms ? pthread_cond_timedwait(&st->answered, &st->lock, &end)
			       : pthread_cond_wait(&st->answered, &st->lock);
	if (st->ending || (asked && !st->ranges))
		code = RUNAI_FINISHED;
	else if (!st->ready)
		code = RUNAI_TIMED_OUT;
	else
		code = stream_take(st, ret);
	(void)pthread_mutex_unlock(&st->lock);
	return code;
}

/* ---------------------------------------------------------------------- end */

void stream_stop(struct streamer *st)
{
	(void)pthread_mutex_lock(&st->lock);
	st->ending = true;
	(void)pthread_cond_broadcast(&st->work);
	(void)pthread_cond_broadcast(&st->answered);
	(void)pthread_mutex_unlock(&st->lock);
}

/* Free all work.  Submissions are found through their jobs and through responses that nobody
 * took. */
static void drop_work(struct streamer *st)
{
	while (st->jobs) {
		struct job *job = st->jobs;

		/* Treat ranges that were not read as answered. */
		for (uint64_t i = job->at_range; i < job->nr; i++) {
			struct range *r = &job->ranges[i];

			r->left = 0;
			r->next = NULL;
			*st->ready_end = r;
			st->ready_end = &r->next;
		}
		job->at_range = job->nr;
		stream_job_step(st, job);
	}
	while (st->busy) {
		struct job *job = st->busy;
		struct submission *sub = job->sub;

		st->busy = job->next;
		job_close(job, &st->files);
		sub->jobs_left--;
		if (submission_over(sub))
			submission_free(sub);
	}
	while (st->ready) {
		struct answer none;

		(void)stream_take(st, &none);
	}
}

void stream_free(struct streamer *st)
{
	for (unsigned i = 0; i < st->nr_readers; i++)
		(void)pthread_join(st->readers[i]->thread, NULL);
	drop_work(st);
	for (unsigned i = 0; i < st->nr_readers; i++)
		reader_free(st->readers[i]);
	streamer_files_done(&st->files);
	if (st->credentials)
		explicit_bzero(st->credentials, st->credentials_len);
	free(st->credentials);
	(void)pthread_cond_destroy(&st->work);
	(void)pthread_cond_destroy(&st->answered);
	(void)pthread_cond_destroy(&st->left);
	(void)pthread_mutex_destroy(&st->lock);
	free(st);
}
