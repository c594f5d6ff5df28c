/* SPDX-License-Identifier: MIT */
/* Registered memory and files. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "plug_int.h"

#define FREE_WAIT 30 /* seconds that a deregistration waits for transfers */

const char *plug_region_name(const struct plug_region *r, char *buf, size_t len)
{
	if (r->path)
		snprintf(buf, len, "%s", r->path);
	else
		snprintf(buf, len, "descriptor %llu", (unsigned long long)r->dev);
	return buf;
}

static struct plug_handle *opening_free(struct plug_handle *h)
{
	if (h) {
		pst_mem_free(h->mem);
		pst_file_close(h->file);
		free(h);
	}
	return NULL;
}

static int opening_mem(const struct plug_region *r, struct pst_mem **ret_mem)
{
	struct pst_mem_opts opts = { .sz = sizeof(opts) };
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_mem *mem = NULL;
	int err;

	if (r->kind == PLUG_HOST)
		opts.kind = PST_KIND_HOST;
	err = pst_mem_wrap(r->addr, r->len, &opts, &mem);
	if (!err)
		err = pst_mem_info(mem, &info);
	if (err) {
		plug_log("%llu bytes at %#llx cannot be registered: %s", (unsigned long long)r->len,
			 (unsigned long long)r->addr, pst_error_text());
	} else if (r->kind == PLUG_DEVICE && info.kind == PST_KIND_HOST) {
		plug_log("%#llx was registered as VRAM and is host memory: register it as DRAM",
			 (unsigned long long)r->addr);
		err = -EINVAL;
	}
	if (err) {
		pst_mem_free(mem);
		return err;
	}
	*ret_mem = mem;
	return 0;
}

static int opening_file(const struct plug_region *r, struct pst_file **ret_file)
{
	/* 0644 is the mode that NIXL documents. */
	struct pst_file_opts opts = { .sz = sizeof(opts) };
	uint32_t stable = r->flags & PST_FILE_STABLE;
	int err;

	if (r->flags & PST_FILE_CREATE)
		opts.mode = 0644;
	if (r->path)
		err = pst_file_open(r->path, r->flags, &opts, ret_file);
	else
		err = pst_file_wrap(r->fd, stable, NULL, ret_file);
	/* The library's sentence has the number of the duplicate. */
	if (err && r->path)
		plug_log("%s cannot be registered: %s", r->path, pst_error_text());
	else if (err)
		plug_log("descriptor %llu, duplicated as %d, cannot be registered: %s",
			 (unsigned long long)r->dev, r->fd, pst_error_text());
	return err;
}

static struct plug_handle *opening_new(const struct plug_region *r, int *ret_err)
{
	struct plug_handle *h = calloc(1, sizeof(*h));

	*ret_err = -ENOMEM;
	if (!h)
		return NULL;
	h->refs = 1;
	*ret_err = r->kind == PLUG_FILE ? opening_file(r, &h->file) : opening_mem(r, &h->mem);
	return *ret_err ? opening_free(h) : h;
}

/* Note which file a path names, if that is a local one. */
static void path_note(struct plug_region *r)
{
	struct stat st;

	/* Opening the file again must not create one in place of a file that moved. */
	r->flags &= ~(uint32_t)PST_FILE_CREATE;
	if (stat(r->path, &st) < 0)
		return;
	r->st_dev = st.st_dev;
	r->st_ino = st.st_ino;
}

/* Return true if opening the region again gives the memory or file that was registered. */
static bool is_same_file(const struct plug_region *r)
{
	struct stat st;

	if (!r->path)
		return true;
	/* No file has the number 0: the path was not a local one. */
	return r->st_ino && !stat(r->path, &st) && st.st_dev == r->st_dev && st.st_ino == r->st_ino;
}

static struct plug_region *region_done(struct plug_region *r)
{
	opening_free(r->current);
	if (r->fd >= 0)
		close(r->fd);
	free(r->path);
	pthread_cond_destroy(&r->idle);
	pthread_mutex_destroy(&r->lock);
	free(r);
	return NULL;
}

/* Is the next of a list of words, up to end, the word?  Return the end of the word, or NULL. */
static const char *word(const char *at, const char *end, const char *want)
{
	size_t len = strlen(want);

	if ((size_t)(end - at) < len || memcmp(at, want, len) != 0)
		return NULL;
	at += len;
	return at == end || *at == ',' ? at : NULL;
}

/*
 * Parse "ro:PATH", or "rw" with "direct", "sync", "noatime" and "create".  The library uses
 * O_DIRECT wherever it can, so "direct" changes nothing; neither does "noatime".
 *
 * Return 1 for a path; 0 if meta is something else, and dev is the file; -EINVAL for a list of
 * words that begins as one for a path does: using dev then would use a file that nobody named.
 */
static int meta_parse(struct plug_region *r, const char *meta, size_t len)
{
	const char *colon = len ? memchr(meta, ':', len) : NULL, *at;
	size_t path_len;

	if (!colon)
		return 0;
	at = word(meta, colon, "ro");
	if (at) {
		r->flags = PST_FILE_READ;
	} else {
		at = word(meta, colon, "rw");
		if (!at)
			return 0;
		r->flags = PST_FILE_READ | PST_FILE_WRITE;
	}
	while (at < colon) {
		const char *next;

		at++;
		if ((next = word(at, colon, "create")))
			r->flags |= PST_FILE_CREATE;
		else if ((next = word(at, colon, "sync")))
			r->sync = true;
		else if (!(next = word(at, colon, "direct")) &&
			 !(next = word(at, colon, "noatime")))
			goto bad;
		at = next;
	}
	path_len = len - (size_t)(colon + 1 - meta);
	if (!path_len || path_len >= PATH_MAX || memchr(colon + 1, 0, path_len))
		goto bad;
	r->path = strndup(colon + 1, path_len);
	return r->path ? 1 : -ENOMEM;
bad:
	plug_log("a file's metadata is neither MODES:PATH nor empty: MODES are ro or rw, then "
		 "any of direct, sync, noatime and create, with commas");
	return -EINVAL;
}

/*
 * NIXL finds a file by dev alone, so two different files must not have the same.  A descriptor's
 * number is another file's if the program closed the first one after its registration.
 */
static int dev_claim(struct plug_engine *e, struct plug_region *r)
{
	struct plug_region *other;
	int err = 0;

	pthread_mutex_lock(&e->files_lock);
	for (other = e->files; other && !err; other = other->next_file)
		if (other->dev == r->dev && (other->path || r->path || other->st_dev != r->st_dev ||
					     other->st_ino != r->st_ino))
			err = -EEXIST;
	if (!err) {
		r->next_file = e->files;
		e->files = r;
	}
	pthread_mutex_unlock(&e->files_lock);
	if (err)
		plug_log("device id %llu already names another file: give each path its own, or "
			 "deregister a descriptor's file before its number is used again",
			 (unsigned long long)r->dev);
	return err;
}

static void dev_release(struct plug_engine *e, struct plug_region *r)
{
	struct plug_region **at;

	pthread_mutex_lock(&e->files_lock);
	for (at = &e->files; *at; at = &(*at)->next_file)
		if (*at == r) {
			*at = r->next_file;
			break;
		}
	pthread_mutex_unlock(&e->files_lock);
}

static int file_init(struct plug_region *r, const char *meta, size_t meta_len)
{
	int err = meta_parse(r, meta, meta_len);
	struct stat st;

	if (r->engine->opts.stable)
		r->flags |= PST_FILE_STABLE;
	if (r->engine->opts.sync)
		r->sync = true;
	if (err)
		return err < 0 ? err : 0;
	if (r->dev > INT_MAX) {
		plug_log("device id %llu is no file descriptor: give one, or metadata MODES:PATH",
			 (unsigned long long)r->dev);
		return -EBADF;
	}
	/* The program may close its own at any time, and the number may then be another file's. */
	r->fd = fcntl((int)r->dev, F_DUPFD_CLOEXEC, 3);
	if (r->fd >= 0 && !fstat(r->fd, &st)) {
		r->st_dev = st.st_dev;
		r->st_ino = st.st_ino;
		return 0;
	}
	err = -errno;
	plug_log("descriptor %llu cannot be registered: %s", (unsigned long long)r->dev,
		 strerror(-err));
	return err;
}

int plug_region_new(struct plug_engine *e, enum plug_kind kind, uint64_t addr, uint64_t len,
		    uint64_t dev, const char *meta, size_t meta_len, struct plug_region **ret_r)
{
	struct plug_region *r;
	int err;

	if (!plug_engine_is_ours(e))
		return -EOWNERDEAD;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	*r = (struct plug_region){
		.engine = e, .kind = kind, .addr = addr, .len = len, .dev = dev, .fd = -1, .refs = 1
	};
	pthread_mutex_init(&r->lock, NULL);
	err = plug_cond_init(&r->idle);
	if (err) {
		pthread_mutex_destroy(&r->lock);
		free(r);
		return err;
	}
	if (kind == PLUG_FILE) {
		err = file_init(r, meta, meta_len);
		if (!err)
			err = dev_claim(e, r);
	}
	if (!err) {
		r->current = opening_new(r, &err);
		if (err && kind == PLUG_FILE)
			dev_release(e, r);
		else if (!err && r->path)
			path_note(r);
	}
	if (err) {
		region_done(r);
		return err;
	}
	*ret_r = r;
	return 0;
}

bool plug_region_ref(struct plug_region *r)
{
	bool alive;

	pthread_mutex_lock(&r->lock);
	alive = !r->dead;
	r->refs += alive;
	pthread_mutex_unlock(&r->lock);
	return alive;
}

void plug_region_unref(struct plug_region *r)
{
	bool last;

	pthread_mutex_lock(&r->lock);
	last = !--r->refs;
	pthread_mutex_unlock(&r->lock);
	if (last)
		region_done(r);
}

bool plug_region_alive(struct plug_region *r)
{
	bool alive;

	pthread_mutex_lock(&r->lock);
	alive = !r->dead;
	pthread_mutex_unlock(&r->lock);
	return alive;
}

struct plug_handle *plug_region_begin(struct plug_region *r)
{
	struct plug_handle *h = NULL;

	pthread_mutex_lock(&r->lock);
	if (!r->dead) {
		h = r->current;
		h->refs++;
		r->active++;
	}
	pthread_mutex_unlock(&r->lock);
	return h;
}

void plug_region_end(struct plug_region *r, struct plug_handle *h)
{
	bool last;

	pthread_mutex_lock(&r->lock);
	last = !--h->refs;
	if (!--r->active)
		pthread_cond_broadcast(&r->idle);
	pthread_mutex_unlock(&r->lock);
	if (last)
		opening_free(h);
}

/*
 * Replace the current opening and clear renewing, which keeps others from replacing it meanwhile.
 * After a failure, later requests use the old opening, and the lost one ends later.
 */
static void renew(struct plug_region *r)
{
	struct plug_handle *fresh = NULL, *old = NULL;
	int err;

	if (is_same_file(r))
		fresh = opening_new(r, &err);
	/* The region's path may have become another file's before it was opened. */
	if (fresh && !is_same_file(r))
		fresh = opening_free(fresh);
	pthread_mutex_lock(&r->lock);
	r->renewing = false;
	if (fresh) {
		old = r->current;
		r->current = fresh;
		if (--old->refs)
			old = NULL;
	}
	pthread_mutex_unlock(&r->lock);
	opening_free(old);
}

static void *renew_main(void *arg)
{
	struct plug_region *r = arg;

	renew(r);
	plug_region_unref(r);
	return NULL;
}

void plug_region_renew(struct plug_region *r, struct plug_handle *h)
{
	pthread_t thread;
	bool renewing;

	pthread_mutex_lock(&r->lock);
	renewing = !r->dead && !r->renewing && r->current == h;
	if (renewing) {
		r->renewing = true;
		r->refs++;
	}
	pthread_mutex_unlock(&r->lock);
	if (!renewing)
		return;
	/* Opening a file may wait for a server.  The transfers of others must not wait. */
	if (r->kind == PLUG_FILE && !pthread_create(&thread, NULL, renew_main, r)) {
		pthread_detach(thread);
		return;
	}
	if (r->kind != PLUG_FILE) {
		renew_main(r);
		return;
	}
	pthread_mutex_lock(&r->lock);
	r->renewing = false;
	pthread_mutex_unlock(&r->lock);
	plug_region_unref(r);
}

int plug_region_free(struct plug_engine *e, struct plug_region *r)
{
	struct timespec until = plug_after(FREE_WAIT);
	bool busy;

	if (!plug_engine_is_ours(e))
		return 0;
	if (r->kind == PLUG_FILE)
		dev_release(e, r);
	pthread_mutex_lock(&r->lock);
	r->dead = true;
	while (r->active)
		if (pthread_cond_timedwait(&r->idle, &r->lock, &until))
			break;
	busy = r->active;
	pthread_mutex_unlock(&r->lock);
	if (busy) {
		plug_log("%#llx was deregistered while a transfer still uses it: do not free or "
			 "reuse it, and wait for transfers before you deregister",
			 (unsigned long long)r->addr);
		return -EBUSY;
	}
	plug_region_unref(r);
	return 0;
}
