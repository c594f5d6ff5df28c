/* SPDX-License-Identifier: MIT */
/*
 * Queues of events.  A queue has two halves of its memory: the store appends events to one, and the
 * reader takes them from the other.  When the reader has taken all, the halves change places.
 * After a lost event the store appends nothing more to its half.  So the gap is at the end of that
 * half, and the reader first takes the events before the gap, and then learns how many were lost.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fork.h"
#include "base/opts.h"
#include "base/thread.h"

#include "kv/event.h"

#define BYTES_DEFAULT MIB(1)

/* An event in a queue, followed by its key. */
struct record {
	uint64_t nr, len;
	uint32_t space, type, key_len, reserved;
};

struct half {
	char *at;
	uint64_t len;
	uint64_t lost; /* number of events that were lost after those in the half */
};

struct pst_kv_events {
	struct list link; /* in kv->events */
	struct pst_kv *kv;
	pthread_cond_t filled;
	uint32_t space;
	uint64_t room;    /* bytes of a half */
	uint64_t nr;      /* number of events so far, lost ones included */
	uint64_t lost;    /* number of lost events that the reader knows of */
	struct half fill; /* the store appends here, under its lock */
	struct half read; /* the reader takes from here, without the lock */
	uint64_t taken;
};

static uint64_t record_bytes(uint32_t key_len)
{
	return sizeof(struct record) + align_up(key_len, sizeof(uint64_t));
}

static void event_append(struct pst_kv_events *q, const struct record *r, const void *key)
{
	uint64_t bytes = record_bytes(r->key_len);
	char *to = q->fill.at + q->fill.len;

	if ((!key && r->type != PST_KV_DROPPED) || q->fill.lost || bytes > q->room - q->fill.len) {
		q->fill.lost++;
		(void)pthread_cond_signal(&q->filled);
		q->kv->stat.events_lost++;
		return;
	}
	memcpy(to, r, sizeof(*r));
	if (key)
		memcpy(to + sizeof(*r), key, r->key_len);
	q->fill.len += bytes;
	(void)pthread_cond_signal(&q->filled);
}

void event_add(struct pst_kv *kv, uint32_t type, uint32_t space, const struct block_id *id,
	       uint64_t len)
{
	struct record r = { .len = len, .space = space, .type = type };
	const void *key = id ? id->key : NULL;
	struct list *at;

	r.key_len = key ? id->key_len : 0;
	list_for_each (at, &kv->events) {
		struct pst_kv_events *q = list_entry(at, struct pst_kv_events, link);

		if (q->space != PST_KV_ANY_SPACE && q->space != space)
			continue;
		r.nr = ++q->nr;
		event_append(q, &r, key);
	}
}

void event_read_key(const struct pst_kv *kv, const char *path, struct block_id *id,
		    char tail[TAIL_MAX])
{
	_cleanup_(closep) int fd = openat(kv->root.dir[root_dir_of(&kv->root, id->hash)], path,
					  O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	uint64_t want, len;
	struct stat st;
	uint32_t crc;

	if (fd < 0 || fstat(fd, &st) < 0)
		return;
	want = MIN((uint64_t)st.st_size, (uint64_t)TAIL_MAX);
	if (pread(fd, tail, want, st.st_size - (off_t)want) != (ssize_t)want ||
	    block_check(tail, want, (uint64_t)st.st_size, id, &len, &crc, &id->key, &id->key_len) <
		    0)
		id->key = NULL;
}

/* ---------------------------------------------------------------- calls */

static void events_destroy(struct pst_kv_events *q)
{
	(void)pthread_cond_destroy(&q->filled);
	free(q->fill.at);
	free(q->read.at);
	free(q);
}

/* Check that another queue for events of that space is possible. Called with the lock. */
static int events_check(const struct pst_kv *kv, uint32_t space)
{
	unsigned nr = 0;
	struct list *at;

	list_for_each (at, &kv->events)
		nr++;
	if (nr >= PST_KV_EVENTS_MAX)
		return err_set(ENOSPC, "a store has at most %u queues of events",
			       PST_KV_EVENTS_MAX);
	if (space != PST_KV_ANY_SPACE && space >= kv->nr_spaces)
		return err_set(EINVAL, "there is no space %u; see pst_kv_space()", space);
	return 0;
}

PST_API int pst_kv_events_new(struct pst_kv *kv, const struct pst_kv_events_opts *opts,
			      struct pst_kv_events **ret)
{
	struct pst_kv_events_opts o;
	struct pst_kv_events *q;
	int r = fork_guard();

	if (r == 0)
		r = opts_copy(&o, sizeof(o), opts);
	if (r < 0)
		return r;
	if (!store_has_index(kv))
		return err_set(EOPNOTSUPP,
			       "only the process that owns a store has its events; list the blocks "
			       "again by pst_kv_walk() or pst_kv_lookup()");
	o.bytes = o.bytes ? o.bytes : BYTES_DEFAULT;
	if (o.bytes < PST_KV_EVENTS_BYTES_MIN || o.bytes > PST_KV_EVENTS_BYTES_MAX || o.reserved)
		return err_set(EINVAL, "a queue of events has 64 KiB to 1 GiB");
	q = calloc(1, sizeof(*q));
	if (!q)
		return err_set(ENOMEM, "out of memory");
	cond_init_monotonic(&q->filled);
	list_init(&q->link);
	q->kv = kv;
	q->space = o.space;
	q->room = o.bytes / 2;
	q->fill.at = malloc(q->room);
	q->read.at = malloc(q->room);
	if (!q->fill.at || !q->read.at) {
		events_destroy(q);
		return err_set(ENOMEM, "out of memory");
	}
	(void)pthread_mutex_lock(&kv->lock);
	r = events_check(kv, o.space);
	if (r == 0)
		list_add_tail(&kv->events, &q->link);
	(void)pthread_mutex_unlock(&kv->lock);
	if (r < 0)
		events_destroy(q);
	else
		*ret = q;
	return r;
}

PST_API struct pst_kv_events *pst_kv_events_free(struct pst_kv_events *q)
{
	if (!q || fork_guard() < 0)
		return NULL;
	(void)pthread_mutex_lock(&q->kv->lock);
	list_del(&q->link);
	(void)pthread_mutex_unlock(&q->kv->lock);
	events_destroy(q);
	return NULL;
}

/* Called with the lock: tell the reader of the events that are lost after those it has taken. */
static void events_tell_lost(struct pst_kv_events *q)
{
	q->lost += q->read.lost;
	q->read.lost = 0;
}

/* Called with the lock: give the reader what the store has filled. */
static void events_swap(struct pst_kv_events *q)
{
	struct half empty = { .at = q->read.at };

	events_tell_lost(q);
	q->read = q->fill;
	q->fill = empty;
	q->taken = 0;
	if (!q->read.len)
		events_tell_lost(q);
}

PST_API int pst_kv_events_take(struct pst_kv_events *q, struct pst_kv_event *ret, unsigned max,
			       uint64_t deadline_ns, uint64_t *ret_lost)
{
	unsigned n = 0;
	int r = fork_guard();

	if (r < 0)
		return r;
	if (!ret || !max || max > INT_MAX)
		return err_set(EINVAL, "there is no room for an event");
	(void)pthread_mutex_lock(&q->kv->lock);
	if (q->taken == q->read.len) {
		while (!q->fill.len && !q->fill.lost && !q->read.lost && deadline_ns &&
		       now_ns() < deadline_ns)
			(void)cond_wait_until(&q->filled, &q->kv->lock, deadline_ns);
		events_swap(q);
	}
	if (ret_lost)
		*ret_lost = q->lost;
	(void)pthread_mutex_unlock(&q->kv->lock);
	while (n < max && q->taken < q->read.len) {
		const char *at = q->read.at + q->taken;
		struct record e;

		memcpy(&e, at, sizeof(e));
		ret[n++] = (struct pst_kv_event){
			.nr = e.nr,
			.type = e.type,
			.space = e.space,
			.key = at + sizeof(e),
			.key_len = e.key_len,
			.len = e.len,
		};
		q->taken += record_bytes(e.key_len);
	}
	return (int)n;
}
