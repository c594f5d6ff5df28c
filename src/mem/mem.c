/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>

#include "base/err.h"
#include "base/fault.h"
#include "base/opts.h"
#include "base/uaccess.h"
#include "mem/facts.h"
#include "mem/mapped.h"
#include "mem/mem.h"

#define RIGHTS_ALL (PST_RIGHT_READ | PST_RIGHT_WRITE)
/* Nanoseconds to spin for a small copy, which takes less than a sleep and a wake-up. */
#define SYNC_SPIN_NS 20000u
#define SYNC_RATE 16u      /* bytes per ns that a copy usually moves at least */
#define SYNC_CHUNK MIB(16) /* bytes of one copy, so that other streams of the device get turns */

uint64_t mem_buffer_id(void)
{
	static _Atomic uint64_t last;

	return atomic_fetch_add(&last, 1) + 1;
}

static int cannot(const struct mem_ops *ops, const char *what)
{
	return err_set(EOPNOTSUPP, "%s memory cannot be %s%s%s", ops->name, what,
		       ops->reach ? "; " : "", ops->reach ? ops->reach : "");
}

/* Return an error if a fault is armed at the site.  For sites without short results: any fault is
 * an error. */
static int injected(enum fault_site site, const char *what)
{
	int e = fault_hit(site);

	return likely(!e) ? 0 : err_set(e, "%s failed on demand: %s", what, err_name(e));
}

int mem_copy_fault(void)
{
	int e = fault_hit(FAULT_MEM_COPY);

	return likely(e != FAULT_WRONG) ? e : EOPNOTSUPP;
}

int mem_alloc(const struct mem_ops *ops, unsigned device, uint64_t len, uint32_t flags,
	      struct mem_alloc **ret)
{
	int r;

	if (!ops->alloc)
		return cannot(ops, "allocated");
	if (!len)
		return err_set(EINVAL, "an allocation needs at least one byte");
	if (flags & ~(PST_MEM_SHARED | MEM_DMABUF_FLAGS))
		return err_set(EINVAL,
			       "unknown flags %#" PRIx32 " for an allocation; PST_MEM_SHARED, "
			       "PST_MEM_DMABUF and PST_MEM_NO_DMABUF are there",
			       flags);
	if (device >= ops->devices())
		return err_set(ENODEV, "there is no device %s:%u", ops->name, device);
	if (len > INT64_MAX - GIB(1)) /* leave room for rounding and guard space */
		return err_set(ENOMEM, "no address space for %" PRIu64 " bytes", len);
	r = injected(FAULT_MEM_ALLOC, "the allocation");
	if (r < 0)
		return r;
	r = ops->alloc(device, len, flags & ~MEM_DMABUF_FLAGS, ret);
	if (r == 0)
		mem_used_add(*ret);
	return r < 0 ? r : mem_dmabuf_want(flags, ret);
}

int mem_wrap(uint64_t addr, uint64_t len, uint32_t kind, uint32_t flags, struct mem_alloc **ret)
{
	const struct mem_ops *owner;
	int r;

	if (!addr || !len)
		return err_set(EINVAL,
			       "memory to wrap needs an address and a length that are not 0");
	if (len > INT64_MAX || addr + len < addr)
		return err_set(EINVAL,
			       "%" PRIu64 " bytes at %#" PRIx64 " reach past the end of the "
			       "address space",
			       len, addr);
	if (flags & ~(PST_MEM_PINNED | PST_MEM_LATER | MEM_DMABUF_FLAGS))
		return err_set(EINVAL, "unknown flags %#" PRIx32 " for a wrap", flags);
	if (kind && !mem_provider(kind))
		return -ENODEV;

	owner = kind && mem_kind(kind)->caps & MEM_CAP_NAMED ? mem_kind(kind)
							     : mem_owner(addr, len);
	if (!owner)
		return err_set(EFAULT, "no device knows an allocation at %#" PRIx64, addr);
	if (kind && owner->kind != kind)
		return err_set(EFAULT,
			       "%#" PRIx64 " is %s memory and not %s: freed, or never allocated "
			       "there",
			       addr, owner->name, mem_kind_name(kind));
	if (!owner->wrap)
		return cannot(owner, "wrapped");
	/* The host provider claims every address, even of freed device memory, so check the
	 * mapping. */
	if (owner->kind == PST_KIND_HOST && !(flags & PST_MEM_LATER)) {
		r = mapped_check(&(struct mapped){ addr, len }, 1);
		if (r < 0)
			return r;
	}
	r = owner->wrap(addr, len, flags & ~(PST_MEM_LATER | MEM_DMABUF_FLAGS), ret);
	if (r == 0)
		mem_used_add(*ret);
	return r < 0 ? r : mem_dmabuf_want(flags, ret);
}

int mem_import(const struct pst_grant *grant, struct mem_alloc **ret)
{
	const struct mem_ops *ops;
	struct pst_grant g;
	int r = grant_copy(&g, grant);

	if (r < 0)
		return r;
	ops = mem_provider(g.kind);
	if (!ops)
		r = -ENODEV;
	else
		r = ops->import ? ops->import(&g, ret) : cannot(ops, "imported");
	if (r == 0)
		mem_used_add(*ret);
	grant_wipe(&g);
	return r;
}

int mem_export(const struct mem_alloc *a, uint32_t rights, struct pst_grant *ret)
{
	struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
	struct pst_device dev;
	int r;

	if (!rights || rights & ~RIGHTS_ALL)
		return err_set(EINVAL,
			       "rights %#" PRIx32 " are none or unknown; PST_RIGHT_READ and "
			       "PST_RIGHT_WRITE are there",
			       rights);
	if (rights & ~a->rights)
		return err_set(EACCES, "memory that was imported without a right cannot grant it");
	if (!a->ops->export)
		return cannot(a->ops, "exported");

	mem_device_info(a->ops, a->device, &dev);
	g.kind = a->ops->kind;
	g.rights = rights;
	memcpy(g.uuid, dev.uuid, sizeof(g.uuid));
	g.size = a->size;
	g.len = a->size;
	r = a->ops->export(a, rights, &g);
	if (r == 0)
		*ret = g;
	explicit_bzero(&g, sizeof(g));
	return r;
}

int mem_export_part(const struct mem_alloc *a, uint64_t off, struct mem_part *ret)
{
	struct mem_part p = { .fd = -1 };
	int r;

	if (!a->ops->export_part)
		return cannot(a->ops, "mapped by its handle");
	if (off >= a->size)
		return err_set(ERANGE, "offset %" PRIu64 " is past the end of memory of %" PRIu64,
			       off, a->size);
	r = a->ops->export_part(a, off, &p);
	if (r == 0)
		*ret = p;
	explicit_bzero(&p, sizeof(p));
	return r;
}

int mem_alloc_like(const struct mem_alloc *a, uint64_t len, struct mem_alloc **ret)
{
	int r;

	if (!a->ops->alloc_like)
		return mem_alloc(a->ops, a->device, len, 0, ret);
	r = injected(FAULT_MEM_ALLOC, "allocating scratch memory");
	return r < 0 ? r : a->ops->alloc_like(a, len, ret);
}

uint32_t mem_alloc_class(const struct mem_alloc *a)
{
	return a->ops->alloc_class ? a->ops->alloc_class(a) : 0;
}

int mem_device_text(const struct mem_ops *ops, unsigned device, char *buf, size_t len)
{
	struct facts f = { .buf = buf, .len = len };

	if (device >= ops->devices())
		return err_set(ENODEV, "there is no device %s:%u", ops->name, device);
	if (ops->device_text)
		ops->device_text(device, &f);
	if (f.used >= len)
		return err_set(ENOSPC,
			       "the text of %s:%u has %zu bytes and its end, there is room for "
			       "%zu; PST_DEVICE_TEXT_MAX is always enough",
			       ops->name, device, f.used, len);
	buf[f.used] = '\0';
	return (int)f.used;
}

int mem_pin(const struct mem_ops *ops, unsigned device, uint64_t life, void *host, uint64_t len,
	    uint64_t *ret_len)
{
	int r = injected(FAULT_MEM_PIN, "pinning memory");

	*ret_len = r < 0 ? 0 : len;
	return r < 0 || !ops->pin ? r : ops->pin(device, life, host, len, ret_len);
}

void mem_late(const struct mem_ops *ops, struct mem_late *l)
{
	if (ops->late)
		ops->late(l);
	else
		l->run(l);
}

void mem_unpin(const struct mem_ops *ops, unsigned device, void *host, uint64_t len)
{
	if (ops->unpin)
		ops->unpin(device, host, len);
}

int mem_pin_file(const struct mem_ops *ops, unsigned device, uint64_t life, void *host,
		 uint64_t len, uint64_t *ret_len)
{
	int r;

	*ret_len = 0;
	if (!ops->pin_file)
		return cannot(ops, "filled out of the page cache");
	if (device >= ops->devices())
		return err_set(ENODEV, "there is no device %s:%u", ops->name, device);
	r = injected(FAULT_MEM_PIN, "pinning a file");
	return r < 0 ? r : ops->pin_file(device, life, host, len, ret_len);
}

void mem_unpin_file(const struct mem_ops *ops, unsigned device, void *host, uint64_t len)
{
	if (ops->unpin_file)
		ops->unpin_file(device, host, len);
}

uint64_t mem_aperture(const struct mem_ops *ops, unsigned device)
{
	return ops->aperture ? ops->aperture(device) : 0;
}

void mem_free(struct mem_alloc *a)
{
	if (a)
		a->ops->free(a);
}

int mem_stream_new(const struct mem_ops *ops, unsigned device, struct mem_stream **ret)
{
	int r;

	if (!ops->stream_new)
		return cannot(ops, "copied by a device");
	if (device >= ops->devices())
		return err_set(ENODEV, "there is no device %s:%u", ops->name, device);
	r = injected(FAULT_MEM_STREAM, "making a stream");
	if (r < 0)
		return r;
	return ops->stream_new(device, ret);
}

void mem_stream_free(struct mem_stream *st)
{
	if (st)
		st->ops->stream_free(st);
}

static int check_range(const struct mem_alloc *a, enum mem_dir dir, uint64_t off, uint64_t len)
{
	if (off > a->size || len > a->size - off)
		return err_set(ERANGE,
			       "%" PRIu64 " bytes at offset %" PRIu64 " reach past the end of "
			       "the memory, which has %" PRIu64,
			       len, off, a->size);
	if (!(a->rights & (dir == MEM_TO_DEVICE ? PST_RIGHT_WRITE : PST_RIGHT_READ)))
		return err_set(EACCES, "the memory was imported without the right to %s it",
			       dir == MEM_TO_DEVICE ? "write" : "read");
	return 0;
}

static int check_other(const struct mem_ops *ops, enum mem_dir dir, const struct mem_copy *c)
{
	if (c->other->ops != ops || !(ops->caps & MEM_CAP_BETWEEN))
		return err_set(EINVAL, "no copies between %s and %s memory", ops->name,
			       c->other->ops->name);
	return check_range(c->other, dir == MEM_TO_DEVICE ? MEM_FROM_DEVICE : MEM_TO_DEVICE,
			   c->other_off, c->len);
}

int mem_copy_check(const struct mem_ops *ops, enum mem_dir dir, const struct mem_copy *v,
		   unsigned nr)
{
	int r;

	for (unsigned i = 0; i < nr; i++) {
		if (v[i].alloc->ops != ops)
			return err_set(EINVAL, "%s memory in a copy of %s", v[i].alloc->ops->name,
				       ops->name);
		r = check_range(v[i].alloc, dir, v[i].off, v[i].len);
		if (r == 0 && v[i].other)
			r = check_other(ops, dir, &v[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

int mem_sgl_write(const struct mem_ops *ops, unsigned device, enum mem_dir dir,
		  const struct mem_copy *v, unsigned nr, void *room, struct mem_sgl *ret)
{
	int r = ops->sgl_write ? mem_copy_check(ops, dir, v, nr) : 0;

	if (r < 0 || !ops->sgl_write)
		return r;
	for (unsigned i = 0; i < nr; i++)
		if (v[i].alloc != v->alloc || v[i].other)
			return 0;
	return nr ? ops->sgl_write(device, dir, v, nr, room, ret) : 0;
}

int mem_sgl_copy(struct mem_stream *st, const struct mem_sgl *v, unsigned nr, uint64_t *ret_ticket)
{
	return st->ops->sgl_copy(st, v, nr, ret_ticket);
}

int mem_stream_check(const struct mem_alloc *a, void *stream, bool wait)
{
	if (!a->ops->order_check)
		return err_set(EOPNOTSUPP,
			       "%s memory has no streams to order with; leave stream NULL",
			       a->ops->name);
	if (!wait)
		return a->ops->order_check(a->device, stream);
	if (!a->ops->feed_check)
		return err_set(EOPNOTSUPP,
			       "a stream cannot wait for a read into %s memory; synchronize with "
			       "the completion instead",
			       a->ops->name);
	return a->ops->feed_check(a, stream);
}

int mem_stream_fd(struct mem_stream *st)
{
	return st->ops->stream_fd ? st->ops->stream_fd(st) : -1;
}

/*
 * Wait for a copy of len bytes.  Poll a stream without a descriptor: without pauses for as long as
 * the copy should take, then at growing intervals.  Sleeping a millisecond takes far longer than
 * copying a MiB.
 */
static int wait_for_ticket(struct mem_stream *st, uint64_t ticket, uint64_t len)
{
	struct pollfd p = { .fd = mem_stream_fd(st), .events = POLLIN };
	struct timespec delay = { .tv_nsec = SYNC_SPIN_NS };
	uint64_t count, until = now_ns() + SYNC_SPIN_NS;
	int r;

	if (p.fd < 0)
		until += len / SYNC_RATE;
	while (!(r = mem_poll(st, ticket))) {
		if (now_ns() < until)
			continue;
		if (p.fd < 0) {
			(void)nanosleep(&delay, NULL);
			delay.tv_nsec = MIN(2 * delay.tv_nsec, (long)NSEC_PER_MSEC);
		} else if (poll(&p, 1, -1) > 0) {
			(void)!read(p.fd, &count, sizeof(count));
		}
	}
	return MIN(r, 0);
}

static int copy_wait(struct mem_stream *st, const struct mem_alloc *a, enum mem_dir dir,
		     uint64_t off, void *host, uint64_t len, bool may_vanish)
{
	uint64_t ticket = 0;
	int r = 0;

	for (uint64_t done = 0; r == 0 && done < len; done += SYNC_CHUNK) {
		struct mem_copy c = { .alloc = a,
				      .off = off + done,
				      .host = (char *)host + done,
				      .len = MIN(len - done, SYNC_CHUNK),
				      .may_vanish = may_vanish };

		r = mem_copy(st, dir, &c, 1, &ticket);
		if (!r)
			r = wait_for_ticket(st, ticket, c.len);
	}
	return r;
}

int mem_copy_wait(struct mem_stream *st, const struct mem_alloc *a, enum mem_dir dir, uint64_t off,
		  void *host, uint64_t len)
{
	return copy_wait(st, a, dir, off, host, len, false);
}

int mem_copy_wait_program(struct mem_stream *st, const struct mem_alloc *a, enum mem_dir dir,
			  uint64_t off, void *host, uint64_t len)
{
	return copy_wait(st, a, dir, off, host, len, true);
}

static void mem_stream_freep(struct mem_stream **st)
{
	mem_stream_free(*st);
}

int mem_copy_sync(const struct mem_alloc *a, enum mem_dir dir, uint64_t off, void *host,
		  uint64_t len)
{
	_cleanup_(mem_stream_freep) struct mem_stream *st = NULL;
	int r;

	r = check_range(a, dir, off, len);
	if (r < 0 || !len)
		return r;
	if (a->host) {
		char *p = (char *)a->host + off;

		/* Source and target may overlap. */
		return dir == MEM_TO_DEVICE ? uaccess_move(p, host, len)
					    : uaccess_move(host, p, len);
	}

	r = mem_stream_new(a->ops, a->device, &st);
	return st ? copy_wait(st, a, dir, off, host, len, true) : r;
}
