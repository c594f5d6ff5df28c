/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/loop.h"

#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>

#include "base/list.h"
#include "usrbio/mount/caller.h"
#include "usrbio/mount/counts.h"
#include "usrbio/mount/source.h"

#define MAX_IDLE 8u /* idle threads to keep */

#define NR_BUCKETS 64u
#define SPARE_LINES 64u /* number of empty lines that are kept for their users' next requests */

/* Retries of requests that wait for leases: interval in ms, and most retries per user and
 * interval. */
#define AGAIN_MS 10
#define AGAIN_USER 16u

enum kind { KIND_NAME, KIND_FILE, NR_KINDS, KIND_FREE = NR_KINDS };

/* A waiting request, as the kernel sent it. */
struct request {
	struct list link; /* on line->waiting or line->again */
	enum kind kind;
	bool interrupted; /* the kernel has sent FUSE_INTERRUPT, and will not send it again */
	size_t len;
	struct fuse_in_header in[]; /* the request as read: this header and the rest */
};

/* The requests of one user. */
struct line {
	struct list link; /* link in its hash bucket */
	struct list turn; /* on pool.turns while requests wait */
	uid_t uid;
	unsigned nr[NR_KINDS]; /* requests in flight, by kind */
	struct list waiting[NR_KINDS];
	struct list again; /* requests that wait for leases */
	bool tries;        /* a thread retries the requests on again */
	size_t bytes;      /* bytes of waiting requests */
};

struct thread {
	struct list link; /* link on pool.threads */
	pthread_t id;
	struct fuse_buf buf;
};

static struct {
	struct fs *fs;
	loop_answer answer;
	pthread_mutex_t lock;
	pthread_cond_t leases; /* signalled when a thread of try_leases() ends */
	struct list threads;
	unsigned nr_threads, nr_idle;
	bool ends;
	int ended; /* eventfd: a thread found that the session has ended */
	struct list buckets[NR_BUCKETS];
	unsigned nr_lines;
	unsigned nr_leases; /* number of threads in try_leases() */
	unsigned nr[NR_KINDS];
	struct list turns;
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER, .leases = PTHREAD_COND_INITIALIZER };

/* State of the request that this thread answers.  again: retry the request later; interrupted: the
 * kernel has interrupted it. */
static __thread bool again, interrupted;

static void loop_lock(void)
{
	(void)pthread_mutex_lock(&pool.lock);
}

static void unlock(void)
{
	(void)pthread_mutex_unlock(&pool.lock);
}

static enum kind loop_kind_of(const struct fuse_in_header *in)
{
	switch (in->opcode) {
	/* Requests that belong to no user, or for whose answer no user waits. */
	case FUSE_INIT:
	case FUSE_DESTROY:
	case FUSE_INTERRUPT:
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_NOTIFY_REPLY:
		return KIND_FREE;
	/* Requests during which the kernel holds no lock of a directory. */
	case FUSE_SETATTR:
	case FUSE_READ:
	case FUSE_WRITE:
	case FUSE_FSYNC:
	case FUSE_FSYNCDIR:
	case FUSE_FLUSH:
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE:
	case FUSE_LSEEK:
	case FUSE_IOCTL:
		return KIND_FILE;
	default:
		return KIND_NAME;
	}
}

/* ------------------------------------------------------------------- lines */

static struct list *loop_bucket(uid_t uid)
{
	return &pool.buckets[uid % NR_BUCKETS];
}

static struct line *find_line(uid_t uid)
{
	struct list *e, *in = loop_bucket(uid);

	list_for_each (e, in)
		if (list_entry(e, struct line, link)->uid == uid)
			return list_entry(e, struct line, link);
	return NULL;
}

static struct line *line_get(uid_t uid)
{
	struct line *l = find_line(uid);

	if (l)
		return l;
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->uid = uid;
	list_init(&l->turn);
	list_init(&l->again);
	for (unsigned k = 0; k < NR_KINDS; k++)
		list_init(&l->waiting[k]);
	list_add_tail(loop_bucket(uid), &l->link);
	pool.nr_lines++;
	return l;
}

static void line_put(struct line *l)
{
	bool busy = l->tries || !list_empty(&l->again);

	for (unsigned k = 0; k < NR_KINDS; k++)
		busy |= l->nr[k] || !list_empty(&l->waiting[k]);
	if (busy || pool.nr_lines <= SPARE_LINES)
		return;
	list_del(&l->link);
	list_del(&l->turn);
	pool.nr_lines--;
	free(l);
}

static bool may_begin(const struct line *l, enum kind k)
{
	return k == KIND_NAME ? l->nr[k] < LOOP_USER_NAMES
			      : l->nr[k] < LOOP_USER_FILES && pool.nr[k] < LOOP_FILES;
}

static void loop_begin(struct line *l, enum kind k)
{
	l->nr[k]++;
	pool.nr[k]++;
}

static void loop_end(struct line *l, enum kind k)
{
	l->nr[k]--;
	pool.nr[k]--;
}

static void loop_refuse(const struct fuse_in_header *in, int err)
{
	struct fuse_out_header out = {
		.len = sizeof(out),
		.error = err,
		.unique = in->unique,
	};

	(void)!write(fuse_session_fd(pool.fs->se), &out, sizeof(out));
}

/* Append a copy of a request to a list of its line.  Return 0 or -errno. */
static int loop_keep(struct line *l, struct list *at, enum kind k, const struct fuse_in_header *in,
		     size_t len)
{
	struct request *r = l->bytes + len <= LOOP_USER_BYTES ? malloc(sizeof(*r) + len) : NULL;

	if (!r)
		return -EBUSY;
	r->kind = k;
	r->interrupted = interrupted;
	r->len = len;
	memcpy(r->in, in, len);
	list_init(&r->link);
	list_add_tail(at, &r->link);
	l->bytes += len;
	return 0;
}

static void take_off(struct line *l, struct request *r)
{
	list_del(&r->link);
	l->bytes -= r->len;
}

/* Take the oldest request of the user whose turn it is, and count it as in flight.  NULL: none
 * may begin. */
static struct request *loop_next_waiting(struct line **ret)
{
	struct list *e;

	list_for_each (e, &pool.turns) {
		struct line *l = list_entry(e, struct line, turn);
		bool more = false;

		for (unsigned k = 0; k < NR_KINDS; k++)
			if (!list_empty(&l->waiting[k]) && may_begin(l, (enum kind)k)) {
				struct request *r = list_first(&l->waiting[k], struct request,
							       link);

				take_off(l, r);
				loop_begin(l, (enum kind)k);
				for (unsigned i = 0; i < NR_KINDS; i++)
					more |= !list_empty(&l->waiting[i]);
				list_del(&l->turn);
				if (more)
					list_add_tail(&pool.turns, &l->turn);
				*ret = l;
				return r;
			}
	}
	return NULL;
}

static struct request *find_request(struct list *in, uint64_t unique)
{
	struct list *e;

	list_for_each (e, in)
		if (list_entry(e, struct request, link)->in->unique == unique)
			return list_entry(e, struct request, link);
	return NULL;
}

static struct request *find_in_line(struct line *l, uint64_t unique)
{
	struct request *r = find_request(&l->again, unique);

	for (unsigned k = 0; k < NR_KINDS && !r; k++)
		r = find_request(&l->waiting[k], unique);
	return r;
}

/*
 * Interrupt a waiting request.  It ends if its caller has a signal pending or is dying.  Otherwise
 * it keeps waiting, because after a stop signal or an ignored signal the call would only be
 * restarted.  Return false if no such request waits.
 */
static bool interrupt(const struct fuse_in_header *in, size_t len)
{
	const struct fuse_interrupt_in *i = (const void *)(in + 1);
	struct request *r = NULL;
	bool found;

	if (len < sizeof(*in) + sizeof(*i))
		return false;
	loop_lock();
	for (unsigned b = 0; b < NR_BUCKETS && !r; b++) {
		struct list *e;

		list_for_each (e, &pool.buckets[b]) {
			struct line *l = list_entry(e, struct line, link);

			r = find_in_line(l, i->unique);
			if (!r)
				continue;
			r->interrupted = true;
			if (caller_is_signalled((pid_t)r->in->pid))
				take_off(l, r);
			break;
		}
	}
	found = r;
	if (r && !list_empty(&r->link))
		r = NULL;
	unlock();
	if (r)
		loop_refuse(r->in, -EINTR);
	free(r);
	return found;
}

/* ------------------------------------------------------------------ leases */

static void mount_loop_answer(struct line *l, enum kind k, const struct fuse_in_header *in,
			      size_t len, bool was_interrupted);

/* Retry the first requests of a line.  The caller holds the lock, which is dropped during the
 * retries. */
static void try_line(struct line *l)
{
	for (unsigned left = AGAIN_USER; left && !list_empty(&l->again) && !pool.ends;) {
		struct request *r = list_first(&l->again, struct request, link);

		take_off(l, r);
		unlock();
		if (r->interrupted && caller_is_signalled((pid_t)r->in->pid))
			loop_refuse(r->in, -EINTR);
		else
			mount_loop_answer(l, r->kind, r->in, r->len, r->interrupted);
		free(r);
		loop_lock();
		/* Count only tries after which the request still waits; an answered request uses
		 * none of the tries. */
		left -= again;
		again = false;
	}
}

/* Retry until no request of the user waits for a lease.  Poll, because nothing reports a lease's
 * end. */
static void *try_leases(void *arg)
{
	struct line *l = arg;

	loop_lock();
	while (!pool.ends && !list_empty(&l->again)) {
		unlock();
		(void)poll(NULL, 0, AGAIN_MS);
		loop_lock();
		try_line(l);
	}
	l->tries = false;
	line_put(l);
	pool.nr_leases--;
	(void)pthread_cond_signal(&pool.leases);
	unlock();
	return NULL;
}

/* Keep a request until the lease ends, with the lock held.  Return 0 or -errno. */
static int await_lease(struct line *l, enum kind k, const struct fuse_in_header *in, size_t len)
{
	pthread_attr_t attr;
	pthread_t thread;
	int err = 0;

	if (pool.ends)
		return -ENOTCONN;
	if (!l->tries) {
		if (pool.nr_leases >= LOOP_LEASES)
			return -EBUSY;
		caller_end();
		(void)pthread_attr_init(&attr);
		(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		err = -pthread_create(&thread, &attr, try_leases, l);
		(void)pthread_attr_destroy(&attr);
		if (err < 0)
			return err;
		l->tries = true;
		pool.nr_leases++;
	}
	return loop_keep(l, &l->again, k, in, len);
}

/* ------------------------------------------------------------------ answer */

static void loop_start_thread(void);

/* Answer a request, without the lock.  A request that waits for a lease is kept and answered
 * again. */
static void mount_loop_answer(struct line *l, enum kind k, const struct fuse_in_header *in,
			      size_t len, bool was_interrupted)
{
	union {
		const void *from;
		void *to; /* struct fuse_buf lacks const */
	} bytes = { in };
	const struct fuse_buf buf = { .size = len, .mem = bytes.to };
	int err = 0;

	again = false;
	interrupted = was_interrupted;
	pool.answer(pool.fs, &buf);
	if (!again)
		return;
	loop_lock();
	err = await_lease(l, k, in, len);
	unlock();
	if (err < 0)
		loop_refuse(in, err);
}

void loop_again(fuse_req_t req)
{
	again = true;
	interrupted |= fuse_req_interrupted(req);
	counts_drop();
	fuse_reply_none(req);
}

/* Answer waiting requests that may begin because another request ended.  The caller holds the lock,
 * which is dropped during the answers. */
static void answer_waiting(void)
{
	struct request *r;
	struct line *l;

	while ((r = loop_next_waiting(&l))) {
		unlock();
		mount_loop_answer(l, r->kind, r->in, r->len, r->interrupted);
		loop_lock();
		loop_end(l, r->kind);
		free(r);
		line_put(l);
	}
}

/* Answer the request that this thread has read, or queue it. */
static void loop_take(const struct fuse_in_header *in, size_t len)
{
	enum kind k = loop_kind_of(in);
	struct line *l = NULL;
	int err = 0;

	interrupted = false;
	if (in->opcode == FUSE_INTERRUPT && interrupt(in, len))
		return;
	loop_lock();
	if (k != KIND_FREE) {
		l = line_get(in->uid);
		err = l ? 0 : -ENOMEM;
	}
	if (l && (!list_empty(&l->waiting[k]) || !may_begin(l, k))) {
		err = loop_keep(l, &l->waiting[k], k, in, len);
		/* A user who is already on the list keeps the place. */
		if (err == 0 && list_empty(&l->turn))
			list_add_tail(&pool.turns, &l->turn);
		unlock();
		if (err < 0)
			loop_refuse(in, err);
		return;
	}
	if (l)
		loop_begin(l, k);
	/* FUSE_FORGET comes in bursts and ends quickly, so start no further thread for it. */
	if (!--pool.nr_idle && in->opcode != FUSE_FORGET && in->opcode != FUSE_BATCH_FORGET)
		loop_start_thread();
	unlock();
	if (err < 0)
		loop_refuse(in, err);
	else
		mount_loop_answer(l, k, in, len, false);
	loop_lock();
	if (l) {
		loop_end(l, k);
		line_put(l);
		answer_waiting();
	}
	pool.nr_idle++;
	unlock();
}

/* ----------------------------------------------------------------- threads */

/* Read a request.  Return false if the session has ended. */
static bool loop_receive(struct thread *t)
{
	int n;

	do {
		(void)pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
		n = fuse_session_receive_buf(pool.fs->se, &t->buf);
		(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	} while (n == -EINTR && !fuse_session_exited(pool.fs->se));
	return n >= (int)sizeof(struct fuse_in_header);
}

/* Return true if this idle thread should end because there are enough others.  With the lock. */
static bool is_one_too_many(void)
{
	return !pool.ends && pool.nr_idle > MAX_IDLE;
}

static void *mount_loop_run(void *arg)
{
	struct thread *t = arg;
	bool more = true;

	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	while (more && !fuse_session_exited(pool.fs->se) && loop_receive(t)) {
		loop_take(t->buf.mem, t->buf.size);
		loop_lock();
		more = !is_one_too_many();
		if (!more) {
			pool.nr_idle--;
			pool.nr_threads--;
			list_del(&t->link);
			(void)pthread_detach(t->id);
		}
		unlock();
	}
	if (more) {
		fuse_session_exit(pool.fs->se);
		(void)eventfd_write(pool.ended, 1);
		return NULL; /* loop_run() joins and frees it */
	}
	free(t->buf.mem);
	free(t);
	return NULL;
}

/* Start another thread, with the lock held.  If that fails, the existing threads continue. */
static void loop_start_thread(void)
{
	struct thread *t;

	if (pool.ends || pool.nr_threads >= LOOP_THREADS)
		return;
	t = calloc(1, sizeof(*t));
	caller_end();
	if (!t || pthread_create(&t->id, NULL, mount_loop_run, t) != 0) {
		free(t);
		return;
	}
	list_init(&t->link);
	list_add_tail(&pool.threads, &t->link);
	pool.nr_threads++;
	pool.nr_idle++;
}

static void end_threads(void)
{
	loop_lock();
	pool.ends = true;
	while (pool.nr_leases)
		(void)pthread_cond_wait(&pool.leases, &pool.lock);
	unlock();
	/* From here on no thread begins or ends by itself. */
	while (!list_empty(&pool.threads)) {
		struct thread *t = list_first(&pool.threads, struct thread, link);

		(void)pthread_cancel(t->id);
		(void)pthread_join(t->id, NULL);
		list_del(&t->link);
		free(t->buf.mem);
		free(t);
	}
}

static void free_requests(struct list *of)
{
	struct list *e, *n;

	list_for_each_safe (e, n, of)
		free(list_entry(e, struct request, link));
}

static void free_lines(void)
{
	for (unsigned b = 0; b < NR_BUCKETS; b++) {
		struct list *e, *n;

		list_for_each_safe (e, n, &pool.buckets[b]) {
			struct line *l = list_entry(e, struct line, link);

			for (unsigned k = 0; k < NR_KINDS; k++)
				free_requests(&l->waiting[k]);
			free_requests(&l->again);
			free(l);
		}
	}
}

/* Wait until a signal handler or a thread reports the session's end. */
static void wait_for_end(const sigset_t *signals)
{
	struct pollfd p = { .fd = pool.ended, .events = POLLIN };

	while (!fuse_session_exited(pool.fs->se))
		if (ppoll(&p, 1, NULL, signals) > 0)
			return;
}

int loop_run(struct fs *fs, loop_answer fn)
{
	static const int ends[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT };
	sigset_t blocked, before;
	int err;

	pool.fs = fs;
	pool.answer = fn;
	pool.ended = eventfd(0, EFD_CLOEXEC);
	if (pool.ended < 0)
		return -errno;
	list_init(&pool.threads);
	list_init(&pool.turns);
	for (unsigned b = 0; b < NR_BUCKETS; b++)
		list_init(&pool.buckets[b]);
	/* Let only this thread receive signals, and only while it waits. */
	(void)sigemptyset(&blocked);
	for (unsigned i = 0; i < ARRAY_SIZE(ends); i++)
		(void)sigaddset(&blocked, ends[i]);
	(void)pthread_sigmask(SIG_BLOCK, &blocked, &before);
	loop_lock();
	loop_start_thread();
	err = pool.nr_threads ? 0 : -EAGAIN;
	unlock();
	if (err == 0)
		wait_for_end(&before);
	if (fs->source->stop)
		fs->source->stop(fs);
	end_threads();
	free_lines();
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)close(pool.ended);
	return err;
}
