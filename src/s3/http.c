/* SPDX-License-Identifier: MIT */
/* The thread pst-http: exchanges, retries and redirects. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <strings.h>
#include <sys/random.h>

#include "base/err.h"
#include "base/log.h"
#include "base/thread.h"
#include "s3/http.h"

#define BACKOFF_MS 100u
#define BACKOFF_MAX_MS 5000u
#define KEYS_WAIT_NS (10 * NSEC_PER_SEC) /* pause between attempts to fetch new keys */
#define SKEW_MAX_S (10 * 366 * 86400)    /* ignore a server's clock that differs by more */

/* Covered by the lock. */
static struct {
	pthread_mutex_t lock;
	struct http_job *head, *tail;
	unsigned users;
	bool running;
	CURLM *multi;
} box = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Used by the thread only. */
static struct {
	CURLM *multi;
	CURL *idle[CALLS_MAX];
	unsigned nr_idle, nr_running;
	struct call *running;
	struct call *ready, **ready_end; /* calls to send when fewer than CALLS_MAX are running */
	struct call *later;              /* calls to send again at their again_ns */
	uint64_t due_ns;                 /* now_ns() of the earliest deadline of ready calls */
	bool stirred;                    /* ready or running calls have changed */
} self;

static void call_end(struct call *c);
static bool take_out(struct call **list, struct call *c);

static void call_runs(struct call *c)
{
	c->running = true;
	self.nr_running++;
	c->next = self.running;
	self.running = c;
}

static void send_call(struct call *c)
{
	call_free_text(c);
	c->answer = (struct answer){ .length = UINT64_MAX };
	c->err = 0;
	c->why[0] = '\0';
	c->looked = c->enough = false;
	c->sent = 0;
	c->got_before = c->got;
	c->nr_sent++;
	if (!c->broken && plain_wants(c) && request_head(c) && plain_start(c, self.multi)) {
		call_runs(c);
		return;
	}
	curl_slist_free_all(c->headers);
	c->headers = NULL;
	c->easy = self.nr_idle ? self.idle[--self.nr_idle] : curl_easy_init();
	/* A broken call must not be sent: without its query it would address the object itself. */
	if (!c->easy || c->broken || !request_make(c)) {
		if (c->err == 0) {
			c->err = -ENOMEM;
			(void)snprintf(c->why, sizeof(c->why), "out of memory");
		}
		c->running = c->easy;
		self.nr_running += c->running;
		call_end(c);
		return;
	}
	call_runs(c);
	(void)curl_multi_add_handle(self.multi, c->easy);
}

static void unsend(struct call *c)
{
	if (c->line)
		plain_cancel(c);
	if (c->running) {
		self.nr_running--;
		(void)take_out(&self.running, c);
		self.stirred = true;
	}
	if (c->easy) {
		(void)curl_multi_remove_handle(self.multi, c->easy);
		curl_easy_reset(c->easy);
		if (self.nr_idle < CALLS_MAX)
			self.idle[self.nr_idle++] = c->easy;
		else
			curl_easy_cleanup(c->easy);
	}
	c->running = false;
	c->easy = NULL;
	curl_slist_free_all(c->headers);
	c->headers = NULL;
	free(c->url);
	c->url = NULL;
}

static void push_ready(struct call *c)
{
	c->next = NULL;
	*self.ready_end = c;
	self.ready_end = &c->next;
	self.stirred = true;
}

void call_start(struct call *c)
{
	push_ready(c);
}

static void call_end(struct call *c)
{
	unsend(c);
	if (c->err < 0 && c->err != -ECANCELED)
		log_debug("%s", c->why);
	c->done(c);
}

static bool take_out(struct call **list, struct call *c)
{
	for (; *list; list = &(*list)->next)
		if (*list == c) {
			*list = c->next;
			return true;
		}
	return false;
}

void call_cancel(struct call *c)
{
	if (!c->running && take_out(&self.ready, c)) {
		self.ready_end = &self.ready;
		while (*self.ready_end)
			self.ready_end = &(*self.ready_end)->next;
	} else if (!c->running) {
		(void)take_out(&self.later, c);
	}
	c->err = -ECANCELED;
	(void)snprintf(c->why, sizeof(c->why), "%.200s: canceled", c->where->shown);
	call_end(c);
}

void call_free_text(struct call *c)
{
	free(c->text);
	c->text = NULL;
	c->text_len = 0;
}

/* ----------------------------------------------------------------- retries */

static uint64_t backoff_ns(const struct call *c)
{
	unsigned shift = MIN(c->tries, 10u), ms = MIN(BACKOFF_MS << shift, BACKOFF_MAX_MS);
	uint32_t random = 0;

	(void)!getrandom(&random, sizeof(random), 0);
	ms = 1 + random % ms;
	return MAX(ms * NSEC_PER_MSEC, c->answer.retry_after_s * NSEC_PER_SEC);
}

/* Send the call again after a pause.  Return false if no attempt or no time is left. */
static bool again(struct call *c)
{
	uint64_t now = now_ns();

	if (c->got - c->got_before >= PROGRESS_MIN)
		c->tries = 0;
	if (++c->tries >= TRIES_MAX)
		return false;
	c->again_ns = now + backoff_ns(c);
	if (c->deadline_ns != UINT64_MAX && c->again_ns >= c->deadline_ns)
		return false;
	unsend(c);
	c->next = self.later;
	self.later = c;
	return true;
}

static bool at_once(struct call *c)
{
	unsend(c);
	push_ready(c);
	return true;
}

/* Follow a redirect of an https:// name.  Signed requests are never redirected. */
static bool http_follow(struct call *c)
{
	const char *to = NULL;

	if (c->where->s3 || c->nr_moves++ == REDIRECTS_MAX) {
		c->err = c->where->s3 ? -EREMCHG : -ELOOP;
		(void)snprintf(c->why, sizeof(c->why),
			       c->where->s3 ? "%.200s: the server sends signed requests to another "
					      "place, where keys are not sent; check AWS_REGION "
					      "and the endpoint"
					    : "%.200s: there are too many redirects",
			       c->where->shown);
		return false;
	}
	(void)curl_easy_getinfo(c->easy, CURLINFO_REDIRECT_URL, &to);
	if (!to || (strncasecmp(to, "https://", 8) != 0 &&
		    (strncasecmp(to, "http://", 7) != 0 ||
		     strncasecmp(c->where->origin, "https://", 8) == 0 ||
		     check_plain(to, c->where->shown) < 0))) {
		c->err = -EPERM;
		(void)snprintf(c->why, sizeof(c->why),
			       "%.200s: the server redirects to what is not https://, which is not "
			       "followed",
			       c->where->shown);
		return false;
	}
	free(c->where->moved);
	c->where->moved = strdup(to);
	return at_once(c);
}

/* Learn the server's clock from the answer that refused ours. */
static bool learn_clock(struct call *c)
{
	time_t there = curl_getdate(c->answer.date, NULL);
	int64_t skew_s = (int64_t)there - (int64_t)time(NULL);

	if (c->told_clock || there == -1 || skew_s > SKEW_MAX_S || skew_s < -SKEW_MAX_S)
		return false;
	c->told_clock = true;
	c->where->skew_s = skew_s;
	log_info("the clock of %.200s differs from this machine's by %" PRId64 " s",
		 c->where->shown, skew_s);
	return at_once(c);
}

static bool learn_keys(struct call *c)
{
	struct where *w = c->where;
	struct keys k;

	if (c->told_keys)
		return false;
	c->told_keys = true;
	if (c->keys_nr != w->keys_nr)
		return at_once(c); /* another call has fetched new keys already */
	if (now_ns() < w->keys_wait_ns)
		return false;
	creds_expire(&w->keys);
	/* Blocks the thread for some seconds at most, once for all calls with these keys. */
	if (creds_get(&k) < 0) {
		w->keys_wait_ns = now_ns() + KEYS_WAIT_NS;
		return false;
	}
	keys_wipe(&w->keys);
	w->keys = k;
	w->keys_nr++;
	return at_once(c);
}

/* Recover from an error status.  Return true if the call continues. */
static bool recover(struct call *c)
{
	long status = c->answer.status;

	if (c->where->sign && why_code_is(c, "RequestTimeTooSkewed") && learn_clock(c))
		return true;
	if (c->where->sign && why_code_is(c, "ExpiredToken") && learn_keys(c))
		return true;
	if (c->where->s3 && !c->told_region && where_set_region(c->where, c->answer.region) &&
	    (status == 301 || status == 307 || status == 400 || status == 403)) {
		c->told_region = true;
		return at_once(c);
	}
	if (c->moved && !c->nr_moves &&
	    (status == 401 || status == 403 || status == 404 || status == 410)) {
		/* The redirect may have expired, and another call may have found a new one. */
		c->nr_moves++;
		if (c->where->moved && strcmp(c->where->moved, c->url) == 0) {
			free(c->where->moved);
			c->where->moved = NULL;
		}
		return at_once(c);
	}
	if (status == 429 || status >= 500 || why_code_is(c, "RequestTimeout") ||
	    why_code_is(c, "ConditionalRequestConflict"))
		return again(c);
	return false;
}

void http_resend(struct call *c)
{
	(void)at_once(c);
}

void http_finished(struct call *c, CURLcode code)
{
	if (c->err < 0) { /* set by a callback, which made libcurl stop */
		call_end(c);
		return;
	}
	if (c->enough) /* answer_data() has ended the exchange: it has enough of the error's text */
		code = CURLE_OK;
	if (code == CURLE_OK && !answer_look(c)) {
		call_end(c);
		return;
	}
	if (code != CURLE_OK) {
		bool late = c->deadline_ns != UINT64_MAX && now_ns() >= c->deadline_ns;

		if (why_curl(c, code) && !late && again(c))
			return;
		call_end(c);
		return;
	}
	if (c->answer.status >= 300 && c->answer.status <= 308 && c->answer.status != 304 &&
	    !*c->answer.region) {
		if (!http_follow(c))
			call_end(c);
		return;
	}
	if (!answer_is_good(c->answer.status)) {
		why_status(c);
		if (!recover(c))
			call_end(c);
		return;
	}
	if (c->to && c->got < c->len) { /* complete by its Content-Length, but shorter than the
					 * range */
		(void)why_curl(c, CURLE_PARTIAL_FILE);
		if (again(c))
			return;
	}
	call_end(c);
}

/* ------------------------------------------------------------------ thread */

static void run_jobs(struct http_job *j)
{
	while (j) {
		struct http_job *next = j->next;

		j->fn(j->arg);
		j = next;
	}
}

static bool http_is_full(const struct where *w)
{
	unsigned nr = 0;

	for (const struct call *c = self.running; c; c = c->next)
		nr += strcmp(c->where->origin, w->origin) == 0;
	return nr >= ORIGIN_CALLS_MAX;
}

/* Take the first ready call that may be sent or whose deadline has passed.  If there is none,
 * return NULL and set due_ns. */
static struct call *take_ready(uint64_t now)
{
	const struct where *full = NULL;

	self.due_ns = UINT64_MAX;
	for (struct call **at = &self.ready; *at; at = &(*at)->next) {
		struct call *c = *at;

		if (c->deadline_ns > now) {
			if (c->where != full && self.nr_running < CALLS_MAX &&
			    http_is_full(c->where))
				full = c->where;
			if (c->where == full || self.nr_running >= CALLS_MAX) {
				self.due_ns = MIN(self.due_ns, c->deadline_ns);
				continue;
			}
		}
		*at = c->next;
		if (self.ready_end == &c->next)
			self.ready_end = at;
		return c;
	}
	return NULL;
}

static void start_ready(void)
{
	uint64_t now = now_ns();
	struct call *c;

	if (!self.stirred && now < self.due_ns)
		return;
	while ((c = take_ready(now))) {
		if (c->deadline_ns > now) {
			send_call(c);
			continue;
		}
		c->err = -ETIMEDOUT;
		(void)snprintf(c->why, sizeof(c->why),
			       "%.200s: its time was over before the request could be sent; let "
			       "fewer requests run at a time, or give them more time",
			       c->where->shown);
		call_end(c);
	}
	self.stirred = false;
}

static void start_later(uint64_t now)
{
	struct call **at = &self.later;

	while (*at) {
		struct call *c = *at;

		if (c->again_ns > now) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		push_ready(c);
	}
}

static void http_take_finished(void)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(self.multi, &left))) {
		struct call *c = NULL;
		CURLcode code = m->data.result;

		if (m->msg != CURLMSG_DONE)
			continue;
		if (plain_connected(m->easy_handle, code, self.multi))
			continue;
		(void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&c);
		http_finished(c, code);
	}
}

static int http_wait_ms(uint64_t now)
{
	uint64_t at = now + HTTP_LINGER_S * NSEC_PER_SEC;

	for (const struct call *c = self.later; c; c = c->next)
		at = MIN(at, c->again_ns);
	/* start_ready() has sent all calls that may be sent. */
	at = MIN(at, self.due_ns);
	at = MIN(at, plain_due_ns());
	return (int)((MAX(at, now) - now) / NSEC_PER_MSEC + 1);
}

static bool http_has_work(void)
{
	return self.ready || self.later || self.nr_running;
}

static void end_self(CURLM *multi)
{
	plain_end(multi);
	while (self.nr_idle)
		curl_easy_cleanup(self.idle[--self.nr_idle]);
	(void)curl_multi_cleanup(multi);
}

static void *s3_http_run(void *arg)
{
	struct curl_waitfd fds[CALLS_MAX];
	uint64_t idle_ns = now_ns();
	unsigned nr;
	int still;

	(void)arg;
	for (;;) {
		struct http_job *jobs;
		bool end;

		(void)pthread_mutex_lock(&box.lock);
		jobs = box.head;
		box.head = box.tail = NULL;
		if (jobs || box.users || http_has_work())
			idle_ns = now_ns();
		end = now_ns() - idle_ns >= HTTP_LINGER_S * NSEC_PER_SEC;
		if (end) {
			/* Clean up under the lock, so that the next thread finds no old state. */
			end_self(box.multi);
			box.multi = NULL;
			box.running = false;
		}
		(void)pthread_mutex_unlock(&box.lock);
		if (end)
			return NULL;
		run_jobs(jobs);
		start_later(now_ns());
		start_ready();
		(void)curl_multi_perform(self.multi, &still);
		http_take_finished();
		start_ready();
		nr = plain_fds(fds, self.multi);
		(void)curl_multi_poll(self.multi, fds, nr, http_wait_ms(now_ns()), NULL);
		plain_take(fds, nr);
	}
}

static void init_curl(void)
{
	(void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* Start the thread.  The lock is held. */
static int start_thread(void)
{
	pthread_t t;
	int r;

	box.multi = curl_multi_init();
	if (!box.multi)
		return err_set(ENOMEM, "libcurl cannot begin: out of memory");
	(void)curl_multi_setopt(box.multi, CURLMOPT_MAXCONNECTS, (long)CALLS_MAX);
	(void)curl_multi_setopt(box.multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
	self.multi = box.multi;
	self.ready = self.later = self.running = NULL;
	self.ready_end = &self.ready;
	self.due_ns = UINT64_MAX;
	self.stirred = false;
	self.nr_running = self.nr_idle = 0;
	r = thread_start(&t, s3_http_run, NULL);
	if (r < 0) {
		(void)curl_multi_cleanup(box.multi);
		box.multi = NULL;
		return r;
	}
	(void)pthread_setname_np(t, "pst-http");
	(void)pthread_detach(t);
	box.running = true;
	return 0;
}

int http_get(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int r = 0;

	(void)pthread_once(&once, init_curl);
	(void)pthread_mutex_lock(&box.lock);
	if (!box.running)
		r = start_thread();
	if (r == 0)
		box.users++;
	(void)pthread_mutex_unlock(&box.lock);
	return r;
}

void http_put(void)
{
	(void)pthread_mutex_lock(&box.lock);
	box.users--;
	(void)pthread_mutex_unlock(&box.lock);
}

void http_run(struct http_job *job)
{
	(void)pthread_mutex_lock(&box.lock);
	job->next = NULL;
	if (box.tail)
		box.tail->next = job;
	else
		box.head = job;
	box.tail = job;
	(void)curl_multi_wakeup(box.multi);
	(void)pthread_mutex_unlock(&box.lock);
}

/* ------------------------------------------------------------ waiting calls */

struct waiter {
	struct http_job job;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool end;
};

static void waiter_start(void *arg)
{
	call_start(arg);
}

static void waiter_done(struct call *c)
{
	struct waiter *w = c->arg;

	(void)pthread_mutex_lock(&w->lock);
	w->end = true;
	(void)pthread_cond_signal(&w->ended);
	(void)pthread_mutex_unlock(&w->lock);
}

int call_wait(struct call *c)
{
	struct waiter w = { .job = { .fn = waiter_start, .arg = c } };

	(void)pthread_mutex_init(&w.lock, NULL);
	(void)pthread_cond_init(&w.ended, NULL);
	c->done = waiter_done;
	c->arg = &w;
	http_run(&w.job);
	(void)pthread_mutex_lock(&w.lock);
	while (!w.end)
		(void)pthread_cond_wait(&w.ended, &w.lock);
	(void)pthread_mutex_unlock(&w.lock);
	(void)pthread_mutex_destroy(&w.lock);
	(void)pthread_cond_destroy(&w.ended);
	return c->err < 0 ? err_set(c->err, "%s", c->why) : 0;
}
