/* SPDX-License-Identifier: MIT */
/* Execute requests on files, and run the threads for requests that may block. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "base/thread.h"
#include "serve/server.h"

#define AGAIN_MS 10u
#define LEASE_MS 60000u  /* milliseconds; the kernel breaks a lease after 45 s by default */
#define SEND_MIN KIB(64) /* from this number of bytes on, a worker sends the reply of a read */

/* Open a name below the served directory.  That directory is the root of the lookup, so neither
 * ".." nor a link can leave it. */
static int exec_open_beneath(const struct server *s, const char *name, int flags, mode_t mode)
{
	struct open_how how = {
		/* openat2(2) rejects O_NOCTTY and O_NONBLOCK with O_PATH. */
		.flags = (uint64_t)(flags | O_CLOEXEC |
				    (flags & O_PATH ? 0 : O_NOCTTY | O_NONBLOCK)),
		.mode = mode,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};
	const struct timespec pause = { .tv_nsec = AGAIN_MS * (long)NSEC_PER_MSEC };

	for (unsigned ms = 0;;) {
		int fd = (int)syscall(SYS_openat2, s->o.root, *name ? name : ".", &how,
				      sizeof(how));

		if (fd >= 0 || (errno != EINTR && errno != EAGAIN))
			return fd < 0 ? -errno : fd;
		if (errno == EINTR)
			continue;
		/* Something was renamed during the lookup, or a process has a lease: retry. */
		if (ms >= LEASE_MS)
			return -EBUSY;
		if (ms)
			(void)nanosleep(&pause, NULL);
		ms += AGAIN_MS;
	}
}

static int get_attr(int fd, struct wire_attr *ret)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &st) < 0)
		return -errno;
	*ret = (struct wire_attr){
		.size = st.stx_size,
		.mtime_ns = (uint64_t)st.stx_mtime.tv_sec * NSEC_PER_SEC + st.stx_mtime.tv_nsec,
		.ctime_ns = (uint64_t)st.stx_ctime.tv_sec * NSEC_PER_SEC + st.stx_ctime.tv_nsec,
		.dev = makedev(st.stx_dev_major, st.stx_dev_minor),
		.ino = st.stx_ino,
		.mode = st.stx_mode & 07777u,
		.kind = S_ISREG(st.stx_mode)   ? WIRE_KIND_FILE
			: S_ISDIR(st.stx_mode) ? WIRE_KIND_DIR
					       : WIRE_KIND_OTHER,
	};
	if (st.stx_mask & STATX_BTIME)
		ret->btime_ns = (uint64_t)st.stx_btime.tv_sec * NSEC_PER_SEC + st.stx_btime.tv_nsec;
	return 0;
}

/* ------------------------------------------------------------- operations */

/*
 * Open a file if it is a regular one.  Check before opening, because opening a device or a pipe may
 * have side effects; refuse the name if it refers to something else by then.
 */
static int exec_open_file(const struct server *s, const struct job *j, struct wire_attr *ret)
{
	bool write = j->q.how & WIRE_O_WRITE;
	int flags = !write ? O_RDONLY : j->q.how & WIRE_O_READ ? O_RDWR : O_WRONLY;
	_cleanup_(closep) int look = -1;
	int fd, r;

	if (write && !s->o.write)
		return -EROFS;
	look = exec_open_beneath(s, j->name, O_PATH, 0);
	if (look >= 0) {
		r = get_attr(look, ret);
		if (r < 0)
			return r;
		if (ret->kind != WIRE_KIND_FILE)
			return ret->kind == WIRE_KIND_DIR ? -EISDIR : -ENXIO;
	} else if (look != -ENOENT) {
		return look;
	}
	if (j->q.how & WIRE_O_CREATE)
		flags |= O_CREAT;
	if (j->q.how & WIRE_O_EXCL)
		flags |= O_EXCL;
	/* Truncate only after checking that it is a regular file. */
	fd = exec_open_beneath(s, j->name, flags, flags & O_CREAT ? j->q.mode & 0777 : 0);
	if (fd < 0)
		return fd;
	r = get_attr(fd, ret);
	if (r == 0 && ret->kind != WIRE_KIND_FILE)
		r = -ENXIO;
	if (r == 0 && j->q.how & WIRE_O_TRUNC && ret->size) {
		r = ftruncate(fd, 0) < 0 ? -errno : 0;
		if (r == 0)
			r = get_attr(fd, ret);
	}
	if (r < 0) {
		(void)close(fd);
		return r;
	}
	return fd;
}

/* Return true if the file system holds all bytes in memory.  Such file systems lack RWF_NOWAIT. */
static bool exec_is_in_memory(int fd)
{
	struct statfs fs;
	struct sysinfo info;

	return fstatfs(fd, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC) &&
	       sysinfo(&info) == 0 && !info.totalswap;
}

static int exec_open(const struct server *s, struct job *j)
{
	struct wire_attr attr;
	int fd = exec_open_file(s, j, &attr);

	if (fd < 0)
		return fd;
	j->new_fd = fd;
	j->in_memory = exec_is_in_memory(fd);
	wire_put_attr(&attr, j->buf + WIRE_HEAD);
	j->len += WIRE_ATTR_LEN;
	return 0;
}

int exec_read(struct job *j)
{
	uint32_t got = 0;

	while (got < j->q.count) {
		ssize_t n = pread(j->handle->fd, j->buf + WIRE_HEAD + got, j->q.count - got,
				  (off_t)(j->q.off + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		got += (uint32_t)n;
	}
	j->count = got;
	j->len += got;
	return 0;
}

static int do_write(const struct server *s, struct job *j)
{
	const uint8_t *data = j->buf + WIRE_HEAD;
	uint32_t put = 0;

	if (!s->o.write || !j->handle->write)
		return -EBADF;
	if (j->q.flags & WIRE_F_CRC && crc32c(0, data, j->q.count) != j->q.crc)
		return -EBADMSG;
	while (put < j->q.count) {
		ssize_t n = pwrite(j->handle->fd, data + put, j->q.count - put,
				   (off_t)(j->q.off + put));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		put += (uint32_t)n;
	}
	j->count = put;
	return 0;
}

static int do_stat(const struct server *s, struct job *j)
{
	struct wire_attr attr;
	int r;

	if (j->handle) {
		r = get_attr(j->handle->fd, &attr);
	} else {
		_cleanup_(closep) int fd = exec_open_beneath(s, j->name, O_PATH, 0);

		r = fd < 0 ? fd : get_attr(fd, &attr);
	}
	if (r < 0)
		return r;
	wire_put_attr(&attr, j->buf + WIRE_HEAD);
	j->len += WIRE_ATTR_LEN;
	return 0;
}

static uint8_t exec_kind_of(unsigned char type)
{
	switch (type) {
	case DT_REG:
		return WIRE_KIND_FILE;
	case DT_DIR:
		return WIRE_KIND_DIR;
	default:
		return WIRE_KIND_OTHER;
	}
}

static bool exec_is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

static int do_list(const struct server *s, struct job *j)
{
	int fd = exec_open_beneath(s, j->name, O_RDONLY | O_DIRECTORY, 0);
	uint32_t at = 0;
	struct dirent *e;
	DIR *d;
	int r = 0;

	if (fd < 0)
		return fd;
	d = fdopendir(fd);
	if (!d) {
		r = -errno;
		(void)close(fd);
		return r;
	}
	if (j->q.off)
		seekdir(d, (long)j->q.off);
	for (;;) {
		struct wire_entry w;
		uint32_t n;

		errno = 0;
		e = readdir(d);
		if (!e) {
			r = -errno;
			break;
		}
		if (exec_is_dots(e->d_name))
			continue;
		w = (struct wire_entry){
			.next = (uint64_t)e->d_off,
			.name_len = (uint16_t)strlen(e->d_name),
			.kind = exec_kind_of(e->d_type),
			.name = e->d_name,
		};
		n = wire_put_entry(&w, j->buf + WIRE_HEAD + at, j->q.count - at);
		if (!n) {
			j->value = 1; /* there are more entries */
			break;
		}
		at += n;
	}
	(void)closedir(d);
	if (r < 0)
		return r;
	j->count = at;
	j->len += at;
	return 0;
}

/*
 * Open the directory that contains a name; *ret_base is the name's last part.  Return -EISDIR if
 * that part is empty, "." or "..".
 */
static int open_parent(const struct server *s, char *name, const char **ret_base)
{
	char *slash = strrchr(name, '/');

	*ret_base = slash ? slash + 1 : name;
	if (!**ret_base || exec_is_dots(*ret_base))
		return -EISDIR;
	if (!slash)
		return exec_open_beneath(s, ".", O_PATH | O_DIRECTORY, 0);
	*slash = '\0';
	return exec_open_beneath(s, name, O_PATH | O_DIRECTORY, 0);
}

static int do_unlink(const struct server *s, struct job *j)
{
	_cleanup_(closep) int dir = -1;
	const char *base;

	if (!s->o.write)
		return -EROFS;
	dir = open_parent(s, j->name, &base);
	if (dir < 0)
		return dir;
	return unlinkat(dir, base, 0) < 0 ? -errno : 0;
}

static bool exec_is_dir(int parent, const char *base)
{
	struct stat st;

	return fstatat(parent, base, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int do_rename(const struct server *s, struct job *j)
{
	_cleanup_(closep) int from = -1, to = -1;
	const char *base, *to_base;

	if (!s->o.write)
		return -EROFS;
	from = open_parent(s, j->name, &base);
	if (from < 0)
		return from;
	to = open_parent(s, j->to, &to_base);
	if (to < 0)
		return to;
	if (exec_is_dir(from, base))
		return -EISDIR;
	return renameat(from, base, to, to_base) < 0 ? -errno : 0;
}

static int do_op(const struct server *s, struct job *j)
{
	switch (j->q.op) {
	case WIRE_OPEN:
		return exec_open(s, j);
	case WIRE_READ:
	case WIRE_READ_RDMA:
		return exec_read(j);
	case WIRE_WRITE:
	case WIRE_WRITE_RDMA:
		return do_write(s, j);
	case WIRE_RDMA:
		return qp_make(j);
	case WIRE_SYNC:
		return (j->q.flags & WIRE_F_DATA ? fdatasync(j->handle->fd)
						 : fsync(j->handle->fd)) < 0
			       ? -errno
			       : 0;
	case WIRE_TRUNCATE:
		if (!s->o.write || !j->handle->write)
			return -EBADF;
		return ftruncate(j->handle->fd, (off_t)j->q.off) < 0 ? -errno : 0;
	case WIRE_STAT:
		return do_stat(s, j);
	case WIRE_LIST:
		return do_list(s, j);
	case WIRE_UNLINK:
		return do_unlink(s, j);
	case WIRE_RENAME:
		return do_rename(s, j);
	default:
		return 0;
	}
}

void exec_reply(struct server *s, struct job *j)
{
	struct wire_reply r = {
		.op = j->q.op,
		.id = j->q.id,
		.boot = s->boot,
		.err = j->err,
		.count = j->err ? 0 : j->count,
		.value = j->err ? 0 : j->value,
	};

	if (j->err)
		j->len = WIRE_HEAD;
	/* The NIC delivers the bytes of a READ_RDMA, so the message has only a header. */
	r.len = job_by_rdma(j) ? WIRE_HEAD : j->len;
	if (j->q.flags & WIRE_F_CRC && j->len > WIRE_HEAD) {
		r.flags = WIRE_F_CRC;
		r.crc = crc32c(0, j->buf + WIRE_HEAD, j->len - WIRE_HEAD);
	}
	wire_put_reply(&r, j->buf);
}

void exec_job(struct server *s, struct job *j)
{
	int r;

	j->len = WIRE_HEAD;
	r = s->o.store ? store_op(s, j) : do_op(s, j);
	j->err = (uint32_t)-r;
	exec_reply(s, j);
}

bool exec_read_now(struct server *s, struct job *j)
{
	struct iovec iov = { j->buf + WIRE_HEAD, j->q.count };
	bool in_memory = j->handle->in_memory;
	ssize_t n;

	n = preadv2(j->handle->fd, &iov, 1, (off_t)j->q.off, in_memory ? 0 : RWF_NOWAIT);
	if (n != (ssize_t)j->q.count)
		return false;
	j->count = (uint32_t)n;
	j->len = WIRE_HEAD + (uint32_t)n;
	exec_reply(s, j);
	return true;
}

/* ------------------------------------------------------------------- pool */

/* List a connection that has a job for a worker.  The lock is held. */
static void list_conn(struct pool *p, struct conn *c)
{
	if (c->is_waiting || !c->waiting.head || c->nr_slow >= p->share)
		return;
	c->is_waiting = true;
	c->next_waiting = NULL;
	if (p->first)
		p->last->next_waiting = c;
	else
		p->first = c;
	p->last = c;
}

/* Give a worker a job of a client.  The lock is held. */
static struct job *exec_begin(struct pool *p, struct job *j)
{
	j->conn->nr_running++;
	j->conn->nr_slow += !j->quick;
	p->nr_slow += !j->quick;
	return j;
}

/* Take the next job; NULL if there is none.  The lock is held. */
static struct job *exec_next_job(struct pool *p)
{
	/* Leave the other workers to reads that the page cache can answer. */
	bool may_wait = p->nr_slow + p->nr_ends < p->slow_max;
	struct conn *c = p->first;
	struct job *j;

	/* A device can take long to end queue pairs.  So if there are two workers or more, only
	 * half of them do that at a time. */
	if (may_wait && p->ends.head && p->nr_ends < p->share) {
		p->nr_ends++;
		return jobs_pop(&p->ends);
	}
	if (!may_wait || !c) {
		j = jobs_pop(&p->quick);
		/* A worker that may wait reads at once what the page cache lacks. */
		if (j)
			j->quick = !may_wait || j->conn->nr_slow >= p->share;
		return j ? exec_begin(p, j) : NULL;
	}
	p->first = c->next_waiting;
	c->is_waiting = false;
	j = exec_begin(p, jobs_pop(&c->waiting));
	list_conn(p, c);
	return j;
}

/* The page cache does not have all bytes of a read: leave the read to a worker that may wait.  The
 * lock is held.  Return false if the client is gone. */
static bool exec_is_slow(struct pool *p, struct job *j)
{
	struct conn *c = j->conn;

	if (c->is_forgotten)
		return false;
	j->quick = false;
	c->nr_running--;
	jobs_push(&c->waiting, j);
	list_conn(p, c);
	return true;
}

/*
 * Close a handle after writing all dirty pages back.  The kernel reports a failed write-back only
 * to processes with the file open, so closing earlier could lose the error.  If the write-back
 * fails, change the boot id, so that the clients' next SYNC fails.
 */
void exec_close(struct server *s, struct handle *h)
{
	if (h->lent) {
		s->o.store->close(h->lent);
	} else {
		if (h->nr_writes != h->nr_synced && fdatasync(h->fd) < 0) {
			server_new_boot(s);
			s->o.say("a file could not be written back: all clients are told as of a "
				 "restart");
		}
		(void)close(h->fd);
	}
	free(h);
}

static void *exec_work(void *arg)
{
	struct server *s = arg;
	struct pool *p = &s->pool;
	bool first;

	(void)pthread_mutex_lock(&p->lock);
	for (;;) {
		struct job *j = exec_next_job(p);
		bool quick = j && j->quick, is_read = true;

		if (!j) {
			if (p->stop)
				break;
			(void)pthread_cond_wait(&p->work, &p->lock);
			continue;
		}
		(void)pthread_mutex_unlock(&p->lock);
		if (j->ends)
			qp_work(j->ends);
		else if (j->closes)
			exec_close(s, TAKE_PTR(j->handle));
		else if (quick)
			is_read = exec_read_now(s, j);
		else
			exec_job(s, j);
		if (!j->closes && j->q.op == WIRE_READ && !j->err && j->len > SEND_MIN)
			reply_send_by_worker(j);
		(void)pthread_mutex_lock(&p->lock);
		if (!is_read && exec_is_slow(p, j))
			continue;
		first = !p->done.head;
		if (j->ends) {
			p->nr_ends--;
		} else {
			p->nr_slow -= !quick;
			j->conn->nr_slow -= !quick;
			j->conn->nr_running--;
			list_conn(p, j->conn);
		}
		jobs_push(&p->done, j);
		if (first)
			(void)eventfd_write(s->efd, 1);
	}
	(void)pthread_mutex_unlock(&p->lock);
	return NULL;
}

int pool_start(struct server *s)
{
	struct pool *p = &s->pool;
	/* Start more workers than may wait, so that some are left for reads that the page cache can
	 * answer. */
	unsigned nr = s->o.threads + MAX(1u, s->o.threads / 4);

	(void)pthread_mutex_init(&p->lock, NULL);
	(void)pthread_cond_init(&p->work, NULL);
	p->share = MAX(1u, s->o.threads / 2);
	p->slow_max = s->o.threads;
	p->threads = calloc(nr, sizeof(*p->threads));
	if (!p->threads)
		return err_set(ENOMEM, "out of memory");
	for (; p->nr_threads < nr; p->nr_threads++) {
		int r = thread_start(&p->threads[p->nr_threads], exec_work, s);

		if (r < 0)
			return r;
	}
	return 0;
}

void pool_stop(struct server *s)
{
	struct pool *p = &s->pool;

	(void)pthread_mutex_lock(&p->lock);
	p->stop = true;
	(void)pthread_cond_broadcast(&p->work);
	(void)pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; i < p->nr_threads; i++)
		(void)pthread_join(p->threads[i], NULL);
	free(p->threads);
	(void)pthread_mutex_destroy(&p->lock);
	(void)pthread_cond_destroy(&p->work);
}

void pool_put(struct server *s, struct job *j)
{
	struct pool *p = &s->pool;

	(void)pthread_mutex_lock(&p->lock);
	if (j->quick) {
		jobs_push(&p->quick, j);
	} else {
		jobs_push(&j->conn->waiting, j);
		list_conn(p, j->conn);
	}
	(void)pthread_cond_signal(&p->work);
	(void)pthread_mutex_unlock(&p->lock);
}

struct job *pool_forget(struct server *s, struct conn *c, unsigned *ret_running)
{
	struct pool *p = &s->pool;
	struct conn **at, *last = NULL;
	struct jobs all, quick;
	struct job *j;

	(void)pthread_mutex_lock(&p->lock);
	c->is_forgotten = true;
	all = c->waiting;
	c->waiting.head = NULL;
	quick = p->quick;
	p->quick.head = NULL;
	while ((j = jobs_pop(&quick)))
		jobs_push(j->conn == c ? &all : &p->quick, j);
	for (at = &p->first; *at && *at != c; at = &(*at)->next_waiting)
		last = *at;
	if (*at) {
		*at = c->next_waiting;
		if (p->last == c)
			p->last = last;
	}
	c->is_waiting = false;
	*ret_running = c->nr_running;
	(void)pthread_mutex_unlock(&p->lock);
	return all.head;
}

struct job *exec_pool_take(struct server *s)
{
	struct pool *p = &s->pool;
	struct job *j;

	(void)pthread_mutex_lock(&p->lock);
	j = p->done.head;
	p->done.head = NULL;
	(void)pthread_mutex_unlock(&p->lock);
	return j;
}
