/* SPDX-License-Identifier: MIT */
/* The public calls: check arguments and process, take the lock, and call the layers below. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/opts.h"
#include "base/scheme.h"
#include "core/carry/now.h"
#include "core/queue/lower.h"
#include "core/queue/object.h"
#include "core/queue/queue.h"
#include "core/sched/limits.h"
#include "core/sched/pool.h"
#include "core/ways/path.h"
#include "core/ways/region.h"
#include "core/ways/registration.h"
#include "file/local.h"
#include "window/window.h"
#include "api/file.h"
#include "api/guard.h"
#include "api/providers.h"

_Static_assert(sizeof(struct pst_io) == 128, "struct pst_io is 128 bytes for ever");
_Static_assert(sizeof(struct pst_done) == 64, "struct pst_done is 64 bytes for ever");
_Static_assert(sizeof(struct pst_seg) == 48, "struct pst_seg is 48 bytes for ever");
_Static_assert(sizeof(struct pst_vec) == 40, "struct pst_vec is 40 bytes for ever");

/* ---------------------------------------------------------------- library */

#define STR_(x) #x
#define STR(x) STR_(x)

const char *pst_version(void)
{
	return STR(PST_VERSION_MAJOR) "." STR(PST_VERSION_MINOR) "." STR(PST_VERSION_PATCH);
}

const char *pst_error_text(void)
{
	return err_text();
}

void pst_log_set(pst_log_fn fn, void *arg, int level)
{
	log_set(fn, arg, level);
}

/* ---------------------------------------------------------------- devices */

int pst_device_list(struct pst_device *ret_devs, unsigned max)
{
	_cleanup_(freep) struct pst_device *devs = NULL;
	int nr, r;

	GUARD();
	r = opts_array_check(ret_devs, max, "pst_device");
	if (r < 0)
		return r;
	nr = mem_list(NULL, 0);
	max = MIN(max, (unsigned)nr);
	devs = calloc(max + 1, sizeof(*devs));
	if (!devs)
		return err_set(ENOMEM, "out of memory");
	nr = mem_list(devs, max);
	for (unsigned i = 0; i < max; i++)
		(void)opts_return(opts_array_at(ret_devs, i), &devs[i], sizeof(devs[i]));
	return nr;
}

int pst_device_find(const char *name, struct pst_device *ret)
{
	struct pst_device dev = { .sz = sizeof(dev) };
	const struct mem_ops *ops;
	unsigned idx;
	int r;

	GUARD();
	if (!name)
		return err_set(EINVAL, "no device name is given");
	r = mem_find(name, &ops, &idx);
	if (r < 0)
		return r;
	ops->device_info(idx, &dev);
	return opts_return(ret, &dev, sizeof(dev));
}

int pst_device_text(const char *device, char *buf, size_t len)
{
	const struct mem_ops *ops;
	unsigned idx;
	int r;

	GUARD();
	if (!device || !buf)
		return err_set(EINVAL, "no %s is given", device ? "buffer" : "device name");
	r = mem_find(device, &ops, &idx);
	return r < 0 ? r : mem_device_text(ops, idx, buf, len);
}

/* ----------------------------------------------------------------- memory */

/* Create the pst_mem for a range of an allocation that was just created or found.  Takes over
 * @a. */
static int penstock_mem_new(struct mem_alloc *a, uint64_t off, uint64_t len, struct pst_mem **ret)
{
	struct region *region;
	int r = region_get(a, &region);

	return r < 0 ? r : object_new_mem(region, off, len, ret);
}

int pst_mem_alloc(const char *device, uint64_t len, const struct pst_mem_opts *opts,
		  struct pst_mem **ret_mem)
{
	const struct mem_ops *ops;
	struct pst_mem_opts o;
	struct mem_alloc *a;
	unsigned idx;
	int r;

	GUARD();
	r = opts_copy(&o, sizeof(o), opts);
	if (r < 0)
		return r;
	if (o.flags & ~(PST_MEM_SHARED | MEM_DMABUF_FLAGS) ||
	    (o.flags & MEM_DMABUF_FLAGS) == MEM_DMABUF_FLAGS)
		return err_set(EINVAL, "flags 0x%x do not go with an allocation", o.flags);
	if (!device)
		return err_set(EINVAL, "no device name is given");
	if (!len)
		return err_set(EINVAL, "the length is zero");
	if (len > INT64_MAX)
		return err_set(ENOMEM, "no device has %" PRIu64 " bytes", len);
	r = mem_find(device, &ops, &idx);
	if (r < 0)
		return r;
	if (o.kind && o.kind != ops->kind)
		return err_set(EINVAL, "kind %u is not the kind of %s", o.kind, device);
	r = mem_alloc(ops, idx, len, mem_dmabuf_flags(ops, o.flags), &a);
	return r < 0 ? r : penstock_mem_new(a, 0, len, ret_mem);
}

int pst_mem_wrap(uint64_t addr, uint64_t len, const struct pst_mem_opts *opts,
		 struct pst_mem **ret_mem)
{
	struct pst_mem_opts o;
	struct mem_alloc *a;
	uint64_t end;
	int r;

	GUARD();
	r = opts_copy(&o, sizeof(o), opts);
	if (r < 0)
		return r;
	if (o.flags & ~(PST_MEM_PINNED | PST_MEM_LATER | MEM_DMABUF_FLAGS) ||
	    (o.flags & MEM_DMABUF_FLAGS) == MEM_DMABUF_FLAGS ||
	    (o.flags & PST_MEM_LATER && (o.flags & PST_MEM_PINNED || o.kind != PST_KIND_HOST)))
		return err_set(EINVAL, "flags 0x%x do not go with wrapped memory of kind %u",
			       o.flags, o.kind);
	if (!addr || !len)
		return err_set(EINVAL, "%s is zero", addr ? "the length" : "the address");
	if (__builtin_add_overflow(addr, len, &end) || len > INT64_MAX)
		return err_set(EINVAL, "the range wraps around the end of the address space");
	r = mem_wrap(addr, len, o.kind, o.flags, &a);
	return r < 0 ? r : penstock_mem_new(a, addr - a->base.va, len, ret_mem);
}

struct pst_mem *pst_mem_free(struct pst_mem *mem)
{
	_cleanup_(errno_restore) int saved = errno;
	NO_CANCEL();

	if (mem && fork_guard() == 0)
		registry_release(&mem->obj);
	return NULL;
}

/* Wait until no request of any queue uses an object, and no peer has a key to mem.  mem may be
 * NULL. */
static int drain(const struct object *obj, const struct pst_mem *mem, const char *what,
		 uint64_t deadline_ns)
{
	uint64_t pause = 20000;

	for (;;) {
		unsigned nr = registry_uses(obj);
		unsigned keys = mem ? registration_keys(mem->region, mem->off, mem->len) : 0;
		struct timespec ts;
		uint64_t now;

		if (!nr && !keys)
			return 0;
		now = now_ns();
		if (deadline_ns <= now && !nr)
			return err_set(
				EBUSY,
				"%u shares of the memory have keys with which peers reach it; "
				"close them",
				keys);
		if (deadline_ns <= now)
			return err_set(EBUSY, "%u requests may still use the %s", nr, what);
		ts = (struct timespec){ .tv_nsec = (long)MIN(pause, deadline_ns - now) };
		(void)nanosleep(&ts, NULL);
		pause = MIN(2 * pause, NSEC_PER_MSEC);
	}
}

int pst_mem_drain(struct pst_mem *mem, uint64_t deadline_ns)
{
	GUARD();
	if (!mem)
		return err_set(EINVAL, "no memory is given");
	return drain(&mem->obj, mem, "memory", deadline_ns);
}

int pst_mem_info(const struct pst_mem *mem, struct pst_mem_info *ret)
{
	const struct mem_alloc *a = mem->region->alloc;
	struct pst_device dev = { .sz = sizeof(dev) };
	struct pst_mem_info info = {
		.sz = sizeof(info),
		.kind = a->ops->kind,
		.flags = mem->flags,
		.addr = a->base.va + mem->off,
		.len = mem->len,
		.base = a->base.va,
		.size = a->size,
		.buffer_id = a->buffer_id,
	};

	GUARD();
	a->ops->device_info(a->device, &dev);
	memcpy(info.device, dev.name, sizeof(info.device));
	return opts_return(ret, &info, sizeof(info));
}

void *pst_mem_ptr(const struct pst_mem *mem)
{
	const struct mem_alloc *a = mem->region->alloc;

	return a->host ? (char *)a->host + mem->off : NULL;
}

static int mem_access(struct pst_mem *mem, enum mem_dir dir, uint64_t off, void *buf, uint64_t len)
{
	uint32_t need = dir == MEM_TO_DEVICE ? PST_RIGHT_WRITE : PST_RIGHT_READ;
	uint64_t end;

	if (__builtin_add_overflow(off, len, &end) || end > mem->len)
		return err_set(ERANGE,
			       "%" PRIu64 " bytes at %" PRIu64 " reach past memory of %" PRIu64,
			       len, off, mem->len);
	if (!(mem->rights & need))
		return err_set(EACCES, "the grant of this memory does not allow that");
	if (!len)
		return 0;
	return mem_on_host(mem) || mem_copies(mem->region->alloc->ops)
		       ? mem_copy_sync(mem->region->alloc, dir, mem->off + off, buf, len)
		       : window_copy(mem->region->alloc, dir, mem->off + off, buf, len);
}

int pst_mem_copy_in(struct pst_mem *mem, uint64_t off, const void *src, uint64_t len)
{
	GUARD();
	return mem_access(mem, MEM_TO_DEVICE, off, (void *)(uintptr_t)src, len);
}

int pst_mem_copy_out(struct pst_mem *mem, uint64_t off, void *dst, uint64_t len)
{
	GUARD();
	return mem_access(mem, MEM_FROM_DEVICE, off, dst, len);
}

int pst_mem_sync(struct pst_mem *mem)
{
	GUARD();
	return mem_sync(mem->region->alloc);
}

/* ----------------------------------------------------------------- grants */

int pst_mem_export(struct pst_mem *mem, uint64_t off, uint64_t len, uint32_t rights,
		   struct pst_grant *ret_grant)
{
	struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
	uint64_t end;
	int r;

	GUARD();
	if (!grant_has_room(ret_grant))
		return err_set(EINVAL, "sz of the grant is not sizeof(struct pst_grant)");
	if (!rights || (rights & ~(PST_RIGHT_READ | PST_RIGHT_WRITE)))
		return err_set(EINVAL, "rights are 0x%x; give PST_RIGHT_READ, _WRITE or both",
			       rights);
	if (rights & ~mem->rights)
		return err_set(EACCES,
			       "memory that was imported cannot be granted with more rights");
	if (!len || __builtin_add_overflow(off, len, &end) || end > mem->len)
		return err_set(ERANGE,
			       "%" PRIu64 " bytes at %" PRIu64 " are not within memory of %" PRIu64,
			       len, off, mem->len);
	r = mem_export(mem->region->alloc, rights, &g);
	if (r == 0) {
		g.rights = rights;
		g.off = mem->off + off;
		g.len = len;
		r = opts_return(ret_grant, &g, sizeof(g));
	}
	grant_wipe(&g);
	return r;
}

int pst_mem_import(const struct pst_grant *grant, struct pst_mem **ret_mem)
{
	struct mem_alloc *a;
	struct pst_grant g;
	int r;

	GUARD();
	r = grant_copy(&g, grant);
	if (r == 0)
		r = mem_import(&g, &a);
	if (r == 0)
		r = penstock_mem_new(a, g.off, g.len, ret_mem);
	grant_wipe(&g);
	return r;
}

void pst_grant_done(struct pst_grant *grant)
{
	_cleanup_(errno_restore) int saved = errno;
	NO_CANCEL();

	if (!grant)
		return;
	if (!grant_has_room(grant))
		return;
	/* A grant that no call has filled has no kind, and its fd of 0 belongs to the program. */
	if (grant->kind)
		closep(&grant->fd);
	explicit_bzero(grant, MIN(grant->sz, sizeof(*grant)));
	grant->fd = -1;
}

int pst_grant_send(int sock, const struct pst_grant *grant, uint64_t deadline_ns)
{
	GUARD();
	return grant_send(sock, grant, deadline_ns);
}

int pst_grant_recv(int sock, struct pst_grant *ret_grant, uint64_t deadline_ns)
{
	GUARD();
	return grant_recv(sock, ret_grant, deadline_ns);
}

/* ------------------------------------------------------------------ files */

static void release_file(struct object *obj)
{
	struct pst_file *f = container_of(obj, struct pst_file, obj);

	path_file_end(f);
	file_free(f->file);
	if (f->reader)
		file_free(f->reader);
	free(f);
}

/* Open a reader for a file that is open for writing only: paths prove writes by reading back.
 * Without a reader the file is written through the page cache. */
static void file_open_reader(struct pst_file *f)
{
	if (!(f->file->flags & PST_FILE_READ) && file_again(f->file, &f->reader) < 0)
		log_info("writes are not proven, and so not direct: %s", err_text());
}

int file_new(struct file *file, struct pst_file **ret)
{
	struct pst_file *f = calloc(1, sizeof(*f));
	bool reader;
	int r;

	if (!f) {
		file_free(file);
		return err_set(ENOMEM, "out of memory");
	}
	atomic_init(&f->obj.refs, 1);
	f->obj.release = release_file;
	f->obj.hangs = file->caps & FILE_MAY_HANG;
	f->file = file;
	r = path_file_begin(f, &reader);
	if (r < 0) {
		release_file(&f->obj);
		return r;
	}
	if (reader)
		file_open_reader(f);
	*ret = f;
	return 0;
}

int pst_file_open(const char *path, uint32_t flags, const struct pst_file_opts *opts,
		  struct pst_file **ret_file)
{
	const uint32_t write_flags = PST_FILE_CREATE | PST_FILE_EXCL | PST_FILE_TRUNC;
	struct pst_file_opts o;
	struct file *file;
	int r, shown;

	GUARD();
	r = opts_copy(&o, sizeof(o), opts);
	if (r < 0)
		return r;
	if (!path)
		return err_set(EINVAL, "no path is given");
	shown = scheme_shown_len(path);
	if ((flags &
	     ~(PST_FILE_READ | PST_FILE_WRITE | write_flags | PST_FILE_STABLE | PST_FILE_PLAIN)) ||
	    o.flags || (o.mode & ~07777u))
		return err_set(EINVAL, "unknown flags for %.*s", shown, path);
	if (!(flags & (PST_FILE_READ | PST_FILE_WRITE)))
		return err_set(EINVAL, "%.*s: give PST_FILE_READ, PST_FILE_WRITE or both", shown,
			       path);
	if ((flags & write_flags) && !(flags & PST_FILE_WRITE))
		return err_set(EINVAL, "%.*s: CREATE, EXCL and TRUNC need PST_FILE_WRITE", shown,
			       path);
	if ((flags & PST_FILE_EXCL) && !(flags & PST_FILE_CREATE))
		return err_set(EINVAL, "%.*s: EXCL needs PST_FILE_CREATE", shown, path);
	providers_begin();
	r = file_open(path, flags, o.mode ? o.mode : 0666, &file);
	return r < 0 ? r : file_new(file, ret_file);
}

int pst_file_wrap(int fd, uint32_t flags, const struct pst_file_opts *opts,
		  struct pst_file **ret_file)
{
	struct pst_file_opts o;
	struct file *file;
	int r;

	GUARD();
	r = opts_copy(&o, sizeof(o), opts);
	if (r < 0)
		return r;
	if (flags & ~(PST_FILE_STABLE | PST_FILE_PLAIN) || o.flags || o.mode)
		return err_set(EINVAL,
			       "flags 0x%x, 0x%x and mode 0%o do not go with a wrapped descriptor",
			       flags, o.flags, o.mode);
	r = local_file_wrap(fd, flags, &file);
	return r < 0 ? r : file_new(file, ret_file);
}

struct pst_file *pst_file_close(struct pst_file *file)
{
	_cleanup_(errno_restore) int saved = errno;
	NO_CANCEL();

	if (file && fork_guard() == 0)
		registry_release(&file->obj);
	return NULL;
}

int pst_file_drain(struct pst_file *file, uint64_t deadline_ns)
{
	GUARD();
	if (!file)
		return err_set(EINVAL, "no file is given");
	return drain(&file->obj, NULL, "file", deadline_ns);
}

/* Return the file whose properties apply to @f now.  The caller ends its use with lower_drop(). */
static int file_beneath(struct pst_file *f, uint32_t op, struct pst_file **ret)
{
	int r = lower_look(f, op, ret);

	return r == -EAGAIN ? err_set(EBUSY, "%s: the file beneath is being changed; ask again",
				      f->file->name)
			    : r;
}

int pst_file_info(const struct pst_file *file, struct pst_file_info *ret)
{
	uint32_t op = file->file->flags & PST_FILE_READ ? PST_OP_READ : PST_OP_WRITE;
	struct pst_file_info info = { .sz = sizeof(info), .flags = file->file->flags };
	struct pst_file *beneath;
	const struct file *f;
	int r;

	GUARD();
	r = file_beneath((struct pst_file *)(uintptr_t)file, op, &beneath);
	if (r < 0)
		return r;
	f = beneath->file;
	info.direct = (f->caps & FILE_DIRECT) && !f->direct_bad;
	info.mem_align = f->mem_align;
	info.off_align = f->off_align;
	info.why = f->why;
	info.detail = f->detail;
	memcpy(info.fs, f->name, sizeof(info.fs));
	lower_drop((struct pst_file *)(uintptr_t)file, op, beneath);
	r = file_size(file->file, &info.size);
	return r < 0 ? r : opts_return(ret, &info, sizeof(info));
}

/* ----------------------------------------------------------------- queues */

int pst_queue_new(const struct pst_queue_opts *opts, struct pst_queue **ret_queue)
{
	struct pst_queue_opts o;
	int r;

	GUARD();
	r = opts_copy(&o, sizeof(o), opts);
	if (r < 0)
		return r;
	if (o.depth > QUEUE_DEPTH_MAX)
		return err_set(EINVAL, "depth %u is above %u", o.depth, QUEUE_DEPTH_MAX);
	if (o.backend > PST_BACKEND_THREADS)
		return err_set(EINVAL, "back end %u is unknown", o.backend);
	if (o.flags & ~PST_QUEUE_FD_ONCE)
		return err_set(EINVAL, "flags 0x%x are unknown", o.flags);
	return queue_new(&o, ret_queue);
}

struct pst_queue *pst_queue_free(struct pst_queue *queue)
{
	_cleanup_(errno_restore) int saved = errno;
	NO_CANCEL();

	if (queue && fork_guard() == 0)
		queue_free(queue);
	return NULL;
}

int pst_queue_prep(struct pst_queue *queue, const struct pst_io *io)
{
	int r;

	GUARD_LIGHT();
	queue_lock(queue);
	r = queue_prep(queue, io);
	queue_unlock(queue);
	return r;
}

int pst_queue_try(struct pst_queue *queue, const struct pst_io *ios, unsigned nr,
		  struct pst_done *ret_done)
{
	unsigned moved;

	GUARD_LIGHT();
	queue_lock(queue);
	moved = queue_try(queue, ios, nr, ret_done);
	queue_unlock(queue);
	return (int)moved;
}

int pst_queue_submit(struct pst_queue *queue)
{
	int r;

	GUARD();
	queue_lock(queue);
	r = queue_submit(queue);
	queue_unlock(queue);
	return r;
}

int pst_queue_reap(struct pst_queue *queue, struct pst_done *ret_done, unsigned min, unsigned max,
		   uint64_t deadline_ns)
{
	unsigned n;

	GUARD();
	if (!max || min > max || max > INT32_MAX)
		return err_set(EINVAL, "min %u and max %u make no sense", min, max);
	queue_lock(queue);
	n = queue_reap(queue, ret_done, min, max, deadline_ns);
	queue_unlock(queue);
	return (int)n;
}

int pst_queue_fd(struct pst_queue *queue)
{
	int r;

	GUARD();
	queue_lock(queue);
	r = queue_fd(queue);
	queue_unlock(queue);
	return r;
}

int pst_queue_cancel(struct pst_queue *queue, uint64_t user_data)
{
	int r;

	GUARD();
	queue_lock(queue);
	r = queue_cancel(queue, user_data);
	queue_unlock(queue);
	return r;
}

int pst_stats(struct pst_queue *queue, struct pst_stats *ret)
{
	struct pst_stats st = { .sz = sizeof(st) };

	GUARD();
	registry_stats(queue, &st);
	pool_stats(&st.pool_bytes, &st.pool_limit);
	path_stats(&st);
	return opts_return(ret, &st, sizeof(st));
}

/* ------------------------------------------------------------------ limits */

int pst_limits_set(const struct pst_limits *limits)
{
	struct pst_limits l;
	int r;

	GUARD();
	r = opts_copy(&l, sizeof(l), limits);
	return r < 0 ? r : limits_set(&l);
}

int pst_limits_get(struct pst_limits *ret)
{
	struct pst_limits l = { .sz = sizeof(l) };

	GUARD();
	limits_get(&l);
	return opts_return(ret, &l, sizeof(l));
}

/* -------------------------------------------------------- what is possible */

int pst_path_check(struct pst_file *file, struct pst_mem *mem, uint32_t op, uint32_t path,
		   struct pst_path_info *ret)
{
	struct pst_path_info info = { .sz = sizeof(info), .path = path };
	struct pst_file *f;
	int r;

	GUARD();
	if (op != PST_OP_READ && op != PST_OP_WRITE)
		return err_set(EINVAL, "operation %u is neither READ nor WRITE", op);
	if (!path_get(path))
		return err_set(EINVAL, "path %u is unknown", path);
	r = file_beneath(file, op, &f);
	if (r < 0)
		return r;
	info.why = path_why(f, mem, op, path, &info.detail);
	if (info.why == PST_WHY_NO_GDS && info.detail == EAGAIN)
		info.state = PST_STATE_POSSIBLE; /* a background process is still finding out */
	if (info.why == PST_WHY_NONE)
		info.state = path_is_proven(f, mem, op, path) ? PST_STATE_PROVEN
							      : PST_STATE_POSSIBLE;
	lower_drop(file, op, f);
	return opts_return(ret, &info, sizeof(info));
}
