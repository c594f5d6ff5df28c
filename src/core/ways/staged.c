/* SPDX-License-Identifier: MIT */
/*
 * STAGED: through the slots of an engine (core/carry/job.c).  GATHER: the same, but the device
 * gathers the small copies of a batch itself.
 */
#include "core/queue/object.h"
#include "core/queue/req.h"
#include "core/ways/path.h"
#include "core/ways/proof.h"

static enum pst_why staged_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			       int *ret_detail)
{
	(void)f;
	(void)op;
	(void)ret_detail;
	return mem_copies(mem_ops_of(m)) ? PST_WHY_NONE : PST_WHY_NO_PROVIDER;
}

static bool staged_proven(const struct pst_file *f, const struct pst_mem *m, uint32_t op)
{
	struct pst_device dev = { .sz = sizeof(dev) };
	const struct proof *p;

	(void)f;
	(void)op;
	mem_ops_of(m)->device_info(m->region->alloc->device, &dev);
	p = proof_copies(&dev);
	return p && proof_state(p) == PST_STATE_PROVEN;
}

const struct path_ops path_staged = {
	.path = PST_PATH_STAGED,
	.by = &req_by_engine,
	.base = true,
	.why = staged_why,
	.proven = staged_proven,
};

/* Always refuse, because callers cannot choose GATHER: the device's stream chooses GATHER for a
 * batch of small copies. */
static enum pst_why gather_why(const struct pst_file *f, const struct pst_mem *m, uint32_t op,
			       int *ret_detail)
{
	(void)f;
	(void)m;
	(void)op;
	(void)ret_detail;
	return PST_WHY_NO_PROVIDER;
}

const struct path_ops path_gather = {
	.path = PST_PATH_GATHER,
	.by = &req_by_engine,
	.why = gather_why,
	.proven = staged_proven,
};
