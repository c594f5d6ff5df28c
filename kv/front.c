/* SPDX-License-Identifier: MIT */
/*
 * The functions that programs call: batches from any thread, and their completions.  The owner
 * thread ends batches that pass their deadline.
 */
#include <errno.h>
#include <inttypes.h>
#include <sys/eventfd.h>

#include "base/err.h"
#include "base/fork.h"
#include "base/opts.h"
#include "base/thread.h"

#include "kv/store.h"

/* Interval, in ns, at which the owner thread checks whether the kernel still uses memory. */
#define BUSY_LOOK_NS (100 * NSEC_PER_MSEC)
/* Interval, in ns, at which the owner thread checks a late batch whose request has not ended
 * yet. */
#define LATE_LOOK_NS (50 * NSEC_PER_MSEC)
#define LOOKUP_CHUNK 64u /* keys that are hashed at a time, before the lock is taken */

struct busy {
	struct list link;
	struct pst_mem *mem;
};

/* ---------------------------------------------------------- completions */

/* Drop a reference of a batch, and free it after the last.  Called with the lock. */
void batch_unref(struct batch *b)
{
	if (--b->refs)
		return;
	free(b->jobs);
	free(b);
}

static void front_tell(struct pst_kv *kv)
{
	uint64_t one = 1;

	(void)!write(kv->efd, &one, sizeof(one));
}

static void front_batch_end(struct batch *b)
{
	struct pst_kv *kv = b->kv;

	b->ended = true;
	list_del(&b->link);
	if (!b->waited) {
		if (list_empty(&kv->ended))
			front_tell(kv);
		list_add_tail(&kv->ended, &b->link);
	}
	(void)pthread_cond_broadcast(&kv->reaped);
}

static bool is_miss(int64_t result)
{
	return result == -ENOENT || result == -EBADMSG;
}

void job_end(struct job *job, int64_t result)
{
	struct batch *b = job->batch;
	struct pst_kv_stat *st = &b->kv->stat;

	job->state = JOB_DONE;
	b->results[job - b->jobs] = result;
	if (result >= 0) {
		b->done.good++;
		b->done.bytes += b->op == PST_KV_GET   ? (uint64_t)result
				 : b->op == PST_KV_SET ? job->item.len
						       : 0;
	} else if (!is_miss(result) && !b->done.err) {
		b->done.err = (int32_t)result;
	}
	if (b->op == PST_KV_GET) {
		st->gets++;
		st->hits += result >= 0;
		st->got_bytes += result >= 0 ? (uint64_t)result : 0;
	}
	st->timeouts += result == -ETIMEDOUT;
	st->no_room += result == -ENOSPC;
	st->errors += result < 0 && !is_miss(result) && result != -ETIMEDOUT && result != -ENOSPC &&
		      result != -ECANCELED;
	if (--b->left == 0)
		front_batch_end(b);
}

/* -------------------------------------------------------- owner thread */

/* End the jobs of a batch that do not use the caller's memory: queued ones, and, if running is set,
 * those in JOB_PATH. */
static void front_give_up(struct batch *b, int64_t result, bool running)
{
	b->refs++;
	for (unsigned i = 0; i < b->nr; i++) {
		struct job *job = &b->jobs[i];

		if (job->state == JOB_QUEUED)
			list_del(&job->link);
		else if (job->state != JOB_PATH || !running)
			continue;
		job_end(job, result);
	}
	batch_unref(b);
}

static uint64_t end_late(struct pst_kv *kv, uint64_t now)
{
	uint64_t next = UINT64_MAX;
	struct list *at, *n;

	list_for_each_safe (at, n, &kv->batches) {
		struct batch *b = list_entry(at, struct batch, link);

		if (b->deadline_ns > now) {
			next = MIN(next, b->deadline_ns);
		} else {
			/* A job in JOB_IO continues.  After its request the job may hang in a call
			 * with a path, so check again. */
			front_give_up(b, -ETIMEDOUT, true);
			next = MIN(next, now + LATE_LOOK_NS);
		}
	}
	return next;
}

void front_cancel(struct pst_kv *kv)
{
	struct list *at, *n;

	list_for_each_safe (at, n, &kv->batches)
		front_give_up(list_entry(at, struct batch, link), -ECANCELED, false);
}

void busy_keep(struct pst_kv *kv, struct pst_mem *mem)
{
	struct busy *b = malloc(sizeof(*b));

	/* Without this record the library frees the memory when it is idle, but pst_kv_drain()
	 * cannot wait for that. */
	if (!b) {
		pst_mem_free(mem);
		return;
	}
	b->mem = mem;
	(void)pthread_mutex_lock(&kv->lock);
	list_add_tail(&kv->busy, &b->link);
	kv->nr_busy++;
	(void)pthread_cond_signal(&kv->tick);
	(void)pthread_mutex_unlock(&kv->lock);
}

void busy_free_all(struct pst_kv *kv)
{
	while (!list_empty(&kv->busy)) {
		struct busy *b = list_first(&kv->busy, struct busy, link);

		list_del(&b->link);
		pst_mem_free(b->mem);
		free(b);
	}
}

/* Free memory that the kernel does not use any more.  Called with the lock. */
static void look_at_busy(struct pst_kv *kv)
{
	struct list *at, *n;

	list_for_each_safe (at, n, &kv->busy) {
		struct busy *b = list_entry(at, struct busy, link);

		if (pst_mem_drain(b->mem, 0) < 0)
			continue;
		list_del(&b->link);
		kv->nr_busy--;
		pst_mem_free(b->mem);
		free(b);
		(void)pthread_cond_broadcast(&kv->reaped);
	}
}

void *owner_main(void *arg)
{
	struct pst_kv *kv = arg;
	uint64_t next;

	(void)pthread_setname_np(pthread_self(), "pst-kv");
	(void)pthread_mutex_lock(&kv->lock);
	while (!kv->ending || !list_empty(&kv->batches)) {
		next = end_late(kv, now_ns());
		if (kv->nr_busy) {
			look_at_busy(kv);
			next = MIN(next, now_ns() + BUSY_LOOK_NS);
		}
		if (kv->ending && list_empty(&kv->batches))
			break;
		kv->next_look = next;
		(void)cond_wait_until(&kv->tick, &kv->lock, next);
	}
	(void)pthread_mutex_unlock(&kv->lock);
	return NULL;
}

/* -------------------------------------------------------------- submit */

static int check_segs(const struct pst_kv_item *it)
{
	uint64_t sum = 0, bytes;

	if (!it->segs)
		return it->nr_segs ? err_set(EINVAL, "an item names segments and gives none") : 0;
	if (!it->nr_segs || it->nr_segs >= PST_SEGS_MAX)
		return err_set(EINVAL, "an item has 1 to %u segments", PST_SEGS_MAX - 1);
	for (uint64_t i = 0; i < it->nr_segs; i++) {
		const struct pst_seg *s = &it->segs[i];
		uint64_t count = s->count ? s->count : 1, end;

		if (!s->len || s->len > PST_KV_BLOCK_MAX || count > PST_PIECES_MAX ||
		    __builtin_mul_overflow(s->len, count, &bytes) ||
		    __builtin_add_overflow(sum, bytes, &sum) ||
		    __builtin_mul_overflow(count - 1, count > 1 ? s->mem_stride : 0, &end) ||
		    __builtin_add_overflow(end, s->mem_off, &end) ||
		    __builtin_add_overflow(end, s->len, &end) ||
		    __builtin_add_overflow(end, it->mem_off, &end) || end > INT64_MAX)
			return err_set(EINVAL, "a segment of an item is empty or too long");
	}
	if (sum != it->len)
		return err_set(EINVAL,
			       "the segments of an item have %" PRIu64
			       " bytes, and the item %" PRIu64,
			       sum, it->len);
	return 0;
}

static int check_item(const struct pst_kv_item *it, uint32_t op)
{
	if (!it->key || !it->key_len || it->key_len > PST_KV_KEY_MAX)
		return err_set(EINVAL, "a key has 1 to %u bytes", PST_KV_KEY_MAX);
	if (it->reserved)
		return err_set(EINVAL, "the reserved member of an item is not 0");
	if (op != PST_KV_GET && op != PST_KV_SET)
		return 0;
	if (!it->len || it->len > PST_KV_BLOCK_MAX)
		return err_set(EINVAL, "a block has 1 byte to 1 GiB");
	if (!it->mem && !it->mem_off)
		return err_set(EINVAL, "an item has neither memory nor an address");
	return check_segs(it);
}

static int check_batch(struct pst_kv *kv, const struct pst_kv_batch *b, size_t *ret_keys)
{
	unsigned nr_spaces;
	int r = 0;

	(void)pthread_mutex_lock(&kv->lock);
	nr_spaces = kv->nr_spaces;
	(void)pthread_mutex_unlock(&kv->lock);
	if (b->op < PST_KV_GET || b->op > PST_KV_DELETE)
		return err_set(EINVAL, "there is no operation %u", b->op);
	if (b->space >= nr_spaces)
		return err_set(EINVAL, "there is no space %u; see pst_kv_space()", b->space);
	if (!b->items || !b->results || !b->nr || b->nr > PST_KV_BATCH_MAX)
		return err_set(EINVAL, "a batch has 1 to %u items, and as many results",
			       PST_KV_BATCH_MAX);
	*ret_keys = 0;
	for (uint64_t i = 0; r == 0 && i < b->nr; i++) {
		r = check_item(&b->items[i], b->op);
		*ret_keys += b->items[i].key_len;
	}
	return r;
}

/* Create a batch with copies of the items and of their keys. */
static int batch_new(struct pst_kv *kv, const struct pst_kv_batch *from, struct batch **ret)
{
	const struct space *sp;
	struct batch *b;
	size_t keys = 0;
	char *key;
	int r = check_batch(kv, from, &keys);

	if (r < 0)
		return r;
	b = calloc(1, sizeof(*b));
	if (b)
		b->jobs = calloc(1, from->nr * sizeof(*b->jobs) + keys);
	if (!b || !b->jobs) {
		free(b);
		return err_set(ENOMEM, "out of memory");
	}
	sp = kv->spaces[from->space];
	list_init(&b->link);
	b->kv = kv;
	b->op = from->op;
	b->space = from->space;
	b->deadline_ns = from->deadline_ns ? from->deadline_ns : now_ns() + kv->timeout_ns;
	b->results = from->results;
	b->nr = b->left = (unsigned)from->nr;
	b->refs = 1;
	b->done = (struct pst_kv_done){ .user_data = from->user_data, .op = from->op };
	key = (char *)&b->jobs[b->nr];
	for (unsigned i = 0; i < b->nr; i++) {
		struct job *job = &b->jobs[i];

		job->batch = b;
		job->item = from->items[i];
		memcpy(key, job->item.key, job->item.key_len);
		job->item.key = key;
		key += job->item.key_len;
		job->hash = kv_key_hash(kv, sp, job->item.key, job->item.key_len);
		list_init(&job->link);
	}
	*ret = b;
	return 0;
}

/* Return the length of a block in the index, bytes, or -ENOENT. */
static int64_t indexed(const struct cache *c, uint64_t hash, uint64_t key_len)
{
	const struct entry *e = cache_find(c, hash);
	uint64_t tail = key_len + FOOT_LEN, len;

	if (!e)
		return -ENOENT;
	len = e->size - user_slack(e->user);
	return len > tail ? (int64_t)(len - tail) : -ENOENT;
}

/* End the job now if it needs no thread, and return true.  Called with the lock. */
static bool answer_now(struct pst_kv *kv, struct job *job)
{
	const struct cache *c = kv->spaces[job->batch->space]->cache;
	uint32_t op = job->batch->op;
	int64_t r;

	if (kv->reader && (op == PST_KV_SET || op == PST_KV_DELETE)) {
		job_end(job, -EROFS);
		return true;
	}
	if (!store_has_index(kv) || op == PST_KV_SET)
		return false;
	r = indexed(c, job->hash, job->item.key_len);
	if (r >= 0 && op != PST_KV_EXISTS)
		return false;
	job_end(job, r);
	return true;
}

/* Wake nr threads of the store, and also the owner thread if it sleeps beyond the batch's
 * deadline. */
static void front_wake(struct pst_kv *kv, const struct batch *b, unsigned nr)
{
	if (nr >= kv->nr_workers)
		(void)pthread_cond_broadcast(&kv->work);
	else
		while (nr--)
			(void)pthread_cond_signal(&kv->work);
	if (b->deadline_ns < kv->next_look)
		(void)pthread_cond_signal(&kv->tick);
}

/* Start the jobs of a batch.  Called with the lock.  Return how many were queued for threads. */
static unsigned front_start(struct pst_kv *kv, struct batch *b)
{
	unsigned queued = 0;

	list_add_tail(&kv->batches, &b->link);
	b->refs++;
	for (unsigned i = 0; i < b->nr; i++) {
		if (answer_now(kv, &b->jobs[i]))
			continue;
		list_add_tail(&kv->queue, &b->jobs[i].link);
		queued++;
	}
	batch_unref(b);
	return queued;
}

static int front_prepare(struct pst_kv *kv, const struct pst_kv_batch *batch, struct batch **ret)
{
	struct pst_kv_batch copy;
	int r = fork_guard();

	if (r == 0)
		r = opts_copy(&copy, sizeof(copy), batch);
	return r < 0 ? r : batch_new(kv, &copy, ret);
}

PST_API int pst_kv_submit(struct pst_kv *kv, const struct pst_kv_batch *batch)
{
	struct batch *b;
	unsigned queued;
	int r = front_prepare(kv, batch, &b);

	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&kv->lock);
	queued = front_start(kv, b);
	if (queued)
		front_wake(kv, b, queued);
	(void)pthread_mutex_unlock(&kv->lock);
	return 0;
}

PST_API int pst_kv_run(struct pst_kv *kv, const struct pst_kv_batch *batch, struct pst_kv_done *ret)
{
	struct batch *b;
	unsigned queued;
	int r = front_prepare(kv, batch, &b);

	if (r < 0)
		return r;
	b->waited = true;
	(void)pthread_mutex_lock(&kv->lock);
	queued = front_start(kv, b);
	/* Waking a thread takes longer than a small read.  So this thread reads blocks that are in
	 * memory, and wakes other threads only for more than one block. */
	if (b->op == PST_KV_GET && queued) {
		if (queued > 1)
			front_wake(kv, b, queued - 1);
		queued = worker_help(kv, b);
	}
	if (queued)
		front_wake(kv, b, queued);
	while (!b->ended)
		(void)pthread_cond_wait(&kv->reaped, &kv->lock);
	if (ret)
		*ret = b->done;
	batch_unref(b);
	(void)pthread_mutex_unlock(&kv->lock);
	return 0;
}

PST_API int pst_kv_reap(struct pst_kv *kv, struct pst_kv_done *ret, unsigned max,
			uint64_t deadline_ns)
{
	unsigned n = 0;
	uint64_t count;
	int r = fork_guard();

	if (r < 0)
		return r;
	if (!ret || !max)
		return err_set(EINVAL, "there is no room for a completion");
	(void)pthread_mutex_lock(&kv->lock);
	while (list_empty(&kv->ended) && deadline_ns && now_ns() < deadline_ns)
		(void)cond_wait_until(&kv->reaped, &kv->lock, deadline_ns);
	while (n < max && !list_empty(&kv->ended)) {
		struct batch *b = list_first(&kv->ended, struct batch, link);

		list_del(&b->link);
		ret[n++] = b->done;
		batch_unref(b);
	}
	if (n && list_empty(&kv->ended))
		(void)!read(kv->efd, &count, sizeof(count));
	(void)pthread_mutex_unlock(&kv->lock);
	return (int)n;
}

PST_API int pst_kv_fd(const struct pst_kv *kv)
{
	return kv->efd;
}

/* Look keys up by batches: in their files, or at the server. */
static int64_t lookup_files(struct pst_kv *kv, uint32_t space, const struct pst_kv_item *items,
			    uint64_t nr, int64_t *ret)
{
	struct pst_kv_done done;
	int64_t found = 0;
	int r;

	for (uint64_t i = 0; i < nr; i += PST_KV_BATCH_MAX) {
		struct pst_kv_batch b = {
			.sz = sizeof(b),
			.op = PST_KV_EXISTS,
			.space = space,
			.items = items + i,
			.nr = MIN(nr - i, (uint64_t)PST_KV_BATCH_MAX),
			.results = ret + i,
		};

		r = pst_kv_run(kv, &b, &done);
		if (r < 0)
			return r;
		found += done.good;
	}
	return found;
}

PST_API int64_t pst_kv_lookup(struct pst_kv *kv, uint32_t space, const struct pst_kv_item *items,
			      uint64_t nr, int64_t *ret)
{
	uint64_t hash[LOOKUP_CHUNK];
	const struct space *sp = NULL;
	int64_t found = 0;
	int r = fork_guard();

	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&kv->lock);
	if (space < kv->nr_spaces)
		sp = kv->spaces[space];
	(void)pthread_mutex_unlock(&kv->lock);
	if (!sp || !items || !nr || !ret)
		return err_set(EINVAL, "there is no space %u, or there are no keys", space);
	for (uint64_t i = 0; i < nr; i++) {
		r = check_item(&items[i], PST_KV_EXISTS);
		if (r < 0)
			return r;
	}
	if (!store_has_index(kv))
		return lookup_files(kv, space, items, nr, ret);
	for (uint64_t i = 0; i < nr; i += LOOKUP_CHUNK) {
		uint64_t n = MIN(nr - i, (uint64_t)LOOKUP_CHUNK);

		for (uint64_t k = 0; k < n; k++)
			hash[k] = kv_key_hash(kv, sp, items[i + k].key, items[i + k].key_len);
		(void)pthread_mutex_lock(&kv->lock);
		for (uint64_t k = 0; k < n; k++)
			index_prefetch(sp->cache->policy->index, hash[k]);
		for (uint64_t k = 0; k < n; k++) {
			ret[i + k] = indexed(sp->cache, hash[k], items[i + k].key_len);
			found += ret[i + k] >= 0;
		}
		(void)pthread_mutex_unlock(&kv->lock);
	}
	return found;
}

PST_API int pst_kv_drain(struct pst_kv *kv, uint64_t deadline_ns)
{
	int r = fork_guard();

	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&kv->lock);
	look_at_busy(kv);
	while (kv->nr_busy && deadline_ns && now_ns() < deadline_ns)
		(void)cond_wait_until(&kv->reaped, &kv->lock, deadline_ns);
	r = kv->nr_busy ? -EBUSY : 0;
	(void)pthread_mutex_unlock(&kv->lock);
	return r < 0 ? err_set(EBUSY, "the kernel may still use memory of a batch") : 0;
}
