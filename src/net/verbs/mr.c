/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "base/err.h"
#include "base/log.h"
#include "net/verbs/mr.h"

int mr_access(const struct nic_domain *d, uint32_t rights)
{
	int access = 0;

	/* Verbs require local write access for remote writes. */
	if (rights & (MEM_REG_LOCAL_WRITE | MEM_REG_REMOTE_WRITE))
		access |= VB_ACCESS_LOCAL_WRITE;
	if (rights & MEM_REG_REMOTE_READ)
		access |= VB_ACCESS_REMOTE_READ;
	if (rights & MEM_REG_REMOTE_WRITE)
		access |= VB_ACCESS_REMOTE_WRITE;
	/* Relaxed ordering is safe here: completions tell when bytes have arrived, and nobody polls
	 * on the bytes themselves. */
	if (d->nic->relaxed)
		access |= VB_ACCESS_RELAXED_ORDERING;
	return access;
}

int mr_by_address(const struct nic_domain *d, uint64_t va, uint64_t len, int access,
		  struct vb_mr **ret)
{
	void *addr = (void *)(uintptr_t)va; /* may be a device address, which the CPU never uses */

	errno = 0;
	*ret = d->nic->relaxed ? vb.ibv_reg_mr_iova2(d->pd, addr, len, va, (unsigned)access)
			       : vb.ibv_reg_mr(d->pd, addr, len, access);
	return *ret ? 0 : errno ? errno : EIO;
}

int mr_no_host_memory(const struct nic_domain *d, uint64_t len, int err)
{
	struct rlimit rl = { 0 };

	(void)getrlimit(RLIMIT_MEMLOCK, &rl);
	if (err == ENOMEM)
		return err_set(err,
			       "%s cannot pin %" PRIu64 " bytes: the process may lock %" PRIu64
			       "; raise RLIMIT_MEMLOCK (ulimit -l)",
			       d->nic->name, len, (uint64_t)rl.rlim_cur);
	return err_set(err, "%s cannot register %" PRIu64 " bytes of host memory: %s", d->nic->name,
		       len, err_name(err));
}

void mr_end(struct mem_registrar *r, struct mem_reg *reg)
{
	struct region_mr *m = container_of(reg, struct region_mr, reg);
	int err = vb.ibv_dereg_mr(m->mr);

	/* The caller has ended all use of the registration, so the device has no reason to
	 * refuse. */
	if (err)
		log_warn("%s did not end a memory region: %s, ignoring",
			 container_of(r, struct nic_domain, reg)->nic->name, err_name(err));
	free(m);
}

int mr_reg_host(struct nic_domain *d, void *addr, uint64_t len, uint32_t rights,
		struct mem_reg **ret)
{
	return mr_reg_program(d, addr, len, rights | MEM_REG_LOCAL_WRITE, ret);
}

int mr_reg_program(struct nic_domain *d, void *addr, uint64_t len, uint32_t rights,
		   struct mem_reg **ret)
{
	_cleanup_(freep) struct region_mr *m = calloc(1, sizeof(*m));
	int err;

	if (!m)
		return err_set(ENOMEM, "out of memory");
	err = mr_by_address(d, (uintptr_t)addr, len, mr_access(d, rights), &m->mr);
	if (err)
		return mr_no_host_memory(d, len, err);
	m->reg = (struct mem_reg){
		.len = len,
		.addr = (uintptr_t)addr,
		.lkey = m->mr->lkey,
		.rkey = m->mr->rkey,
		.how = MEM_REG_HOST,
	};
	*ret = &TAKE_PTR(m)->reg;
	return 0;
}

void mr_dereg(struct nic_domain *d, struct mem_reg *reg)
{
	if (reg)
		mr_end(&d->reg, reg);
}

/* ------------------------------------------------------- protection domains */

int nic_domain_host_new(struct nic *n, struct nic_domain **ret)
{
	_cleanup_(freep) struct nic_domain *d = calloc(1, sizeof(*d));

	if (!d)
		return err_set(ENOMEM, "out of memory");
	d->nic = n;
	errno = 0;
	d->pd = vb.ibv_alloc_pd(n->ctx);
	if (!d->pd)
		return err_set(errno ? errno : ENOMEM, "%s makes no protection domain: %s", n->name,
			       err_name(errno ? errno : ENOMEM));
	*ret = TAKE_PTR(d);
	return 0;
}

int nic_domain_free(struct nic_domain *d)
{
	int err;

	if (!d)
		return 0;
	if (atomic_load(&d->reg.live))
		return err_set(EBUSY, "a protection domain of %s is in use: %u registrations",
			       d->nic->name, atomic_load(&d->reg.live));
	err = vb.ibv_dealloc_pd(d->pd);
	if (err)
		return err_set(err, "a protection domain of %s is in use: %s", d->nic->name,
			       err_name(err));
	free(d);
	return 0;
}
