/* SPDX-License-Identifier: MIT */
/* Peer: memory of another process, which is mapped here.  The hop of pst_peer_open(). */
#include "core/ways/part.h"
#include "core/ways/path.h"

static enum pst_why peer_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			     int *ret_detail)
{
	(void)m;
	(void)op;
	(void)ret_detail;
	if (f->file->ops->hop == PST_PATH_PEER)
		return PST_WHY_NONE;
	/* Memory of a peer that is reached over the connection has no other hop than that. */
	return f->file->ops->hop ? PST_WHY_NO_PEER : PST_WHY_NO_PROVIDER;
}

static enum pst_why peer_fit(struct part *p, int *ret_detail)
{
	(void)p;
	(void)ret_detail;
	return PST_WHY_NONE;
}

const struct path_ops path_peer = {
	.path = PST_PATH_PEER,
	.quiet = true, /* files of other providers have hops enough */
	.why = peer_why,
	.fit = peer_fit,
};
