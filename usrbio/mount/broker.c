/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/broker.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include "base/base.h"
#include "base/list.h"
#include "usrbio/mount/worker_proc.h"

/*
 * A user who has published something, or used a file's number.  Each has a thread that waits for
 * the end of his worker and of his programs: who makes his own worker hang makes no other wait.
 */
struct user {
	struct list link;
	uid_t uid;
	struct broker *b;
	pthread_mutex_t start;    /* of one worker at a time, and of what it is told then; first */
	struct worker *worker;    /* or NULL; under the broker's lock */
	struct list told, untold; /* files that the worker knows, and others */
	int epfd, stop;
	bool runs; /* the thread */
	pthread_t thread;
};

/* A name in 3fs-virt/iovs. */
struct publication {
	struct list link;
	struct broker_link shown;
	struct usrbio_name name;
	uint64_t size;
	bool ready;  /* the worker has it */
	int process; /* pidfd of who published it, or -1 */
	struct user *user;
	struct worker *worker;
};

/* An open file, and a user who may use its number. */
struct broker_file {
	struct list link;         /* user->told or user->untold */
	struct broker_file *next; /* of the same file for others */
	struct user *user;
	uint64_t number, handle;
	int fd;
	struct worker *worker; /* who knows it, or NULL */
};

struct broker {
	struct broker_quota quota;
	pthread_mutex_t lock; /* of all lists */
	struct list users, publications;
	uint64_t next; /* index of a publication, handle of a file */
};

static void lock(struct broker *b)
{
	(void)pthread_mutex_lock(&b->lock);
}

static void unlock(struct broker *b)
{
	(void)pthread_mutex_unlock(&b->lock);
}

/* ----------------------------------------------------------------- workers */

/* A reference of the user's worker, or NULL. */
static struct worker *find_worker(struct user *u)
{
	struct worker *w = NULL;

	lock(u->b);
	if (u->worker && !atomic_load(&u->worker->dead))
		w = worker_ref(u->worker);
	unlock(u->b);
	return w;
}

static int tell_file(struct worker *w, const struct broker_file *f)
{
	const struct link_msg msg = {
		.op = LINK_FILE_ADD,
		.handle = f->handle,
		.number = f->number,
	};

	return worker_ask(w, &msg, f->fd);
}

/* A file that the worker does not know yet, which it is about to be told; or NULL. */
static struct broker_file *next_untold(struct user *u, struct worker *w)
{
	struct broker_file *f = NULL;

	lock(u->b);
	if (!list_empty(&u->untold)) {
		f = list_first(&u->untold, struct broker_file, link);
		f->worker = worker_ref(w);
		list_move_tail(&u->told, &f->link);
	}
	unlock(u->b);
	return f;
}

/* Files that were opened before there was the worker.  Under user->start, so that none goes. */
static int tell_files(struct user *u, struct worker *w)
{
	struct broker_file *f;

	/* One that the worker cannot use is a bad number to rings. */
	while ((f = next_untold(u, w)))
		if (tell_file(w, f) == -EREMOTEIO)
			return -EREMOTEIO;
	return 0;
}

static int watch_fd(const struct user *u, int fd, uint64_t what)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = what };

	return epoll_ctl(u->epfd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

/* What the thread is woken for: the end of a worker or of a client. */
enum { OF_STOP, OF_WORKER, OF_CLIENT };

static uint64_t event_of(unsigned kind, uint64_t number)
{
	return number << 2 | kind;
}

static void forget_worker(struct user *u, struct worker *w);
static int get_user(struct broker *b, uid_t uid, struct user **ret);
static void *run(void *arg);

/* Start one, and tell it what the user has open.  Under user->start. */
static int new_worker(struct user *u, const struct caller *c, struct worker **ret)
{
	struct worker *w;
	int err = u->runs ? 0 : -pthread_create(&u->thread, NULL, run, u);

	if (err < 0)
		return err;
	u->runs = true;
	err = worker_start(c, &w);
	if (err < 0)
		return err;
	lock(u->b);
	u->worker = worker_ref(w);
	unlock(u->b);
	err = tell_files(u, w);
	if (err == 0)
		err = watch_fd(u, w->pidfd, event_of(OF_WORKER, (uint64_t)w->pid));
	if (err < 0) {
		forget_worker(u, w);
		worker_unref(w);
		return err;
	}
	*ret = w;
	return 0;
}

/* The user's worker, started if there is none. */
static int get_worker(struct user *u, const struct caller *c, struct worker **ret)
{
	struct worker *w;
	int err = 0;

	(void)pthread_mutex_lock(&u->start);
	w = find_worker(u);
	if (!w)
		err = new_worker(u, c, &w);
	(void)pthread_mutex_unlock(&u->start);
	if (err == 0)
		*ret = w;
	return err;
}

int broker_sem(struct broker *b, const struct caller *c, enum usrbio_priority priority,
	       char ret_name[USRBIO_SHM_NAME_MAX])
{
	struct worker *w;
	struct user *u;
	int err = get_user(b, c->uid, &u);

	if (err == 0)
		err = get_worker(u, c, &w);
	if (err < 0)
		return err;
	(void)strcpy(ret_name, w->sem[priority]);
	worker_unref(w);
	return 0;
}

/* ------------------------------------------------------------ publications */

/* Under the lock. */
static void count(struct publication *p, int by)
{
	struct worker *w = p->worker;

	w->nr_links += (unsigned)by;
	w->nr_rings += p->name.kind == USRBIO_RING ? (unsigned)by : 0;
	w->bytes += by > 0 ? p->size : -p->size;
}

static void publication_free(struct publication *p)
{
	closep(&p->process);
	worker_unref(p->worker);
	free(p);
}

/* It is on no list any more. */
static void publication_end(struct publication *p)
{
	const struct link_msg msg = {
		.op = p->name.kind == USRBIO_RING ? LINK_RING_REMOVE : LINK_BUFFER_REMOVE,
		.handle = p->shown.index,
	};

	if (p->process >= 0)
		(void)epoll_ctl(p->user->epfd, EPOLL_CTL_DEL, p->process, NULL);
	(void)worker_ask(p->worker, &msg, -1);
	publication_free(p);
}

/* Under the lock: take it off the list. */
static void take_off(struct publication *p)
{
	list_del(&p->link);
	count(p, -1);
}

static struct publication *find_name(struct broker *b, const char *name)
{
	struct list *e;

	list_for_each (e, &b->publications) {
		struct publication *p = list_entry(e, struct publication, link);

		if (strcmp(p->shown.name, name) == 0)
			return p;
	}
	return NULL;
}

static bool has_id(struct broker *b, const uint8_t id[USRBIO_ID_LEN])
{
	struct list *e;

	list_for_each (e, &b->publications)
		if (!memcmp(list_entry(e, struct publication, link)->name.id, id, USRBIO_ID_LEN))
			return true;
	return false;
}

/* May the user have that too?  Under the lock. */
static int check_quota(const struct broker_quota *q, const struct publication *p)
{
	const struct worker *w = p->worker;

	if (w->nr_links >= q->links || (p->name.kind == USRBIO_RING && w->nr_rings >= q->rings))
		return -EMFILE;
	if (q->bytes && (p->size > q->bytes || w->bytes > q->bytes - p->size))
		return -EDQUOT;
	return 0;
}

static int reserve(struct broker *b, struct publication *p)
{
	int err;

	lock(b);
	err = has_id(b, p->name.id) ? -EEXIST : check_quota(&b->quota, p);
	if (err == 0) {
		p->shown.index = b->next++;
		list_add_tail(&b->publications, &p->link);
		count(p, 1);
	}
	unlock(b);
	return err;
}

/* The process that published it, as a descriptor that tells its end. */
static int open_process(struct publication *p, pid_t pid)
{
	pid_t process = pid ? caller_process(pid) : 0;

	/* One in another PID namespace cannot be watched. */
	if (!pid)
		return 0;
	if (process < 0)
		return process;
	p->process = (int)syscall(SYS_pidfd_open, process, 0);
	return p->process < 0 ? -errno : 0;
}

static int hand_over(struct publication *p, int fd)
{
	const struct link_msg msg = {
		.op = p->name.kind == USRBIO_RING ? LINK_RING_ADD : LINK_BUFFER_ADD,
		.handle = p->shown.index,
		.size = p->size,
		.name = p->name,
	};

	return worker_ask(p->worker, &msg, fd);
}

/* The worker has it: others may find it now. */
static int show(struct broker *b, struct publication *p, struct broker_link *ret)
{
	int err = 0;

	lock(b);
	/* The worker died meanwhile, and took it along. */
	if (list_empty(&p->link))
		err = -EREMOTEIO;
	else if (p->process >= 0)
		err = watch_fd(p->user, p->process, event_of(OF_CLIENT, p->shown.index));
	if (err == 0) {
		p->ready = true;
		*ret = p->shown;
	}
	unlock(b);
	return err;
}

static void give_up(struct broker *b, struct publication *p)
{
	lock(b);
	if (!list_empty(&p->link))
		take_off(p);
	unlock(b);
	publication_free(p);
}

static int fill_in(struct publication *p, const struct caller *c, const char *name,
		   const char *target, uint64_t size)
{
	int err = usrbio_name_parse(name, &p->name);

	if (err < 0)
		return err;
	if (p->name.kind == USRBIO_DEVICE)
		return -EOPNOTSUPP;
	if (strlen(name) >= sizeof(p->shown.name) || strlen(target) >= sizeof(p->shown.target))
		return -EINVAL;
	p->size = size;
	p->shown.uid = c->uid;
	p->shown.gid = c->gid;
	(void)strcpy(p->shown.name, name);
	(void)strcpy(p->shown.target, target);
	return open_process(p, c->pid);
}

int broker_publish(struct broker *b, const struct caller *c, const char *name, const char *target,
		   int fd, uint64_t size, struct broker_link *ret)
{
	struct publication *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	list_init(&p->link);
	p->process = -1;
	err = fill_in(p, c, name, target, size);
	if (err == 0)
		err = get_user(b, c->uid, &p->user);
	if (err == 0)
		err = get_worker(p->user, c, &p->worker);
	if (err == 0)
		err = reserve(b, p);
	if (err == 0)
		err = hand_over(p, fd);
	if (err == 0)
		err = show(b, p, ret);
	if (err < 0)
		give_up(b, p);
	return err;
}

/* Copy what the user may see.  Under the lock. */
static int look(const struct publication *p, uid_t uid, struct broker_link *ret)
{
	if (!p || !p->ready)
		return -ENOENT;
	if (p->shown.uid != uid)
		return -EPERM;
	*ret = p->shown;
	return 0;
}

int broker_find(struct broker *b, uid_t uid, const char *name, struct broker_link *ret)
{
	int err;

	lock(b);
	err = look(find_name(b, name), uid, ret);
	unlock(b);
	return err;
}

int broker_find_index(struct broker *b, uid_t uid, uint64_t index, struct broker_link *ret)
{
	struct list *e;
	int err = -ENOENT;

	lock(b);
	list_for_each (e, &b->publications) {
		const struct publication *p = list_entry(e, struct publication, link);

		if (p->shown.index == index)
			err = look(p, uid, ret);
	}
	unlock(b);
	return err;
}

int broker_next(struct broker *b, uid_t uid, uint64_t index, struct broker_link *ret)
{
	struct list *e;
	int err = -ENOENT;

	lock(b);
	list_for_each (e, &b->publications) {
		const struct publication *p = list_entry(e, struct publication, link);

		if (p->shown.index >= index && p->ready && p->shown.uid == uid) {
			*ret = p->shown;
			err = 0;
			break;
		}
	}
	unlock(b);
	return err;
}

int broker_unpublish(struct broker *b, uid_t uid, const char *name)
{
	struct broker_link link;
	struct publication *p;
	int err;

	lock(b);
	p = find_name(b, name);
	err = look(p, uid, &link);
	if (err == 0)
		take_off(p);
	unlock(b);
	if (err == 0)
		publication_end(p);
	return err;
}

/* ------------------------------------------------------------------- files */

static bool has_user(const struct broker_file *f, const struct user *u)
{
	while (f && f->user != u)
		f = f->next;
	return f;
}

int broker_file_add(struct broker *b, uid_t uid, struct broker_file **file, uint64_t number, int fd)
{
	struct broker_file *f = calloc(1, sizeof(*f));
	struct worker *w;
	struct user *u;
	int err = f ? get_user(b, uid, &u) : -ENOMEM;

	if (err < 0) {
		free(f);
		return err;
	}
	(void)pthread_mutex_lock(&u->start);
	lock(b);
	if (has_user(*file, u)) {
		free(f);
	} else {
		*f = (struct broker_file){
			.next = *file,
			.user = u,
			.number = number,
			.handle = b->next++,
			.fd = fd,
		};
		list_add_tail(&u->untold, &f->link);
		*file = f;
	}
	unlock(b);
	w = find_worker(u);
	if (w)
		(void)tell_files(u, w);
	worker_unref(w);
	(void)pthread_mutex_unlock(&u->start);
	return 0;
}

/* The worker takes the descriptor of a file under user->start, and not later. */
static void remove_file(struct broker *b, struct broker_file *f)
{
	const struct link_msg msg = { .op = LINK_FILE_REMOVE, .handle = f->handle };
	struct user *u = f->user;

	(void)pthread_mutex_lock(&u->start);
	lock(b);
	list_del(&f->link);
	unlock(b);
	(void)pthread_mutex_unlock(&u->start);
	if (f->worker)
		(void)worker_ask(f->worker, &msg, -1);
	worker_unref(f->worker);
	free(f);
}

void broker_file_remove(struct broker *b, struct broker_file **file)
{
	struct broker_file *next;

	for (struct broker_file *f = TAKE_PTR(*file); f; f = next) {
		next = f->next;
		remove_file(b, f);
	}
}

/* ------------------------------------------------------------------- users */

static void client_gone(struct broker *b, uint64_t index)
{
	struct publication *p = NULL;
	struct list *e;

	lock(b);
	list_for_each (e, &b->publications)
		if (list_entry(e, struct publication, link)->shown.index == index)
			p = list_entry(e, struct publication, link);
	if (p)
		take_off(p);
	unlock(b);
	if (p)
		publication_end(p);
}

/* Under the lock: what it served goes to the list, and files are nobody's again. */
static void take_from(struct user *u, struct worker *w, struct list *gone)
{
	struct list *e, *n;

	list_for_each_safe (e, n, &u->b->publications) {
		struct publication *p = list_entry(e, struct publication, link);

		if (p->worker != w)
			continue;
		take_off(p);
		/* The thread that publishes one looks after it until it is ready. */
		if (p->ready)
			list_add_tail(gone, &p->link);
	}
	list_for_each_safe (e, n, &u->told) {
		struct broker_file *f = list_entry(e, struct broker_file, link);

		if (f->worker != w)
			continue;
		worker_unref(w); /* not the last */
		f->worker = NULL;
		list_move_tail(&u->untold, &f->link);
	}
}

/* Its rings have ended, and what was published for it serves nobody any more. */
static void forget_worker(struct user *u, struct worker *w)
{
	struct list *e, *n, gone;
	bool mine;

	list_init(&gone);
	lock(u->b);
	atomic_store(&w->dead, true);
	mine = u->worker == w;
	if (mine)
		u->worker = NULL;
	take_from(u, w, &gone);
	unlock(u->b);
	(void)epoll_ctl(u->epfd, EPOLL_CTL_DEL, w->pidfd, NULL);
	list_for_each_safe (e, n, &gone) {
		struct publication *p = list_entry(e, struct publication, link);

		if (p->process >= 0)
			(void)epoll_ctl(u->epfd, EPOLL_CTL_DEL, p->process, NULL);
		publication_free(p);
	}
	if (mine)
		worker_unref(w);
}

static void worker_gone(struct user *u, pid_t pid)
{
	struct worker *w = NULL;

	lock(u->b);
	if (u->worker && u->worker->pid == pid)
		w = worker_ref(u->worker);
	unlock(u->b);
	if (w)
		forget_worker(u, w);
	worker_unref(w);
}

static void *run(void *arg)
{
	struct user *u = arg;
	struct epoll_event ev;

	for (;;) {
		if (epoll_wait(u->epfd, &ev, 1, -1) != 1)
			continue;
		switch (ev.data.u64 & 3) {
		case OF_WORKER:
			worker_gone(u, (pid_t)(ev.data.u64 >> 2));
			break;
		case OF_CLIENT:
			client_gone(u->b, ev.data.u64 >> 2);
			break;
		default:
			return NULL;
		}
	}
}

static void user_free(struct user *u)
{
	closep(&u->epfd);
	closep(&u->stop);
	(void)pthread_mutex_destroy(&u->start);
	free(u);
}

static int user_new(struct broker *b, uid_t uid, struct user **ret)
{
	struct user *u = calloc(1, sizeof(*u));
	int err;

	if (!u)
		return -ENOMEM;
	*u = (struct user){ .uid = uid, .b = b };
	(void)pthread_mutex_init(&u->start, NULL);
	u->epfd = epoll_create1(EPOLL_CLOEXEC);
	u->stop = eventfd(0, EFD_CLOEXEC);
	list_init(&u->told);
	list_init(&u->untold);
	err = u->epfd < 0 || u->stop < 0 ? -errno : watch_fd(u, u->stop, event_of(OF_STOP, 0));
	if (err < 0)
		user_free(u);
	else
		*ret = u;
	return err;
}

static int get_user(struct broker *b, uid_t uid, struct user **ret)
{
	struct user *u = NULL;
	struct list *e;
	int err = 0;

	lock(b);
	list_for_each (e, &b->users)
		if (list_entry(e, struct user, link)->uid == uid)
			u = list_entry(e, struct user, link);
	if (!u) {
		err = user_new(b, uid, &u);
		if (err == 0)
			list_add_tail(&b->users, &u->link);
	}
	unlock(b);
	if (err == 0)
		*ret = u;
	return err;
}

/* -------------------------------------------------------------------- life */

int broker_new(const struct broker_quota *quota, struct broker **ret)
{
	struct broker *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->quota = *quota;
	(void)pthread_mutex_init(&b->lock, NULL);
	list_init(&b->users);
	list_init(&b->publications);
	*ret = b;
	return 0;
}

void broker_free(struct broker *b)
{
	struct list *e, *n;

	list_for_each_safe (e, n, &b->users) {
		struct user *u = list_entry(e, struct user, link);

		(void)eventfd_write(u->stop, 1);
		if (u->runs)
			(void)pthread_join(u->thread, NULL);
		if (u->worker)
			forget_worker(u, u->worker);
		user_free(u);
	}
	(void)pthread_mutex_destroy(&b->lock);
	free(b);
}
