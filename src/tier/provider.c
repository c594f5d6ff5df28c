/* SPDX-License-Identifier: MIT */
/*
 * tier://SET/NAME: files of a set, as a provider in a module.
 *
 * Requests run on the file in the root that the catalogue names.  After the mover has moved the
 * file to another root, the next request sees that the name's epoch has changed (epoch.h).  The
 * request is retried while a thread of the set opens the file in its new root.  A file that is open
 * for writing is not moved, so writes never go to a stale copy.  A file that is an object is read
 * as s3://BUCKET/KEY, and moved to a disk when it is opened for writing.
 *
 * Lock order: sets_lock, set->lock (catalogue, files), set->wake_lock.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/err.h"
#include "base/list.h"
#include "base/log.h"
#include "file/module.h"
#include "tier/bring.h"
#include "tier/epoch.h"
#include "tier/lookup.h"
#include "tier/object.h"
#include "tier/place.h"
#include "tier/provider.h"
#include "tier/set.h"

#define FLUSH_S 5      /* seconds between two updates of access counts in the catalogue */
#define TRIES 20       /* attempts to open a file that keeps moving */
#define AGAIN_MS 50    /* milliseconds until the next attempt after a failed open */
#define LEASE_MS 60000 /* milliseconds; the kernel breaks a lease after 45 s by default */
#define LEASE_PAUSE_MS 10

static const struct file_module_host *host;

/* A set with files that this process has open. */
struct open_set {
	struct list link; /* in the list sets */
	unsigned users;   /* number of open files; under sets_lock */
	struct tier_set *set;
	pthread_mutex_t lock; /* covers the catalogue, files and accesses */
	pthread_cond_t idle;  /* a file is not busy any more */
	struct list files;
	pthread_mutex_t wake_lock; /* held only briefly, because requests take it */
	pthread_cond_t wake;
	bool end, asked; /* under wake_lock */
	pthread_t thread;
};

/* A file of a set.  Requests use of[now]; the other one is NULL, or closes after its last
 * request. */
struct set_file {
	struct file file; /* must be the first member */
	struct open_set *in;
	struct list link; /* in in->files */
	char *name;
	uint64_t accesses; /* accesses not yet counted in the catalogue */
	bool busy;         /* a thread opens the file without the set's lock; under in->lock */
	const _Atomic uint64_t *epoch;
	_Atomic uint64_t seen; /* value of *epoch when of[now] was found */
	atomic_uint now;
	atomic_uint holds[2]; /* requests that use of[i] */
	atomic_int err;       /* 0, or the -errno of the last attempt to reopen the file */
	char why[ERR_TEXT_MAX];
	_Atomic(struct pst_file *) of[2];
};

static pthread_mutex_t sets_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list sets = LIST_INIT(sets);

static struct set_file *set_file_of(const struct file *f)
{
	return container_of((struct file *)(uintptr_t)f, struct set_file, file);
}

/* ------------------------------------------------------- a file and its root */

static int open_flags(uint32_t flags)
{
	if (!(flags & PST_FILE_WRITE))
		return O_RDONLY;
	return flags & PST_FILE_READ ? O_RDWR : O_WRONLY;
}

/* Open the file in its current root.  Return a descriptor, or -errno with a sentence. */
static int open_now(struct open_set *s, const char *name, uint32_t flags)
{
	struct tier_file known;
	int fd = lookup_open(s->set, name, open_flags(flags), &known), r = 0;
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		r = err_set(errno, "cannot look at %s: %s", name, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		r = err_set(EINVAL, "%s of the set %s is no regular file", name, s->set->name);
	else if ((flags & PST_FILE_TRUNC) && ftruncate(fd, 0) < 0)
		r = err_set(errno, "cannot empty %s: %s", name, strerror(errno));
	if (r == 0)
		return fd;
	(void)close(fd);
	return r;
}

static int provider_err_open(const struct open_set *s, const char *name, int err)
{
	return err_set(err, "cannot open %s of the set %s: %s", name, s->set->name, strerror(-err));
}

/* Where the object of a file is. */
struct object_place {
	struct tier_root root;
	struct tier_object object;
	uint64_t size;
};

static int provider_find_object(struct open_set *s, const char *name, struct object_place *ret)
{
	struct tier_file file;
	int r = catalog_find(s->set->catalog, name, &file);

	if (r == 0 && !file_is_object(s->set, &file))
		r = -ENOENT;
	if (r == 0)
		r = catalog_object(s->set->catalog, file.id, &ret->object);
	/* The file has moved meanwhile. */
	if (r == -ENOENT)
		return err_set(EAGAIN, "%s is being moved; ask again", name);
	if (r < 0)
		return r;
	ret->root = s->set->roots[file.root];
	ret->size = file.stamp.size;
	return 0;
}

/*
 * Open an object.  If another program replaces it between the two requests, its reads fail with
 * -ESTALE, because the file keeps the ETag of its own first request.
 */
static int provider_open_object(const struct object_place *p, uint32_t flags, struct pst_file **ret)
{
	struct object_facts facts;
	char url[OBJECT_URL_SIZE];
	int r;

	object_url(&p->root, p->object.key, url);
	r = host->open(url, PST_FILE_READ | (flags & (PST_FILE_STABLE | PST_FILE_PLAIN)), NULL,
		       ret);
	if (r == 0) {
		r = object_same(&p->root, &p->object, p->size, &facts);
		if (r < 0)
			*ret = host->close(*ret);
	}
	return r;
}

/* Create the library's file from a descriptor of open_now(). */
static int open_beneath(struct open_set *s, const char *name, uint32_t flags, struct pst_file **ret)
{
	int fd = open_now(s, name, flags), r;

	if (fd == -EREMOTE && !(flags & PST_FILE_WRITE)) {
		_cleanup_(freep) struct object_place *p = malloc(sizeof(*p));

		r = p ? provider_find_object(s, name, p) : err_set(ENOMEM, "out of memory");
		if (r < 0)
			return r;
		/* The server may take long: let others open files of the set. */
		(void)pthread_mutex_unlock(&s->lock);
		r = provider_open_object(p, flags, ret);
		(void)pthread_mutex_lock(&s->lock);
		return r;
	}
	if (fd < 0)
		return fd;
	r = host->wrap(fd, flags & (PST_FILE_STABLE | PST_FILE_PLAIN), NULL, ret);
	(void)close(fd);
	return r;
}

/* --------------------------------------------------------------------- create */

/* Create the file, within a transaction of the catalogue. */
static int provider_make(struct open_set *s, const char *name, uint32_t flags, uint32_t mode)
{
	struct tier_set *set = s->set;
	int root = place_root(set, 0), dir, fd;
	const char *base;
	struct tier_file file = { .root = (unsigned)MAX(root, 0) };

	if (root < 0)
		return root;
	dir = place_dir(set, (unsigned)root, name, &base);
	if (dir < 0)
		return dir;
	(void)close(dir);
	fd = name_open(set->roots[root].fd, name, open_flags(flags) | O_NOFOLLOW | O_CREAT | O_EXCL,
		       mode & 07777);
	if (fd < 0)
		return provider_err_open(s, name, fd);
	(void)close(fd);
	(void)snprintf(file.name, sizeof(file.name), "%s", name);
	return catalog_put(set->catalog, &file);
}

/* Create the file unless it exists. */
static int provider_create(struct open_set *s, const char *name, uint32_t flags, uint32_t mode)
{
	int r = catalog_begin(s->set->catalog), fd;

	if (r < 0)
		return r;
	fd = open_now(s, name, PST_FILE_READ);
	if (fd >= 0) {
		(void)close(fd);
		r = flags & PST_FILE_EXCL ? err_set(EEXIST, "%s is there already", name) : 0;
	} else if (fd == -EREMOTE) {
		/* set_file_begin() moves it to a disk. */
		r = flags & PST_FILE_EXCL ? err_set(EEXIST, "%s is there already", name) : 0;
	} else if (fd == -ENOENT) {
		r = provider_make(s, name, flags, mode);
	} else {
		r = fd;
	}
	if (r == 0)
		return catalog_commit(s->set->catalog);
	catalog_rollback(s->set->catalog);
	return r;
}

/* ------------------------------------------------------ the thread of a set */

/* Open the file in its current root, for later requests.  Unlock the set while an object is
 * opened. */
static void provider_follow(struct open_set *s, struct set_file *f)
{
	unsigned now = atomic_load(&f->now), other = 1 - now;
	uint64_t epoch = atomic_load(f->epoch);
	struct pst_file *beneath = NULL;
	int r;

	if (atomic_load(&f->seen) == epoch && !atomic_load(&f->err))
		return;
	/* Requests from before the previous move still use it. */
	if (atomic_load(&f->holds[other]))
		return;
	f->of[other] = host->close(f->of[other]);
	f->busy = true;
	r = open_beneath(s, f->name, f->file.flags, &beneath);
	f->busy = false;
	(void)pthread_cond_broadcast(&s->idle);
	if (r == -ENOENT) {
		/* The file was deleted: processes that have it open keep its bytes. */
		atomic_store(&f->err, 0);
	} else if (r < 0) {
		(void)snprintf(f->why, sizeof(f->why), "%s", err_text());
		atomic_store(&f->err, r);
		return;
	} else {
		f->of[other] = beneath;
		atomic_store(&f->now, other);
		atomic_store(&f->err, 0);
	}
	/* If the file has moved again, the epoch differs, and the next turn follows. */
	atomic_store(&f->seen, epoch);
}

static void flush_accesses(struct open_set *s)
{
	struct list *e;

	list_for_each (e, &s->files) {
		struct set_file *f = list_entry(e, struct set_file, link);

		if (!f->accesses)
			continue;
		if (catalog_access(s->set->catalog, f->name, f->accesses) < 0)
			log_debug("accesses to %s are not counted: %s", f->name, err_text());
		f->accesses = 0;
	}
}

/* Close the file in the previous root once no request uses it. */
static void close_left(struct set_file *f)
{
	unsigned other = 1 - atomic_load(&f->now);

	if (f->of[other] && !atomic_load(&f->holds[other]))
		f->of[other] = host->close(f->of[other]);
}

static bool provider_look_after(struct open_set *s)
{
	struct list *e;
	bool late = false;

	(void)pthread_mutex_lock(&s->lock);
	list_for_each (e, &s->files) {
		struct set_file *f = list_entry(e, struct set_file, link);

		provider_follow(s, f);
		close_left(f);
		late |= atomic_load(&f->seen) != atomic_load(f->epoch) || atomic_load(&f->err);
	}
	(void)pthread_mutex_unlock(&s->lock);
	return late;
}

static void *provider_run(void *arg)
{
	struct open_set *s = arg;
	uint64_t flush_at = now_ns() + FLUSH_S * NSEC_PER_SEC;
	bool late = false;

	(void)pthread_mutex_lock(&s->wake_lock);
	while (!s->end) {
		uint64_t ms = late ? AGAIN_MS : FLUSH_S * 1000;
		struct timespec ts;

		(void)clock_gettime(CLOCK_MONOTONIC, &ts);
		ts.tv_nsec += (long)(ms % 1000 * NSEC_PER_MSEC);
		ts.tv_sec += (time_t)(ms / 1000) + ts.tv_nsec / (long)NSEC_PER_SEC;
		ts.tv_nsec %= (long)NSEC_PER_SEC;
		if (!s->asked)
			(void)pthread_cond_timedwait(&s->wake, &s->wake_lock, &ts);
		s->asked = false;
		(void)pthread_mutex_unlock(&s->wake_lock);
		late = provider_look_after(s);
		if (now_ns() >= flush_at) {
			(void)pthread_mutex_lock(&s->lock);
			flush_accesses(s);
			(void)pthread_mutex_unlock(&s->lock);
			flush_at = now_ns() + FLUSH_S * NSEC_PER_SEC;
		}
		(void)pthread_mutex_lock(&s->wake_lock);
	}
	(void)pthread_mutex_unlock(&s->wake_lock);
	return NULL;
}

static void provider_wake(struct open_set *s)
{
	(void)pthread_mutex_lock(&s->wake_lock);
	s->asked = true;
	(void)pthread_cond_signal(&s->wake);
	(void)pthread_mutex_unlock(&s->wake_lock);
}

/* ----------------------------------------------------------------- open sets */

static void open_set_free(struct open_set *s)
{
	(void)set_close(s->set);
	(void)pthread_cond_destroy(&s->wake);
	(void)pthread_mutex_destroy(&s->wake_lock);
	(void)pthread_cond_destroy(&s->idle);
	(void)pthread_mutex_destroy(&s->lock);
	free(s);
}

static int open_set_new(const char *name, struct open_set **ret)
{
	struct open_set *s = calloc(1, sizeof(*s));
	pthread_condattr_t attr;
	int r;

	if (!s)
		return err_set(ENOMEM, "out of memory");
	list_init(&s->files);
	(void)pthread_mutex_init(&s->lock, NULL);
	(void)pthread_cond_init(&s->idle, NULL);
	(void)pthread_mutex_init(&s->wake_lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&s->wake, &attr);
	(void)pthread_condattr_destroy(&attr);
	r = set_open(name, &s->set);
	if (r == 0 && pthread_create(&s->thread, NULL, provider_run, s) != 0)
		r = err_set(EAGAIN, "no thread for the set %s", name);
	if (r < 0) {
		open_set_free(s);
		return r;
	}
	(void)pthread_setname_np(s->thread, "pst-tier");
	*ret = s;
	return 0;
}

static int open_set_get(const char *name, struct open_set **ret)
{
	struct list *e;
	int r = 0;

	*ret = NULL;
	(void)pthread_mutex_lock(&sets_lock);
	list_for_each (e, &sets) {
		struct open_set *s = list_entry(e, struct open_set, link);

		if (!strcmp(s->set->name, name))
			*ret = s;
	}
	if (!*ret) {
		r = open_set_new(name, ret);
		if (r == 0)
			list_add_tail(&sets, &(*ret)->link);
	}
	if (r == 0)
		(*ret)->users++;
	(void)pthread_mutex_unlock(&sets_lock);
	return r;
}

static void open_set_put(struct open_set *s)
{
	(void)pthread_mutex_lock(&sets_lock);
	if (--s->users) {
		(void)pthread_mutex_unlock(&sets_lock);
		return;
	}
	list_del(&s->link);
	(void)pthread_mutex_unlock(&sets_lock);
	(void)pthread_mutex_lock(&s->wake_lock);
	s->end = true;
	(void)pthread_cond_signal(&s->wake);
	(void)pthread_mutex_unlock(&s->wake_lock);
	(void)pthread_join(s->thread, NULL);
	open_set_free(s);
}

/* ------------------------------------------------------------- the provider */

static const struct file_ops tier_file_ops;

static void set_file_free(struct file *file)
{
	struct set_file *f = set_file_of(file);
	struct open_set *s = f->in;

	(void)pthread_mutex_lock(&s->lock);
	while (f->busy)
		(void)pthread_cond_wait(&s->idle, &s->lock);
	if (f->accesses && catalog_access(s->set->catalog, f->name, f->accesses) < 0)
		log_debug("accesses to %s are not counted: %s", f->name, err_text());
	if (!list_empty(&f->link))
		list_del(&f->link);
	(void)pthread_mutex_unlock(&s->lock);
	for (unsigned i = 0; i < 2; i++)
		(void)host->close(f->of[i]);
	open_set_put(s);
	free(f->name);
	free(f);
}

static int set_file_try(struct set_file *f, uint32_t flags, uint32_t mode)
{
	struct pst_file *beneath = NULL;
	struct open_set *s = f->in;
	int r = 0;

	(void)pthread_mutex_lock(&s->lock);
	if (flags & PST_FILE_CREATE)
		r = provider_create(s, f->name, flags, mode);
	f->epoch = epochs_of(s->set->epochs, f->name);
	/* Make readers look again: a killed mover may not have told them where the file is. */
	if (flags & PST_FILE_WRITE)
		set_moved(s->set, f->name);
	f->seen = atomic_load(f->epoch);
	if (r == 0)
		r = open_beneath(s, f->name, flags, &beneath);
	if (r == 0) {
		f->of[0] = beneath;
		f->accesses = 1;
		list_add_tail(&s->files, &f->link);
	}
	(void)pthread_mutex_unlock(&s->lock);
	return r;
}

/* Open the file, retrying while the mover holds a lease: opening for writing breaks it, and the
 * mover gives way soon. */
static int set_file_begin(struct set_file *f, uint32_t flags, uint32_t mode)
{
	const struct timespec pause = { .tv_nsec = LEASE_PAUSE_MS * (long)NSEC_PER_MSEC };
	int r = set_file_try(f, flags, mode);

	if (r == -EREMOTE && (flags & PST_FILE_WRITE)) {
		r = bring_up_locked(f->in->set->name, f->name);
		if (r == 0)
			r = set_file_try(f, flags, mode);
	}
	for (unsigned i = 0; r == -EAGAIN && i < LEASE_MS / LEASE_PAUSE_MS; i++) {
		(void)nanosleep(&pause, NULL);
		r = set_file_try(f, flags & ~PST_FILE_EXCL, mode);
	}
	return r == -EAGAIN ? err_set(EBUSY, "%s: another program holds a lease of it", f->name)
			    : r;
}

static int set_file_open(const char *name, uint32_t flags, uint32_t mode, struct file **ret)
{
	char set[NAME_MAX + 1], file[TIER_NAME_SIZE];
	struct set_file *f;
	int r = provider_split(name, false, set, file);

	if (r < 0)
		return r;
	f = calloc(1, sizeof(*f));
	if (!f)
		return err_set(ENOMEM, "out of memory");
	list_init(&f->link);
	f->file.ops = &tier_file_ops;
	f->file.flags = flags & ~(PST_FILE_CREATE | PST_FILE_EXCL | PST_FILE_TRUNC);
	f->file.caps = FILE_MAY_HANG; /* closing waits for the catalogue */
	(void)snprintf(f->file.name, sizeof(f->file.name), "%s", TIER_SCHEME);
	f->name = strdup(file);
	r = f->name ? open_set_get(set, &f->in) : err_set(ENOMEM, "out of memory");
	if (r < 0) {
		free(f->name);
		free(f);
		return r;
	}
	r = set_file_begin(f, flags, mode);
	if (r < 0) {
		set_file_free(&f->file);
		return r;
	}
	*ret = &f->file;
	return 0;
}

static int set_file_lower(struct file *file, uint32_t op, struct pst_file **ret)
{
	struct set_file *f = set_file_of(file);
	unsigned now;

	(void)op;
	if (unlikely(atomic_load_explicit(&f->seen, memory_order_relaxed) !=
		     atomic_load_explicit(f->epoch, memory_order_acquire))) {
		int err = atomic_load(&f->err);

		provider_wake(f->in);
		return err ? err_set(err, "%s", f->why) : -EAGAIN;
	}
	for (;;) {
		now = atomic_load(&f->now);
		atomic_fetch_add(&f->holds[now], 1);
		/* Pairs with provider_follow(), which first checks holds and then changes now. */
		if (likely(atomic_load(&f->now) == now))
			break;
		atomic_fetch_sub(&f->holds[now], 1);
	}
	*ret = atomic_load_explicit(&f->of[now], memory_order_relaxed);
	return 0;
}

static void set_file_lower_put(struct file *file, uint32_t op, struct pst_file *beneath)
{
	struct set_file *f = set_file_of(file);
	unsigned at = beneath == atomic_load_explicit(&f->of[1], memory_order_relaxed);

	(void)op;
	atomic_fetch_sub(&f->holds[at], 1);
}

static int set_file_size(const struct file *file, uint64_t *ret)
{
	struct pst_file_info info = { .sz = sizeof(info) };
	struct set_file *f = set_file_of(file);
	struct pst_file *beneath;
	int r = set_file_lower(&f->file, PST_OP_READ, &beneath);

	if (r == -EAGAIN)
		return err_set(EBUSY, "%s is being moved; ask again", f->name);
	if (r < 0)
		return r;
	r = host->info(beneath, &info);
	set_file_lower_put(&f->file, PST_OP_READ, beneath);
	*ret = info.size;
	return r;
}

static const struct file_ops tier_file_ops = {
	.scheme = TIER_SCHEME,
	.lower = set_file_lower,
	.lower_put = set_file_lower_put,
	.open = set_file_open,
	.free = set_file_free,
	.size = set_file_size,
	.names = &tier_names_ops,
};

static int provider_begin(const struct file_module_host *h, const char *scheme,
			  const struct file_ops **ret)
{
	(void)scheme;
	host = h;
	file_module_use(h);
	*ret = &tier_file_ops;
	return 0;
}

FILE_MODULE(provider_begin);
