/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "gpu_link.h"
#include "gpu_soft.h"
#include "iov.h"
#include "log.h"
#include "mount.h"
#include "usrbio/proto/link.h"
#include "usrbio/proto/name.h"

static struct usrbio_name gpu_link_name_of(const struct iov *iov, const uint8_t id[USRBIO_ID_LEN])
{
	struct usrbio_name name = { .kind = USRBIO_DEVICE, .device = iov->device };

	memcpy(name.id, id, sizeof(name.id));
	return name;
}

/*
 * Get the allocation's size from the driver, because the daemon compares it with the size that its
 * own driver reports.  An imported grant contains only the size that was granted.
 */
static int gpu_link_measure(struct pst_mem *mem, struct usrbio_gdr *ret)
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_mem *view;
	int r = pst_mem_info(mem, &info);

	if (r == 0)
		r = pst_mem_wrap(info.addr, info.len, NULL, &view);
	if (r < 0)
		return r;
	r = pst_mem_info(view, &info);
	ret->allocation = info.size;
	ret->off = info.addr - info.base;
	(void)pst_mem_free(view);
	return r;
}

/* Make the published description, which contains the secret IPC handle. */
static int describe(struct iov *iov, struct usrbio_gdr *ret)
{
	_cleanup_(pst_grant_done) struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
	static const uint8_t none[USRBIO_IPC_LEN];
	int r = pst_mem_export(iov->mem, 0, iov->size, PST_RIGHT_READ | PST_RIGHT_WRITE, &g);

	if (r == 0)
		r = gpu_soft_show(iov, &g);
	if (r == 0 && !memcmp(g.ipc, none, sizeof(none)))
		return log_fail(
			ENOTSUP,
			"this memory has no CUDA IPC handle, which is how a daemon gets it; "
			"memory of cudaMalloc has one");
	*ret = (struct usrbio_gdr){ .device = iov->device, .size = iov->size };
	if (r == 0)
		r = gpu_link_measure(iov->mem, ret);
	if (r < 0)
		return log_fail(r, "device memory cannot be published: %s", pst_error_text());
	memcpy(ret->ipc, g.ipc, sizeof(ret->ipc));
	return 0;
}

int gpu_link_make(struct iov *iov, const uint8_t id[USRBIO_ID_LEN])
{
	struct usrbio_name name = gpu_link_name_of(iov, id);
	char target[USRBIO_GDR_MAX];
	struct usrbio_gdr gdr;
	int r = describe(iov, &gdr);

	if (r < 0)
		return r;
	usrbio_gdr_format(&gdr, target);
	explicit_bzero(&gdr, sizeof(gdr));
	r = iov_link(iov, &name, target);
	explicit_bzero(target, sizeof(target));
	return r;
}

int gpu_link_read(const struct iov *iov, const uint8_t id[USRBIO_ID_LEN], struct pst_grant *ret)
{
	char text[USRBIO_NAME_MAX], target[USRBIO_GDR_MAX];
	struct usrbio_name name = gpu_link_name_of(iov, id);
	struct usrbio_gdr gdr;
	ssize_t n;
	int r = -EINVAL;

	usrbio_name_format(&name, text);
	n = readlinkat(iov->mount->iovs, text, target, sizeof(target));
	if (n < 0)
		return log_fail(errno, "there is no device memory %s to open on %s: %m", text,
				iov->mount->path);
	if ((size_t)n < sizeof(target)) {
		target[n] = '\0';
		r = usrbio_gdr_parse(target, &gdr);
	}
	explicit_bzero(target, sizeof(target));
	if (r < 0 || gdr.device != iov->device || gdr.size != iov->size)
		r = log_fail(EINVAL,
			     "%s on %s is not %zu bytes of device %d in a form that can be "
			     "opened",
			     text, iov->mount->path, iov->size, iov->device);
	if (r == 0) {
		ret->kind = PST_KIND_CUDA;
		ret->rights = PST_RIGHT_READ | PST_RIGHT_WRITE;
		ret->size = gdr.allocation;
		ret->off = gdr.off;
		ret->len = gdr.size;
		ret->fd = -1;
		memcpy(ret->ipc, gdr.ipc, sizeof(ret->ipc));
		r = gpu_soft_find(ret);
		if (r < 0)
			r = log_fail(r, "the memory of %s on %s is gone, or another user's", text,
				     iov->mount->path);
	}
	explicit_bzero(&gdr, sizeof(gdr));
	return r;
}
