/* SPDX-License-Identifier: MIT */
/* Implement /dev/labhl, the accelerators' sysfs files, and their PCI device. */
#include <linux/device.h>
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/io.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "labhl_int.h"

static struct pci_dev *the_pci;
static dev_t first;

/* ------------------------------------------------------------------ tests */

static int copy_bus(phys_addr_t bus, void __user *u, size_t len, bool store)
{
	void __iomem *at = ioremap_wc(bus, len);
	void *buf = kvmalloc(len, GFP_KERNEL);
	int r = at && buf ? 0 : -ENOMEM;

	if (!r && store) {
		r = copy_from_user(buf, u, len) ? -EFAULT : 0;
		if (!r)
			memcpy_toio(at, buf, len);
	} else if (!r) {
		memcpy_fromio(buf, at, len);
		r = copy_to_user(u, buf, len) ? -EFAULT : 0;
	}
	kvfree(buf);
	if (at)
		iounmap(at);
	return r;
}

/* Copy to or from a device address.  The lock is held. */
static int copy_va(const struct labhl_copy *q)
{
	for (unsigned int i = 0; i < LABHL_DEVICES; i++) {
		struct accel *d = &labhl_accels[i];
		struct memory *m;

		if (!d->ctx)
			continue;
		list_for_each_entry(m, &d->ctx->memories, link)
		{
			u64 off = q->at - m->va, run;
			phys_addr_t bus;

			if (!m->va || q->at < m->va || off >= m->size || q->len > m->size - off)
				continue;
			bus = labhl_bus_of(d, m, off, &run);
			return q->len > run
				       ? -ERANGE
				       : copy_bus(bus, u64_to_user_ptr(q->user), q->len, q->store);
		}
	}
	return -ENOENT;
}

static void imp_moved(struct dma_buf_attachment *a)
{
}

static const struct dma_buf_attach_ops imp_ops = {
	.allow_peer2peer = true,
	.move_notify = imp_moved,
};

/* Copy to or from a dma-buf by bus addresses, as a device behind the same bridge does. */
static int copy_dmabuf(const struct labhl_copy *q)
{
	struct dma_buf *b = dma_buf_get(q->fd);
	struct dma_buf_attachment *a;
	struct scatterlist *s;
	struct sg_table *t;
	u64 skip = q->at;
	int r = -ERANGE;
	unsigned int i;

	if (IS_ERR(b))
		return PTR_ERR(b);
	a = dma_buf_dynamic_attach(b, &the_pci->dev, &imp_ops, NULL);
	if (IS_ERR(a)) {
		dma_buf_put(b);
		return PTR_ERR(a);
	}
	t = dma_buf_map_attachment_unlocked(a, DMA_BIDIRECTIONAL);
	if (IS_ERR(t)) {
		r = PTR_ERR(t);
		goto detach;
	}
	for_each_sgtable_dma_sg(t, s, i)
	{
		if (skip < sg_dma_len(s)) {
			if (q->len <= sg_dma_len(s) - skip)
				r = copy_bus(sg_dma_address(s) + skip, u64_to_user_ptr(q->user),
					     q->len, q->store);
			break;
		}
		skip -= sg_dma_len(s);
	}
	dma_buf_unmap_attachment_unlocked(a, t, DMA_BIDIRECTIONAL);
detach:
	dma_buf_detach(b, a);
	dma_buf_put(b);
	return r;
}

static int set_fail(struct labhl_fail *q)
{
	u32 met = labhl_fail.met;

	labhl_fail = *q;
	labhl_fail.met = 0;
	labhl_fail_seen = 0;
	q->met = met;
	return 0;
}

static int set_reset(const struct labhl_reset *q)
{
	if (q->device >= LABHL_DEVICES)
		return -EINVAL;
	labhl_accels[q->device].resetting = q->begins;
	if (q->begins && labhl_accels[q->device].ctx)
		labhl_accels[q->device].ctx->dead = true;
	return 0;
}

static int bar_export(struct labhl_bar *q)
{
	if (!q->len || q->len & ~PAGE_MASK || q->len > LABHL_BAR_LEN)
		return -EINVAL;
	q->fd = labhl_bar_export(pci_resource_end(the_pci, 2) + 1 - LABHL_BAR_LEN, q->len);
	return q->fd < 0 ? q->fd : 0;
}

static long lab_ioctl(struct file *f, unsigned int cmd, unsigned long arg)
{
	union {
		struct labhl_state state;
		struct labhl_fail fail;
		struct labhl_reset reset;
		struct labhl_copy copy;
		struct labhl_bar bar;
		u32 id;
	} q;
	void __user *u = (void __user *)arg;
	int r = -ENOTTY;

	if (_IOC_SIZE(cmd) > sizeof(q) || copy_from_user(&q, u, _IOC_SIZE(cmd)))
		return -EFAULT;
	if (cmd == LABHL_COPY && q.copy.fd >= 0)
		return copy_dmabuf(&q.copy);
	mutex_lock(&labhl_lock);
	switch (cmd) {
	case LABHL_STATE:
		q.state = labhl_count;
		r = 0;
		break;
	case LABHL_SET_FAIL:
		r = set_fail(&q.fail);
		break;
	case LABHL_SET_RESET:
		r = set_reset(&q.reset);
		break;
	case LABHL_COPY:
		r = copy_va(&q.copy);
		break;
	case LABHL_BAR:
		r = bar_export(&q.bar);
		break;
	case LABHL_SET_ID:
		labhl_id = q.id;
		r = 0;
		break;
	}
	mutex_unlock(&labhl_lock);
	if (!r && _IOC_DIR(cmd) & _IOC_READ && copy_to_user(u, &q, _IOC_SIZE(cmd)))
		r = -EFAULT;
	return r;
}

static const struct file_operations lab_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = lab_ioctl,
};

static struct miscdevice lab_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "labhl",
	.fops = &lab_fops,
};

/* ------------------------------------------------------------------ sysfs */

static ssize_t pci_addr_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	const struct accel *d = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%s\n", d->idx ? LABHL_PCI_1 : LABHL_PCI_0);
}

static ssize_t status_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	const struct accel *d = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%s\n", d->resetting ? "In reset" : "Operational");
}

static ssize_t device_type_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	const struct accel *d = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%s\n", d->type);
}

/* Set the device type, for tests of unsupported, older devices. */
static ssize_t device_type_store(struct device *dev, struct device_attribute *attr, const char *buf,
				 size_t len)
{
	struct accel *d = dev_get_drvdata(dev);

	strscpy(d->type, buf, sizeof(d->type));
	strim(d->type);
	return len;
}

/* Report Habana's vendor id, because the lab's PCI device has another one. */
static ssize_t vendor_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "0x1da3\n");
}

static DEVICE_ATTR_RO(pci_addr);
static DEVICE_ATTR_RO(status);
static DEVICE_ATTR_RW(device_type);
static DEVICE_ATTR_RO(vendor);

static struct attribute *hl_attrs[] = {
	&dev_attr_pci_addr.attr,
	&dev_attr_status.attr,
	&dev_attr_device_type.attr,
	&dev_attr_vendor.attr,
	NULL,
};
ATTRIBUTE_GROUPS(hl);

static char *hl_devnode(const struct device *dev, umode_t *mode)
{
	return kasprintf(GFP_KERNEL, "accel/%s", dev_name(dev));
}

static struct class hl_class = {
	.name = "accel",
	.devnode = hl_devnode,
};

/* ------------------------------------------------------------------ PCI */

static void accel_del(struct accel *d)
{
	if (!IS_ERR_OR_NULL(d->node))
		device_unregister(d->node);
	cdev_del(&d->cdev);
}

static int accel_add(struct accel *d, struct pci_dev *p, unsigned int idx)
{
	u64 half = (pci_resource_len(p, 2) - LABHL_BAR_LEN) / LABHL_DEVICES & PAGE_MASK;
	int r;

	d->idx = idx;
	d->bar = pci_resource_start(p, 2) + idx * half;
	d->nr_pages = min_t(u64, div64_u64(half, LABHL_PAGE), PAGES_MAX);
	d->next_va = FIRST_VA + ((u64)idx << 44);
	strscpy(d->type, "GAUDI2", sizeof(d->type));
	cdev_init(&d->cdev, &labhl_fops);
	d->cdev.owner = THIS_MODULE;
	r = cdev_add(&d->cdev, first + idx, 1);
	if (r)
		return r;
	d->node = device_create_with_groups(&hl_class, &p->dev, first + idx, d, hl_groups,
					    "accel%u", idx);
	if (!IS_ERR(d->node))
		return 0;
	cdev_del(&d->cdev);
	return PTR_ERR(d->node);
}

static int hl_probe(struct pci_dev *p, const struct pci_device_id *id)
{
	unsigned int i = 0;
	int r = the_pci ? -EBUSY : pcim_enable_device(p);

	if (r)
		return r;
	pci_set_master(p);
	dma_set_max_seg_size(&p->dev, UINT_MAX);
	r = dma_set_mask_and_coherent(&p->dev, DMA_BIT_MASK(64));
	while (!r && i < LABHL_DEVICES) {
		r = accel_add(&labhl_accels[i], p, i);
		i += !r;
	}
	the_pci = p;
	if (!r)
		r = misc_register(&lab_misc);
	if (!r)
		return 0;
	while (i--)
		accel_del(&labhl_accels[i]);
	the_pci = NULL;
	return r;
}

static void hl_remove(struct pci_dev *p)
{
	misc_deregister(&lab_misc);
	for (unsigned int i = 0; i < LABHL_DEVICES; i++)
		accel_del(&labhl_accels[i]);
	the_pci = NULL;
}

static const struct pci_device_id hl_ids[] = { { PCI_DEVICE(0x1af4, 0x1110) }, {} };
MODULE_DEVICE_TABLE(pci, hl_ids);

static struct pci_driver hl_driver = {
	.name = "labhl",
	.id_table = hl_ids,
	.probe = hl_probe,
	.remove = hl_remove,
};

static int __init labhl_init(void)
{
	int r = class_register(&hl_class);

	if (r)
		return r;
	r = alloc_chrdev_region(&first, 0, LABHL_DEVICES, "labhl");
	if (!r) {
		r = pci_register_driver(&hl_driver);
		if (r)
			unregister_chrdev_region(first, LABHL_DEVICES);
	}
	if (r)
		class_unregister(&hl_class);
	return r;
}

static void __exit labhl_exit(void)
{
	pci_unregister_driver(&hl_driver);
	unregister_chrdev_region(first, LABHL_DEVICES);
	class_unregister(&hl_class);
}

module_init(labhl_init);
module_exit(labhl_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("answers libhl-thunk on ivshmem's BAR (test double)");
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
MODULE_IMPORT_NS("DMA_BUF");
#else
MODULE_IMPORT_NS(DMA_BUF);
#endif
