/* SPDX-License-Identifier: MIT */
/*
 * labhl: a driver that imitates habanalabs on BAR 2 of QEMU's ivshmem device, so that the published
 * libhl-thunk runs in a guest.  Two accelerators each use half of the BAR.
 *
 * The behaviour follows drivers/accel/habanalabs of Linux 6.12 for a Gaudi 2: one open context per
 * device; no unmap while a dma-buf is open; no free while mapped; a dma-buf keeps the device's file
 * open; importers access the bytes by peer-to-peer only, and no CPU maps them.  Ioctl numbers of
 * both eras work: 'H' before Linux 6.7, those of DRM since.
 *
 * Differences from the real driver: this module kills no process during a reset, maps memory only
 * once, refuses an export whose offset and size overflow, and does not call pci_p2pdma_distance(),
 * because the lab's kernel has no CONFIG_PCI_P2PDMA.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <uapi/drm/habanalabs_accel.h>

#include "labhl_int.h"

#define OLD_INFO _IOWR('H', 0x01, struct hl_info_args)
#define OLD_MEMORY _IOWR('H', 0x05, union hl_mem_args)

/* Bytes of a dma-buf, stored in its private pointer. */
struct exported {
	struct context *ctx;
	struct memory *m;
	u64 off;
};

DEFINE_MUTEX(labhl_lock);
struct accel labhl_accels[LABHL_DEVICES];
u32 labhl_id = GAUDI2_ID, labhl_fail_seen;
struct labhl_state labhl_count;
struct labhl_fail labhl_fail;

static u32 next_handle = 1;

/* Count a call.  Return the errno with which it must fail, or 0. */
static int enter(u32 call)
{
	labhl_count.calls++;
	if (!labhl_fail.call || (labhl_fail.call != LABHL_ANY && labhl_fail.call != call))
		return 0;
	labhl_fail_seen++;
	if (labhl_fail.nth && labhl_fail_seen != labhl_fail.nth)
		return 0;
	labhl_fail.met = 1;
	return (int)labhl_fail.err;
}

/* ------------------------------------------------------------------ memory */

static struct memory *by_handle(struct context *c, u64 handle)
{
	struct memory *m;

	list_for_each_entry(m, &c->memories, link) if (m->handle == handle) return m;
	return NULL;
}

static struct memory *by_va(struct context *c, u64 va)
{
	struct memory *m;

	list_for_each_entry(m, &c->memories, link) if (m->va == va && va) return m;
	return NULL;
}

static void memory_free(struct accel *d, struct memory *m)
{
	for (unsigned int i = 0; i < m->nr; i++)
		clear_bit(m->page[i], d->used);
	labhl_count.handles--;
	labhl_count.mappings -= m->va != 0;
	list_del(&m->link);
	kfree(m);
}

static int memory_alloc(struct context *c, const struct hl_mem_in *in, u64 *ret)
{
	u64 nr = DIV_ROUND_UP_ULL(in->alloc.mem_size, LABHL_PAGE);
	struct accel *d = c->dev;
	struct memory *m;

	if (!nr)
		return -EINVAL;
	if (nr > d->nr_pages - bitmap_weight(d->used, PAGES_MAX))
		return -ENOMEM;
	m = kzalloc(sizeof(*m), GFP_KERNEL);
	if (!m)
		return -ENOMEM;
	m->handle = next_handle++;
	m->size = nr * LABHL_PAGE;
	while (m->nr < nr) {
		unsigned int at = find_first_zero_bit(d->used, d->nr_pages);

		set_bit(at, d->used);
		m->page[m->nr++] = at;
	}
	list_add_tail(&m->link, &c->memories);
	labhl_count.handles++;
	*ret = m->handle;
	return 0;
}

static int memory_map(struct context *c, const struct hl_mem_in *in, u64 *ret)
{
	struct memory *m = by_handle(c, lower_32_bits(in->map_device.handle));

	if (!m || in->flags & HL_MEM_USERPTR || m->va)
		return -EINVAL;
	m->va = c->dev->next_va;
	c->dev->next_va += m->size;
	labhl_count.mappings++;
	*ret = m->va;
	return 0;
}

static int memory_unmap(struct context *c, u64 va)
{
	struct memory *m = by_va(c, va);

	if (!m)
		return -EINVAL;
	if (m->nr_exports) {
		labhl_count.held++;
		return -EINVAL;
	}
	m->va = 0;
	labhl_count.mappings--;
	return 0;
}

static int memory_release(struct context *c, u64 handle)
{
	struct memory *m = by_handle(c, (u32)handle);

	if (!m || m->va)
		return -EINVAL;
	memory_free(c->dev, m);
	return 0;
}

phys_addr_t labhl_bus_of(const struct accel *d, const struct memory *m, u64 off, u64 *ret_run)
{
	u64 rest;
	u64 page = div64_u64_rem(off, LABHL_PAGE, &rest);

	*ret_run = LABHL_PAGE - rest;
	return d->bar + m->page[page] * LABHL_PAGE + rest;
}

/* ------------------------------------------------------------------ dma-bufs */

static int hl_attach(struct dma_buf *b, struct dma_buf_attachment *a)
{
	return 0;
}

static struct sg_table *hl_map(struct dma_buf_attachment *a, enum dma_data_direction dir)
{
	struct exported *x = a->dmabuf->priv;
	u64 at = x->off, end = x->off + a->dmabuf->size;
	struct scatterlist *s;
	struct sg_table *t;
	unsigned int i;
	int r;

	if (!a->peer2peer)
		return ERR_PTR(-EPERM);
	t = kzalloc(sizeof(*t), GFP_KERNEL);
	if (!t)
		return ERR_PTR(-ENOMEM);
	r = sg_alloc_table(t, DIV_ROUND_UP_ULL(end, LABHL_PAGE) - div64_u64(at, LABHL_PAGE),
			   GFP_KERNEL);
	if (r) {
		kfree(t);
		return ERR_PTR(r);
	}
	for_each_sgtable_dma_sg(t, s, i)
	{
		u64 run;
		phys_addr_t bus = labhl_bus_of(x->ctx->dev, x->m, at, &run);

		run = min(run, end - at);
		sg_set_page(s, NULL, run, 0);
		sg_dma_address(s) = dma_map_resource(a->dev, bus, run, dir, DMA_ATTR_SKIP_CPU_SYNC);
		sg_dma_len(s) = run;
		at += run;
	}
	return t;
}

static void hl_unmap(struct dma_buf_attachment *a, struct sg_table *t, enum dma_data_direction dir)
{
	struct scatterlist *s;
	unsigned int i;

	for_each_sgtable_dma_sg(t, s, i) dma_unmap_resource(
		a->dev, sg_dma_address(s), sg_dma_len(s), dir, DMA_ATTR_SKIP_CPU_SYNC);
	sg_free_table(t);
	kfree(t);
}

static void hl_release_dmabuf(struct dma_buf *b)
{
	struct exported *x = b->priv;

	mutex_lock(&labhl_lock);
	x->m->nr_exports--;
	labhl_count.exports--;
	mutex_unlock(&labhl_lock);
	fput(x->ctx->file);
	kfree(x);
}

static const struct dma_buf_ops hl_dmabuf_ops = {
	.attach = hl_attach,
	.map_dma_buf = hl_map,
	.unmap_dma_buf = hl_unmap,
	.release = hl_release_dmabuf,
};

static int memory_export(struct context *c, const struct hl_mem_in *in)
{
	u64 va = in->export_dmabuf_fd.addr, size = in->export_dmabuf_fd.mem_size,
	    off = in->export_dmabuf_fd.offset;
	struct memory *m = by_va(c, va);
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct exported *x;
	struct dma_buf *b;
	int fd;

	if (!m || !size || (va | size | off) & ~PAGE_MASK || off > m->size || size > m->size - off)
		return -EINVAL;
	fd = get_unused_fd_flags(in->flags);
	if (fd < 0)
		return fd;
	x = kzalloc(sizeof(*x), GFP_KERNEL);
	if (!x) {
		put_unused_fd(fd);
		return -ENOMEM;
	}
	*x = (struct exported){ .ctx = c, .m = m, .off = off };
	info.ops = &hl_dmabuf_ops;
	info.size = size;
	info.flags = in->flags;
	info.priv = x;
	b = dma_buf_export(&info);
	if (IS_ERR(b)) {
		put_unused_fd(fd);
		kfree(x);
		return PTR_ERR(b);
	}
	get_file(c->file);
	m->nr_exports++;
	labhl_count.exports++;
	labhl_count.exported++;
	fd_install(fd, b->file);
	return fd;
}

/* ------------------------------------------------------------------ contexts */

static int hl_open(struct inode *n, struct file *f)
{
	struct accel *d = container_of(n->i_cdev, struct accel, cdev);
	struct context *c;
	int r;

	mutex_lock(&labhl_lock);
	r = enter(LABHL_OPEN);
	if (r)
		r = -r;
	else if (d->resetting)
		r = -EAGAIN;
	else if (d->ctx)
		r = -EBUSY;
	if (!r) {
		c = kzalloc(sizeof(*c), GFP_KERNEL);
		if (c) {
			INIT_LIST_HEAD(&c->memories);
			c->dev = d;
			c->file = f;
			f->private_data = d->ctx = c;
			labhl_count.contexts++;
		} else {
			r = -ENOMEM;
		}
	}
	mutex_unlock(&labhl_lock);
	return r;
}

static int hl_release(struct inode *n, struct file *f)
{
	struct context *c = f->private_data;
	struct memory *m, *next;

	mutex_lock(&labhl_lock);
	list_for_each_entry_safe(m, next, &c->memories, link)
	{
		if (!c->dead)
			labhl_count.leaked++;
		memory_free(c->dev, m);
	}
	c->dev->ctx = NULL;
	labhl_count.contexts--;
	mutex_unlock(&labhl_lock);
	kfree(c);
	return 0;
}

static int hl_info(struct context *c, const struct hl_info_args *a)
{
	struct hl_info_hw_ip_info ip = {
		.device_id = labhl_id,
		.dram_base_address = FIRST_VA,
		.dram_size = c->dev->nr_pages * LABHL_PAGE,
		.dram_page_size = LABHL_PAGE,
		.device_mem_alloc_default_page_size = LABHL_PAGE,
		.dram_enabled = 1,
	};
	size_t len = min_t(size_t, a->return_size, sizeof(ip));

	if (a->pad || !a->return_size || !a->return_pointer || a->op != HL_INFO_HW_IP_INFO)
		return -EINVAL;
	return copy_to_user(u64_to_user_ptr(a->return_pointer), &ip, len) ? -EFAULT : 0;
}

static u32 call_of(u32 op)
{
	switch (op) {
	case HL_MEM_OP_ALLOC:
		return LABHL_ALLOC;
	case HL_MEM_OP_FREE:
		return LABHL_FREE;
	case HL_MEM_OP_MAP:
		return LABHL_MAP;
	case HL_MEM_OP_UNMAP:
		return LABHL_UNMAP;
	default:
		return LABHL_EXPORT;
	}
}

static int hl_memory(struct context *c, union hl_mem_args *a)
{
	const struct hl_mem_in in = a->in;
	u64 ret = 0;
	int r;

	if (c->dev->resetting)
		return -EBUSY;
	switch (in.op) {
	case HL_MEM_OP_ALLOC:
		r = memory_alloc(c, &in, &ret);
		memset(a, 0, sizeof(*a));
		a->out.handle = ret;
		return r;
	case HL_MEM_OP_FREE:
		return memory_release(c, in.free.handle);
	case HL_MEM_OP_MAP:
		r = memory_map(c, &in, &ret);
		memset(a, 0, sizeof(*a));
		a->out.device_virt_addr = ret;
		return r;
	case HL_MEM_OP_UNMAP:
		return memory_unmap(c, in.unmap.device_virt_addr);
	case HL_MEM_OP_EXPORT_DMABUF_FD:
		r = memory_export(c, &in);
		memset(a, 0, sizeof(*a));
		a->out.fd = r;
		return r < 0 ? r : 0;
	default:
		return -EINVAL;
	}
}

static long hl_ioctl(struct file *f, unsigned int cmd, unsigned long arg)
{
	bool info = cmd == OLD_INFO || cmd == DRM_IOCTL_HL_INFO;
	struct context *c = f->private_data;
	void __user *u = (void __user *)arg;
	struct hl_info_args i;
	union hl_mem_args m;
	int r;

	if (!info && cmd != OLD_MEMORY && cmd != DRM_IOCTL_HL_MEMORY)
		return -ENOTTY;
	if (info ? copy_from_user(&i, u, sizeof(i)) : copy_from_user(&m, u, sizeof(m)))
		return -EFAULT;
	mutex_lock(&labhl_lock);
	r = -enter(info ? LABHL_INFO : call_of(m.in.op));
	if (!r && c->dead && !c->dev->resetting)
		r = -ENODEV;
	if (!r)
		r = info ? hl_info(c, &i) : hl_memory(c, &m);
	mutex_unlock(&labhl_lock);
	if (!r && !info && copy_to_user(u, &m, sizeof(m)))
		r = -EFAULT;
	return r;
}

const struct file_operations labhl_fops = {
	.owner = THIS_MODULE,
	.open = hl_open,
	.release = hl_release,
	.unlocked_ioctl = hl_ioctl,
};
