/* SPDX-License-Identifier: MIT */
#include "base/dl.h"
#include "base/err.h"
#include "net/verbs/verbs.h"

DL_NOTE("libibverbs.so.1", "rdma", "RDMA by InfiniBand and RoCE");

struct verbs_api vb;

static const struct dl_lib lib = {
	.what = "libibverbs",
	.soname = "libibverbs.so.1",
	.env = "PST_LIBIBVERBS",
};

static const struct dl_sym syms[] = {
#define SYM(result, name, args) DL_SYM(struct verbs_api, name, true),
#define OPT(result, name, args) DL_SYM(struct verbs_api, name, false),
#include "net/verbs/verbs_syms.h"
};

static struct {
	pthread_once_t once;
	int err;
	struct err_kept why;
} loaded = { .once = PTHREAD_ONCE_INIT };

static void verbs_load_once(void)
{
	loaded.err = dl_load(&lib, &vb, syms, ARRAY_SIZE(syms));
	err_keep(&loaded.why);
}

int verbs_load(void)
{
	(void)pthread_once(&loaded.once, verbs_load_once);
	if (loaded.err < 0)
		return err_set(-loaded.err,
			       "RDMA needs libibverbs: %s; install the packages libibverbs1 and "
			       "ibverbs-providers",
			       loaded.why.text);
	return 0;
}

const char *verbs_status_name(uint32_t status)
{
	const char *name = vb.ibv_wc_status_str ? vb.ibv_wc_status_str(status) : NULL;

	return name ? name : "unknown status";
}

int verbs_status_errno(uint32_t status)
{
	switch (status) {
	case VB_WC_SUCCESS:
		return 0;
	case VB_WC_LOC_LEN_ERR:
	case VB_WC_REM_INV_REQ_ERR:
		return -EMSGSIZE;
	case VB_WC_LOC_PROT_ERR:
	case VB_WC_LOC_ACCESS_ERR:
		return -EFAULT;
	case VB_WC_WR_FLUSH_ERR:
		return -ECANCELED;
	case VB_WC_REM_ACCESS_ERR:
		return -EACCES;
	case VB_WC_REM_OP_ERR:
		return -EREMOTEIO;
	case VB_WC_RETRY_EXC_ERR:
		return -ETIMEDOUT;
	case VB_WC_RNR_RETRY_EXC_ERR:
		return -EAGAIN;
	default:
		return -EIO;
	}
}
