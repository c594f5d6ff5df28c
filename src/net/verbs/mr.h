/* SPDX-License-Identifier: MIT */
/*
 * Protection domains and memory registered with them.
 *
 * Device memory is registered by a dma-buf, or else by the vendor's peer-memory module, which knows
 * device addresses.  Host memory is registered by its address.  Device memory never falls back to
 * host memory.
 */
#ifndef PST_VERBS_MR_H
#define PST_VERBS_MR_H

#include "mem/registrar.h"
#include "net/verbs/nic.h"

/*
 * A protection domain: connections, and the memory that their peers may access.  Use one per peer:
 * a peer that knows a key may use it on every connection of the domain.
 */
struct nic_domain {
	struct mem_registrar reg; /* registers memory of regions with this domain */
	struct nic *nic;
	struct vb_pd *pd;
};

int nic_domain_new(struct nic *n, struct nic_domain **ret);
/* Create a domain for host memory only: its registrar has no table. */
int nic_domain_host_new(struct nic *n, struct nic_domain **ret);
/* Free a domain.  Return -EBUSY, and keep it, while memory is registered or a connection uses
 * it. */
int nic_domain_free(struct nic_domain *d);

/* Functions of the registrars of nic_domain_new(). */
extern const struct mem_registrar_ops mr_registrar_ops;

/* Register the caller's own host memory, such as a bounce buffer; rights: MEM_REG_REMOTE_*. */
int mr_reg_host(struct nic_domain *d, void *addr, uint64_t len, uint32_t rights,
		struct mem_reg **ret);
/* Register a program's memory, which may be read-only, with exactly these rights. */
int mr_reg_program(struct nic_domain *d, void *addr, uint64_t len, uint32_t rights,
		   struct mem_reg **ret);
void mr_dereg(struct nic_domain *d, struct mem_reg *reg);

/* ------------------------------------------------- what mr.c and mr_alloc.c share */

struct region_mr {
	struct mem_reg reg;
	struct vb_mr *mr;
};

/* Translate MEM_REG_* rights into verbs access flags. */
int mr_access(const struct nic_domain *d, uint32_t rights);
/* Register a range by address.  Return 0 and *ret, or a positive errno. */
int mr_by_address(const struct nic_domain *d, uint64_t va, uint64_t len, int access,
		  struct vb_mr **ret);
/* Set the sentence for host memory that could not be registered; return the error. */
int mr_no_host_memory(const struct nic_domain *d, uint64_t len, int err);
void mr_end(struct mem_registrar *r, struct mem_reg *reg);

#endif
