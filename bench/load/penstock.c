/* SPDX-License-Identifier: MIT */
#include "load.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

struct load {
	struct shard *shards;
	_Atomic uint32_t paths;
};

static void file_closep(struct pst_file **file)
{
	(void)pst_file_close(*file);
}

/* One range for each tensor that has bytes. */
static unsigned plan(const struct shard *s, struct pst_vec *vecs)
{
	unsigned nr = 0;

	for (size_t i = 0; i < s->st->nr; i++)
		if (s->st->tensors[i].len)
			vecs[nr++] = (struct pst_vec){
				.mem = s->places[i].mem,
				.mem_off = s->places[i].off,
				.file_off = s->st->tensors[i].off,
				.len = s->st->tensors[i].len,
			};
	return nr;
}

static int read_all(const struct shard *s, struct pst_file *file, struct pst_done *ret_done)
{
	_cleanup_(freep) struct pst_vec *vecs = calloc(s->st->nr + 1, sizeof(*vecs));
	unsigned nr = vecs ? plan(s, vecs) : 0;
	uint64_t want = 0;
	int64_t got;

	if (!vecs)
		return fail(ENOMEM, "out of memory");
	if (!nr)
		return 0;
	for (unsigned i = 0; i < nr; i++)
		want += vecs[i].len;
	got = pst_readv(file, vecs, nr, NULL, ret_done);
	if (got < 0)
		return fail_pst((int)got, s->path);
	if ((uint64_t)got < want)
		return fail(EIO, "%s: %" PRIu64 " of %" PRIu64 " bytes came", s->path,
			    (uint64_t)got, want);
	return 0;
}

static int load_shard(void *arg, unsigned idx)
{
	_cleanup_(file_closep) struct pst_file *file = NULL;
	struct load *l = arg;
	struct shard *s = &l->shards[idx];
	struct pst_done done = { 0 };
	int r = shard_prepare(s);

	if (r < 0)
		return r;
	r = pst_file_open(s->path, PST_FILE_READ | (set.stable ? PST_FILE_STABLE : 0), NULL, &file);
	if (r < 0)
		return fail_pst(r, s->path);
	r = read_all(s, file, &done);
	if (r == 0)
		(void)atomic_fetch_or(&l->paths, done.paths);
	/* The device has nothing left to do; that costs little to ask. */
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
