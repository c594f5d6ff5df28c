// SPDX-License-Identifier: MIT
#include "base/thread.h"
#include "base/chores.h"

static struct {
	pthread_mutex_t lock;
	pthread_cond_t ran;
	struct list waiting[CHORE_LAST + 1];
	const struct chore *current;
	bool running;
} chores = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.ran = PTHREAD_COND_INITIALIZER,
	.waiting = { LIST_INIT(chores.waiting[0]), LIST_INIT(chores.waiting[1]) },
};

/* Under the lock: what comes next, NULL for nothing. */
static struct chore *chore_next(void)
{
	for (unsigned i = 0; i <= CHORE_LAST; i++)
		if (!list_empty(&chores.waiting[i]))
			return list_first(&chores.waiting[i], struct chore, link);
	return NULL;
}

static void *chores_main(void *arg)
{
	void (*run)(struct chore * c);
	struct chore *c;

	(void)arg;
	(void)pthread_setname_np(pthread_self(), "pst-chores");
	pthread_mutex_lock(&chores.lock);
	while ((c = chore_next())) {
		list_del(&c->link);
		chores.current = c;
		run = c->run;
		pthread_mutex_unlock(&chores.lock);
		run(c);
		pthread_mutex_lock(&chores.lock);
		chores.current = NULL;
		pthread_cond_broadcast(&chores.ran);
	}
	chores.running = false;
	pthread_mutex_unlock(&chores.lock);
	return NULL;
}

void chore_init(struct chore *c, void (*run)(struct chore *c))
{
	list_init(&c->link);
	c->run = run;
}

/* Under the lock. */
static int ask(struct chore *c, enum chore_rank rank)
{
	pthread_t thread;
	int r = 0;

	if (!chores.running) {
		r = thread_start(&thread, chores_main, NULL);
		chores.running = r == 0;
		if (r == 0)
			(void)pthread_detach(thread);
	}
	if (r == 0) {
		list_del(&c->link);
		list_add_tail(&chores.waiting[rank], &c->link);
	}
	return r;
}

int chore_ask(struct chore *c, enum chore_rank rank)
{
	int r;

	pthread_mutex_lock(&chores.lock);
	r = ask(c, rank);
	pthread_mutex_unlock(&chores.lock);
	return r;
}

int chore_become(struct chore *c, void (*run)(struct chore *c), enum chore_rank rank)
{
	int r;

	pthread_mutex_lock(&chores.lock);
	c->run = run;
	r = ask(c, rank);
	pthread_mutex_unlock(&chores.lock);
	return r;
}

void chore_end(struct chore *c)
{
	pthread_mutex_lock(&chores.lock);
	list_del(&c->link);
	while (chores.current == c) {
		pthread_cond_wait(&chores.ran, &chores.lock);
		list_del(&c->link); /* it may have asked for itself */
	}
	pthread_mutex_unlock(&chores.lock);
}
