/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/user.h"

#include <string.h>
#include <sys/syscall.h>

#include "base/base.h"
#include "usrbio/mount/device.h"
#include "usrbio/mount/fds.h"
#include "usrbio/mount/leftover.h"
#include "usrbio/proto/ipc.h"

/* A name in 3fs-virt/iovs. */
struct publication {
	struct list link;
	struct broker_link shown;
	struct usrbio_name name;
	struct usrbio_gdr gdr; /* device memory; secret */
	uint64_t size;
	bool ready;  /* the worker has accepted it */
	int process; /* pidfd of the publishing process, or -1 */
	struct leftover memory;
	struct user *user;
	struct worker *worker;
};

/* Add by to the user's numbers of links, rings and bytes.  The caller holds the lock. */
static void publish_count(struct publication *p, int by)
{
	struct worker *w = p->worker;

	w->nr_links += (unsigned)by;
	w->nr_rings += p->name.kind == USRBIO_RING ? (unsigned)by : 0;
	w->bytes += by > 0 ? p->size : -p->size;
}

static void publication_free(struct publication *p)
{
	if (p->process >= 0) {
		(void)close(p->process);
		fds_give(p->shown.uid, 1);
	}
	worker_unref(p->worker);
	explicit_bzero(p, sizeof(*p));
	free(p);
}

/* Free a publication that is on no list. */
static void publication_end(struct publication *p)
{
	const struct link_msg msg = {
		.op = p->name.kind == USRBIO_RING ? LINK_RING_REMOVE : LINK_BUFFER_REMOVE,
		.handle = p->shown.index,
	};

	(void)worker_ask(p->worker, &msg, -1);
	user_wake(p->user);
	publication_free(p);
}

/* Remove a publication from its list.  The caller holds the lock. */
static void publish_take_off(struct publication *p)
{
	list_del(&p->link);
	publish_count(p, -1);
	p->user->used = now_ns();
	/* Stop watching the process now: the user's thread may end when there are no
	 * publications. */
	if (p->process >= 0)
		user_unwatch(p->user, p->process);
}

/* Return the user's publication of that name; if there is none, another user's; or NULL. */
static struct publication *find_name(struct broker *b, uid_t uid, const char *name)
{
	struct publication *ret = NULL;
	struct list *e;

	list_for_each (e, &b->publications) {
		struct publication *p = list_entry(e, struct publication, link);

		if (strcmp(p->shown.name, name) != 0)
			continue;
		ret = p;
		if (p->shown.uid == uid)
			break;
	}
	return ret;
}

/* Return true if the user has a publication with that UUID. Other users may have the same UUID,
 * because their workers are separate. */
static bool has_id(struct broker *b, uid_t uid, const uint8_t id[USRBIO_ID_LEN])
{
	struct list *e;

	list_for_each (e, &b->publications) {
		const struct publication *p = list_entry(e, struct publication, link);

		if (p->shown.uid == uid && !memcmp(p->name.id, id, USRBIO_ID_LEN))
			return true;
	}
	return false;
}

/* Check the user's quota.  The caller holds the lock. */
static int check_quota(const struct broker_quota *q, const struct publication *p)
{
	const struct worker *w = p->worker;

	if (w->nr_links >= q->links || (p->name.kind == USRBIO_RING && w->nr_rings >= q->rings))
		return -EMFILE;
	if (q->bytes && (p->size > q->bytes || w->bytes > q->bytes - p->size))
		return -EDQUOT;
	return 0;
}

static int publish_reserve(struct broker *b, struct publication *p)
{
	int err;

	broker_lock(b);
	err = has_id(b, p->shown.uid, p->name.id) ? -EEXIST : check_quota(&b->quota, p);
	if (err == 0) {
		p->shown.index = b->next++;
		list_add_tail(&b->publications, &p->link);
		publish_count(p, 1);
	}
	broker_unlock(b);
	return err;
}

/* Open a pidfd of the publishing process; *ret is its PID, or 0 if it is not visible. */
static int open_process(struct publication *p, pid_t pid, pid_t *ret)
{
	pid_t process = pid ? caller_process(pid) : 0;
	int err;

	*ret = 0;
	/* A process in another PID namespace cannot be watched. */
	if (!pid)
		return 0;
	if (process < 0)
		return process;
	err = fds_take(p->shown.uid, 1);
	if (err < 0)
		return err;
	p->process = (int)syscall(SYS_pidfd_open, process, 0);
	if (p->process < 0) {
		err = -errno;
		fds_give(p->shown.uid, 1);
		return err;
	}
	*ret = process;
	return 0;
}

static int hand_over(struct publication *p, int fd)
{
	static const enum link_op ops[] = {
		[USRBIO_BUFFER] = LINK_BUFFER_ADD,
		[USRBIO_RING] = LINK_RING_ADD,
		[USRBIO_DEVICE] = LINK_DEVICE_ADD,
	};
	struct link_msg msg = {
		.op = ops[p->name.kind],
		.handle = p->shown.index,
		.size = p->size,
		.name = p->name,
		.gdr = p->gdr,
	};
	int err = worker_ask(p->worker, &msg, fd);

	explicit_bzero(&msg.gdr, sizeof(msg.gdr));
	return err;
}

/* Make a publication visible, because the worker has accepted it. */
static int publish_show(struct broker *b, struct publication *p, struct broker_link *ret)
{
	int err = 0;

	broker_lock(b);
	/* The worker died in between, and the publication was removed with it. */
	if (list_empty(&p->link))
		err = -EREMOTEIO;
	else if (p->process >= 0)
		err = user_watch_client(p->user, p->process, p->shown.index);
	if (err == 0) {
		p->ready = true;
		*ret = p->shown;
	}
	broker_unlock(b);
	return err;
}

static void publish_give_up(struct broker *b, struct publication *p)
{
	broker_lock(b);
	if (!list_empty(&p->link))
		publish_take_off(p);
	broker_unlock(b);
	publication_free(p);
}

static int fill_in(struct publication *p, const struct caller *c, const char *name,
		   const char *target)
{
	int err = usrbio_name_parse(name, &p->name);

	if (err < 0)
		return err;
	if (strlen(name) >= sizeof(p->shown.name) || strlen(target) >= sizeof(p->shown.target))
		return -EINVAL;
	p->shown.uid = c->uid;
	p->shown.gid = c->gid;
	(void)strcpy(p->shown.name, name);
	(void)strcpy(p->shown.target, target);
	return 0;
}

static int mount_publish(struct broker *b, struct publication *p, const struct caller *c, int fd,
			 struct broker_link *ret)
{
	int err = user_need_worker(p->user, c, &p->worker);

	if (err == 0)
		err = publish_reserve(b, p);
	if (err == 0)
		err = hand_over(p, fd);
	return err < 0 ? err : publish_show(b, p, ret);
}

/* Give a publication to the worker, then make it visible to all of the user's processes. */
static int publish_to(struct broker *b, struct publication *p, const struct caller *c, int fd,
		      struct broker_link *ret)
{
	struct user *u;
	int err = user_get(b, c->uid, &u);

	if (err < 0)
		return err;
	if (!user_may_wait(u))
		return -EBUSY;
	p->user = u;
	/* Do not use p after this: a visible publication may be removed at any time. */
	err = mount_publish(b, p, c, fd, ret);
	user_waited(u);
	return err;
}

static struct publication *publication_new(void)
{
	struct publication *p = calloc(1, sizeof(*p));

	if (p) {
		list_init(&p->link);
		p->process = -1;
	}
	return p;
}

int broker_publish(struct broker *b, const struct caller *c, const char *name, const char *target,
		   int fd, uint64_t size, struct broker_link *ret)
{
	struct publication *p = publication_new();
	pid_t process;
	int err;

	if (!p)
		return -ENOMEM;
	p->size = size;
	err = fill_in(p, c, name, target);
	if (err == 0 && p->name.kind == USRBIO_DEVICE)
		err = -EINVAL;
	if (err == 0)
		err = open_process(p, c->pid, &process);
	if (err == 0)
		leftover_of(c, process, target, fd, &p->memory);
	if (err == 0)
		err = publish_to(b, p, c, fd, ret);
	if (err < 0)
		publish_give_up(b, p);
	return err;
}

/* ----------------------------------------------------------- device memory */

/* Return true if another living process of the user has published the same memory here. */
static bool is_lent(struct broker *b, const struct publication *p)
{
	bool any = false;
	struct list *e;

	broker_lock(b);
	list_for_each (e, &b->publications) {
		const struct publication *o = list_entry(e, struct publication, link);

		any |= o->ready && o->name.kind == USRBIO_DEVICE && o->shown.uid == p->shown.uid &&
		       !memcmp(o->gdr.ipc, p->gdr.ipc, sizeof(p->gdr.ipc)) &&
		       device_owner_lives(o->process);
	}
	broker_unlock(b);
	return any;
}

static int claim(struct broker *b, struct publication *p, const struct caller *c,
		 const char *target, int *ret_fd)
{
	pid_t process;
	int err = p->name.kind == USRBIO_DEVICE ? usrbio_gdr_parse(target, &p->gdr) : -EINVAL;

	if (err == 0 && p->gdr.device != p->name.device)
		err = -EINVAL;
	if (err < 0)
		return err;
	p->size = p->gdr.size;
	err = open_process(p, c->pid, &process);
	if (err == 0)
		err = device_check(&p->gdr, c, process, p->process);
	/* Imported memory has the owner's CUDA handle, which names the owner's process. */
	if (err == -EPERM && p->process >= 0 && !usrbio_ipc_is_soft(p->gdr.ipc) && is_lent(b, p))
		err = 0;
	return err < 0 ? err : device_open(&p->gdr, c, process, p->process, ret_fd);
}

int broker_publish_device(struct broker *b, const struct caller *c, const char *name,
			  const char *target, struct broker_link *ret)
{
	struct publication *p = publication_new();
	int fd = -1, err;

	if (!p)
		return -ENOMEM;
	err = fill_in(p, c, name, target);
	if (err == 0)
		err = claim(b, p, c, target, &fd);
	if (err == 0)
		err = publish_to(b, p, c, fd, ret);
	closep(&fd);
	if (err < 0)
		publish_give_up(b, p);
	return err;
}

/* -------------------------------------------------------------------- look */

/* Copy the parts that the user may see.  The caller holds the lock. */
static int publish_look(const struct publication *p, uid_t uid, struct broker_link *ret)
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

	broker_lock(b);
	err = publish_look(find_name(b, uid, name), uid, ret);
	broker_unlock(b);
	return err;
}

int broker_find_index(struct broker *b, uid_t uid, uint64_t index, struct broker_link *ret)
{
	struct list *e;
	int err = -ENOENT;

	broker_lock(b);
	list_for_each (e, &b->publications) {
		const struct publication *p = list_entry(e, struct publication, link);

		if (p->shown.index == index)
			err = publish_look(p, uid, ret);
	}
	broker_unlock(b);
	return err;
}

int broker_next(struct broker *b, uid_t uid, uint64_t index, struct broker_link *ret)
{
	struct list *e;
	int err = -ENOENT;

	broker_lock(b);
	list_for_each (e, &b->publications) {
		const struct publication *p = list_entry(e, struct publication, link);

		if (p->shown.index >= index && p->ready && p->shown.uid == uid) {
			*ret = p->shown;
			err = 0;
			break;
		}
	}
	broker_unlock(b);
	return err;
}

int broker_unpublish(struct broker *b, uid_t uid, const char *name)
{
	struct broker_link link;
	struct publication *p;
	struct user *u;
	int err;

	broker_lock(b);
	p = find_name(b, uid, name);
	err = publish_look(p, uid, &link);
	if (err == 0 && !user_may_wait(p->user))
		err = -EBUSY;
	if (err == 0)
		publish_take_off(p);
	broker_unlock(b);
	if (err < 0)
		return err;
	u = p->user;
	publication_end(p);
	user_waited(u);
	return 0;
}

void publish_client_gone(struct broker *b, uint64_t index)
{
	struct publication *p = NULL;
	struct list *e;

	broker_lock(b);
	list_for_each (e, &b->publications)
		if (list_entry(e, struct publication, link)->shown.index == index)
			p = list_entry(e, struct publication, link);
	if (p)
		publish_take_off(p);
	broker_unlock(b);
	if (!p)
		return;
	leftover_remove(&p->memory, p->shown.uid, p->shown.gid);
	publication_end(p);
}

void publish_worker_gone(struct user *u, const struct worker *w)
{
	struct list *e, *n, gone;

	list_init(&gone);
	broker_lock(u->b);
	list_for_each_safe (e, n, &u->b->publications) {
		struct publication *p = list_entry(e, struct publication, link);

		if (p->worker != w)
			continue;
		publish_take_off(p);
		/* Skip publications that are not ready: the publishing thread removes these itself
		 * on failure. */
		if (p->ready)
			list_add_tail(&gone, &p->link);
	}
	broker_unlock(u->b);
	list_for_each_safe (e, n, &gone)
		publication_free(list_entry(e, struct publication, link));
}
