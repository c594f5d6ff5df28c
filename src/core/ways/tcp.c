/* SPDX-License-Identifier: MIT */
/* TCP: bytes of a storage service, over a socket.  TCP is the file hop of the URL schemes pst, psts
 * and pst+unix. */
#include "core/ways/part.h"
#include "core/ways/path.h"

static enum pst_why tcp_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			    int *ret_detail)
{
	(void)m;
	(void)op;
	(void)ret_detail;
	return f->file->ops->hop == PST_PATH_TCP || f->file->ops->or_hop == PST_PATH_TCP
		       ? PST_WHY_NONE
		       : PST_WHY_NO_PROVIDER;
}

static enum pst_why tcp_fit(struct part *p, int *ret_detail)
{
	(void)p;
	(void)ret_detail;
	return PST_WHY_NONE;
}

const struct path_ops path_tcp = {
	.path = PST_PATH_TCP,
	.copies = true,
	.quiet = true, /* report no reason if this hop is skipped: files of other providers
		        * have other hops */
	.why = tcp_why,
	.fit = tcp_fit,
};
