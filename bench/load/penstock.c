/* SPDX-License-Identifier: MIT */
#include "load.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define DEPTH 1024u /* maximum reads in flight per file */

struct load {
	struct shard *shards;
	_Atomic uint32_t paths;
};

/* Keep queues for the next load, as loaders keep their buffers: the library frees its buffers with
 * the last queue. */
static struct {
	pthread_mutex_t lock;
	struct pst_queue *q[THREADS_MAX];
	unsigned nr;
} kept = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int queue_get(struct pst_queue **ret)
{
	const struct pst_queue_opts opts = { .sz = sizeof(opts), .depth = DEPTH };
	struct pst_queue *q = NULL;

	(void)pthread_mutex_lock(&kept.lock);
	if (kept.nr)
		q = kept.q[--kept.nr];
	(void)pthread_mutex_unlock(&kept.lock);
	*ret = q;
	return q ? 0 : pst_queue_new(&opts, ret);
}

/* Keep a queue that has nothing in flight. */
static void queue_keep(struct pst_queue *q)
{
	(void)pthread_mutex_lock(&kept.lock);
	kept.q[kept.nr++] = q;
	(void)pthread_mutex_unlock(&kept.lock);
}

static void file_closep(struct pst_file **file)
{
	(void)pst_file_close(*file);
}

/* Reap finished tensors until at most @most are in flight. */
static int penstock_take(struct load *l, const struct shard *s, struct pst_queue *q,
			 size_t *under_way, size_t most)
{
	while (*under_way > most) {
		struct pst_done done[64];
		int n = pst_queue_reap(q, done, 1, ARRAY_SIZE(done), PST_NO_DEADLINE);

		if (n < 0)
			return fail_pst(n, s->path);
		*under_way -= (size_t)n;
		for (int i = 0; i < n; i++) {
			uint64_t want = s->st->tensors[done[i].user_data].len;
			char why[300];

			if (done[i].res < 0)
				return fail((int)done[i].res, "%s: %s", s->path,
					    pst_done_text(&done[i], why, sizeof(why)));
			if ((uint64_t)done[i].res < want)
				return fail(EIO, "%s: %" PRId64 " of %" PRIu64 " bytes came",
					    s->path, done[i].res, want);
			(void)atomic_fetch_or(&l->paths, done[i].paths);
		}
	}
	return 0;
}

static int penstock_submit(struct pst_queue *q, struct pst_file *file, const struct shard *s,
			   size_t i)
{
	struct pst_io io = {
		.op = PST_OP_READ,
		.file = file,
		.mem = s->places[i].mem,
		.file_off = s->st->tensors[i].off,
		.mem_off = s->places[i].off,
		.len = s->st->tensors[i].len,
		.user_data = i,
	};
	int r = pst_queue_prep(q, &io);

	if (r >= 0)
		r = pst_queue_submit(q);
	return r < 0 ? fail_pst(r, s->path) : 0;
}

/* Read each tensor as soon as its memory exists: allocation is slow, so reads overlap it. */
static int penstock_read_all(struct load *l, struct shard *s, struct pst_file *file,
			     struct pst_queue *q)
{
	size_t under_way = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < s->st->nr; i++) {
		if (!s->st->tensors[i].len)
			continue;
		r = shard_place(s, i);
		if (r == 0)
			r = penstock_take(l, s, q, &under_way, DEPTH - 1);
		if (r == 0)
			r = penstock_submit(q, file, s, i);
		under_way += r == 0;
	}
	return r < 0 ? r : penstock_take(l, s, q, &under_way, 0);
}

static int load_shard(void *arg, unsigned idx)
{
	_cleanup_(file_closep) struct pst_file *file = NULL;
	struct pst_queue *q = NULL;
	struct load *l = arg;
	struct shard *s = &l->shards[idx];
	int r = model_shard_open(s);

	if (r < 0)
		return r;
	r = pst_file_open(s->path, PST_FILE_READ | (set.stable ? PST_FILE_STABLE : 0), NULL, &file);
	if (r >= 0)
		r = queue_get(&q);
	if (r < 0)
		return fail_pst(r, s->path);
	r = penstock_read_all(l, s, file, q);
	if (r == 0)
		queue_keep(q);
	else
		(void)pst_queue_free(q);
	/* Make sure that the device has finished; this costs little. */
	if (r == 0 && s->nr_mems) {
		r = pst_mem_sync(s->mems[0]);
		if (r < 0)
			r = fail_pst(r, set.device.name);
	}
	return r;
}

int penstock_load(struct shard *shards, unsigned nr, char *ret_paths, size_t len)
{
	struct load l = { .shards = shards };
	int r = each(nr, set.threads, load_shard, &l);

	if (r == 0)
		(void)pst_paths_text(l.paths, ret_paths, len);
	return r;
}
