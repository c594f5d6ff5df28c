/* SPDX-License-Identifier: MIT */
/* Open and close a store, and return its statistics. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/eventfd.h>

#include "base/err.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/opts.h"
#include "base/thread.h"

#include "kv/remote.h"
#include "kv/store.h"

#define THREADS_DEFAULT 4u
#define TIMEOUT_DEFAULT_MS 30000u
#define TOUCH_DEFAULT_S 60u
/* Default of max_blocks: one block for this many bytes of the budget, at least BLOCKS_LEAST. */
#define BLOCK_DEFAULT KIB(64)
#define BLOCKS_LEAST 65536u
/* Time that a close waits for requests in flight, and then again for threads that hang. */
#define CLOSE_NS (10 * NSEC_PER_SEC)
#define CLOSE_HUNG_NS (1 * NSEC_PER_SEC)

PST_API const char *pst_kv_error_text(void)
{
	return err_text();
}

static void kv_free(struct pst_kv *kv)
{
	for (unsigned i = 0; i < kv->nr_spaces; i++)
		space_free(kv->spaces[i]);
	if (kv->common.policy)
		(void)kv->ops->free(kv->common.policy);
	while (!list_empty(&kv->ended)) {
		struct batch *b = list_first(&kv->ended, struct batch, link);

		list_del(&b->link);
		batch_unref(b);
	}
	busy_free_all(kv);
	for (unsigned i = 0; i < CALLERS_MAX; i++)
		pst_mem_free(kv->callers[i].bounce);
	root_close(&kv->root);
	remote_root_end(kv);
	closep(&kv->efd);
	for (unsigned i = 0; i < STRIPES; i++)
		(void)pthread_mutex_destroy(&kv->stripes[i]);
	(void)pthread_cond_destroy(&kv->work);
	(void)pthread_cond_destroy(&kv->tick);
	(void)pthread_cond_destroy(&kv->reaped);
	(void)pthread_mutex_destroy(&kv->naming);
	(void)pthread_mutex_destroy(&kv->lock);
	free(kv);
}

void kv_unref(struct pst_kv *kv)
{
	bool last;

	(void)pthread_mutex_lock(&kv->lock);
	last = --kv->refs == 0;
	(void)pthread_mutex_unlock(&kv->lock);
	if (last)
		kv_free(kv);
}

static int kv_check_opts(const struct pst_kv_opts *o, bool remote,
			 const struct tier_policy_ops **ret)
{
	bool reader = o->flags & PST_KV_READER;

	if (o->flags & ~(PST_KV_READER | PST_KV_SYNC | PST_KV_BOUNCE))
		return err_set(EINVAL, "there is no such flag of a store");
	if (remote &&
	    (o->budget || o->reserve || o->policy || o->max_blocks || o->flags & PST_KV_SYNC))
		return err_set(EINVAL,
			       "budget, number of blocks, reserve, policy and syncs of a served "
			       "store are those of its server; give none");
	if (!reader && !remote && o->budget < BUDGET_MIN)
		return err_set(EINVAL,
			       "the budget of a store is %" PRIu64 " bytes; give 1 MiB at least",
			       o->budget);
	if (reader && (o->budget || o->max_blocks))
		return err_set(EINVAL, "a reader has no budget and no bound of blocks: its owner "
				       "has");
	if (o->max_blocks &&
	    (o->max_blocks < PST_KV_BLOCKS_MIN || o->max_blocks > PST_KV_BLOCKS_MAX))
		return err_set(EINVAL, "the bound of the number of blocks is %u to %llu",
			       PST_KV_BLOCKS_MIN, PST_KV_BLOCKS_MAX);
	if (o->threads > PST_KV_THREADS_MAX)
		return err_set(EINVAL, "a store has at most %u threads", PST_KV_THREADS_MAX);
	*ret = tier_policy_find(o->policy ? o->policy : TIER_POLICY_DEFAULT);
	if (!*ret || !(*ret)->evict)
		return err_set(EINVAL,
			       "'%s' is no policy of a store; there are lru, arc and s3fifo",
			       o->policy);
	return 0;
}

static uint64_t kv_max_blocks(const struct pst_kv_opts *o)
{
	uint64_t most = MAX(o->budget / BLOCK_DEFAULT, (uint64_t)BLOCKS_LEAST);

	return o->max_blocks ? o->max_blocks : MIN(most, (uint64_t)PST_KV_BLOCKS_MAX);
}

static struct pst_kv *kv_new(const struct pst_kv_opts *o, const struct tier_policy_ops *ops)
{
	struct pst_kv *kv = calloc(1, sizeof(*kv));

	if (!kv)
		return NULL;
	kv->refs = 1;
	kv->efd = -1;
	kv->root.lock = -1;
	(void)pthread_mutex_init(&kv->lock, NULL);
	(void)pthread_mutex_init(&kv->naming, NULL);
	for (unsigned i = 0; i < STRIPES; i++)
		(void)pthread_mutex_init(&kv->stripes[i], NULL);
	(void)pthread_cond_init(&kv->work, NULL);
	cond_init_monotonic(&kv->tick);
	cond_init_monotonic(&kv->reaped);
	list_init(&kv->queue);
	list_init(&kv->batches);
	list_init(&kv->ended);
	list_init(&kv->busy);
	list_init(&kv->lent);
	list_init(&kv->shares);
	list_init(&kv->events);
	kv->ops = ops;
	kv->reader = o->flags & PST_KV_READER;
	kv->sync = o->flags & PST_KV_SYNC;
	kv->bounce = o->flags & PST_KV_BOUNCE;
	kv->budget = o->budget;
	kv->reserve = o->reserve;
	kv->max_blocks = kv_max_blocks(o);
	kv->touch_ns = (o->touch_s ? o->touch_s : TOUCH_DEFAULT_S) * NSEC_PER_SEC;
	kv->timeout_ns = (o->timeout_ms ? o->timeout_ms : TIMEOUT_DEFAULT_MS) * NSEC_PER_MSEC;
	kv->common.capacity = o->budget;
	kv->common.policy = ops->new (MAX(o->budget, (uint64_t)1), 0);
	if (!kv->common.policy) {
		kv_free(kv);
		return NULL;
	}
	return kv;
}

static int kv_load(struct pst_kv *kv, const char *const *dirs, unsigned nr, bool remote)
{
	int r;

	if (remote) {
		/* A served store has no directory here. */
		kv->root.nr = 1;
		kv->root.dir[0] = -1;
		return remote_root(kv, dirs[0]);
	}
	r = root_open(&kv->root, dirs, nr, kv->reader ? ROOT_READ : ROOT_OWN);
	if (r == 0)
		r = space_load(kv);

	if (r < 0 || kv->reader)
		return r;
	r = snapshot_load(kv);
	if (r == 0)
		r = scan_load(kv);
	if (r < 0)
		return r;
	cache_shrink(kv);
	/* `penstock kv drop` opens the store without a budget, so keep the bounds that the owner
	 * recorded. */
	if (kv->budget < INT64_MAX)
		root_put_bounds(&kv->root, kv->budget, kv->max_blocks);
	return 0;
}

static int start_worker(struct pst_kv *kv)
{
	struct pst_queue_opts q = { .sz = sizeof(q), .depth = 4 };
	struct worker *w = &kv->workers[kv->nr_workers];
	int r;

	w->kv = kv;
	r = pst_queue_new(&q, &w->queue);
	if (r < 0)
		return err_set(r, "%s", pst_error_text());
	w->running = true;
	kv->refs++;
	kv->nr_workers++;
	r = thread_start(&w->thread, kv_worker_main, w);
	if (r < 0) {
		w->running = false;
		kv->refs--;
		kv->nr_workers--;
		pst_queue_free(w->queue);
	}
	return r;
}

static int kv_start(struct pst_kv *kv, unsigned threads)
{
	int r;

	kv->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (kv->efd < 0)
		return err_set(errno, "cannot make an eventfd: %s", strerror(errno));
	r = thread_start(&kv->owner, owner_main, kv);
	if (r < 0)
		return r;
	kv->owner_started = true;
	(void)pthread_mutex_lock(&kv->lock);
	for (unsigned i = 0; r == 0 && i < threads; i++)
		r = start_worker(kv);
	(void)pthread_mutex_unlock(&kv->lock);
	return r;
}

int kv_check(const char *const *dirs, unsigned nr, const struct pst_kv_opts *o)
{
	const struct tier_policy_ops *ops;
	struct err_kept kept;
	struct root root;
	int r;

	if (nr == 1 && remote_is_root(dirs[0]))
		return err_set(EINVAL, "%s is a store of another server; give directories",
			       dirs[0]);
	r = kv_check_opts(o, false, &ops);
	if (r < 0)
		return r;
	r = root_open(&root, dirs, nr, ROOT_CHECK);
	err_keep(&kept);
	root_close(&root);
	err_put_back(&kept);
	return r;
}

PST_API int pst_kv_open(const char *const *dirs, unsigned nr, const struct pst_kv_opts *opts,
			struct pst_kv **ret_kv)
{
	return kv_open(dirs, nr, opts, 0, ret_kv);
}

int kv_open(const char *const *dirs, unsigned nr, const struct pst_kv_opts *opts, uint64_t quota,
	    struct pst_kv **ret_kv)
{
	const struct tier_policy_ops *ops = NULL;
	struct pst_kv_opts o;
	struct pst_kv *kv;
	bool remote;
	int r = fork_guard();

	if (r == 0)
		r = opts_copy(&o, sizeof(o), opts);
	if (r < 0)
		return r;
	if (!dirs || !nr || nr > PST_KV_DIRS_MAX)
		return err_set(EINVAL, "a store has 1 to %u directories", PST_KV_DIRS_MAX);
	remote = nr == 1 && remote_is_root(dirs[0]);
	r = kv_check_opts(&o, remote, &ops);
	if (r < 0)
		return r;
	kv = kv_new(&o, ops);
	if (!kv)
		return err_set(ENOMEM, "out of memory");
	kv->quota = quota;
	r = kv_load(kv, dirs, nr, remote);
	if (r == 0) {
		r = kv_start(kv, o.threads ? o.threads : THREADS_DEFAULT);
	} else {
		kv->broken = true;
	}
	if (r < 0) {
		struct err_kept kept;

		err_keep(&kept);
		pst_kv_close(kv);
		err_put_back(&kept);
		return r;
	}
	*ret_kv = kv;
	return 0;
}

static bool any_running(const struct pst_kv *kv)
{
	for (unsigned i = 0; i < kv->nr_workers; i++)
		if (kv->workers[i].running)
			return true;
	return false;
}

/* End the threads.  Return false if a thread hangs. */
static bool stop(struct pst_kv *kv)
{
	uint64_t end = now_ns() + CLOSE_NS;
	struct list *at;
	bool hung;

	(void)pthread_mutex_lock(&kv->lock);
	kv->ending = true;
	front_cancel(kv);
	list_for_each (at, &kv->batches) {
		struct batch *b = list_entry(at, struct batch, link);

		b->deadline_ns = MIN(b->deadline_ns, end);
	}
	(void)pthread_cond_broadcast(&kv->work);
	(void)pthread_cond_broadcast(&kv->tick);
	while (!list_empty(&kv->batches))
		(void)pthread_cond_wait(&kv->reaped, &kv->lock);
	end = now_ns() + CLOSE_HUNG_NS;
	while (any_running(kv) && now_ns() < end)
		(void)cond_wait_until(&kv->reaped, &kv->lock, end);
	hung = any_running(kv);
	(void)pthread_cond_broadcast(&kv->tick);
	(void)pthread_mutex_unlock(&kv->lock);
	if (kv->owner_started)
		(void)pthread_join(kv->owner, NULL);
	for (unsigned i = 0; i < kv->nr_workers; i++) {
		if (hung)
			(void)pthread_detach(kv->workers[i].thread);
		else
			(void)pthread_join(kv->workers[i].thread, NULL);
	}
	return !hung;
}

PST_API struct pst_kv *pst_kv_close(struct pst_kv *kv)
{
	int r = 0;

	if (!kv || fork_guard() < 0)
		return NULL;
	if (!stop(kv))
		log_warn("kv: a thread hangs in the kernel; the store stays locked until it ends");
	else if (store_has_index(kv) && !kv->broken)
		r = snapshot_save(kv);
	if (r < 0)
		log_warn("kv: cannot write the index: %s; the next open reads the directories",
			 strerror(-r));
	kv_unref(kv);
	return NULL;
}

static void add_cache(struct pst_kv_stat *st, const struct cache *c)
{
	const struct index *ix = c->policy->index;

	for (unsigned q = 0; q < c->policy->ops->cached; q++)
		st->blocks += ix->q[q].nr;
	st->index_bytes += index_memory(ix);
}

PST_API int pst_kv_stat(struct pst_kv *kv, struct pst_kv_stat *ret)
{
	struct pst_kv_stat st;
	int r = fork_guard();

	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&kv->lock);
	st = kv->stat;
	st.sz = sizeof(st);
	st.budget = kv->budget;
	st.max_blocks = kv->max_blocks;
	st.used = kv->used;
	add_cache(&st, &kv->common);
	for (unsigned i = 0; i < kv->nr_spaces; i++)
		if (kv->spaces[i]->own.policy)
			add_cache(&st, &kv->spaces[i]->own);
	(void)pthread_mutex_unlock(&kv->lock);
	if (kv->server)
		st.max_blocks = 0;
	else if (kv->reader)
		root_get_bounds(&kv->root, &st.budget, &st.max_blocks);
	return opts_return(ret, &st, sizeof(st));
}
