/* SPDX-License-Identifier: MIT */
/*
 * The owner's calls: create and remove the server, files, buffers and rings.
 *
 * A forked child has no threads, and its locks may be held forever.  So every call first checks for
 * a fork, and does nothing then.  Removals wait with an executor's lock held, so they disable
 * cancellation: a cancelled thread would keep the lock.
 */
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cancel.h"
#include "usrbio/server/executor.h"
#include "usrbio/server/named.h"

#define EXECUTORS_DEFAULT 8u
#define IMPORT_END_NS NSEC_PER_SEC

static atomic_bool made; /* this process or an ancestor has created a server */
static bool is_child;

static void server_in_child(void)
{
	is_child |= made;
}

/* Register at load time: later, another thread may already be inside fork(). */
__attribute__((constructor)) static void watch_fork(void)
{
	(void)pthread_atfork(NULL, NULL, server_in_child);
}

static inline bool forked(void)
{
	return unlikely(is_child);
}

/* ------------------------------------------------------------------ server */

static unsigned default_executors(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return 1;
	return MIN((unsigned)CPU_COUNT(&set), EXECUTORS_DEFAULT);
}

int server_new(const struct server_opts *opts, struct server **ret)
{
	struct server_opts none = { 0 };
	const struct server_opts *o = opts ? opts : &none;
	struct server *w;

	if (forked())
		return -EOWNERDEAD;
	if (o->threads > EXECUTORS_MAX)
		return -EINVAL;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	made = true;
	w->table.version = 1;
	(void)pthread_mutex_init(&w->table.lock, NULL);
	(void)pthread_mutex_init(&w->lock, NULL);
	w->max_executors = o->threads ? o->threads : default_executors();
	w->tally = o->tally;
	if (w->tally)
		w->max_executors = MIN(w->max_executors, TALLY_LANES);
	w->guard = o->guard;
	w->writes = o->writes;
	if (w->guard)
		shm_guard();
	*ret = w;
	return 0;
}

struct server *server_free(struct server *w)
{
	if (!w || forked())
		return NULL;
	for (unsigned i = 0; i < w->nr_executors; i++)
		w->executors[i] = executor_free(w->executors[i]);
	if (w->guard)
		shm_unguard();
	(void)pthread_mutex_destroy(&w->table.lock);
	(void)pthread_mutex_destroy(&w->lock);
	free(w);
	return NULL;
}

/*
 * Wait until every executor has been outside of a pass, after an object was removed from the table.
 * An executor that is added later cannot find the object.
 */
static void server_forget(struct server *w, const struct server_file *f,
			  const struct server_buffer *b)
{
	unsigned nr;

	(void)pthread_mutex_lock(&w->lock);
	nr = w->nr_executors;
	(void)pthread_mutex_unlock(&w->lock);
	for (unsigned i = 0; i < nr; i++) {
		executor_enter(w->executors[i]);
		executor_forget(w->executors[i], f, b);
		executor_leave(w->executors[i]);
	}
}

/* ------------------------------------------------------------------- files */

static void server_file_free(struct server_file *f)
{
	if (f->named)
		named_unref(f->named);
	else
		(void)pst_file_close(f->file);
	closep(&f->fd);
	if (f->seek_fd >= 0)
		(void)close(f->seek_fd);
	free(f);
}

static int server_file_open(struct server_file *f, int fd)
{
	struct stat st;
	struct pst_file *file;
	int flags, err = pst_file_wrap(fd, 0, NULL, &file);

	if (err < 0)
		return err;
	f->file = file;
	f->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	flags = fcntl(fd, F_GETFL);
	if (f->fd < 0 || flags < 0 || fstat(fd, &st) < 0)
		return -errno;
	f->read = (flags & O_ACCMODE) != O_WRONLY;
	f->write = (flags & O_ACCMODE) != O_RDONLY;
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	return 0;
}

static int file_add(struct server *w, uint64_t number, int fd, bool told, struct server_file **ret)
{
	struct server_file *f;
	int err;

	if (forked())
		return -EOWNERDEAD;
	f = malloc(sizeof(*f));
	if (!f)
		return -ENOMEM;
	*f = (struct server_file){ .number = number, .fd = -1, .seek_fd = -1, .told = told };
	err = server_file_open(f, fd);
	if (err < 0) {
		server_file_free(f);
		return err;
	}
	table_file_add(&w->table, f);
	*ret = f;
	return 0;
}

int server_file_add(struct server *w, uint64_t number, int fd, struct server_file **ret)
{
	return file_add(w, number, fd, false, ret);
}

int server_file_add_told(struct server *w, uint64_t number, int fd, struct server_file **ret)
{
	return file_add(w, number, fd, w->writes, ret);
}

int server_file_add_name(struct server *w, uint64_t number, const char *name, uint32_t flags,
			 bool told, struct server_file **ret)
{
	struct server_file *f;
	int err;

	if (forked())
		return -EOWNERDEAD;
	f = malloc(sizeof(*f));
	if (!f)
		return -ENOMEM;
	*f = (struct server_file){
		.number = number,
		.fd = -1,
		.seek_fd = -1,
		.read = flags & PST_FILE_READ,
		.write = flags & PST_FILE_WRITE,
		.told = told && w->writes,
		.ino = (ino_t)number,
	};
	err = named_new(name, flags, &f->named);
	if (err < 0) {
		free(f);
		return err;
	}
	table_file_add(&w->table, f);
	*ret = f;
	return 0;
}

void server_file_remove(struct server *w, struct server_file *f)
{
	NO_CANCEL();

	if (forked())
		return;
	table_file_del(&w->table, f);
	server_forget(w, f, NULL);
	server_file_free(f);
}

/* ----------------------------------------------------------------- buffers */

/* Return a hash of the device's name.  If two devices collide, the worst effect is a wait. */
static uint64_t device_number(struct pst_mem *mem)
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	uint64_t n = UINT64_C(0xcbf29ce484222325);

	if (pst_mem_ptr(mem) || pst_mem_info(mem, &info) < 0)
		return pst_mem_ptr(mem) ? 0 : 1;
	for (const char *c = info.device; *c; c++)
		n = (n ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
	return n | 1;
}

static int buffer_add(struct server *w, const uint8_t id[USRBIO_ID_LEN],
		      const struct server_buffer *with, struct server_buffer **ret)
{
	struct server_buffer *b;

	if (!with->len || with->block_size > with->len)
		return -EINVAL;
	b = malloc(sizeof(*b));
	if (!b)
		return -ENOMEM;
	*b = *with;
	memcpy(b->id, id, sizeof(b->id));
	table_buffer_add(&w->table, b);
	*ret = b;
	return 0;
}

int server_buffer_add(struct server *w, const uint8_t id[USRBIO_ID_LEN], struct pst_mem *mem,
		      uint64_t len, uint64_t block_size, struct server_buffer **ret)
{
	const struct server_buffer b = {
		.mem = mem,
		.len = len,
		.block_size = block_size,
		.device = forked() ? 0 : device_number(mem),
	};

	return forked() ? -EOWNERDEAD : buffer_add(w, id, &b, ret);
}

int server_buffer_add_view(struct server *w, const uint8_t id[USRBIO_ID_LEN], struct pst_mem *mem,
			   uint64_t len, uint64_t block_size, struct server_buffer **ret)
{
	const struct server_buffer b = {
		.mem = mem,
		.len = len,
		.block_size = block_size,
		.device = forked() ? 0 : device_number(mem),
		.view = true,
	};

	return forked() ? -EOWNERDEAD : buffer_add(w, id, &b, ret);
}

int server_buffer_add_grant(struct server *w, const uint8_t id[USRBIO_ID_LEN],
			    const struct pst_grant *grant, unsigned number,
			    struct server_buffer **ret)
{
	struct server_buffer b = { .len = grant->len, .device = 1 };
	int err;

	if (forked())
		return -EOWNERDEAD;
	err = import_new(grant, number, &b.import);
	if (err < 0)
		return err;
	err = buffer_add(w, id, &b, ret);
	if (err < 0)
		import_unref(b.import);
	return err;
}

bool server_buffer_known(struct server *w, const uint8_t id[USRBIO_ID_LEN])
{
	struct table_cache none = { 0 };

	return !forked() && table_buffer(&w->table, &none, id);
}

void server_buffer_remove(struct server *w, struct server_buffer *b)
{
	NO_CANCEL();

	if (forked())
		return;
	table_buffer_del(&w->table, b);
	server_forget(w, NULL, b);
	if (b->import)
		import_end(b->import, now_ns() + IMPORT_END_NS);
	free(b);
}

/* ------------------------------------------------------------------- rings */

/* Find the executor with the fewest rings, or add one if more are allowed.  Caller holds the
 * server's lock. */
static int executor_pick(struct server *w, struct executor **ret)
{
	struct executor *best = NULL;

	for (unsigned i = 0; i < w->nr_executors; i++)
		if (!best || w->executors[i]->nr_rings < best->nr_rings)
			best = w->executors[i];
	if ((!best || best->nr_rings) && w->nr_executors < w->max_executors) {
		int err = executor_new(w, w->nr_executors, &w->executors[w->nr_executors]);

		if (err >= 0)
			best = w->executors[w->nr_executors++];
		else if (!best)
			return err;
	}
	best->nr_rings++;
	*ret = best;
	return 0;
}

static void executor_drop(struct server *w, struct executor *ex)
{
	(void)pthread_mutex_lock(&w->lock);
	ex->nr_rings--;
	(void)pthread_mutex_unlock(&w->lock);
}

int server_ring_add(struct server *w, const struct server_ring_opts *opts, struct server_ring **ret)
{
	struct server_ring *r;
	struct executor *ex;
	int err;

	if (forked())
		return -EOWNERDEAD;
	err = ring_new(opts, w->guard, &r);
	if (err < 0)
		return err;
	(void)pthread_mutex_lock(&w->lock);
	err = executor_pick(w, &ex);
	(void)pthread_mutex_unlock(&w->lock);
	if (err < 0) {
		ring_free(r);
		return err;
	}
	r->executor = ex;
	err = runner_new(ex, &r->runner);
	if (err < 0) {
		executor_drop(w, ex);
		ring_free(r);
		return err;
	}
	executor_enter(ex);
	list_add_tail(&ex->rings, &r->link);
	executor_leave(ex);
	executor_kick(ex, r);
	*ret = r;
	return 0;
}

void server_ring_remove(struct server *w, struct server_ring *r)
{
	struct executor *ex = r->executor;
	NO_CANCEL();

	if (forked())
		return;
	executor_enter(ex);
	r->ending = true;
	ex->nr_ending++;
	ring_drop(r);
	executor_take_kicked(ex);
	/* If a thread has taken the runner, come_back() cancels the requests after that thread's
	 * pass. */
	if (!ex->runner.taken)
		ring_cancel(r, &ex->runner);
	if (!r->runner.taken)
		ring_cancel(r, &r->runner);
	executor_wake(ex);
	while (r->nr_requests || r->nr_helpers || r->runner.taken)
		(void)pthread_cond_wait(&ex->quiet, &ex->lock);
	ex->nr_ending--;
	if (ex->lender == r)
		ex->lender = NULL;
	list_del(&r->link);
	list_del(&r->run);
	list_del(&r->timed);
	list_del(&r->touched);
	executor_leave(ex);
	runner_free(ex, &r->runner);
	executor_drop(w, ex);
	ring_free(r);
}

void server_ring_kick(struct server_ring *r)
{
	if (!forked())
		executor_kick(r->executor, r);
}

enum server_help server_ring_help(struct server_ring *r)
{
	return forked() ? SERVER_RESTS : executor_help(r->executor, r);
}

void server_ring_serve(struct server_ring *r)
{
	if (!forked())
		executor_serve(r->executor, r);
}

uint64_t server_ring_work(const struct server_ring *r)
{
	return forked() ? 0 : ring_work(r);
}

void server_ring_stats(struct server_ring *r, struct server_ring_stats *ret)
{
	if (forked()) {
		*ret = (struct server_ring_stats){ 0 };
		return;
	}
	executor_enter(r->executor);
	*ret = r->st;
	executor_leave(r->executor);
}
