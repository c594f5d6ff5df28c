/* SPDX-License-Identifier: MIT */
#include "base/err.h"
#include "file/io.h"

static const struct io_backend *const backends[] = { &uring_backend, &threads_backend };

static const struct io_backend *pick_auto(int *ret_err)
{
	*ret_err = -uring_backend.check();
	return *ret_err ? &threads_backend : &uring_or_threads_backend;
}

bool io_backend_is_refused(const struct io_backend *ops, int r)
{
	if (ops != &uring_or_threads_backend)
		return false;
	/* Return true for errors after which threads may replace io_uring: rings count against
	 * RLIMIT_MEMLOCK (-ENOMEM), and a sandbox may cause the other errors at any time. */
	return r == -ENOMEM || r == -EPERM || r == -EACCES || r == -ENOSYS;
}

const struct io_backend *io_backend_pick(uint32_t backend, int *ret_err)
{
	if (backend == PST_BACKEND_AUTO)
		return pick_auto(ret_err);
	for (size_t i = 0; i < ARRAY_SIZE(backends); i++) {
		int r;

		if (backends[i]->backend != backend)
			continue;
		r = backends[i]->check();
		*ret_err = -r;
		return r == 0 ? backends[i] : NULL;
	}
	*ret_err = EINVAL;
	(void)err_set(EINVAL,
		      "there is no back end with the number %u: 0 is automatic, 1 io_uring, "
		      "2 threads",
		      backend);
	return NULL;
}
