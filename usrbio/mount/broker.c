/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/user.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/base.h"

#define END_NS (3 * NSEC_PER_SEC) /* ns; time for workers to end */

/* An open file and one user whose rings may name it. */
struct broker_file {
	struct list link;         /* on user->told or user->untold */
	struct broker_file *next; /* entry of the same file for the next user */
	struct user *user;
	struct list in_cache; /* user->cached */
	uint64_t number, handle;
	/* number under which the kernel caches the file; 0: writes are not reported */
	uint64_t cached;
	int fd;
	char *name; /* name by which the worker opens the file, instead of using fd; or NULL */
	uint32_t how;
	struct worker *worker; /* worker that knows the file, or NULL */
};

/* ------------------------------------------------------------------- files */

/* A message about a file.  The descriptor is a duplicate, because the file may be closed before the
 * message is sent. */
struct telling {
	struct link_msg msg;
	int fd;
};

/* Make a memfd that contains a name.  Return -1 with errno on failure. */
static int name_fd(const char *name)
{
	int fd = memfd_create("penstock-name", MFD_CLOEXEC);
	size_t len = strlen(name);

	if (fd >= 0 && write(fd, name, len) == (ssize_t)len)
		return fd;
	closep(&fd);
	errno = EMFILE;
	return -1;
}

static void broker_file_free(struct broker_file *f)
{
	free(f->name);
	free(f);
}

/* Take a file of which the worker has not been told.  Return false if there is none. */
static bool next_untold(struct user *u, struct worker *w, struct telling *ret)
{
	struct broker_file *f = NULL;

	broker_lock(u->b);
	if (!list_empty(&u->untold)) {
		f = list_first(&u->untold, struct broker_file, link);
		f->worker = worker_ref(w);
		list_move_tail(&u->told, &f->link);
		*ret = (struct telling){
			.msg = { .op = LINK_FILE_ADD,
				 .handle = f->handle,
				 .number = f->number,
				 .cached = f->cached,
				 .how = f->how },
			.fd = f->name ? name_fd(f->name) : fcntl(f->fd, F_DUPFD_CLOEXEC, 0),
		};
	}
	broker_unlock(u->b);
	return f;
}

/* Move a file back to untold, because its worker died before it knew the file.  files_worker_gone()
 * may have run before the file had this worker. */
static void take_back(struct user *u, struct worker *w, uint64_t handle)
{
	struct list *e, *n;

	broker_lock(u->b);
	list_for_each_safe (e, n, &u->told) {
		struct broker_file *f = list_entry(e, struct broker_file, link);

		if (f->handle != handle || f->worker != w)
			continue;
		worker_unref(w); /* the caller has another reference */
		f->worker = NULL;
		list_move_tail(&u->untold, &f->link);
	}
	broker_unlock(u->b);
}

static struct list *broker_bucket(struct user *u, uint64_t number)
{
	return &u->cached[(number * UINT64_C(0x9e3779b97f4a7c15) >> 32) % USER_CACHED];
}

/* Return the number under which the kernel caches a file, if the user's rings may write to the
 * file; else 0. */
static uint64_t find_cached(struct user *u, uint64_t number)
{
	struct list *e, *in = broker_bucket(u, number);

	list_for_each (e, in)
		if (list_entry(e, struct broker_file, in_cache)->number == number)
			return list_entry(e, struct broker_file, in_cache)->cached;
	return 0;
}

void files_written(struct user *u, const struct link_range *ranges, unsigned nr)
{
	struct broker *b = u->b;

	for (unsigned i = 0; i < nr; i++) {
		uint64_t ino;

		broker_lock(b);
		ino = find_cached(u, ranges[i].number);
		broker_unlock(b);
		if (ino)
			b->forget(b->forget_arg, ino, ranges[i].off, ranges[i].len, ranges[i].ends);
	}
}

struct hearing {
	struct user *u;
	int fd;
};

/* Receive reports about writes until the worker ends. */
static void *broker_hear(void *arg)
{
	struct hearing h = *(struct hearing *)arg;
	struct link_range ranges[LINK_RANGES_MAX];
	int n;

	free(arg);
	while ((n = link_listen(h.fd, ranges)) > 0) {
		files_written(h.u, ranges, (unsigned)n);
		if (link_answer(h.fd) < 0)
			break;
	}
	/* A worker that sends invalid reports gets no more answers. */
	(void)shutdown(h.fd, SHUT_RDWR);
	return NULL;
}

/* Start the thread for reports, once.  With user->start. */
static int listen_to(struct user *u, struct worker *w)
{
	struct hearing *h;
	int err;

	if (w->listens)
		return 0;
	h = malloc(sizeof(*h));
	if (!h)
		return -ENOMEM;
	*h = (struct hearing){ u, w->heard };
	err = worker_listen(w, broker_hear, h);
	if (err < 0)
		free(h);
	return err;
}

int files_tell(struct user *u, struct worker *w)
{
	struct telling t;
	int err = 0;

	while (err != -EREMOTEIO && next_untold(u, w, &t)) {
		/* Ignore an error for a file that the worker cannot use: requests on it get
		 * EBADF. */
		err = t.fd < 0 ? -errno : t.msg.cached ? listen_to(u, w) : 0;
		if (err == 0)
			err = worker_ask(w, &t.msg, t.fd);
		closep(&t.fd);
		if (err == -EREMOTEIO)
			take_back(u, w, t.msg.handle);
	}
	return err == -EREMOTEIO ? err : 0;
}

/* Tell the worker about closed files.  Take user->start, so that the worker has already been told
 * of these files. */
void files_closed(struct user *u)
{
	(void)pthread_mutex_lock(&u->start);
	for (;;) {
		struct link_msg msg = { .op = LINK_FILE_REMOVE };
		struct broker_file *f = NULL;

		broker_lock(u->b);
		if (!list_empty(&u->closed)) {
			f = list_first(&u->closed, struct broker_file, link);
			list_del(&f->link);
		}
		broker_unlock(u->b);
		if (!f)
			break;
		msg.handle = f->handle;
		(void)worker_ask(f->worker, &msg, -1);
		worker_unref(f->worker);
		broker_file_free(f);
	}
	(void)pthread_mutex_unlock(&u->start);
}

void files_worker_gone(struct user *u, const struct worker *w)
{
	struct list *e, *n;

	broker_lock(u->b);
	list_for_each_safe (e, n, &u->told) {
		struct broker_file *f = list_entry(e, struct broker_file, link);

		if (f->worker != w)
			continue;
		worker_unref(f->worker); /* the caller has another reference */
		f->worker = NULL;
		list_move_tail(&u->untold, &f->link);
	}
	broker_unlock(u->b);
}

static bool has_user(const struct broker_file *f, const struct user *u)
{
	while (f && f->user != u)
		f = f->next;
	return f;
}

static bool is_written(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

/* Tell the worker about new files, unless another thread already does. */
void broker_tell(struct broker *b, uid_t uid)
{
	struct worker *w;
	struct user *u;

	if (user_get(b, uid, &u) < 0 || !user_may_wait(u))
		return;
	(void)pthread_mutex_lock(&u->start);
	w = user_worker(u);
	if (w) {
		/* Take the server's rights: files_tell() may start a thread, which inherits this
		 * thread's rights. */
		caller_end();
		(void)files_tell(u, w);
	}
	worker_unref(w);
	(void)pthread_mutex_unlock(&u->start);
	user_waited(u);
}

int broker_file_add(struct broker *b, uid_t uid, struct broker_file **file,
		    const struct broker_open *o)
{
	struct broker_file *f = calloc(1, sizeof(*f));
	struct user *u;
	char *name = o->name ? strdup(o->name) : NULL;
	int err = f && (name || !o->name) ? user_get(b, uid, &u) : -ENOMEM;

	if (err < 0) {
		free(name);
		free(f);
		return err;
	}
	broker_lock(b);
	if (has_user(*file, u)) {
		free(name);
		free(f);
	} else {
		*f = (struct broker_file){
			.next = *file,
			.user = u,
			.number = o->number,
			.handle = b->next++,
			.cached = name || is_written(o->fd) ? o->cached : 0,
			.fd = o->fd,
			.name = name,
			.how = name ? o->how : 0,
		};
		list_init(&f->in_cache);
		if (f->cached)
			list_add_tail(broker_bucket(u, f->number), &f->in_cache);
		list_add_tail(&u->untold, &f->link);
		*file = f;
	}
	broker_unlock(b);
	return 0;
}

/* Remove a file.  The user's thread tells the worker later, so the caller does not wait. */
static void remove_file(struct broker *b, struct broker_file *f)
{
	struct user *u = f->user;
	bool known;

	broker_lock(b);
	list_del(&f->link);
	list_del(&f->in_cache);
	known = f->worker;
	if (known)
		list_add_tail(&u->closed, &f->link);
	broker_unlock(b);
	if (known)
		user_wake(u);
	else
		broker_file_free(f);
}

void broker_file_remove(struct broker *b, struct broker_file **file)
{
	struct broker_file *next;

	for (struct broker_file *f = TAKE_PTR(*file); f; f = next) {
		next = f->next;
		remove_file(b, f);
	}
}

/* -------------------------------------------------------------------- life */

int broker_sem(struct broker *b, const struct caller *c, enum usrbio_priority priority,
	       char ret_name[USRBIO_SHM_NAME_MAX])
{
	struct worker *w;
	struct user *u;
	int err = user_get(b, c->uid, &u);

	if (err < 0)
		return err;
	if (!user_may_wait(u))
		return -EBUSY;
	err = user_need_worker(u, c, &w);
	user_waited(u);
	if (err < 0)
		return err;
	(void)strcpy(ret_name, w->sem[priority]);
	worker_unref(w);
	return 0;
}

int broker_new(const struct broker_quota *quota, broker_forget forget, void *arg,
	       struct broker **ret)
{
	struct broker *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->quota = *quota;
	b->forget = forget;
	b->forget_arg = arg;
	(void)pthread_mutex_init(&b->lock, NULL);
	(void)pthread_cond_init(&b->thread_end, NULL);
	list_init(&b->users);
	list_init(&b->publications);
	for (unsigned i = 0; i < BROKER_BUCKETS; i++)
		list_init(&b->buckets[i]);
	*ret = b;
	return 0;
}

void broker_free(struct broker *b)
{
	uint64_t until = now_ns() + END_NS;
	struct list *e, *n;

	/* End all workers at once, then wait for each. */
	list_for_each (e, &b->users)
		user_end(list_entry(e, struct user, link), until);
	list_for_each (e, &b->users)
		user_end_thread(list_entry(e, struct user, link));
	broker_lock(b);
	while (b->nr_threads)
		(void)pthread_cond_wait(&b->thread_end, &b->lock);
	broker_unlock(b);
	list_for_each_safe (e, n, &b->users)
		user_free(list_entry(e, struct user, link));
	(void)pthread_cond_destroy(&b->thread_end);
	(void)pthread_mutex_destroy(&b->lock);
	free(b);
}
