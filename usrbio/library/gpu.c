/* SPDX-License-Identifier: MIT */
/*
 * Device memory in rings: the calls of <hf3fs_usrbio.h> that end in _device, and those of
 * <hf3fs_usrbio_gdr.h>.
 *
 * An iov of device memory is an ordinary iov with a device and libpenstock's pst_mem.  In a plain
 * directory, the memory is known only to the server in this process.  On a daemon's mount the
 * memory is published by a symbolic link.  The result of symlink(2) is the daemon's answer, and the
 * caller's structure is filled in only if that result is 0.  Nothing here falls back to host
 * memory.
 */
#include <errno.h>
#include <string.h>

#include "gpu_device.h"
#include "gpu_handle.h"
#include "gpu_link.h"
#include "gpu_soft.h"
#include <hf3fs_usrbio_gdr.h>
#include "iov.h"
#include "keep.h"
#include "log.h"
#include "mount.h"
#include "usrbio/proto/id.h"

/*
 * Allocation granularity for a daemon: it opens an allocation as whole driver blocks of this size,
 * and the driver packs small allocations into one block.
 */
#define BLOCK MIB(2)

/* The checked arguments of a call. */
struct want {
	struct hf3fs_iov out; /* filled in, except for base and iovh */
	int number;
	struct pst_device device; /* the device that the caller's number means */
};

/* Check the arguments before finding the device, so that wrong arguments also fail on machines
 * without one. */
static int want(struct want *w, const struct hf3fs_iov *iov, const char *mount_point, size_t size,
		size_t block_size, int number)
{
	int r = iov ? iov_fill(&w->out, mount_point, size, block_size, -1) : -EINVAL;

	if (r < 0)
		return r;
	w->number = number;
	w->device.sz = sizeof(w->device);
	return gpu_device_find(number, &w->device);
}

/* Make an iov that has no memory yet. */
static int gpu_begin(const struct want *w, enum iov_origin origin, struct iov **ret)
{
	int r = iov_begin(w->out.mount_point, origin, ret);

	if (r < 0)
		return r;
	(*ret)->device = w->number;
	(*ret)->size = w->out.size;
	return 0;
}

/* Log libpenstock's error text.  Return the errno that 3FS's library would return. */
static int gpu_failed(int r, const char *what)
{
	return log_fail(r == -EFAULT || r == -ERANGE ? EINVAL : r, "%s: %s", what,
			pst_error_text());
}

/* Publish an iov with its memory, and fill in the caller's structure.  Takes over the iov. */
static int gpu_finish(struct iov *it, struct want *w, struct hf3fs_iov *ret)
{
	_cleanup_(iov_freep) struct iov *own = it;
	struct pst_mem_info info = { .sz = sizeof(info) };
	int r = pst_mem_info(it->mem, &info);

	if (r < 0)
		return gpu_failed(r, "device memory cannot be looked at");
	w->out.base = (uint8_t *)(uintptr_t)info.addr;
	if (it->mount->kind == MOUNT_DAEMON && it->origin != IOV_OPENED)
		r = gpu_link_make(it, (const uint8_t *)w->out.id);
	if (r == 0)
		r = iov_publish(it, ret, &w->out);
	if (r == 0)
		own = NULL;
	return r;
}

/* ------------------------------------------------------------------ create */

static int gpu_create(struct want *w, struct hf3fs_iov *iov)
{
	_cleanup_(iov_freep) struct iov *it = NULL;
	struct pst_mem_opts o = { .sz = sizeof(o) };
	uint64_t len = w->out.size;
	int r = usrbio_id_new((uint8_t *)w->out.id);

	if (r == 0)
		r = gpu_begin(w, IOV_CREATED, &it);
	if (r < 0)
		return r;
	if (it->mount->kind == MOUNT_DAEMON) {
		if (len > INT64_MAX)
			return log_fail(ENOMEM, "no device has %zu bytes", w->out.size);
		len = align_up(len, BLOCK);
		o.flags = PST_MEM_SHARED;
	}
	r = pst_mem_alloc(w->device.name, len, &o, &it->mem);
	if (r < 0)
		return gpu_failed(r, "device memory cannot be allocated");
	return gpu_finish(TAKE_PTR(it), w, iov);
}

int hf3fs_iovcreate_gpu(struct hf3fs_iov *iov, const char *hf3fs_mount_point, size_t size,
			size_t block_size, int gpu_device_id)
{
	KEEP_ERRNO;
	struct want w;
	int r = want(&w, iov, hf3fs_mount_point, size, block_size, gpu_device_id);

	return r < 0 ? r : gpu_create(&w, iov);
}

static int no_blocks(void)
{
	return log_fail(EINVAL, "device memory has no block size; give 0");
}

int hf3fs_iovcreate_device(struct hf3fs_iov *iov, const char *hf3fs_mount_point, size_t size,
			   size_t block_size, int device_id)
{
	return block_size ? no_blocks()
			  : hf3fs_iovcreate_gpu(iov, hf3fs_mount_point, size, 0, device_id);
}

/* -------------------------------------------------------------------- open */

static int open_published(struct want *w, struct hf3fs_iov *iov)
{
	_cleanup_(pst_grant_done) struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
	_cleanup_(iov_freep) struct iov *it = NULL;
	int r = gpu_begin(w, IOV_OPENED, &it);

	if (r < 0)
		return r;
	if (it->mount->kind == MOUNT_PLAIN)
		return log_fail(ENOENT,
				"%s is a plain directory: device memory stays in the process that "
				"has it",
				w->out.mount_point);
	r = gpu_link_read(it, (const uint8_t *)w->out.id, &g);
	if (r < 0)
		return r;
	memcpy(g.uuid, w->device.uuid, sizeof(g.uuid));
	r = pst_mem_import(&g, &it->mem);
	if (r < 0)
		return gpu_failed(r, "published device memory cannot be opened");
	return gpu_finish(TAKE_PTR(it), w, iov);
}

int hf3fs_iovopen_gpu(struct hf3fs_iov *iov, const uint8_t id[16], const char *hf3fs_mount_point,
		      size_t size, size_t block_size, int gpu_device_id)
{
	KEEP_ERRNO;
	struct want w;
	int r = id ? want(&w, iov, hf3fs_mount_point, size, block_size, gpu_device_id) : -EINVAL;

	if (r < 0)
		return r;
	memcpy(w.out.id, id, sizeof(w.out.id));
	return open_published(&w, iov);
}

int hf3fs_iovopen_device(struct hf3fs_iov *iov, const uint8_t id[16], const char *hf3fs_mount_point,
			 size_t size, size_t block_size, int device_id)
{
	return block_size ? no_blocks()
			  : hf3fs_iovopen_gpu(iov, id, hf3fs_mount_point, size, 0, device_id);
}

/* -------------------------------------------------------------------- wrap */

static int gpu_wrap(struct want *w, const void *ptr, struct hf3fs_iov *iov)
{
	_cleanup_(iov_freep) struct iov *it = NULL;
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_mem_opts o = { .sz = sizeof(o), .kind = w->device.kind };
	int r = gpu_begin(w, IOV_WRAPPED, &it);

	if (r < 0)
		return r;
	r = pst_mem_wrap((uintptr_t)ptr, w->out.size, &o, &it->mem);
	if (r == 0)
		r = pst_mem_info(it->mem, &info);
	if (r < 0)
		return gpu_failed(r, "device memory cannot be wrapped");
	if (strcmp(info.device, w->device.name) != 0)
		return log_fail(EINVAL, "the memory is on %s and not on %s", info.device,
				w->device.name);
	return gpu_finish(TAKE_PTR(it), w, iov);
}

int hf3fs_iovwrap_gpu(struct hf3fs_iov *iov, void *gpu_ptr, const uint8_t id[16],
		      const char *hf3fs_mount_point, size_t size, size_t block_size,
		      int gpu_device_id)
{
	KEEP_ERRNO;
	struct want w;
	int r = -EINVAL;

	if (id && gpu_ptr)
		r = want(&w, iov, hf3fs_mount_point, size, block_size, gpu_device_id);
	if (r < 0)
		return r;
	memcpy(w.out.id, id, sizeof(w.out.id));
	return gpu_wrap(&w, gpu_ptr, iov);
}

int hf3fs_iovwrap_device(struct hf3fs_iov *iov, void *device_ptr, const uint8_t id[16],
			 const char *hf3fs_mount_point, size_t size, size_t block_size,
			 int device_id)
{
	return block_size ? no_blocks()
			  : hf3fs_iovwrap_gpu(iov, device_ptr, id, hf3fs_mount_point, size, 0,
					      device_id);
}

/* -------------------------------------------------------------- the handle */

int hf3fs_iov_export_gpu(const struct hf3fs_iov *iov, hf3fs_gpu_ipc_handle_t *handle)
{
	KEEP_ERRNO;
	_cleanup_(pst_grant_done) struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
	struct iov *h = iov_get(iov);
	int r;

	if (!h || h->device < 0 || !handle)
		return log_fail(EINVAL, "only device memory has a handle to export");
	r = pst_mem_export(h->mem, 0, h->size, PST_RIGHT_READ | PST_RIGHT_WRITE, &g);
	if (r < 0)
		return gpu_failed(r, "device memory cannot be exported");
	r = gpu_soft_show(h, &g);
	if (r < 0)
		return r;
	r = gpu_handle_pack(&g, handle);
	return r < 0 ? log_fail(r, "this memory has no CUDA IPC handle") : 0;
}

/* Import the memory on the handle's device.  Device numbers differ per process; UUIDs do not. */
static int import_memory(const hf3fs_gpu_ipc_handle_t *handle, struct want *w, struct pst_mem **ret)
{
	_cleanup_(pst_grant_done) struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
	int nr = gpu_device_count(), r = gpu_handle_unpack(handle, &g);

	if (r < 0)
		return log_fail(r, "these 80 bytes are no handle of hf3fs_iov_export_gpu()");
	r = gpu_soft_find(&g);
	if (r < 0)
		return log_fail(r, "the handle's memory is gone, or another user's");
	for (w->number = 0; w->number < nr; w->number++) {
		if (gpu_device_find(w->number, &w->device) < 0 ||
		    !gpu_handle_is_on(handle, w->device.uuid))
			continue;
		memcpy(g.uuid, w->device.uuid, sizeof(g.uuid));
		w->out.size = g.len;
		r = pst_mem_import(&g, ret);
		return r < 0 ? gpu_failed(r, "the handle cannot be opened") : 0;
	}
	return log_fail(ENODEV,
			"the handle's device is not visible here; see CUDA_VISIBLE_DEVICES");
}

int hf3fs_iov_import_gpu(struct hf3fs_iov *iov, const hf3fs_gpu_ipc_handle_t *handle,
			 const char *hf3fs_mount_point)
{
	KEEP_ERRNO;
	_cleanup_(iov_freep) struct iov *it = NULL;
	struct pst_mem *mem = NULL;
	struct want w;
	/* The real size comes from the handle, so pass any valid size here. */
	int r = handle ? want(&w, iov, hf3fs_mount_point, 1, 0, 0) : -EINVAL;

	if (r == 0)
		r = usrbio_id_new((uint8_t *)w.out.id);
	if (r == 0)
		r = import_memory(handle, &w, &mem);
	/* The memory belongs to another process; the publication here is this process' own. */
	if (r == 0)
		r = gpu_begin(&w, IOV_WRAPPED, &it);
	if (r < 0) {
		(void)pst_mem_free(mem);
		return r;
	}
	it->mem = mem;
	return gpu_finish(TAKE_PTR(it), &w, iov);
}

/* ---------------------------------------------------------------- the rest */

void hf3fs_iovunlink_gpu(struct hf3fs_iov *iov)
{
	if (hf3fs_iov_is_gpu(iov))
		hf3fs_iovunlink(iov);
}

void hf3fs_iovdestroy_gpu(struct hf3fs_iov *iov)
{
	hf3fs_iovdestroy(iov);
}

int hf3fs_iov_device_id(const struct hf3fs_iov *iov)
{
	const struct iov *h = iov_get(iov);

	return h ? h->device : -1;
}

enum hf3fs_mem_type hf3fs_iov_mem_type(const struct hf3fs_iov *iov)
{
	return hf3fs_iov_device_id(iov) < 0 ? HF3FS_MEM_HOST : HF3FS_MEM_DEVICE;
}

bool hf3fs_iov_is_gpu(const struct hf3fs_iov *iov)
{
	return hf3fs_iov_mem_type(iov) == HF3FS_MEM_DEVICE;
}

int hf3fs_iov_gpu_device(const struct hf3fs_iov *iov)
{
	return hf3fs_iov_device_id(iov);
}

int hf3fs_iovsync(const struct hf3fs_iov *iov, int direction)
{
	KEEP_ERRNO;
	const struct iov *h = iov_get(iov);
	int r;

	if (!h || direction < 0 || direction > 1)
		return log_fail(EINVAL,
				"direction %d is neither 0 nor 1, or there is no such "
				"memory",
				direction);
	r = h->device < 0 ? 0 : pst_mem_sync(h->mem);
	return r < 0 ? gpu_failed(r, "waiting for the device failed") : 0;
}

int hf3fs_iovsync_gpu(const struct hf3fs_iov *iov, int direction)
{
	return hf3fs_iov_is_gpu(iov) ? hf3fs_iovsync(iov, direction)
				     : log_fail(EINVAL, "this is no device memory");
}

bool hf3fs_gdr_available(void)
{
	KEEP_ERRNO;

	return gpu_device_count() > 0;
}

int hf3fs_gdr_device_count(void)
{
	KEEP_ERRNO;

	return gpu_device_count();
}
