/* SPDX-License-Identifier: MIT */
/* What mr.c and mr_alloc.c share. */
#ifndef PST_VERBS_MR_INT_H
#define PST_VERBS_MR_INT_H

#include "net/verbs/mr.h"

struct region_mr {
	struct mem_reg reg;
	struct vb_mr *mr;
};

/* Flags of verbs for rights (MEM_REG_*). */
int mr_access(const struct nic_domain *d, uint32_t rights);
/* Register addresses.  0 and *ret, or an errno. */
int mr_by_address(const struct nic_domain *d, uint64_t va, uint64_t len, int access,
		  struct vb_mr **ret);
/* The error of a registration of host memory, with a sentence. */
int mr_no_host_memory(const struct nic_domain *d, uint64_t len, int err);
void mr_end(struct mem_registrar *r, struct mem_reg *reg);

#endif
