/* SPDX-License-Identifier: MIT */
/*
 * Threads that do the I/O of blocks, each one block at a time.  Calls with a path may hang in the
 * kernel, so they do not use the caller's memory, and the owner thread ends the job at its deadline
 * (JOB_PATH).  A request of a pst_queue moves the caller's bytes, and ends at the deadline by
 * itself (JOB_IO).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "base/log.h"

#include "kv/remote.h"
#include "kv/store.h"
#include "kv/target.h"

/* Bytes of the longest block that a caller of pst_kv_run() copies through the store's memory
 * itself. */
#define BOUNCE_HELP_MAX MIB(2)

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

/* Mark the job as using the caller's memory.  Return false if the owner thread has ended the
 * job. */
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

/* --------------------------------------------------------------- move */

/* Prepare a request.  If the device computes no checksums, use checksums of staging memory. */
static int move_prep(struct worker *w, struct pst_io *io)
{
	int r = pst_queue_prep(w->queue, io);

	if (r != -EOPNOTSUPP)
		return r;
	io->flags &= ~PST_IO_CRC32C_MEM;
	return pst_queue_prep(w->queue, io);
}

/* Submit one request for the bytes from @at on, and wait for it.  The request's checksum covers the
 * bytes in memory. */
static struct pst_done worker_move(struct worker *w, const struct job *job, uint32_t op,
				   struct pst_file *file, const struct target *t, uint64_t at,
				   uint64_t len)
{
	struct pst_io io = {
		.op = op,
		.flags = PST_IO_CRC32C | PST_IO_CRC32C_MEM,
		.file = file,
		.mem = t->mem,
		.segs = t->segs,
		.nr_segs = t->nr_segs,
		.file_off = t->segs ? 0 : at,
		.mem_off = t->segs ? 0 : t->off + at,
		.len = t->segs ? 0 : len - at,
		.deadline_ns = job->batch->deadline_ns,
	};
	struct pst_done done = { 0 };
	int r = move_prep(w, &io);

	if (r < 0) {
		done.res = r;
		return done;
	}
	(void)pst_queue_submit(w->queue);
	if (pst_queue_reap(w->queue, &done, 1, 1, PST_NO_DEADLINE) != 1)
		done = (struct pst_done){ .res = -EIO };
	return done;
}

/* ---------------------------------------------------------------- get */

int worker_room(struct worker *w, uint64_t len)
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

int64_t worker_deliver(struct worker *w, struct job *job, uint64_t len)
{
	struct target t;
	int64_t r;

	if (!enter_io(job))
		return -ETIMEDOUT;
	r = target_init(&t, &job->item, len);
	if (r == 0)
		r = target_put(&t, pst_mem_ptr(w->bounce), len);
	target_done(w->kv, &t, false);
	leave_io(job);
	return r < 0 ? r : (int64_t)len;
}

int worker_gather(struct worker *w, struct job *job)
{
	struct target t;
	int r;

	if (!enter_io(job))
		return -ETIMEDOUT;
	r = target_init(&t, &job->item, job->item.len);
	if (r == 0)
		r = target_take(&t, pst_mem_ptr(w->bounce), job->item.len);
	target_done(w->kv, &t, false);
	leave_io(job);
	return r;
}

/* The open file of a block. */
struct source {
	int fd;
	enum warm_fs fs;
	struct pst_file *file; /* wraps fd for requests; NULL until needed */
	uint64_t len;          /* length of the block, bytes */
	uint32_t crc;          /* CRC-32C of the block, from its foot */
	uint64_t at;           /* bytes that were in memory, and were read */
	uint32_t sum;          /* CRC-32C of the first at bytes */
};

static int64_t check_crc(const struct source *src, uint32_t crc)
{
	if (crc != src->crc)
		return err_set(EBADMSG, "a block fails its check");
	return (int64_t)src->len;
}

/* Return the target's address if it is host memory with room for the block, else NULL. */
static char *warm_base(const struct target *t, const struct job *job)
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	uint64_t end = target_extent(&job->item);
	char *base = pst_mem_ptr(t->mem);

	if (!base || t->wrapped)
		return base;
	if (pst_mem_info(t->mem, &info) < 0 || job->item.mem_off > info.len ||
	    end > info.len - job->item.mem_off)
		return NULL;
	return base;
}

/* Read the rest of a block by a request.  src->file must be set. */
static int64_t read_rest(struct worker *w, struct job *job, const struct source *src,
			 const struct target *t, uint32_t *ret_flags)
{
	/* With segments, a request starts at the first piece, so read everything again. */
	uint64_t at = t->segs ? 0 : src->at;
	struct pst_done done = worker_move(w, job, PST_OP_READ, src->file, t, at, src->len);

	*ret_flags = done.flags;
	if (done.res < 0)
		return done.res;
	if ((uint64_t)done.res != src->len - at)
		return err_set(EBADMSG, "the file of a block ended while it was read");
	if (!(done.flags & PST_DONE_CRC32C))
		return err_set(EIO, "a request came back without its CRC-32C");
	return check_crc(src,
			 at ? crc32c_combine(src->sum, done.crc32c, src->len - at) : done.crc32c);
}

/* Create the file for read_rest(), unless the whole block was read. */
static int64_t read_prepare(const struct worker *w, struct source *src)
{
	if (src->at == src->len)
		return 0;
	return w->is_caller ? -EAGAIN : pst_file_wrap(src->fd, 0, NULL, &src->file);
}

static int64_t read_bounced(struct worker *w, struct job *job, struct source *src)
{
	int64_t r = worker_room(w, src->len);
	uint32_t flags = 0;
	struct target t;

	if (r < 0)
		return r;
	t = (struct target){ .mem = w->bounce };
	src->at = warm_read(src->fd, src->fs, pst_mem_ptr(w->bounce), NULL, 0, src->len, &src->sum);
	r = read_prepare(w, src);
	if (r == 0)
		r = src->file ? read_rest(w, job, src, &t, &flags) : check_crc(src, src->sum);
	if (flags & PST_DONE_BUSY) {
		/* Free it: the library keeps the memory until the kernel does not use it any
		 * more. */
		w->bounce = pst_mem_free(w->bounce);
		w->bounce_len = 0;
	}
	return r < 0 ? r : worker_deliver(w, job, src->len);
}

static int64_t read_bytes(struct worker *w, struct job *job, struct source *src)
{
	uint32_t flags = 0;
	struct target t;
	char *base;
	int64_t r;

	if (w->kv->bounce)
		return read_bounced(w, job, src);
	if (!enter_io(job))
		return -ETIMEDOUT;
	r = target_init(&t, &job->item, src->len);
	base = r == 0 ? warm_base(&t, job) : NULL;
	if (base)
		src->at = warm_read(src->fd, src->fs, base + (t.segs ? 0 : t.off), t.segs,
				    t.nr_segs, src->len, &src->sum);
	leave_io(job);
	/* Prepare outside of JOB_IO, because preparing a request may hang. */
	if (r == 0)
		r = read_prepare(w, src);
	if (r == 0 && !src->file)
		r = check_crc(src, src->sum);
	else if (r == 0 && !enter_io(job))
		r = -ETIMEDOUT;
	else if (r == 0) {
		r = read_rest(w, job, src, &t, &flags);
		if (flags & PST_DONE_BUSY)
			job->batch->done.flags |= PST_KV_BUSY;
		leave_io(job);
	}
	target_done(w->kv, &t, flags & PST_DONE_BUSY);
	return r;
}

/* Return true if the time of use in the file must be updated. */
static bool touch_is_due(const struct pst_kv *kv, const struct stat *st)
{
	uint64_t then = (uint64_t)st->st_mtim.tv_sec * NSEC_PER_SEC + (uint64_t)st->st_mtim.tv_nsec;

	return !kv->reader && clock_ns(CLOCK_REALTIME) > then + kv->touch_ns;
}

/* Store the time of use in the file, so that it survives a crash. */
static void touch(int fd)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_NOW } };

	(void)futimens(fd, times);
}

static int64_t get_open(struct worker *w, struct job *job, struct source *src)
{
	struct block_id id = id_of(job);
	char tail[TAIL_MAX];
	struct stat st;
	size_t n = id.key_len + FOOT_LEN;
	int64_t r;

	if (fstat(src->fd, &st) < 0)
		return -errno;
	if (st.st_size < (off_t)n)
		return err_set(EBADMSG, "the file of a block is shorter than its foot");
	if (w->is_caller)
		r = warm_pread(src->fd, src->fs, tail, n, (uint64_t)st.st_size - n);
	else
		r = pread(src->fd, tail, n, st.st_size - (off_t)n);
	if (r < 0)
		return w->is_caller ? r : -errno;
	if (r != (int64_t)n)
		return err_set(EBADMSG, "the file of a block ended while it was read");
	r = block_check(tail, n, (uint64_t)st.st_size, &id, &src->len, &src->crc, NULL, NULL);
	if (r < 0)
		return r;
	if (src->len > job->item.len)
		return -EMSGSIZE;
	if (touch_is_due(w->kv, &st)) {
		if (w->is_caller)
			return -EAGAIN;
		touch(src->fd);
	}
	return read_bytes(w, job, src);
}

static int64_t worker_get(struct worker *w, struct job *job)
{
	unsigned dir = root_dir_of(&w->kv->root, job->hash);
	struct source src = { .fs = w->kv->root.warm[dir] };
	char path[BLOCK_PATH_LEN];
	int64_t r;

	block_path(path, space_of(job)->hash, job->hash);
	src.fd = w->is_caller
			 ? warm_open(w->kv->root.dir[dir], path)
			 : openat(w->kv->root.dir[dir], path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (src.fd < 0)
		return w->is_caller ? src.fd : -errno;
	r = get_open(w, job, &src);
	/* Close after JOB_IO has ended, because closing may hang. */
	pst_file_close(src.file);
	closep(&src.fd);
	return r;
}

/* Get a block, and count the use.  Called with the lock, which is released in between. */
static int64_t get_and_count(struct worker *w, struct job *job)
{
	struct pst_kv *kv = w->kv;
	struct entry *e;
	int64_t r;

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
	return r;
}

/* Get a block.  If it is damaged or missing, remove it from index and disk. */
static int64_t get_and_settle(struct worker *w, struct job *job)
{
	struct block_id id = id_of(job);
	struct pst_kv *kv = w->kv;
	int64_t r;

	(void)pthread_mutex_lock(&kv->lock);
	r = get_and_count(w, job);
	kv->stat.corrupt += r == -EBADMSG;
	(void)pthread_mutex_unlock(&kv->lock);
	if (r == -EBADMSG)
		log_warn("kv: %s, removing it", err_text());
	if ((r == -EBADMSG || r == -ENOENT) && !kv->reader)
		(void)cache_remove(kv, job->batch->space, &id);
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
		done = worker_move(w, job, PST_OP_WRITE, file, &t, 0, job->item.len);
		if (done.flags & PST_DONE_BUSY)
			job->batch->done.flags |= PST_KV_BUSY;
		r = done.res;
		if (r == -EBADMSG)
			r = err_set(EIO, "a copy of a block out of its memory was wrong");
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
	struct block_id id = id_of(job);
	struct pst_kv *kv = w->kv;
	uint64_t file_len = job->item.len + job->item.key_len + FOOT_LEN;
	uint64_t size = size_of_file(file_len);
	unsigned dir = root_dir_of(&kv->root, job->hash);
	_cleanup_(closep) int fd = -1;
	char temp[TEMP_LEN];
	int64_t r;

	r = cache_reserve(kv, job->batch->space, job->hash, size);
	if (r < 0)
		return r;
	fd = cache_create(kv, dir, temp);
	r = fd < 0 ? fd : write_block(w, job, fd);
	(void)pthread_mutex_lock(&kv->lock);
	kv->pending[dir] -= size;
	(void)pthread_mutex_unlock(&kv->lock);
	if (r == 0)
		r = cache_publish(kv, job->batch->space, &id, file_len, kv->root.dir[dir], temp);
	if (r == 0) {
		(void)pthread_mutex_lock(&kv->lock);
		kv->stat.sets++;
		kv->stat.set_bytes += job->item.len;
		kv->stat.written += file_len;
		(void)pthread_mutex_unlock(&kv->lock);
		return 0;
	}
	/* A file that cannot be removed uses its bytes until the store is opened again. */
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
	struct block_id id = id_of(job);
	int r = cache_delete(w->kv, job->batch->space, &id);

	return r > 0 ? 0 : r == 0 ? -ENOENT : r;
}

static int64_t kv_worker_step(struct worker *w, struct job *job)
{
	if (w->kv->server)
		return remote_step(w, job);
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

/* Wait for the next job, and return it, or NULL when the store closes.  Called with the lock. */
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

/* Take a free entry for a caller that reads, or return NULL.  Called with the lock. */
static struct worker *caller_take(struct pst_kv *kv)
{
	for (unsigned i = 0; i < CALLERS_MAX; i++) {
		struct worker *w = &kv->callers[i];

		if (w->taken)
			continue;
		w->taken = w->is_caller = true;
		w->kv = kv;
		return w;
	}
	return NULL;
}

/* Execute a job on this thread.  Called with the lock, which is released in between.  Return false
 * if the job is back in the queue. */
static bool help_with(struct worker *w, struct job *job)
{
	struct pst_kv *kv = w->kv;
	bool left = false;
	int64_t r;

	list_del(&job->link);
	job->state = JOB_PATH;
	r = get_and_count(w, job);
	/* After any failure, leave the job to a thread of the store, which tries again and handles
	 * the failure. */
	if (job->state != JOB_DONE && r < 0) {
		left = true;
		job->state = JOB_QUEUED;
		list_add_tail(&kv->queue, &job->link);
	} else if (job->state != JOB_DONE) {
		job_end(job, r);
	}
	return !left;
}

unsigned worker_help(struct pst_kv *kv, struct batch *b)
{
	struct worker *w = caller_take(kv);
	unsigned left = 0;

	b->refs++;
	/* Begin at the end, because the store's threads begin with the first job. */
	for (unsigned i = b->nr; i-- > 0;) {
		struct job *job = &b->jobs[i];

		if (job->state != JOB_QUEUED)
			continue;
		if (!w || kv->root.warm[root_dir_of(&kv->root, job->hash)] == WARM_NO ||
		    (kv->bounce && job->item.len > BOUNCE_HELP_MAX) || !help_with(w, job))
			left++;
	}
	if (w)
		w->taken = false;
	batch_unref(b);
	return left;
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
	remote_hang_up(w);
	pst_mem_free(w->bounce);
	kv_unref(kv);
	return NULL;
}
