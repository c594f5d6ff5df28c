/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/user.h"

#include <string.h>

#include "base/base.h"

/* An open file, and a user who may use its number. */
struct broker_file {
	struct list link;         /* user->told or user->untold */
	struct broker_file *next; /* of the same file for others */
	struct user *user;
	uint64_t number, handle;
	int fd;
	struct worker *worker; /* who knows it, or NULL */
};

/* ------------------------------------------------------------------- files */

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

	broker_lock(u->b);
	if (!list_empty(&u->untold)) {
		f = list_first(&u->untold, struct broker_file, link);
		f->worker = worker_ref(w);
		list_move_tail(&u->told, &f->link);
	}
	broker_unlock(u->b);
	return f;
}

int files_tell(struct user *u, struct worker *w)
{
	struct broker_file *f;

	/* One that the worker cannot use is a bad number to rings. */
	while ((f = next_untold(u, w)))
		if (tell_file(w, f) == -EREMOTEIO)
			return -EREMOTEIO;
	return 0;
}

void files_worker_gone(struct user *u, const struct worker *w)
{
	struct list *e, *n;

	broker_lock(u->b);
	list_for_each_safe (e, n, &u->told) {
		struct broker_file *f = list_entry(e, struct broker_file, link);

		if (f->worker != w)
			continue;
		worker_unref(f->worker); /* not the last */
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

int broker_file_add(struct broker *b, uid_t uid, struct broker_file **file, uint64_t number, int fd)
{
	struct broker_file *f = calloc(1, sizeof(*f));
	struct worker *w;
	struct user *u;
	int err = f ? user_get(b, uid, &u) : -ENOMEM;

	if (err < 0) {
		free(f);
		return err;
	}
	(void)pthread_mutex_lock(&u->start);
	broker_lock(b);
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
	broker_unlock(b);
	w = user_worker(u);
	if (w)
		(void)files_tell(u, w);
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
	broker_lock(b);
	list_del(&f->link);
	broker_unlock(b);
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

/* -------------------------------------------------------------------- life */

int broker_sem(struct broker *b, const struct caller *c, enum usrbio_priority priority,
	       char ret_name[USRBIO_SHM_NAME_MAX])
{
	struct worker *w;
	struct user *u;
	int err = user_get(b, c->uid, &u);

	if (err == 0)
		err = user_need_worker(u, c, &w);
	if (err < 0)
		return err;
	(void)strcpy(ret_name, w->sem[priority]);
	worker_unref(w);
	return 0;
}

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

	list_for_each_safe (e, n, &b->users)
		user_free(list_entry(e, struct user, link));
	(void)pthread_mutex_destroy(&b->lock);
	free(b);
}
