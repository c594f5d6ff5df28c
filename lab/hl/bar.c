/* SPDX-License-Identifier: MIT */
/* Export dma-bufs of a PCI BAR that the CPU may map, write-combined, as GPU drivers do. */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/io.h>
#include <linux/iosys-map.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "labhl_int.h"

static int bar_attach(struct dma_buf *b, struct dma_buf_attachment *a)
{
	/* There are no struct pages, so importers need peer-to-peer access. */
	return a->peer2peer ? 0 : -EOPNOTSUPP;
}

static struct sg_table *bar_map(struct dma_buf_attachment *a, enum dma_data_direction dir)
{
	struct sg_table *t = kzalloc(sizeof(*t), GFP_KERNEL);
	const phys_addr_t *bus = a->dmabuf->priv;
	int r = t ? sg_alloc_table(t, 1, GFP_KERNEL) : -ENOMEM;

	if (r) {
		kfree(t);
		return ERR_PTR(r);
	}
	sg_set_page(t->sgl, NULL, a->dmabuf->size, 0);
	sg_dma_address(t->sgl) = dma_map_resource(a->dev, *bus, a->dmabuf->size, dir,
						  DMA_ATTR_SKIP_CPU_SYNC);
	sg_dma_len(t->sgl) = a->dmabuf->size;
	return t;
}

static void bar_unmap(struct dma_buf_attachment *a, struct sg_table *t, enum dma_data_direction dir)
{
	dma_unmap_resource(a->dev, sg_dma_address(t->sgl), sg_dma_len(t->sgl), dir,
			   DMA_ATTR_SKIP_CPU_SYNC);
	sg_free_table(t);
	kfree(t);
}

static int bar_mmap(struct dma_buf *b, struct vm_area_struct *v)
{
	unsigned long off = v->vm_pgoff << PAGE_SHIFT, len = v->vm_end - v->vm_start;
	const phys_addr_t *bus = b->priv;

	if (off > b->size || len > b->size - off)
		return -EINVAL;
	v->vm_page_prot = pgprot_writecombine(v->vm_page_prot);
	return io_remap_pfn_range(v, v->vm_start, (*bus + off) >> PAGE_SHIFT, len, v->vm_page_prot);
}

/* Map for software devices of the kernel, such as a rdma_rxe that registers dma-bufs. */
static int bar_vmap(struct dma_buf *b, struct iosys_map *map)
{
	const phys_addr_t *bus = b->priv;
	void __iomem *at = ioremap_wc(*bus, b->size);

	if (!at)
		return -ENOMEM;
	iosys_map_set_vaddr_iomem(map, at);
	return 0;
}

static void bar_vunmap(struct dma_buf *b, struct iosys_map *map)
{
	iounmap(map->vaddr_iomem);
}

static void bar_release(struct dma_buf *b)
{
	kfree(b->priv);
}

static const struct dma_buf_ops bar_ops = {
	.attach = bar_attach,
	.map_dma_buf = bar_map,
	.unmap_dma_buf = bar_unmap,
	.mmap = bar_mmap,
	.vmap = bar_vmap,
	.vunmap = bar_vunmap,
	.release = bar_release,
};

int labhl_bar_export(phys_addr_t bus, u64 len)
{
	phys_addr_t *priv = kmemdup(&bus, sizeof(bus), GFP_KERNEL);
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *b;
	int fd;

	if (!priv)
		return -ENOMEM;
	info.ops = &bar_ops;
	info.size = len;
	info.flags = O_RDWR;
	info.priv = priv;
	b = dma_buf_export(&info);
	if (IS_ERR(b)) {
		kfree(priv);
		return PTR_ERR(b);
	}
	fd = dma_buf_fd(b, O_CLOEXEC);
	if (fd < 0)
		dma_buf_put(b);
	return fd;
}
