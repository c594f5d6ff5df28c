/* SPDX-License-Identifier: MIT */
/*
 * Threads that do the I/O of blocks, one block at a time each.  Calls with a path may hang in the
 * kernel, so they do not use the caller's memory, and the owner thread ends the job at its deadline
 * (JOB_PATH).  The caller's bytes are moved by a request of a pst_queue, which itself ends at the
 * deadline (JOB_IO).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "base/log.h"

#include "kv/store.h"

/* Memory of one block, and the part of it that a request moves. */
struct target {
	struct pst_mem *mem;
	struct pst_mem *wrapped; /* to be freed */
	struct pst_seg *segs;    /* allocated; NULL: the piece that begins at off */
	uint64_t nr_segs, off;
};

static int worker_dir_of(const struct pst_kv *kv, const struct job *job)
{
	return kv->root.dir[root_dir_of(&kv->root, job->hash)];
}

static const struct space *space_of(const struct job *job)
{
	return job->batch->kv->spaces[job->batch->space];
}

static struct block_id id_of(const struct job *job)
{
	return (struct block_id){
		.space = space_of(job)->hash,
		.hash = job->hash,
		.key = job->item.key,
		.key_len = (uint32_t)job->item.key_len,
	};
}

/* Mark that the caller's memory is used from now on.  Return false if the job was ended
 * meanwhile. */
static bool enter_io(struct job *job)
{
	struct pst_kv *kv = job->batch->kv;
	bool on;

	(void)pthread_mutex_lock(&kv->lock);
	on = job->state == JOB_PATH;
	if (on)
		job->state = JOB_IO;
	(void)pthread_mutex_unlock(&kv->lock);
	return on;
}

static void leave_io(struct job *job)
{
	struct pst_kv *kv = job->batch->kv;

	(void)pthread_mutex_lock(&kv->lock);
	job->state = JOB_PATH;
	(void)pthread_mutex_unlock(&kv->lock);
}

/* ------------------------------------------------------------- memory */

/* Copy the segments up to len bytes, with file offsets that are offsets in the block. */
static int copy_segs(const struct pst_kv_item *item, uint64_t len, struct target *t)
{
	uint64_t at = 0;

	t->segs = calloc(item->nr_segs + 1, sizeof(*t->segs));
	if (!t->segs)
		return -ENOMEM;
	for (uint64_t i = 0; i < item->nr_segs && at < len; i++) {
		struct pst_seg s = item->segs[i];
		uint64_t count = s.count ? s.count : 1, whole = MIN(count, (len - at) / s.len);

		s.mem_off += t->off;
		s.file_off = at;
		s.file_stride = s.len;
		s.count = whole;
		if (whole)
			t->segs[t->nr_segs++] = s;
		at += whole * s.len;
		/* A block may end within a piece. */
		if (whole < count && at < len) {
			s.mem_off += whole * s.mem_stride;
			s.file_off = at;
			s.len = len - at;
			s.count = 1;
			t->segs[t->nr_segs++] = s;
			at = len;
		}
	}
	return 0;
}

static uint64_t extent(const struct pst_kv_item *item)
{
	uint64_t end = item->segs ? 0 : item->len;

	for (uint64_t i = 0; item->segs && i < item->nr_segs; i++) {
		const struct pst_seg *s = &item->segs[i];
		uint64_t last = s->mem_off + s->len;

		if (s->count > 1)
			last += (s->count - 1) * s->mem_stride;
		end = MAX(end, last);
	}
	return end;
}

static int target_init(struct target *t, const struct pst_kv_item *item, uint64_t len)
{
	int r = 0;

	*t = (struct target){ .mem = item->mem, .off = item->mem_off };
	if (!t->mem) {
		r = pst_mem_wrap(item->mem_off, extent(item), NULL, &t->wrapped);
		t->mem = t->wrapped;
		t->off = 0;
	}
	if (r == 0 && item->segs)
		r = copy_segs(item, len, t);
	return r;
}

/* busy: a request that has ended may still use the memory. */
static void target_done(struct pst_kv *kv, struct target *t, bool busy)
{
	if (t->wrapped && busy)
		busy_keep(kv, t->wrapped);
	else
		pst_mem_free(t->wrapped);
	free(t->segs);
}

/* Submit one request and wait for it. */
static struct pst_done worker_move(struct worker *w, const struct job *job, uint32_t op,
				   struct pst_file *file, const struct target *t, uint64_t len)
{
	struct pst_io io = {
		.op = op,
		.flags = PST_IO_CRC32C,
		.file = file,
		.mem = t->mem,
		.segs = t->segs,
		.nr_segs = t->nr_segs,
		.mem_off = t->segs ? 0 : t->off,
		.len = t->segs ? 0 : len,
		.deadline_ns = job->batch->deadline_ns,
	};
	struct pst_done done = { 0 };
	int r = pst_queue_prep(w->queue, &io);

	if (r < 0) {
		done.res = r;
		return done;
	}
	(void)pst_queue_submit(w->queue);
	if (pst_queue_reap(w->queue, &done, 1, 1, PST_NO_DEADLINE) != 1)
		done = (struct pst_done){ .res = -EIO };
	return done;
}

static void note_busy(const struct job *job, const struct pst_done *done)
{
	if (done->flags & PST_DONE_BUSY)
		job->batch->done.flags |= PST_KV_BUSY;
}

/* ---------------------------------------------------------------- get */

/* Get memory of the worker itself for a block of len bytes. */
static int bounce_room(struct worker *w, uint64_t len)
{
	int r;

	if (w->bounce_len >= len)
		return 0;
	w->bounce = pst_mem_free(w->bounce);
	w->bounce_len = 0;
	r = pst_mem_alloc("host", align_up(len, MIB(1)), NULL, &w->bounce);
	if (r == 0)
		w->bounce_len = align_up(len, MIB(1));
	return r;
}

/* Copy checked bytes to the caller's memory. */
static int scatter(const struct worker *w, const struct target *t, uint64_t len)
{
	const char *from = pst_mem_ptr(w->bounce);
	int r = 0;

	if (!t->segs)
		return pst_mem_copy_in(t->mem, t->off, from, len);
	for (uint64_t i = 0; r == 0 && i < t->nr_segs; i++) {
		const struct pst_seg *s = &t->segs[i];

		for (uint64_t k = 0; r == 0 && k < s->count; k++, from += s->len)
			r = pst_mem_copy_in(t->mem, s->mem_off + k * s->mem_stride, from, s->len);
	}
	return r;
}

static int64_t read_result(const struct pst_done *done, uint64_t len, uint32_t crc)
{
	if (done->res < 0)
		return done->res;
	if ((uint64_t)done->res != len)
		return err_set(EBADMSG, "the file of a block ended while it was read");
	if (!(done->flags & PST_DONE_CRC32C))
		return err_set(EIO, "a request came back without its CRC-32C");
	if (done->crc32c != crc)
		return err_set(EBADMSG, "a block fails its check");
	return (int64_t)len;
}

static int64_t read_bounced(struct worker *w, struct job *job, struct pst_file *file, uint64_t len,
			    uint32_t crc)
{
	int64_t r = bounce_room(w, len);
	struct pst_done done;
	struct target t;

	if (r < 0)
		return r;
	t = (struct target){ .mem = w->bounce };
	done = worker_move(w, job, PST_OP_READ, file, &t, len);
	if (done.flags & PST_DONE_BUSY) {
		/* The library keeps it until the kernel is done with it. */
		w->bounce = pst_mem_free(w->bounce);
		w->bounce_len = 0;
	}
	r = read_result(&done, len, crc);
	if (r < 0 || !enter_io(job))
		return r;
	r = target_init(&t, &job->item, len);
	if (r == 0)
		r = scatter(w, &t, len);
	target_done(w->kv, &t, false);
	leave_io(job);
	return r < 0 ? r : (int64_t)len;
}

static int64_t read_bytes(struct worker *w, struct job *job, struct pst_file *file, uint64_t len,
			  uint32_t crc)
{
	struct pst_done done = { 0 };
	struct target t;
	int64_t r;

	if (w->kv->bounce)
		return read_bounced(w, job, file, len, crc);
	if (!enter_io(job))
		return -ETIMEDOUT;
	r = target_init(&t, &job->item, len);
	if (r == 0) {
		done = worker_move(w, job, PST_OP_READ, file, &t, len);
		note_busy(job, &done);
		r = read_result(&done, len, crc);
	}
	target_done(w->kv, &t, done.flags & PST_DONE_BUSY);
	leave_io(job);
	return r;
}

/* Record the time of use in the file, so that it survives a crash. */
static void touch(const struct pst_kv *kv, int fd, const struct stat *st)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_NOW } };
	uint64_t then = (uint64_t)st->st_mtim.tv_sec * NSEC_PER_SEC + (uint64_t)st->st_mtim.tv_nsec;

	if (!kv->reader && clock_ns(CLOCK_REALTIME) > then + kv->touch_ns)
		(void)futimens(fd, times);
}

static int64_t get_open(struct worker *w, struct job *job, int fd)
{
	struct block_id id = id_of(job);
	char tail[TAIL_MAX];
	struct pst_file *file;
	struct stat st;
	uint64_t len;
	uint32_t crc;
	size_t n = id.key_len + FOOT_LEN;
	int64_t r;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < (off_t)n)
		return err_set(EBADMSG, "the file of a block is shorter than its foot");
	r = pread(fd, tail, n, st.st_size - (off_t)n);
	if (r < 0)
		return -errno;
	if (r != (int64_t)n)
		return err_set(EBADMSG, "the file of a block ended while it was read");
	r = block_check(tail, n, (uint64_t)st.st_size, &id, &len, &crc, NULL, NULL);
	if (r < 0)
		return r;
	if (len > job->item.len)
		return -EMSGSIZE;
	touch(w->kv, fd, &st);
	r = pst_file_wrap(fd, 0, NULL, &file);
	if (r < 0)
		return r;
	r = read_bytes(w, job, file, len, crc);
	pst_file_close(file);
	return r;
}

static int64_t worker_get(struct worker *w, struct job *job)
{
	struct pst_kv *kv = w->kv;
	char path[BLOCK_PATH_LEN];
	_cleanup_(closep) int fd = -1;

	block_path(path, space_of(job)->hash, job->hash);
	fd = openat(worker_dir_of(kv, job), path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	return get_open(w, job, fd);
}

/* Get a block; remove it from index and disk if it is damaged or missing. */
static int64_t get_and_settle(struct worker *w, struct job *job)
{
	struct pst_kv *kv = w->kv;
	struct entry *e;
	int64_t r;

	(void)pthread_mutex_lock(&kv->lock);
	w->reading = job->hash;
	w->is_reading = true;
	(void)pthread_mutex_unlock(&kv->lock);
	r = worker_get(w, job);
	(void)pthread_mutex_lock(&kv->lock);
	cache_read_ends(w);
	if (r >= 0 && !kv->reader) {
		struct cache *c = space_of(job)->cache;

		e = cache_find(c, job->hash);
		if (e)
			(void)c->policy->ops->access(c->policy, job->hash, e->size, kv->use++);
	}
	kv->stat.corrupt += r == -EBADMSG;
	(void)pthread_mutex_unlock(&kv->lock);
	if (r == -EBADMSG)
		log_warn("kv: %s, removing it", err_text());
	if ((r == -EBADMSG || r == -ENOENT) && !kv->reader)
		(void)cache_remove(kv, job->batch->space, job->hash);
	return r;
}

/* ---------------------------------------------------------------- set */

/* Write the block's bytes and compute their CRC-32C. */
static int64_t write_bytes(struct worker *w, struct job *job, struct pst_file *file,
			   uint32_t *ret_crc)
{
	struct pst_done done = { 0 };
	struct target t;
	int64_t r;

	if (!enter_io(job))
		return -ETIMEDOUT;
	r = target_init(&t, &job->item, job->item.len);
	if (r == 0) {
		done = worker_move(w, job, PST_OP_WRITE, file, &t, job->item.len);
		note_busy(job, &done);
		r = done.res;
		if (r >= 0 && ((uint64_t)r != job->item.len || !(done.flags & PST_DONE_CRC32C)))
			r = -EIO;
		*ret_crc = done.crc32c;
	}
	target_done(w->kv, &t, done.flags & PST_DONE_BUSY);
	leave_io(job);
	return r;
}

static int64_t write_block(struct worker *w, struct job *job, int fd)
{
	struct block_id id = id_of(job);
	char tail[TAIL_MAX];
	struct pst_file *file;
	uint32_t crc = 0;
	size_t n;
	int64_t r;

	r = pst_file_wrap(fd, 0, NULL, &file);
	if (r < 0)
		return r;
	r = write_bytes(w, job, file, &crc);
	pst_file_close(file);
	if (r < 0)
		return r;
	n = block_tail(tail, &id, job->item.len, crc);
	r = pwrite(fd, tail, n, (off_t)job->item.len);
	if (r != (int64_t)n)
		return r < 0 ? -errno : -ENOSPC;
	if (w->kv->sync && fdatasync(fd) < 0)
		return -errno;
	return 0;
}

static int64_t set(struct worker *w, struct job *job)
{
	struct pst_kv *kv = w->kv;
	uint64_t file_len = job->item.len + job->item.key_len + FOOT_LEN;
	uint64_t size = size_of_file(file_len);
	unsigned dir = root_dir_of(&kv->root, job->hash);
	_cleanup_(closep) int fd = -1;
	char temp[32];
	int64_t r;

	r = cache_reserve(kv, job->batch->space, job->hash, size);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&kv->lock);
	(void)snprintf(temp, sizeof(temp), "tmp/%" PRIu64, kv->next_temp++);
	(void)pthread_mutex_unlock(&kv->lock);
	fd = openat(kv->root.dir[dir], temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
		    0666);
	r = fd < 0 ? -errno : write_block(w, job, fd);
	(void)pthread_mutex_lock(&kv->lock);
	kv->pending[dir] -= size;
	(void)pthread_mutex_unlock(&kv->lock);
	if (r == 0)
		r = cache_publish(kv, job->batch->space, job->hash, file_len, kv->root.dir[dir],
				  temp);
	if (r == 0) {
		(void)pthread_mutex_lock(&kv->lock);
		kv->stat.sets++;
		kv->stat.set_bytes += job->item.len;
		kv->stat.written += file_len;
		(void)pthread_mutex_unlock(&kv->lock);
		return 0;
	}
	/* A file that cannot be removed still counts until the store is opened again. */
	if (fd < 0 || unlinkat(kv->root.dir[dir], temp, 0) == 0 || errno == ENOENT)
		cache_unreserve(kv, job->batch->space, size);
	return r;
}

/* -------------------------------------------------------------- others */

static int64_t worker_exists(struct worker *w, const struct job *job)
{
	uint64_t tail = job->item.key_len + FOOT_LEN;
	char path[BLOCK_PATH_LEN];
	struct stat st;

	block_path(path, space_of(job)->hash, job->hash);
	if (fstatat(worker_dir_of(w->kv, job), path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return st.st_size > (off_t)tail ? st.st_size - (off_t)tail : -ENOENT;
}

static int64_t del(struct worker *w, const struct job *job)
{
	int r = cache_remove(w->kv, job->batch->space, job->hash);

	return r > 0 ? 0 : r == 0 ? -ENOENT : r;
}

static int64_t kv_worker_step(struct worker *w, struct job *job)
{
	switch (job->batch->op) {
	case PST_KV_GET:
		return get_and_settle(w, job);
	case PST_KV_SET:
		return set(w, job);
	case PST_KV_DELETE:
		return del(w, job);
	default:
		return worker_exists(w, job);
	}
}

/* Called with the lock: return the next job, or NULL when the store is closed. */
static struct job *next_job(struct pst_kv *kv)
{
	struct job *job;

	while (list_empty(&kv->queue)) {
		if (kv->ending)
			return NULL;
		(void)pthread_cond_wait(&kv->work, &kv->lock);
	}
	job = list_first(&kv->queue, struct job, link);
	list_del(&job->link);
	job->state = JOB_PATH;
	job->batch->refs++;
	return job;
}

void *kv_worker_main(void *arg)
{
	struct worker *w = arg;
	struct pst_kv *kv = w->kv;
	struct job *job;
	int64_t r;

	(void)pthread_setname_np(pthread_self(), "pst-kv-io");
	(void)pthread_mutex_lock(&kv->lock);
	while ((job = next_job(kv))) {
		(void)pthread_mutex_unlock(&kv->lock);
		r = kv_worker_step(w, job);
		(void)pthread_mutex_lock(&kv->lock);
		if (job->state != JOB_DONE)
			job_end(job, r);
		batch_unref(job->batch);
	}
	w->running = false;
	(void)pthread_cond_broadcast(&kv->reaped);
	(void)pthread_mutex_unlock(&kv->lock);
	pst_queue_free(w->queue);
	pst_mem_free(w->bounce);
	kv_unref(kv);
	return NULL;
}
