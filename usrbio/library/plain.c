/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "base/base.h"
#include "lock.h"
#include "log.h"
#include "plain.h"
#include "usrbio/server/worker.h"

static struct worker *worker; /* LOCK_WORKER, as the next */
static unsigned forks;        /* when it was made */

struct worker *plain_worker(int *ret_err)
{
	struct worker *w = NULL;
	int r = 0;

	lock_take(LOCK_WORKER);
	if (!worker) {
		r = worker_new(NULL, &worker);
		forks = lock_forks();
	}
	if (r == 0 && forks != lock_forks())
		r = -EOWNERDEAD;
	if (r == 0)
		w = worker;
	lock_drop(LOCK_WORKER);
	if (r == -EOWNERDEAD)
		(void)log_fail(r, "plain directories stay with the process that used them first; "
				  "this is a fork of it");
	else if (r < 0)
		(void)log_fail(r, "cannot make a worker: %s", strerror(-r));
	if (!w)
		*ret_err = r;
	return w;
}
