/* SPDX-License-Identifier: MIT */
/*
 * Protection domains, and the memory regions that an RDMA device reaches for them.
 *
 * Memory of a device is registered by a dma-buf, else by the vendor's peer-memory module, which
 * knows device addresses.  Host memory is registered by its address.  There is no fall-back from
 * device memory to host memory.
 */
#ifndef PST_VERBS_MR_H
#define PST_VERBS_MR_H

#include "mem/registrar.h"
#include "net/verbs/nic.h"

/*
 * A protection domain: connections and the memory that they reach.  One for each peer, since a peer
 * that knows a key may use it through every connection of the key's domain.
 */
struct nic_domain {
	struct mem_registrar reg; /* regions register memory with it */
	struct nic *nic;
	struct vb_pd *pd;
};

int nic_domain_new(struct nic *n, struct nic_domain **ret);
/* The same, for host memory alone: its registrar has no table. */
int nic_domain_host_new(struct nic *n, struct nic_domain **ret);
/* -EBUSY while memory is registered or a connection uses it; then it stays. */
int nic_domain_free(struct nic_domain *d);

/* The table of the registrars of nic_domain_new(). */
extern const struct mem_registrar_ops mr_registrar_ops;

/* Register host memory of the caller's own, such as a bounce buffer; rights: MEM_REG_REMOTE_*. */
int mr_reg_host(struct nic_domain *d, void *addr, uint64_t len, uint32_t rights,
		struct mem_reg **ret);
/* Register memory of a program, which may be read-only, with exactly these rights. */
int mr_reg_program(struct nic_domain *d, void *addr, uint64_t len, uint32_t rights,
		   struct mem_reg **ret);
void mr_dereg(struct nic_domain *d, struct mem_reg *reg);

/* ------------------------------------------------- what mr.c and mr_alloc.c share */

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
