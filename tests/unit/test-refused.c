/* SPDX-License-Identifier: MIT */
/* The kernel refuses eventfds, threads or windows: the caller gets an error, and no thread
 * sleeps for ever. */
#include <liburing.h>
#include <pthread.h>
#include <sys/resource.h>

#include "rig.h"

#define LEN 65536u

static bool no_eventfd, no_thread, no_window;

struct window_src;
struct window;
int __real_window_open(const struct window_src *src, const struct pst_window_opts *o,
		       struct window **ret);
int __wrap_window_open(const struct window_src *src, const struct pst_window_opts *o,
		       struct window **ret);

int __wrap_window_open(const struct window_src *src, const struct pst_window_opts *o,
		       struct window **ret)
{
	return no_window ? -EACCES : __real_window_open(src, o, ret);
}

int __real_io_uring_register_eventfd(struct io_uring *ring, int fd);
int __wrap_io_uring_register_eventfd(struct io_uring *ring, int fd);
int __real_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg);

int __wrap_io_uring_register_eventfd(struct io_uring *ring, int fd)
{
	return no_eventfd ? -ENOMEM : __real_io_uring_register_eventfd(ring, fd);
}

int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg)
{
	return no_thread ? EAGAIN : __real_pthread_create(ret, attr, fn, arg);
}

static void need_uring(void)
{
	if (rig_backend_check(PST_BACKEND_URING) < 0)
		T_SKIP("io_uring: %s", pst_error_text());
}

static void queue_without_eventfd(void)
{
	struct pst_queue *q;
	struct pst_mem *m;
	struct pst_file *f;
	struct pst_io io;

	need_uring();
	m = rig_alloc("host", LEN);
	rig_make(rig_path("data"), 1, LEN);
	f = rig_open(rig_path("data"), PST_FILE_READ);
	q = rig_queue(PST_BACKEND_URING, 4);
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	no_eventfd = true;
	T_EQ(pst_queue_fd(q), -ENOMEM);
	T_CHECK(strstr(pst_error_text(), "eventfd"));
	T_EQ(rig_do(q, &io).res, LEN);
	T_EQ(pst_queue_fd(q), -ENOMEM);
	no_eventfd = false;
	T_CHECK(pst_queue_fd(q) >= 0);
	T_EQ(rig_do(q, &io).res, LEN);
	pst_queue_free(q);
	pst_file_close(f);
	pst_mem_free(m);
}

static void engine_without_eventfd(void)
{
	struct pst_queue *q;
	struct pst_mem *m;
	struct pst_file *f;
	struct pst_io io;

	need_uring();
	m = rig_alloc("soft:0", LEN);
	rig_make(rig_path("data"), 1, LEN);
	f = rig_open(rig_path("data"), PST_FILE_READ);
	q = rig_queue(PST_BACKEND_URING, 4);
	io = rig_io(PST_OP_READ, f, m, 0, 0, LEN);
	no_eventfd = true;
	T_EQ(pst_queue_prep(q, &io), -ENOMEM);
	no_eventfd = false;
	T_EQ(rig_do(q, &io).res, LEN);
	/* The engine exists, but the queue's own eventfd cannot be made. */
	pst_queue_free(q);
	q = rig_queue(PST_BACKEND_URING, 4);
	T_OK(pst_queue_prep(q, &io));
	no_eventfd = true;
	T_EQ(pst_queue_submit(q), 1);
	T_EQ(rig_reap1(q).res, LEN);
	no_eventfd = false;
	pst_queue_free(q);
	pst_file_close(f);
	pst_mem_free(m);
}

/* Reaping helps if the queue is full (-EAGAIN), but not if threads are limited (-EBUSY). */
static void full_is_not_without_threads(void)
{
	struct pst_mem *host = rig_alloc("host", LEN), *soft = rig_alloc("soft:0", LEN);
	struct pst_queue *q = rig_queue(PST_BACKEND_AUTO, 2);
	struct pst_file *f;
	struct rlimit room;
	struct pst_io io;

	rig_make(rig_path("data"), 1, LEN);
	f = rig_open(rig_path("data"), PST_FILE_READ);
	io = rig_io(PST_OP_READ, f, soft, 0, 0, LEN);
	no_thread = true;
	T_EQ(pst_queue_prep(q, &io), -EBUSY);
	T_CHECK(strstr(pst_error_text(), "RLIMIT_NPROC"));
	T_CHECK(!strstr(pst_error_text(), "RLIMIT_AS"));
	/* The kernel gives the same error if there is no address space for a thread's stack. */
	T_EQ(getrlimit(RLIMIT_AS, &room), 0);
	T_EQ(setrlimit(RLIMIT_AS, &(struct rlimit){ (rlim_t)1 << 46, room.rlim_max }), 0);
	T_EQ(pst_queue_prep(q, &io), -EBUSY);
	T_CHECK(strstr(pst_error_text(), "RLIMIT_AS"));
	T_EQ(setrlimit(RLIMIT_AS, &room), 0);
	no_thread = false;
	io.mem = host;
	T_OK(pst_queue_prep(q, &io));
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_prep(q, &io), -EAGAIN);
	T_EQ(pst_queue_submit(q), 2);
	T_EQ(rig_reap1(q).res, LEN);
	io.mem = soft;
	T_OK(pst_queue_prep(q, &io));
	T_EQ(pst_queue_submit(q), 1);
	T_EQ(rig_reap1(q).res, LEN);
	T_EQ(rig_reap1(q).res, LEN);
	pst_queue_free(q);
	pst_file_close(f);
	pst_mem_free(host);
	pst_mem_free(soft);
}

/* One allocation may have no window while another on the same device has one. */
static void window_of_one_memory(void)
{
	struct pst_mem *without = rig_alloc("soft:0", LEN), *with = rig_alloc("soft:0", LEN);
	struct pst_queue *q = rig_queue(PST_BACKEND_THREADS, 4);
	struct pst_done d;
	struct pst_file *f;
	struct pst_io io;

	rig_make(rig_path("data"), 1, LEN);
	rig_warm(rig_path("data"));
	f = rig_open(rig_path("data"), PST_FILE_READ);
	io = rig_io(PST_OP_READ, f, without, 0, 0, 4096);
	io.policy = PST_POLICY2(PST_PATH_WINDOW, PST_PATH_STAGED);
	for (unsigned i = 0; i < 2; i++) {
		io.mem = without;
		no_window = true;
		d = rig_do(q, &io);
		no_window = false;
		T_EQ(d.res, 4096);
		T_CHECK(d.paths & PST_PATH_BIT(PST_PATH_STAGED));
		T_EQ(d.why, PST_WHY_NO_WINDOW);
		io.mem = with;
		d = rig_do(q, &io);
		T_EQ(d.res, 4096);
		T_CHECK(d.paths & PST_PATH_BIT(PST_PATH_WINDOW));
		T_EQ(d.why, PST_WHY_NONE);
	}
	pst_queue_free(q);
	pst_file_close(f);
	pst_mem_free(without);
	pst_mem_free(with);
}

int main(void)
{
	rig_init();
	RIG_RUN1(window_of_one_memory);
	RIG_RUN1(queue_without_eventfd);
	RIG_RUN1(engine_without_eventfd);
	RIG_RUN1(full_is_not_without_threads);
	return rig_done();
}
