/* SPDX-License-Identifier: MIT */
/*
 * Windows by gdrdrv, the kernel module of gdrcopy, if it is loaded.
 *
 * The module identifies a pinned range by a number that belongs to a descriptor, and serves only
 * the process that opened the descriptor.  Each window opens one descriptor, and closes it as soon
 * as the range is mapped.  The mapping keeps the module's file open; munmap() drops the last
 * reference, and the module then unpins.  So a window holds no descriptor, and needs no special
 * order of calls to end.  A child that is forked between opening and closing keeps the pages pinned
 * until it exits or calls exec.
 *
 * A mapping begins with a whole page of the GPU, 64 KiB.  If that page begins before the
 * allocation, the window is refused, because it would show another owner's memory.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <sys/ioctl.h>

#include "base/err.h"
#include "window/gdrdrv_types.h"
#include "window/window.h"

#define API GDRDRV_VERSION(2, 6)    /* version of the interface that this file uses */
#define OLDEST GDRDRV_VERSION(2, 0) /* oldest supported version of the module */
#define HAS_INFO_V2 GDRDRV_VERSION(2, 4)
/* Oldest version with GET_ATTR, PIN_BUFFER_V2 and REQ_MAPPING_TYPE. */
#define HAS_ATTR GDRDRV_VERSION(2, 5)

struct driver {
	int fd;
	uint32_t version;
};

static void driver_close(struct driver *d)
{
	closep(&d->fd);
}

static int ask_driver(const struct driver *d, unsigned long request, void *arg)
{
	return ioctl(d->fd, request, arg) < 0 ? -errno : 0;
}

static int no_device(int e)
{
	switch (e) {
	case ENOENT:
		return err_set(ENODEV, "there is no " GDRDRV_PATH);
	case ENXIO:
	case ENODEV:
		return err_set(ENODEV, "behind " GDRDRV_PATH " there is no module");
	case EMFILE:
	case ENFILE:
		return err_set(e, "no descriptor is free for " GDRDRV_PATH);
	default:
		return err_set(EOPNOTSUPP, GDRDRV_PATH " cannot be opened: %s", err_name(e));
	}
}

static int driver_open(struct driver *d)
{
	struct gdrdrv_version v = { 0 };
	int r;

	d->fd = open(GDRDRV_PATH, O_RDWR | O_CLOEXEC);
	if (d->fd < 0)
		return no_device(errno);
	r = ask_driver(d, GDRDRV_GET_VERSION, &v);
	if (r < 0)
		return err_set(EOPNOTSUPP, "gdrdrv does not tell its version: %s", err_name(r));
	if (v.gdrdrv_version < OLDEST || v.minimum_gdr_api_version > API)
		return err_set(EOPNOTSUPP,
			       "gdrdrv %u.%u wants programs of %u.%u; this is 2.6, for 2.0 and "
			       "newer",
			       v.gdrdrv_version >> 16, v.gdrdrv_version & 0xffff,
			       v.minimum_gdr_api_version >> 16, v.minimum_gdr_api_version & 0xffff);
	d->version = v.gdrdrv_version;
	return 0;
}

/*
 * Check that touching the window cannot raise a signal.  If the owner may free the memory under the
 * window, the driver must keep the window mapped.  Memory that the window itself keeps alive cannot
 * be freed.
 */
static int check_lifetime(const struct driver *d, const struct mem_alloc *a)
{
	struct gdrdrv_attr attr = { .attr = GDRDRV_ATTR_PERSISTENT };

	if (a->owned)
		return 0;
	if (d->version >= HAS_ATTR && ask_driver(d, GDRDRV_GET_ATTR, &attr) == 0 && attr.val)
		return 0;
	return err_set(EOPNOTSUPP, "gdrdrv unmaps what its owner frees; load version 2.5 or newer "
				   "with use_persistent_mapping=1");
}

static int pin_gpu_memory(const struct driver *d, uint64_t addr, uint64_t size,
			  uint64_t *ret_handle)
{
	struct gdrdrv_pin_v2 v2 = { .addr = addr, .size = size };
	struct gdrdrv_pin v1 = { .addr = addr, .size = size };
	int r = d->version >= HAS_ATTR ? ask_driver(d, GDRDRV_PIN_BUFFER_V2, &v2)
				       : ask_driver(d, GDRDRV_PIN_BUFFER, &v1);

	*ret_handle = d->version >= HAS_ATTR ? v2.handle : v1.handle;
	if (r == -ENOMEM)
		return err_set(ENOMEM, "gdrdrv has no room for %" PRIu64 " bytes in the BAR", size);
	return r == 0 ? 0 : err_set(EOPNOTSUPP, "gdrdrv does not pin the memory: %s", err_name(r));
}

static int ask_for_caching(const struct driver *d, uint64_t handle, uint32_t caching)
{
	static const uint32_t types[] = {
		[PST_CACHING_WC] = GDRDRV_TYPE_WC,
		[PST_CACHING_CACHED] = GDRDRV_TYPE_CACHED,
		[PST_CACHING_DEVICE] = GDRDRV_TYPE_DEVICE,
	};
	struct gdrdrv_req_type req = { .handle = handle, .mapping_type = types[caching] };
	int r;

	/* Older modules have one kind of mapping per machine.  The caller compares the mapping's
	 * caching later. */
	if (d->version < HAS_ATTR)
		return 0;
	r = ask_driver(d, GDRDRV_REQ_MAPPING_TYPE, &req);
	return r == 0 ? 0
		      : err_set(EOPNOTSUPP, "gdrdrv does not map it in the way that is wanted: %s",
				err_name(r));
}

/* Return the caching of a mapping, which the module decides when it maps. */
static int tell_caching(const struct driver *d, uint64_t handle, uint32_t *ret)
{
	static const uint32_t caching[] = {
		[GDRDRV_TYPE_WC] = PST_CACHING_WC,
		[GDRDRV_TYPE_CACHED] = PST_CACHING_CACHED,
		[GDRDRV_TYPE_DEVICE] = PST_CACHING_DEVICE,
	};
	struct gdrdrv_info info = { .handle = handle };
	bool v2 = d->version >= HAS_INFO_V2;
	int r = ask_driver(d, v2 ? GDRDRV_GET_INFO_V2 : GDRDRV_GET_INFO, &info);

	if (r < 0)
		return err_set(EOPNOTSUPP, "gdrdrv does not say how it mapped: %s", err_name(r));
	/* GET_INFO only tells whether the mapping is write combining. */
	if (!v2)
		info.mapping_type = info.wc_mapping ? GDRDRV_TYPE_WC : GDRDRV_TYPE_NONE;
	if (info.mapping_type == GDRDRV_TYPE_NONE || info.mapping_type >= ARRAY_SIZE(caching))
		return err_set(EOPNOTSUPP, "gdrdrv does not say how it mapped");
	*ret = caching[info.mapping_type];
	return 0;
}

static int gdrdrv_open(const struct window_src *src, struct window **ret)
{
	_cleanup_(driver_close) struct driver d = { .fd = -1 };
	uint64_t va = src->alloc->base.va + src->off, lead = va % GDRDRV_PAGE, handle = 0;
	struct window *w;
	int r;

	r = driver_open(&d);
	if (r == 0 && lead > src->off)
		r = err_set(EOPNOTSUPP, "the 64 KiB page at %#" PRIx64 " is not all of this memory",
			    va - lead);
	if (r == 0)
		r = check_lifetime(&d, src->alloc);
	if (r == 0)
		r = pin_gpu_memory(&d, va - lead, lead + src->len, &handle);
	if (r == 0 && src->caching)
		r = ask_for_caching(&d, handle, src->caching);
	if (r == 0)
		r = window_map(&window_gdrdrv_ops, d.fd, handle * (uint64_t)sysconf(_SC_PAGESIZE),
			       lead + src->len, src->rights, &w);
	if (r < 0)
		return r;
	r = tell_caching(&d, handle, &w->caching);
	if (r < 0) {
		window_unmap(w);
		return r;
	}
	w->ptr += lead;
	w->len = src->len;
	*ret = w;
	return 0;
}

const struct window_ops window_gdrdrv_ops = {
	.name = "gdrdrv",
	.kinds = 1u << PST_KIND_CUDA,
	.open = gdrdrv_open,
	.close = window_unmap,
};
