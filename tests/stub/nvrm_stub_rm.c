/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "nvrm_stub_int.h"

#define PAGE 4096u

/* ----------------------------------------------------------------- objects */

static struct object *object_at(uint32_t client, uint32_t handle)
{
	struct list *e;

	list_for_each (e, &stub_rm_state.objects) {
		struct object *o = list_entry(e, struct object, link);

		if (o->client == client && o->handle == handle)
			return o;
	}
	return NULL;
}

static uint32_t object_new(uint32_t client, uint32_t parent, uint32_t handle, uint32_t class,
			   int device, int fd)
{
	struct object *o;
	struct stat st;

	if (!handle || object_at(client, handle))
		return NVRM_NAME_IN_USE;
	o = calloc(1, sizeof(*o));
	if (!o)
		stub_wrong("out of memory");
	*o = (struct object){ .client = client,
			      .parent = parent,
			      .handle = handle,
			      .class = class,
			      .device = device,
			      .fd = fd };
	if (fd >= 0 && fstat(fd, &st) == 0)
		o->size = (uint64_t)st.st_size;
	list_add_tail(&stub_rm_state.objects, &o->link);
	return NVRM_OK;
}

/* Return the device of the memory that a link of /proc names; -1: it is not such memory. */
int stub_memory_at(const char *path, const char *kind)
{
	char name[128] = "", format[64];
	unsigned types;
	int device;

	(void)snprintf(format, sizeof(format), "/memfd:stub-cuda-%s-%%d-%%u", kind);
	if (readlink(path, name, sizeof(name) - 1) <= 0 ||
	    sscanf(name, format, &device, &types) != 2)
		return -1;
	return device;
}

static uint32_t do_alloc(struct nvrm_alloc *a)
{
	struct object *parent = object_at(a->client, a->parent);
	const struct nvrm_device_params *dev = (void *)(uintptr_t)a->params;
	int device = 0;

	if (a->class == NVRM_CLASS_CLIENT) {
		if (a->client || a->parent || a->object || a->params)
			return NVRM_INVALID_ARGUMENT;
		a->object = NVRM_CLIENT_BASE | 0x80000 | ++stub_rm_state.clients;
		return object_new(a->object, 0, a->object, a->class, -1, -1);
	}
	if (!object_at(a->client, a->client))
		return NVRM_INVALID_CLIENT;
	if (!parent)
		return NVRM_INVALID_PARENT;
	if (a->class == NVRM_CLASS_SUBDEVICE) {
		if (parent->class != NVRM_CLASS_DEVICE)
			return NVRM_INVALID_PARENT;
		if (a->params_size != sizeof(struct nvrm_subdevice_params))
			return NVRM_INVALID_STRUCT;
		return object_new(a->client, a->parent, a->object, a->class, parent->device, -1);
	}
	if (a->class != NVRM_CLASS_DEVICE || parent->class != NVRM_CLASS_CLIENT)
		return NVRM_INVALID_CLASS;
	if (a->params_size != sizeof(*dev) || dev->client_share != a->client)
		return NVRM_INVALID_STRUCT;
	/* Use the first GPU for an unknown instance, as the driver does. */
	for (int i = 0; i < (int)STUB_GPUS; i++)
		if (dev->instance == stub_instance_of(i))
			device = i;
	if (!stub_is_open(device))
		return NVRM_NO_PERMISSION;
	return object_new(a->client, a->parent, a->object, a->class, device, -1);
}

static bool has_mapping(uint32_t object)
{
	struct list *e;

	list_for_each (e, &stub_rm_state.mappings)
		if (list_entry(e, struct mapping, link)->object == object)
			return true;
	return false;
}

static uint32_t do_free(const struct nvrm_free *f)
{
	struct object *o = object_at(f->client, f->object);
	struct list *e;

	if (!o)
		return NVRM_INVALID_HANDLE;
	list_for_each (e, &stub_rm_state.objects) {
		struct object *c = list_entry(e, struct object, link);

		if (c != o && c->client == f->client &&
		    (c->parent == o->handle || o->class == NVRM_CLASS_CLIENT))
			stub_wrong("object 0x%x is freed before its child 0x%x", o->handle,
				   c->handle);
	}
	if (o->class == NVRM_CLASS_CLIENT ? f->parent != o->handle : f->parent != o->parent)
		stub_wrong("object 0x%x is freed as a child of 0x%x", o->handle, f->parent);
	if (!o->class && has_mapping(o->handle))
		stub_wrong("memory 0x%x is freed with a mapping", o->handle);
	list_del(&o->link);
	if (o->fd >= 0)
		(void)close(o->fd);
	free(o);
	return NVRM_OK;
}

/* Duplicate an object of a libcuda client.  Find the client's process by the low bits of its pid
 * and by the memory. */
static uint32_t do_dup(const struct nvrm_dup *d)
{
	struct object *parent = object_at(d->client, d->parent);
	bool found = false;
	char path[64];

	if (!parent || parent->class != NVRM_CLASS_DEVICE)
		return NVRM_INVALID_PARENT;
	if (d->flags)
		return NVRM_INVALID_ARGUMENT;
	for (unsigned k = 0; k < 4; k++) {
		unsigned pid = (d->src_client & ~NVRM_CLIENT_MASK) + (k << 20);
		int device, fd;

		(void)snprintf(path, sizeof(path), "/proc/%u/fd", pid);
		if (!pid || access(path, R_OK) < 0)
			continue;
		found = true;
		(void)snprintf(path, sizeof(path), "/proc/%u/fd/%u", pid,
			       d->src_object & ~STUB_OBJECT);
		device = stub_memory_at(path, "plain");
		if (device < 0)
			continue;
		if (device != parent->device)
			return NVRM_INVALID_PARENT;
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return NVRM_NO_PERMISSION;
		return object_new(d->client, d->parent, d->object, 0, device, fd);
	}
	return found ? NVRM_NOT_FOUND : NVRM_INVALID_CLIENT;
}

/* ---------------------------------------------------------------- controls */

static int exported(int fd)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return stub_memory_at(path, "vmm");
}

static uint32_t do_export_info(struct nvrm_export_info *info)
{
	int device = exported(info->fd);

	if (device < 0)
		return NVRM_INVALID_PARAMETER;
	info->instance = stub_instance_of(device);
	info->partition = stub_nvrm.partition;
	info->max_objects = stub_nvrm.max_objects;
	return NVRM_OK;
}

static uint32_t do_import(uint32_t client, struct nvrm_import *im)
{
	struct object *parent = object_at(client, im->parent);
	int device = exported(im->fd), fd;
	uint32_t status = NVRM_OK;

	if (device < 0 || im->nr > NVRM_IMPORT_MAX)
		return NVRM_INVALID_PARAMETER;
	if (im->first + im->nr > stub_nvrm.max_objects)
		return NVRM_OUT_OF_RANGE;
	if (!parent || parent->class != NVRM_CLASS_DEVICE || parent->device != device)
		return NVRM_INVALID_PARENT;
	for (unsigned i = 0; i < im->nr; i++) {
		im->types[i] = NVRM_TYPE_NONE;
		if (i >= stub_nvrm.objects || status)
			continue;
		fd = fcntl(im->fd, F_DUPFD_CLOEXEC, 0);
		status = object_new(client, im->parent, im->objects[i], 0, device, fd);
		im->types[i] = stub_nvrm.type;
	}
	return status;
}

static uint32_t do_gid(const struct object *o, struct nvrm_gid_info *gid)
{
	char pci[16];

	if (gid->flags != NVRM_GID_BINARY || gid->index)
		return NVRM_INVALID_ARGUMENT;
	stub_nvrm_device((unsigned)o->device, pci, gid->data);
	if (stub_nvrm.other_uuid)
		gid->data[15] ^= 0xff;
	gid->length = 16;
	return NVRM_OK;
}

static uint32_t do_id_info(struct nvrm_id_info *id)
{
	for (int i = 0; i < (int)STUB_GPUS; i++) {
		if (id->gpu_id != stub_id_of(i))
			continue;
		id->instance = stub_instance_of(i);
		id->sub_instance = 0;
		return NVRM_OK;
	}
	return NVRM_INVALID_ARGUMENT;
}

static uint32_t do_control(const struct nvrm_control *c)
{
	static const struct {
		uint32_t cmd, class, size;
	} known[] = {
		{ NVRM_ID_INFO, NVRM_CLASS_CLIENT, 32 },
		{ NVRM_EXPORT_INFO, NVRM_CLASS_CLIENT, 80 },
		{ NVRM_IMPORT, NVRM_CLASS_CLIENT, 652 },
		{ NVRM_GID_INFO, NVRM_CLASS_SUBDEVICE, 268 },
	};
	struct object *o = object_at(c->client, c->object);
	void *p = (void *)(uintptr_t)c->params;

	if (!o)
		return NVRM_INVALID_HANDLE;
	for (unsigned i = 0; i < ARRAY_SIZE(known); i++)
		if (known[i].cmd == c->cmd &&
		    (known[i].class != o->class || c->flags || known[i].size != c->params_size))
			return NVRM_INVALID_STRUCT;
	switch (c->cmd) {
	case NVRM_ID_INFO:
		return do_id_info(p);
	case NVRM_EXPORT_INFO:
		return do_export_info(p);
	case NVRM_IMPORT:
		return do_import(c->client, p);
	case NVRM_GID_INFO:
		return do_gid(o, p);
	default:
		return NVRM_NOT_SUPPORTED;
	}
}

/* ---------------------------------------------------------------- mappings */

static uint32_t do_map(struct nvrm_map *m)
{
	struct object *o = object_at(m->client, m->object);
	struct file *f = stub_file_of(m->fd);
	struct mapping *map;

	if (!o || o->class)
		return NVRM_INVALID_OBJECT;
	if (m->device != o->parent)
		return NVRM_INVALID_PARENT;
	if (stub_nvrm.read_only && (m->flags & 3) != NVRM_MAP_READ_ONLY)
		return NVRM_INVALID_ARGUMENT;
	if (m->offset >= o->size)
		return NVRM_INVALID_BASE;
	if (!m->length || m->length > o->size - m->offset)
		return NVRM_INVALID_LIMIT;
	if (m->offset % PAGE || m->length % PAGE)
		stub_wrong("a mapping of %" PRIu64 " bytes at %#" PRIx64, m->length, m->offset);
	if (!f || f->device != o->device)
		return NVRM_INVALID_ARGUMENT;
	if (!f->tied)
		stub_wrong("a descriptor takes a mapping before it is tied");
	if (f->used)
		return NVRM_STATE_IN_USE;
	map = calloc(1, sizeof(*map));
	if (!map)
		stub_wrong("out of memory");
	map->object = m->object;
	map->len = m->length;
	map->linear = m->linear = stub_rm_state.linear;
	stub_rm_state.linear += m->length;
	list_add_tail(&stub_rm_state.mappings, &map->link);
	m->flags = (m->flags & ~(7u << 23)) | stub_nvrm.caching << 23;
	f->used = true;
	f->mem_fd = o->fd;
	f->off = m->offset;
	f->len = m->length;
	f->access = m->flags & 3;
	f->mapping = map;
	stub_nvrm.maps++;
	return NVRM_OK;
}

/* Return true if a mapping of driver memory is still at @at. */
static bool is_mapped(uintptr_t at, uint64_t len)
{
	FILE *f = fopen("/proc/self/maps", "re");
	uint64_t from, to;
	char line[512];
	bool found = false;

	if (!f)
		stub_wrong("no /proc/self/maps");
	while (!found && fgets(line, sizeof(line), f))
		found = sscanf(line, "%" SCNx64 "-%" SCNx64, &from, &to) == 2 && from < at + len &&
			to > at && strstr(line, "/memfd:stub-cuda-");
	(void)fclose(f);
	return found;
}

static uint32_t do_unmap(const struct nvrm_unmap *u)
{
	struct object *o = object_at(u->client, u->object);
	struct list *e;

	if (!o || o->class)
		return NVRM_INVALID_OBJECT;
	if (u->device != o->parent)
		return NVRM_INVALID_PARENT;
	list_for_each (e, &stub_rm_state.mappings) {
		struct mapping *m = list_entry(e, struct mapping, link);

		if (m->object != u->object || m->linear != u->linear)
			continue;
		if (m->at && is_mapped(m->at, m->len))
			stub_wrong("the driver ends a mapping that the CPU still has");
		list_del(&m->link);
		free(m);
		return NVRM_OK;
	}
	return NVRM_NOT_FOUND;
}

/* ----------------------------------------------------------------- escapes */

/* @fail: the status to return; frees and unmaps take place nevertheless. */
int stub_rm(unsigned nr, void *arg, uint32_t fail)
{
	union {
		struct nvrm_alloc *alloc;
		struct nvrm_free *free;
		struct nvrm_control *control;
		struct nvrm_dup *dup;
		struct nvrm_map *map;
		struct nvrm_unmap *unmap;
	} p = { .alloc = arg };
	uint32_t done;

	switch (nr) {
	case NVRM_ALLOC:
		p.alloc->status = fail ? fail : do_alloc(p.alloc);
		return 0;
	case NVRM_CONTROL:
		p.control->status = fail ? fail : do_control(p.control);
		return 0;
	case NVRM_DUP:
		p.dup->status = fail ? fail : do_dup(p.dup);
		return 0;
	case NVRM_MAP:
		p.map->status = fail ? fail : do_map(p.map);
		return 0;
	case NVRM_FREE:
		done = do_free(p.free);
		p.free->status = fail ? fail : done;
		return 0;
	case NVRM_UNMAP:
		done = do_unmap(p.unmap);
		p.unmap->status = fail ? fail : done;
		return 0;
	default:
		return -EINVAL;
	}
}
