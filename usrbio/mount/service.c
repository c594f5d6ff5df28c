/* SPDX-License-Identifier: MIT */
/* The connections of a mount to a storage service. */
#include "usrbio/mount/service.h"

#include <dlfcn.h>
#include <string.h>

#include "base/err.h"
#include "base/thread.h"
#include "usrbio/mount/log.h"

#define WAIT_NS (10 * NSEC_PER_SEC) /* longest wait for a free line */
/* time from a request's start in which broken connections are replaced */
#define RETRY_NS (10 * NSEC_PER_SEC)
#define PAUSE_NS (50 * NSEC_PER_MSEC)
#define USER_LINES (SERVICE_LINES / 2) /* maximum lines that one user may use at a time */

/* Wait for a change; return false at the deadline.  The caller holds the lock. */
static bool await_change(struct service *s, uint64_t until)
{
	const struct timespec ts = { .tv_sec = (time_t)(until / NSEC_PER_SEC),
				     .tv_nsec = (long)(until % NSEC_PER_SEC) };

	return pthread_cond_timedwait(&s->change, &s->lock, &ts) == 0 || now_ns() < until;
}

/* ------------------------------------------------------------------- lines */

static bool user_may_take(const struct service *s, uid_t uid)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < SERVICE_LINES; i++)
		nr += s->lines[i].busy && s->lines[i].uid == uid;
	return nr < USER_LINES;
}

/* Return a free line, preferably a connected one; or NULL. */
static struct service_line *any_free(struct service *s)
{
	struct service_line *found = NULL;

	for (unsigned i = 0; i < SERVICE_LINES; i++) {
		struct service_line *l = &s->lines[i];

		if (!l->busy && (!found || (l->talk && !found->talk)))
			found = l;
	}
	return found;
}

/* Return a free line that the user may take, or NULL.  The caller holds the lock. */
static struct service_line *line_free(struct service *s, uid_t uid, unsigned home, bool must)
{
	if (!user_may_take(s, uid))
		return NULL;
	if (home < SERVICE_LINES && !s->lines[home].busy)
		return &s->lines[home];
	return must && home < SERVICE_LINES ? NULL : any_free(s);
}

static int line_take(struct service *s, uid_t uid, unsigned home, bool must,
		     struct service_line **ret)
{
	uint64_t until = now_ns() + WAIT_NS;
	struct service_line *l = NULL;
	bool waits = true;

	(void)pthread_mutex_lock(&s->lock);
	while (waits && !s->ends && !(l = line_free(s, uid, home, must)))
		waits = await_change(s, until);
	if (l) {
		l->busy = true;
		l->uid = uid;
	}
	(void)pthread_mutex_unlock(&s->lock);
	*ret = l;
	return l ? 0 : waits ? -EIO : -ETIMEDOUT;
}

static void line_disconnect(struct service *s, struct service_line *l)
{
	struct remote_talk *t;

	(void)pthread_mutex_lock(&s->lock);
	t = TAKE_PTR(l->talk);
	l->nr_closes = 0;
	(void)pthread_mutex_unlock(&s->lock);
	remote_talk_end(t);
}

static int line_connect(struct service *s, struct service_line *l)
{
	struct remote_talk *t;
	bool ends;
	int err;

	if (l->talk)
		return 0;
	err = remote_talk_begin(&s->server, l->channel, ++l->epoch, &t);
	if (err < 0)
		return err;
	(void)pthread_mutex_lock(&s->lock);
	ends = s->ends;
	if (!ends)
		l->talk = t;
	(void)pthread_mutex_unlock(&s->lock);
	if (ends)
		remote_talk_end(t);
	return ends ? -EIO : 0;
}

/* Close the handles that wait for this line to be free, then free the line. */
static void line_give(struct service *s, struct service_line *l)
{
	(void)pthread_mutex_lock(&s->lock);
	while (l->nr_closes && l->talk) {
		struct wire_request q = { .op = WIRE_CLOSE, .handle = l->closes[--l->nr_closes] };
		struct wire_reply rep;

		(void)pthread_mutex_unlock(&s->lock);
		(void)remote_talk_ask(l->talk, &q, "", 0, &rep, NULL, 0);
		if (remote_talk_is_broken(l->talk))
			line_disconnect(s, l);
		(void)pthread_mutex_lock(&s->lock);
	}
	l->busy = false;
	(void)pthread_cond_broadcast(&s->change);
	(void)pthread_mutex_unlock(&s->lock);
}

void service_drop(struct service *s, unsigned line, uint64_t epoch, uint32_t handle)
{
	struct service_line *l = &s->lines[line];
	bool mine, kept = true;

	(void)pthread_mutex_lock(&s->lock);
	mine = !l->busy;
	if (l->talk && l->epoch == epoch) {
		kept = l->nr_closes < SERVICE_CLOSES;
		if (kept)
			l->closes[l->nr_closes++] = handle;
		else
			/* Drop the list of handles: at the end of the connection the server closes
			 * them. */
			remote_talk_stop(l->talk);
	} else {
		mine = false;
	}
	if (mine)
		l->busy = true;
	(void)pthread_mutex_unlock(&s->lock);
	if (mine)
		line_give(s, l);
}

/* -------------------------------------------------------------------- run */

/* Wait before connecting again; return false if the request has no time left for that. */
static bool line_pause(struct service *s, uint64_t until)
{
	uint64_t at = now_ns() + PAUSE_NS;
	bool goes_on;

	if (at >= until)
		return false;
	(void)pthread_mutex_lock(&s->lock);
	while (!s->ends && await_change(s, at))
		;
	goes_on = !s->ends;
	(void)pthread_mutex_unlock(&s->lock);
	return goes_on;
}

/* Return true for an error of a connection that may not occur on a new one. */
static bool service_may_pass(int err)
{
	return err == -ECONNRESET || err == -ECONNREFUSED || err == -EPIPE || err == -ENOENT;
}

static int line_run(struct service *s, struct service_line *l, bool once, service_fn fn, void *arg)
{
	uint64_t until = now_ns() + RETRY_NS;
	int err;

	do {
		bool asked = false;

		err = line_connect(s, l);
		if (err == 0) {
			asked = true;
			err = fn(s, l, arg);
			if (!remote_talk_is_broken(l->talk))
				return err;
		}
		line_disconnect(s, l);
		if (!service_may_pass(err) || (asked && once))
			break;
	} while (line_pause(s, until));
	log_warn("the storage service cannot be reached", "error=%s", log_text(err_text()).s);
	return err == -ETIMEDOUT ? err : -EIO;
}

static int run_on(struct service *s, uid_t uid, unsigned home, bool must, bool once, service_fn fn,
		  void *arg)
{
	struct service_line *l;
	int err = line_take(s, uid, home, must, &l);

	if (err < 0)
		return err;
	err = line_run(s, l, once, fn, arg);
	line_give(s, l);
	return err;
}

int service_run(struct service *s, uid_t uid, unsigned home, bool once, service_fn fn, void *arg)
{
	return run_on(s, uid, home, true, once, fn, arg);
}

int service_run_near(struct service *s, uid_t uid, unsigned home, service_fn fn, void *arg)
{
	return run_on(s, uid, home, false, false, fn, arg);
}

static int ask_once(struct service *s, struct service_line *l, void *arg)
{
	struct service_ask *a = arg;

	(void)s;
	return remote_talk_ask(l->talk, &a->q, a->bytes, a->len, &a->rep, a->payload, a->room);
}

int service_ask(struct service *s, uid_t uid, bool once, struct service_ask *a)
{
	return service_run(s, uid, SERVICE_LINES, once, ask_once, a);
}

int service_stat(struct service *s, uid_t uid, const char *path, struct wire_attr *ret,
		 uint64_t *ret_boot)
{
	uint8_t payload[WIRE_ATTR_LEN];
	/* STAT does not accept an empty name. */
	const char *name = *path ? path : ".";
	struct service_ask a = {
		.q = { .op = WIRE_STAT },
		.bytes = name,
		.len = strlen(name),
		.payload = payload,
		.room = sizeof(payload),
	};
	int err = service_ask(s, uid, false, &a);

	if (err == 0 && remote_get_attr(payload, &a.rep, ret) < 0)
		err = -EIO;
	if (err == 0 && ret_boot)
		*ret_boot = a.rep.boot;
	return err;
}

/* -------------------------------------------------------------------- life */

void service_init(struct service *s)
{
	(void)pthread_mutex_init(&s->lock, NULL);
	cond_init_monotonic(&s->change);
	list_init(&s->files);
	for (unsigned i = 0; i < SERVICE_LINES; i++) {
		s->lines[i].idx = i;
		s->lines[i].channel = remote_channel();
	}
}

void service_stop(struct service *s)
{
	(void)pthread_mutex_lock(&s->lock);
	s->ends = true;
	for (unsigned i = 0; i < SERVICE_LINES; i++)
		if (s->lines[i].talk)
			remote_talk_stop(s->lines[i].talk);
	(void)pthread_cond_broadcast(&s->change);
	(void)pthread_mutex_unlock(&s->lock);
}

void service_done(struct service *s)
{
	for (unsigned i = 0; i < SERVICE_LINES; i++)
		remote_talk_end(s->lines[i].talk);
	explicit_bzero(&s->server.key, sizeof(s->server.key));
	(void)pthread_cond_destroy(&s->change);
	(void)pthread_mutex_destroy(&s->lock);
}

/* Return an address in libpenstock, by which its folder, that of the TLS module, is found. */
const void *remote_tls_near(void)
{
	void *lib = dlopen("libpenstock.so.0", RTLD_LAZY | RTLD_LOCAL);

	return lib ? dlsym(lib, "pst_error_text") : (const void *)service_init;
}
