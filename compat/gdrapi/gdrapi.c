/* SPDX-License-Identifier: MIT */
/*
 * libgdrapi.so.2 over libpenstock.
 *
 *	gdrapi.c	the calls of <gdrapi.h>
 *	mapping.c	windows on pinned ranges, copies through them
 *	pin.c		sessions and pins, and the numbers that programs hold for them
 *	range.c		which bytes of which allocation a pin covers
 *	log.c		log lines on standard error, if enabled by the environment
 *	error.h		errors in gdrcopy's form
 *	gdrapi.map	the symbols; gdrcopy's have no versions
 *
 * A pin is wrapped memory of the program (pst_mem_wrap()), and a mapping is a window on it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <gdrapi.h>
#include <penstock.h>

#include "error.h"
#include "pin.h"
#include "log.h"
#include "mapping.h"

/* Undefine macros of the header: the library has both versions of the symbols. */
#undef gdr_get_info
GDR_API int gdr_get_info(gdr_t g, gdr_mh_t handle, gdr_info_v1_t *info);
GDR_API int gdr_copy_to_bar(void *bar_ptr, const void *h_ptr, size_t size);
GDR_API int gdr_copy_from_bar(void *h_ptr, const void *bar_ptr, size_t size);

_Static_assert(sizeof(gdr_info_v1_t) == 40, "the struct before 2.4");
_Static_assert(sizeof(gdr_info_v2_t) == 48 && offsetof(gdr_info_v2_t, mapping_type) == 40,
	       "the struct since 2.4");

static void gdrapi_errno_restore(const int *saved)
{
	errno = *saved;
}

#define KEEP_ERRNO() __attribute__((cleanup(gdrapi_errno_restore), unused)) int _errno = errno

/* The process that uses libpenstock; forked children must not use libpenstock. */
static _Atomic pid_t user;

/* ---------------------------------------------------------------- sessions */

static unsigned long session_of(gdr_t g)
{
	return (unsigned long)(uintptr_t)g;
}

/* Get the device of the thread's CUDA context, such as "cuda:1"; return false if there is none.
 * The driver is only asked if the process has loaded it. */
static bool current_device(char *buf, size_t len)
{
	void *lib = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void *sym = lib ? dlsym(lib, "cuCtxGetDevice") : NULL;
	unsigned (*get)(int *) = NULL;
	int dev = -1;

	memcpy(&get, &sym, sizeof(sym));
	if (get && get(&dev) == 0 && dev >= 0)
		(void)snprintf(buf, len, "cuda:%d", dev);
	else
		dev = -1;
	if (lib)
		(void)dlclose(lib);
	return dev >= 0;
}

/* Test the device with a small mapping. */
static int gdrapi_try_device(const char *name)
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_window *w;
	struct pst_mem *mem;
	int r = pst_mem_alloc(name, 2 * GPU_PAGE_SIZE, NULL, &mem);

	if (r < 0)
		return r;
	r = pst_mem_info(mem, &info);
	/* Begin at a GPU page: some backends require a whole page of this memory. */
	if (r == 0)
		r = pst_window_open(mem, -info.addr & GPU_PAGE_OFFSET, GPU_PAGE_SIZE, NULL, &w);
	if (r == 0)
		pst_window_close(w);
	pst_mem_free(mem);
	return r;
}

gdr_t gdr_open(void)
{
	KEEP_ERRNO();
	unsigned long session;
	char device[32];

	if (user && user != getpid()) {
		gdr_log_line(LOG_ERROR,
			     "gdr_open: the parent of this process uses GPU mappings, and a "
			     "fork cannot; exec first");
		return NULL;
	}
	if (current_device(device, sizeof(device))) {
		user = getpid();
		if (gdrapi_try_device(device) < 0) {
			gdr_log_line(LOG_ERROR, "gdr_open: %s: %s", device, pst_error_text());
			return NULL;
		}
	}
	session = session_new();
	if (!session)
		gdr_log_line(LOG_ERROR, "gdr_open: too many are open");
	return (gdr_t)(uintptr_t)session;
}

/* End a locked pin. */
static void gdrapi_end(struct pin *p)
{
	if (p->window)
		mapping_end(p);
	range_done(&p->range);
	pin_void(p);
}

int gdr_close(gdr_t g)
{
	KEEP_ERRNO();
	unsigned long session = session_of(g);
	struct pin *p;
	int r = session_end(session);

	for (p = r ? NULL : pin_first(); p; p = p->next) {
		if (!pin_lock_any(p, session))
			continue;
		gdr_log_line(LOG_INFO, "gdr_close: %#lx is still pinned%s, ending it", p->handle,
			     p->window ? " and mapped" : "");
		gdrapi_end(p);
		pin_unlock(p);
		pin_free(p);
	}
	return r;
}

/* -------------------------------------------------------------------- pins */

int gdr_pin_buffer_v2(gdr_t g, unsigned long addr, size_t size, uint32_t flags, gdr_mh_t *handle)
{
	KEEP_ERRNO();
	struct range range;
	struct pin *p;
	int r = session_check(session_of(g));

	if (r || !handle || flags != GDR_PIN_FLAG_DEFAULT)
		return r ? r : EINVAL;
	user = getpid();
	r = range_find(addr, size, &range);
	if (r)
		return r;
	p = pin_new(&range);
	r = p ? pin_publish(p, session_of(g), &handle->h) : ENOMEM;
	if (r)
		range_done(&range);
	if (r && p)
		pin_free(p);
	return r;
}

int gdr_pin_buffer(gdr_t g, unsigned long addr, size_t size, uint64_t p2p_token, uint32_t va_space,
		   gdr_mh_t *handle)
{
	if (p2p_token || va_space)
		return EINVAL;
	return gdr_pin_buffer_v2(g, addr, size, GDR_PIN_FLAG_DEFAULT, handle);
}

/* Find and lock the pin of a handle.  Return 0 or a positive errno. */
static int gdrapi_find(gdr_t g, gdr_mh_t handle, struct pin **ret)
{
	int r = session_check(session_of(g));

	if (r)
		return r;
	*ret = pin_lock(session_of(g), handle.h);
	return *ret ? 0 : EINVAL;
}

int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle)
{
	KEEP_ERRNO();
	struct pin *p;
	int r = gdrapi_find(g, handle, &p);

	if (r)
		return r;
	gdrapi_end(p);
	pin_unlock(p);
	pin_free(p);
	return 0;
}

int gdr_get_callback_flag(gdr_t g, gdr_mh_t handle, int *flag)
{
	KEEP_ERRNO();
	struct pin *p;
	int r = flag ? gdrapi_find(g, handle, &p) : EINVAL;

	if (r)
		return r;
	pin_unlock(p);
	*flag = 0;
	return 0;
}

/* Mapping types equal enum pst_caching. */
_Static_assert((int)GDR_MAPPING_TYPE_WC == (int)PST_CACHING_WC &&
		       (int)GDR_MAPPING_TYPE_CACHING == (int)PST_CACHING_CACHED &&
		       (int)GDR_MAPPING_TYPE_DEVICE == (int)PST_CACHING_DEVICE &&
		       (int)GDR_MAP_FLAG_REQ_WC_MAPPING == (int)PST_CACHING_WC &&
		       (int)GDR_MAP_FLAG_REQ_CACHE_MAPPING == (int)PST_CACHING_CACHED &&
		       (int)GDR_MAP_FLAG_REQ_DEVICE_MAPPING == (int)PST_CACHING_DEVICE,
	       "kinds of mappings");

int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info)
{
	KEEP_ERRNO();
	struct pin *p;
	int r = info ? gdrapi_find(g, handle, &p) : EINVAL;

	if (r)
		return r;
	*info = (gdr_info_v2_t){
		.va = p->range.va,
		.mapped_size = p->range.mapped_size,
		.page_size = GPU_PAGE_SIZE,
		.mapped = p->window != NULL,
		.wc_mapping = p->window && p->caching == PST_CACHING_WC,
		.mapping_type = p->window ? (gdr_mapping_type_t)p->caching : GDR_MAPPING_TYPE_NONE,
	};
	pin_unlock(p);
	return 0;
}

/* Write the smaller struct of programs built before 2.4. */
int gdr_get_info(gdr_t g, gdr_mh_t handle, gdr_info_v1_t *info)
{
	gdr_info_v2_t v2;
	int r = info ? gdr_get_info_v2(g, handle, &v2) : EINVAL;

	if (r)
		return r;
	*info = (gdr_info_v1_t){
		.va = v2.va,
		.mapped_size = v2.mapped_size,
		.page_size = v2.page_size,
		.mapped = v2.mapped,
		.wc_mapping = v2.wc_mapping,
	};
	return 0;
}

/* ---------------------------------------------------------------- mappings */

int gdr_map_v2(gdr_t g, gdr_mh_t handle, void **va, size_t size, int flags)
{
	KEEP_ERRNO();
	struct pin *p;
	int r;

	if (!va || flags < GDR_MAP_FLAG_DEFAULT || flags > GDR_MAP_FLAG_REQ_DEVICE_MAPPING)
		return EINVAL;
	r = gdrapi_find(g, handle, &p);
	if (r)
		return r;
	r = p->window ? EAGAIN : mapping_begin(p, size, (unsigned)flags);
	if (!r)
		*va = p->va;
	pin_unlock(p);
	return r;
}

int gdr_map(gdr_t g, gdr_mh_t handle, void **va, size_t size)
{
	return gdr_map_v2(g, handle, va, size, GDR_MAP_FLAG_DEFAULT);
}

int gdr_unmap(gdr_t g, gdr_mh_t handle, void *va, size_t size)
{
	KEEP_ERRNO();
	struct pin *p;
	int r = gdrapi_find(g, handle, &p);

	if (r)
		return r;
	if (p->window && p->va == va && size && size <= p->map_size)
		mapping_end(p);
	else
		r = EINVAL;
	pin_unlock(p);
	return r;
}

int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size)
{
	return mapping_store(handle.h, map_d_ptr, h_ptr, size);
}

int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size)
{
	return mapping_load(handle.h, h_ptr, map_d_ptr, size);
}

int gdr_copy_to_bar(void *bar_ptr, const void *h_ptr, size_t size)
{
	return size ? mapping_store(mapping_find(bar_ptr), bar_ptr, h_ptr, size) : 0;
}

int gdr_copy_from_bar(void *h_ptr, const void *bar_ptr, size_t size)
{
	return size ? mapping_load(mapping_find(bar_ptr), h_ptr, bar_ptr, size) : 0;
}

/* ------------------------------------------------------------------- facts */

void gdr_runtime_get_version(int *major, int *minor)
{
	if (major)
		*major = GDR_API_MAJOR_VERSION;
	if (minor)
		*minor = GDR_API_MINOR_VERSION;
}

int gdr_driver_get_version(gdr_t g, int *major, int *minor)
{
	KEEP_ERRNO();
	int r = session_check(session_of(g));

	if (r || !major || !minor)
		return r ? r : EINVAL;
	gdr_runtime_get_version(major, minor);
	return 0;
}

int gdr_get_attribute(gdr_t g, gdr_attr_t attr, int *v)
{
	KEEP_ERRNO();
	int r = session_check(session_of(g));

	if (r || !v)
		return r ? r : EINVAL;
	switch (attr) {
	case GDR_ATTR_USE_PERSISTENT_MAPPING:
		*v = 1;
		return 0;
	case GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE:
	case GDR_ATTR_USING_DMA_BUF_MMAP:
		*v = 0;
		return 0;
	default:
		return EINVAL;
	}
}

int gdr_get_mapping_type_string(gdr_mapping_type_t type, const char **ret)
{
	static const char *const names[] = { "None", "Write Combining", "Caching", "Device" };

	if (!ret || (unsigned)type >= GDR_MAPPING_TYPE_MAX)
		return EINVAL;
	*ret = names[type];
	return 0;
}
