/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "base/base.h"
#include "lock.h"
#include "log.h"
#include "plain.h"
#include "usrbio/server/server.h"

static struct server *server; /* under LOCK_SERVER */
static unsigned forks;        /* lock_forks() at its creation; under LOCK_SERVER */

struct server *plain_server(int *ret_err)
{
	struct server *w = NULL;
	int r = 0;

	lock_take(LOCK_SERVER);
	if (!server) {
		r = server_new(NULL, &server);
		forks = lock_forks();
	}
	if (r == 0 && forks != lock_forks())
		r = -EOWNERDEAD;
	if (r == 0)
		w = server;
	lock_drop(LOCK_SERVER);
	if (r == -EOWNERDEAD)
		(void)log_fail(r, "plain directories stay with the process that used them first; "
				  "this is a fork of it");
	else if (r < 0)
		(void)log_fail(r, "cannot make a worker: %s", strerror(-r));
	if (!w)
		*ret_err = r;
	return w;
}
