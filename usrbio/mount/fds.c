/* SPDX-License-Identifier: MIT */
#include "usrbio/mount/fds.h"

#include <pthread.h>

#include "base/base.h"
#include "base/list.h"
#include "usrbio/mount/loop.h"

#define OF_THREAD 3u /* descriptors that a server thread may need for one request */
#define NR_BUCKETS 256u

struct share {
	struct list link; /* link in its hash bucket */
	uid_t uid;
	unsigned nr;
};

static struct {
	pthread_mutex_t lock;
	bool alone;
	unsigned max, nr;
	struct list buckets[NR_BUCKETS];
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

void fds_init(unsigned files, unsigned inodes, bool alone)
{
	unsigned left = files - MIN(OF_THREAD * LOOP_THREADS, files / 8), max;

	all.alone = alone;
	/* Each open file also keeps an inode open. */
	max = inodes < left / 2 ? left / 2 : left - MIN(inodes, left);
	all.max = MAX(max, files / 8);
	for (unsigned b = 0; b < NR_BUCKETS; b++)
		list_init(&all.buckets[b]);
}

static struct list *fds_bucket(uid_t uid)
{
	return &all.buckets[uid % NR_BUCKETS];
}

static struct share *fds_find(uid_t uid)
{
	struct list *e, *in = fds_bucket(uid);

	list_for_each (e, in)
		if (list_entry(e, struct share, link)->uid == uid)
			return list_entry(e, struct share, link);
	return NULL;
}

static struct share *fds_find_or_make(uid_t uid)
{
	struct share *s = fds_find(uid);

	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->uid = uid;
	list_add_tail(fds_bucket(uid), &s->link);
	return s;
}

static void forget_if_none(struct share *s)
{
	if (s->nr)
		return;
	list_del(&s->link);
	free(s);
}

static bool may_take(const struct share *s, unsigned nr)
{
	unsigned for_users = all.max - all.max / 16;

	if (!s->uid || all.alone)
		return nr <= all.max - all.nr;
	return all.nr < for_users && s->nr + nr <= (for_users - all.nr) / 2;
}

int fds_take(uid_t uid, unsigned nr)
{
	struct share *s;
	int err = -ENOMEM;

	(void)pthread_mutex_lock(&all.lock);
	s = fds_find_or_make(uid);
	if (s) {
		err = may_take(s, nr) ? 0 : -EMFILE;
		if (err == 0) {
			s->nr += nr;
			all.nr += nr;
		}
		forget_if_none(s);
	}
	(void)pthread_mutex_unlock(&all.lock);
	return err;
}

void fds_give(uid_t uid, unsigned nr)
{
	struct share *s;

	(void)pthread_mutex_lock(&all.lock);
	s = fds_find(uid);
	if (s) {
		s->nr -= nr;
		all.nr -= nr;
		forget_if_none(s);
	}
	(void)pthread_mutex_unlock(&all.lock);
}
