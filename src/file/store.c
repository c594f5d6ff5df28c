/* SPDX-License-Identifier: MIT */
#include "base/err.h"
#include "file/store.h"

static const struct store_ops *const providers[] = { &store_uring_ops, &store_threads_ops };

static const struct store_ops *pick_auto(int *ret_err)
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

const struct store_ops *store_pick(uint32_t store, int *ret_err)
{
	if (store == PST_BACKEND_AUTO)
		return pick_auto(ret_err);
	for (size_t i = 0; i < ARRAY_SIZE(providers); i++) {
		int r;

		if (providers[i]->store != store)
			continue;
		r = providers[i]->check();
		*ret_err = -r;
		return r == 0 ? providers[i] : NULL;
	}
	*ret_err = EINVAL;
	(void)err_set(EINVAL,
		      "there is no store with the number %u: 0 is automatic, 1 io_uring, "
		      "2 threads",
		      store);
	return NULL;
}
