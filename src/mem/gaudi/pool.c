/* SPDX-License-Identifier: MIT */
/*
 * The place of SynapseAI's memory, from libscal: all memory of synDeviceMalloc() is in one pool,
 * and the pool is in one mapping of the driver.
 */
#include "base/dl.h"
#include "base/err.h"
#include "mem/gaudi/gaudi.h"

static struct scal_api {
#define SYM(ret, name, args) ret(*name) args;
#define OPT SYM
#include "mem/gaudi/scal_syms.h"
} scal;

#define SONAME "libscal.so"

DL_NOTE(SONAME, "gaudi", "dma-bufs of memory of SynapseAI");

static const struct dl_lib library = {
	.what = "libscal",
	.soname = SONAME,
	.path = GAUDI_DIR SONAME,
	.env = "PST_LIBSCAL",
};

static const struct dl_sym syms[] = {
#define SYM(ret, name, args) DL_SYM(struct scal_api, name, true),
#define OPT(ret, name, args) DL_SYM(struct scal_api, name, false),
#include "mem/gaudi/scal_syms.h"
};

static int scal_load(void)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	static bool loaded;
	int r;

	(void)pthread_mutex_lock(&once);
	r = loaded ? 0 : dl_load(&library, &scal, syms, ARRAY_SIZE(syms));
	loaded = r == 0;
	(void)pthread_mutex_unlock(&once);
	return r;
}

int gaudi_pool_find(int fd, struct scal_pool_info *ret)
{
	void *handle = NULL, *pool = NULL;
	int r = scal_load();

	if (r < 0)
		return r;
	if (scal.scal_get_handle_from_fd(fd, &handle) != 0 ||
	    scal.scal_get_pool_handle_by_name(handle, SCAL_USER_POOL, &pool) != 0 ||
	    scal.scal_pool_get_infoV2(pool, ret) != 0)
		return err_set(EIO, "libscal does not tell where SynapseAI's memory pool is; "
				    "install the libscal of this libSynapse");
	return 0;
}
