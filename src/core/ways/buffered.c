/* SPDX-License-Identifier: MIT */
/*
 * BUFFERED: through the page cache, which reads missing bytes from the disk.  This hop serves every
 * range of every file, unless the file's provider has its own hop.
 */
#include "core/queue/req.h"
#include "core/ways/part.h"
#include "core/ways/path.h"

static enum pst_why buffered_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
				 int *ret_detail)
{
	(void)m;
	(void)op;
	(void)ret_detail;
	return f->file->ops->hop ? PST_WHY_NO_PROVIDER : PST_WHY_NONE;
}

static enum pst_why buffered_fit(struct part *p, int *ret_detail)
{
	(void)p;
	(void)ret_detail;
	return PST_WHY_NONE;
}

const struct path_ops path_buffered = {
	.path = PST_PATH_BUFFERED,
	.copies = true,
	.why = buffered_why,
	.fit = buffered_fit,
};
