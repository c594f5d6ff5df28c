/* SPDX-License-Identifier: MIT */
/* Create and close uploads; closing leaves nothing unfinished on the server. */
#include <stdio.h>
#include <sys/random.h>

#include "base/log.h"
#include "s3/upload.h"

static void begin_upload(void *arg)
{
	struct upload *u = arg;

	u->next = uploads;
	uploads = u;
}

int upload_new(struct s3_file *f, bool excl, struct upload **ret)
{
	struct upload *u = calloc(1, sizeof(*u));
	unsigned char random[MARK_LEN / 2];
	pthread_condattr_t attr;

	if (!u)
		return err_set(ENOMEM, "out of memory");
	u->file = f;
	u->excl = excl;
	if (getrandom(random, sizeof(random), 0) != sizeof(random)) {
		free(u);
		return err_set(EIO, "the kernel gives no random bytes");
	}
	for (unsigned i = 0; i < sizeof(random); i++)
		(void)snprintf(u->mark + 2 * i, 3, "%02x", random[i]);
	for (unsigned i = 0; i < PARTS_MAX; i++)
		u->parts[i].up = u;
	(void)pthread_mutex_init(&u->lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&u->cond, &attr);
	(void)pthread_condattr_destroy(&attr);
	u->begin_job = (struct http_job){ .fn = begin_upload, .arg = u };
	http_run(&u->begin_job);
	*ret = u;
	return 0;
}

static void closed(struct upload *u)
{
	struct upload **at = &uploads;

	while (*at != u)
		at = &(*at)->next;
	*at = u->next;
	(void)pthread_mutex_lock(&u->lock);
	u->ended = true;
	(void)pthread_cond_signal(&u->cond);
	(void)pthread_mutex_unlock(&u->lock);
}

static void aborted(struct call *c)
{
	struct upload *u = c->arg;

	if (upload_call_end(u) < 0)
		log_warn("an unfinished upload stays on the server: %s", c->why);
	call_free_text(c);
	closed(u);
}

/* Once nothing is in flight, abort the upload unless it was published. */
void upload_close_step(struct upload *u)
{
	struct pair q[] = { { "uploadId", u->id } };

	if (u->nr_sending || u->busy)
		return;
	if (!u->id || u->published) {
		closed(u);
		return;
	}
	upload_call(u, "DELETE", q, ARRAY_SIZE(q), aborted);
	u->call.deadline_ns = now_ns() + ABORT_NS;
}

static void close_upload(void *arg)
{
	struct upload *u = arg;

	u->closing = true;
	if (!u->published && !u->busy && u->err == 0)
		log_warn("%.200s was closed without a sync: nothing of it was kept",
			 u->file->where->shown);
	for (unsigned i = 0; i < PARTS_MAX; i++)
		if (u->parts[i].sending) {
			call_cancel(&u->parts[i].call);
			/* Canceling the last part ends the upload. */
			if (u->ended)
				return;
		}
	if (!u->ended)
		upload_close_step(u);
}

/* Cancel the request in flight, because the server takes too long. */
static void drop_call(struct upload *u)
{
	if (u->ended || !u->busy || u->call.done == aborted)
		return;
	log_warn("%.200s: the server did not answer before the close; list the object to see "
		 "whether it is there",
		 u->file->where->shown);
	call_cancel(&u->call);
}

static void hurry_upload(void *arg)
{
	struct upload *u = arg;

	drop_call(u);
	/* upload_close() may free the upload as soon as it sees @hurried. */
	(void)pthread_mutex_lock(&u->lock);
	u->hurried = true;
	(void)pthread_cond_signal(&u->cond);
	(void)pthread_mutex_unlock(&u->lock);
}

void upload_close(struct upload *u)
{
	struct timespec at;
	uint64_t until = now_ns() + CLOSE_NS;
	bool hurry;

	at = (struct timespec){ .tv_sec = (time_t)(until / NSEC_PER_SEC),
				.tv_nsec = (long)(until % NSEC_PER_SEC) };
	u->close_job = (struct http_job){ .fn = close_upload, .arg = u };
	http_run(&u->close_job);
	(void)pthread_mutex_lock(&u->lock);
	while (!u->ended && pthread_cond_timedwait(&u->cond, &u->lock, &at) != ETIMEDOUT)
		;
	hurry = !u->ended;
	(void)pthread_mutex_unlock(&u->lock);
	if (hurry) {
		u->hurry_job = (struct http_job){ .fn = hurry_upload, .arg = u };
		http_run(&u->hurry_job);
	}
	(void)pthread_mutex_lock(&u->lock);
	while (!u->ended || (hurry && !u->hurried))
		(void)pthread_cond_wait(&u->cond, &u->lock);
	(void)pthread_mutex_unlock(&u->lock);
	(void)pthread_cond_destroy(&u->cond);
	(void)pthread_mutex_destroy(&u->lock);
	for (unsigned i = 0; i < PARTS_MAX; i++)
		free(u->parts[i].buf);
	for (unsigned i = 0; i < u->nr_etags; i++)
		free(u->etags[i]);
	free(u->etags);
	free(u->body);
	free(u->id);
	free(u);
}

uint64_t upload_size(const struct upload *u)
{
	return atomic_load(&u->size);
}
