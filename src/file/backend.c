/* SPDX-License-Identifier: MIT */
#include "base/err.h"
#include "file/io.h"

static const struct io_backend *const providers[] = { &uring_backend, &threads_backend };

static const struct io_backend *pick_auto(int *ret_err)
{
	int first = 0;

	for (size_t i = 0; i < ARRAY_SIZE(providers); i++) {
		int r = providers[i]->check();

		if (r == 0) {
			*ret_err = -first;
			return providers[i];
		}
		if (!first)
			first = r;
	}
	*ret_err = -first;
	return NULL;
}

const struct io_backend *io_backend_pick(uint32_t backend, int *ret_err)
{
	if (backend == PST_BACKEND_AUTO)
		return pick_auto(ret_err);
	for (size_t i = 0; i < ARRAY_SIZE(providers); i++) {
		int r;

		if (providers[i]->backend != backend)
			continue;
		r = providers[i]->check();
		*ret_err = -r;
		return r == 0 ? providers[i] : NULL;
	}
	*ret_err = EINVAL;
	(void)err_set(EINVAL,
		      "there is no back end with the number %u: 0 is automatic, 1 io_uring, "
		      "2 threads",
		      backend);
	return NULL;
}
