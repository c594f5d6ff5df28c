/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/err.h"
#include "base/log.h"
#include "net/verbs/mr.h"

struct region_mr {
	struct mem_reg reg;
	struct vb_mr *mr;
};

static uint64_t mr_page_size(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

static int access_of(const struct nic_domain *d, uint32_t rights)
{
	int access = 0;

	/* Verbs allow remote writes only together with local ones. */
	if (rights & (MEM_REG_LOCAL_WRITE | MEM_REG_REMOTE_WRITE))
		access |= VB_ACCESS_LOCAL_WRITE;
	if (rights & MEM_REG_REMOTE_READ)
		access |= VB_ACCESS_REMOTE_READ;
	if (rights & MEM_REG_REMOTE_WRITE)
		access |= VB_ACCESS_REMOTE_WRITE;
	/* Completions tell when bytes are there, and nobody polls on the bytes themselves. */
	if (d->nic->relaxed)
		access |= VB_ACCESS_RELAXED_ORDERING;
	return access;
}

/* By address: 0 and *ret, or an errno. */
static int mr_by_address(const struct nic_domain *d, uint64_t va, uint64_t len, int access,
			 struct vb_mr **ret)
{
	void *addr = (void *)(uintptr_t)va; /* a device's address stays a number for the CPU */

	errno = 0;
	*ret = d->nic->relaxed ? vb.ibv_reg_mr_iova2(d->pd, addr, len, va, (unsigned)access)
			       : vb.ibv_reg_mr(d->pd, addr, len, access);
	return *ret ? 0 : errno ? errno : EIO;
}

/* By a dma-buf of the bytes: 0, or an errno and a sentence in @why. */
static int by_dmabuf(const struct nic_domain *d, const struct mem_alloc *a, struct mem_reg *m,
		     int access, struct vb_mr **ret, struct err_kept *why)
{
	struct mem_dmabuf buf = { .fd = -1 };
	int r;

	if (d->nic->dmabuf_err) {
		(void)err_set(d->nic->dmabuf_err, "%s registers no dma-buf: %s", d->nic->name,
			      err_name(d->nic->dmabuf_err));
		err_keep(why);
		return d->nic->dmabuf_err;
	}
	r = mem_export_dmabuf(a, m->off, m->len, &buf);
	if (r < 0) {
		err_keep(why);
		return -r;
	}
	/* Offset and address must be alike within a page. */
	m->addr = align_down(a->base.va + m->off, mr_page_size()) + buf.off % mr_page_size();
	errno = 0;
	*ret = vb.ibv_reg_dmabuf_mr(d->pd, buf.off, m->len, m->addr, buf.fd, access);
	r = *ret ? 0 : errno ? errno : EIO;
	(void)close(buf.fd); /* the registration holds the dma-buf */
	if (r) {
		(void)err_set(r, "%s refused the dma-buf: %s", d->nic->name, err_name(r));
		err_keep(why);
	}
	return r;
}

static int no_host_memory(const struct nic_domain *d, uint64_t len, int err)
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

static int no_device_memory(const struct nic_domain *d, const struct mem_alloc *a,
			    const struct err_kept *why, int err)
{
	return err_set(err,
		       "%s does not reach %s memory: by dma-buf: %.200s; by peer memory: %s; load "
		       "the module that registers its addresses (NVIDIA: nvidia-peermem), or see "
		       "penstock doctor --rdma",
		       d->nic->name, a->ops->name, why->text, err_name(err));
}

static int reg_alloc(const struct nic_domain *d, const struct mem_alloc *a, uint32_t rights,
		     struct region_mr *m)
{
	int access = access_of(d, rights), err;
	struct err_kept why;

	if (a->ops->caps & MEM_CAP_CPU) {
		m->reg.how = MEM_REG_HOST;
		err = mr_by_address(d, m->reg.addr, m->reg.len, access, &m->mr);
		return err ? no_host_memory(d, m->reg.len, err) : 0;
	}
	m->reg.how = MEM_REG_DMABUF;
	err = by_dmabuf(d, a, &m->reg, access, &m->mr, &why);
	if (!err)
		return 0;
	/* Not that the device cannot: it has no room now, and the caller can make some. */
	if (err == ENOMEM || err == EAGAIN)
		return err_set(err, "%s cannot pin %" PRIu64 " bytes of %s memory: %s",
			       d->nic->name, m->reg.len, a->ops->name, why.text);
	log_debug("%s: %s", d->nic->name, why.text);
	m->reg.how = MEM_REG_PEERMEM;
	m->reg.addr = a->base.va + m->reg.off;
	err = mr_by_address(d, m->reg.addr, m->reg.len, access, &m->mr);
	return err ? no_device_memory(d, a, &why, err) : 0;
}

static int mr_reg(struct mem_registrar *r, const struct mem_alloc *a, uint64_t off, uint64_t len,
		  uint32_t rights, struct mem_reg **ret)
{
	const struct nic_domain *d = container_of(r, struct nic_domain, reg);
	_cleanup_(freep) struct region_mr *m = calloc(1, sizeof(*m));
	int err;

	if (!m)
		return err_set(ENOMEM, "out of memory");
	if (rights & MEM_REG_REMOTE_WRITE && !(a->rights & PST_RIGHT_WRITE))
		return err_set(EACCES, "the memory may be read only: no peer can write there");
	if (rights & MEM_REG_REMOTE_READ && !(a->rights & PST_RIGHT_READ))
		return err_set(EACCES, "the memory may be written only: no peer can read it");
	/* Not the pages around: a peer with the key would reach its neighbours. */
	m->reg.off = off;
	m->reg.len = len;
	m->reg.addr = a->base.va + off;
	if (m->reg.len > d->nic->max_mr_len)
		return err_set(EFBIG,
			       "%s registers at most %" PRIu64 " bytes at once, not %" PRIu64
			       "; use smaller allocations",
			       d->nic->name, d->nic->max_mr_len, m->reg.len);
	err = reg_alloc(d, a, rights, m);
	if (err < 0)
		return err;
	m->reg.lkey = m->mr->lkey;
	m->reg.rkey = m->mr->rkey;
	*ret = &TAKE_PTR(m)->reg;
	return 0;
}

static void mr_end(struct mem_registrar *r, struct mem_reg *reg)
{
	struct region_mr *m = container_of(reg, struct region_mr, reg);
	int err = vb.ibv_dereg_mr(m->mr);

	/* Work that uses it is over, so the device has no reason to refuse. */
	if (err)
		log_warn("%s did not end a memory region: %s, ignoring",
			 container_of(r, struct nic_domain, reg)->nic->name, err_name(err));
	free(m);
}

const struct mem_registrar_ops mr_registrar_ops = {
	.reg = mr_reg,
	.dereg = mr_end,
};

int mr_reg_host(struct nic_domain *d, void *addr, uint64_t len, uint32_t rights,
		struct mem_reg **ret)
{
	_cleanup_(freep) struct region_mr *m = calloc(1, sizeof(*m));
	int err;

	if (!m)
		return err_set(ENOMEM, "out of memory");
	err = mr_by_address(d, (uintptr_t)addr, len, access_of(d, rights | MEM_REG_LOCAL_WRITE),
			    &m->mr);
	if (err)
		return no_host_memory(d, len, err);
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

int nic_domain_new(struct nic *n, struct nic_domain **ret)
{
	_cleanup_(freep) struct nic_domain *d = calloc(1, sizeof(*d));

	if (!d)
		return err_set(ENOMEM, "out of memory");
	d->reg.ops = &mr_registrar_ops;
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
