/* SPDX-License-Identifier: MIT */
/* Register allocations: device memory by a dma-buf or by the peer-memory module. */
#include <inttypes.h>

#include "base/err.h"
#include "base/log.h"
#include "net/verbs/mr.h"

static uint64_t mr_page_size(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Register through a dma-buf.  Return 0, or an errno with its sentence in @why. */
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
	/* Offset in the dma-buf and address must be equal modulo the page size. */
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

static int no_device_memory(const struct nic_domain *d, const struct mem_alloc *a,
			    const struct err_kept *why, int err)
{
	return err_set(err,
		       "%s does not reach %s memory: by dma-buf: %.200s; by peer memory: %s; load "
		       "the module that registers its addresses (NVIDIA: nvidia-peermem), or see "
		       "penstock doctor --rdma",
		       d->nic->name, a->ops->name, why->text, err_name(err));
}

/* Return true if a peer-memory module may know the memory by its address.  An address that is also
 * one of host memory must not be tried: the device would reach other memory. */
static bool mr_has_address(const struct mem_alloc *a)
{
	return a->base.va && !(a->ops->caps & MEM_CAP_NAMED);
}

static int reg_alloc(const struct nic_domain *d, const struct mem_alloc *a, uint32_t rights,
		     struct region_mr *m)
{
	int access = mr_access(d, rights), err;
	struct err_kept why;

	if (a->ops->caps & MEM_CAP_CPU) {
		m->reg.how = MEM_REG_HOST;
		err = mr_by_address(d, m->reg.addr, m->reg.len, access, &m->mr);
		return err ? mr_no_host_memory(d, m->reg.len, err) : 0;
	}
	m->reg.how = MEM_REG_DMABUF;
	err = by_dmabuf(d, a, &m->reg, access, &m->mr, &why);
	if (!err)
		return 0;
	/* Temporary: the device has no room now, but the caller may free some. */
	if (err == ENOMEM || err == EAGAIN)
		return err_set(err, "%s cannot pin %" PRIu64 " bytes of %s memory: %s",
			       d->nic->name, m->reg.len, a->ops->name, why.text);
	if (!mr_has_address(a))
		return err_set(err, "%s does not reach %s memory by dma-buf: %s", d->nic->name,
			       a->ops->name, why.text);
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
	/* Exclude the rest of the pages: a peer with the key could access neighbouring memory. */
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

const struct mem_registrar_ops mr_registrar_ops = {
	.reg = mr_reg,
	.dereg = mr_end,
};

int nic_domain_new(struct nic *n, struct nic_domain **ret)
{
	int r = nic_domain_host_new(n, ret);

	if (r == 0)
		(*ret)->reg.ops = &mr_registrar_ops;
	return r;
}
