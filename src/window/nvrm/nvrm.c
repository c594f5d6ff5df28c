/* SPDX-License-Identifier: MIT */
/*
 * Windows by the NVIDIA driver's own interface, without another kernel module.
 *
 * The program's memory belongs to an object of libcuda's client of the driver.  There are two ways
 * to get an object for the same memory in this client.  Memory of cuMemCreate that can be shared
 * has a descriptor, which contains such an object.  Memory of cuMemAlloc has an IPC handle, which
 * names the object so that others can duplicate it.  The driver then prepares a mapping of a range
 * of the object, which mmap() of the GPU's device file returns.
 *
 * The object keeps the memory alive.  So a window stays valid after its owner has freed the memory,
 * and shows the last bytes, and later stores of the owner's process.  Memory of several chunks
 * becomes one range of addresses: the range is reserved first, and each chunk is mapped into it.
 */
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "window/nvrm/nvrm.h"
#include "window/window.h"

/* One object and its mapping. */
struct nvrm_part {
	uint32_t object;
	uint64_t linear;
	bool mapped; /* the driver has prepared the mapping, and linear is valid */
};

struct nvrm_window {
	struct window w; /* w.map is the reserved range; NULL before the first part */
	struct nvrm_gpu *gpu;
	struct nvrm_part *parts;
	unsigned nr, room;
	uint64_t done; /* bytes of w.map that parts already fill */
};

static void nvrm_close(struct window *base)
{
	struct nvrm_window *w = container_of(base, struct nvrm_window, w);

	/* Unmap from the CPU before the driver ends its mapping: it is unknown what the driver does
	 * to a mapping without an object. */
	if (w->w.map)
		(void)munmap(w->w.map, w->w.map_len);
	for (unsigned i = 0; i < w->nr; i++) {
		if (w->parts[i].mapped)
			nvrm_gpu_unmap(w->gpu, w->parts[i].object, w->parts[i].linear);
		nvrm_gpu_free(w->gpu, w->parts[i].object);
	}
	if (w->gpu)
		nvrm_gpu_put(w->gpu);
	free(w->parts);
	free(w);
}

/* ------------------------------------------------------------------- parts */

/* Get the handle of the part that contains byte at of the allocation.  End it by part_done(). */
static int part_at(const struct window_src *src, uint64_t at, struct mem_part *ret)
{
	*ret = (struct mem_part){ .fd = -1 };
	if (src->alloc)
		return mem_export_part(src->alloc, at, ret);
	/* A grant has one handle for the whole allocation. */
	ret->len = src->grant->size;
	ret->fd = src->grant->fd;
	ret->imported = true;
	memcpy(ret->ipc, src->grant->ipc, sizeof(ret->ipc));
	return 0;
}

static void part_done(const struct window_src *src, struct mem_part *p)
{
	if (src->alloc)
		closep(&p->fd);
	explicit_bzero(p, sizeof(*p));
}

/* Create an object for a part, and return the part's offset in the object. */
static int object_of(struct nvrm_gpu *g, const struct mem_part *p, uint32_t *ret_object,
		     uint64_t *ret_off)
{
	uint32_t pids[NVRM_PIDS_MAX];
	struct nvrm_handle h;
	int r;

	if (p->fd >= 0) {
		*ret_off = p->handle_off;
		return nvrm_gpu_import(g, p->fd, ret_object);
	}
	r = nvrm_handle_parse(p->ipc, p->len, pids, p->imported ? 0 : nvrm_own_pids(pids), &h);
	if (r < 0)
		return r;
	*ret_off = h.off;
	r = nvrm_gpu_dup(g, &h, ret_object);
	explicit_bzero(&h, sizeof(h));
	return r;
}

static struct nvrm_part *part_new(struct nvrm_window *w)
{
	if (w->nr == w->room) {
		unsigned room = w->room ? 2 * w->room : 1;
		struct nvrm_part *parts = reallocarray(w->parts, room, sizeof(*parts));

		if (!parts)
			return NULL;
		w->parts = parts;
		w->room = room;
	}
	w->parts[w->nr] = (struct nvrm_part){ 0 };
	return &w->parts[w->nr];
}

/* Reserve addresses for the whole pages of the range, which begins lead bytes after the start of a
 * page. */
static int reserve(struct nvrm_window *w, uint64_t lead, uint64_t page)
{
	uint64_t len = align_up(lead + w->w.len, page);
	void *p = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return err_set(ENOMEM, "no address space for a window of %" PRIu64 " bytes: %m",
			       w->w.len);
	(void)madvise(p, len, MADV_DONTFORK);
	w->w.map = p;
	w->w.map_len = len;
	w->w.ptr = (char *)p + lead;
	return 0;
}

/* Map the pages start..end of an object, after those of earlier parts. */
static int map_pages(struct nvrm_window *w, struct nvrm_part *part, uint64_t start, uint64_t end)
{
	int prot = (w->w.rights & PST_RIGHT_READ ? PROT_READ : 0) |
		   (w->w.rights & PST_RIGHT_WRITE ? PROT_WRITE : 0);
	struct nvrm_mapping m;
	void *p;
	int e, r;

	r = nvrm_gpu_map(w->gpu, part->object, start, end - start, w->w.rights, &m);
	if (r < 0)
		return r;
	part->linear = m.linear;
	part->mapped = true;
	p = mmap((char *)w->w.map + w->done, end - start, prot, MAP_SHARED | MAP_FIXED, m.fd, 0);
	e = errno;
	/* The mapping keeps the file open, so a window of many parts needs no descriptors. */
	(void)close(m.fd);
	if (p == MAP_FAILED)
		return err_set(
			e, "part %u of the window cannot be mapped: %s%s", w->nr, err_name(e),
			e == ENOMEM ? "; sysctl vm.max_map_count limits the number of parts" : "");
	(void)madvise(p, end - start, MADV_DONTFORK);
	if (w->nr > 1 && m.caching != w->w.caching)
		return err_set(EOPNOTSUPP, "parts of the memory would be cached differently");
	w->w.caching = m.caching;
	w->done += end - start;
	return 0;
}

/*
 * Map the bytes of part p that are in the range, from byte at of the allocation on.  *ret_len is
 * their number.
 */
static int add_part(struct nvrm_window *w, const struct mem_part *p, uint64_t at, uint64_t left,
		    uint64_t *ret_len)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t off, start, end, len = MIN(left, p->len - (at - p->off));
	struct nvrm_part *part = part_new(w);
	int r;

	if (!part)
		return err_set(ENOMEM, "no memory to describe a window");
	r = object_of(w->gpu, p, &part->object, &off);
	if (r < 0)
		return r;
	w->nr++;
	off += at - p->off;
	start = align_down(off, page);
	end = align_up(off + len, page);
	/* Within the range, parts must begin and end at page boundaries. */
	if ((w->nr > 1 && start != off) || (len < left && end != off + len))
		return err_set(EOPNOTSUPP, "the memory has chunks that are no whole pages of the "
					   "CPU");
	r = w->nr > 1 ? 0 : reserve(w, off - start, page);
	if (r == 0)
		r = map_pages(w, part, start, end);
	*ret_len = len;
	return r;
}

/* ----------------------------------------------------------------- opening */

static int find_gpu(const struct window_src *src, struct nvrm_gpu **ret)
{
	struct pst_device dev = { .sz = sizeof(dev) };

	if (!src->alloc)
		return nvrm_gpu_find(src->grant->uuid, ret);
	src->alloc->ops->device_info(src->alloc->device, &dev);
	if (!dev.pci[0])
		return err_set(EOPNOTSUPP, "%s has no PCI address", dev.name);
	return nvrm_gpu_get(dev.pci, dev.uuid, ret);
}

static int fill_window(struct nvrm_window *w, const struct window_src *src)
{
	uint64_t part_len = 0;
	struct mem_part p;
	int r = find_gpu(src, &w->gpu);

	for (uint64_t got = 0; r == 0 && got < src->len; got += part_len) {
		r = part_at(src, src->off + got, &p);
		if (r == 0)
			r = add_part(w, &p, src->off + got, src->len - got, &part_len);
		part_done(src, &p);
	}
	return r;
}

static int nvrm_open(const struct window_src *src, struct window **ret)
{
	struct nvrm_window *w;
	int r;

	if (nvrm_mode() == NVRM_MODE_OFF)
		return err_set(EOPNOTSUPP, "PST_NVRM=off forbids it");
	w = calloc(1, sizeof(*w));
	if (!w)
		return err_set(ENOMEM, "no memory to describe a window");
	w->w.ops = &window_nvrm_ops;
	w->w.len = src->len;
	w->w.rights = src->rights;
	r = fill_window(w, src);
	if (r < 0) {
		nvrm_close(&w->w);
		return r;
	}
	*ret = &w->w;
	return 0;
}

const struct window_ops window_nvrm_ops = {
	.name = "nvrm",
	.kinds = 1u << PST_KIND_CUDA,
	.by_grant = true,
	.open = nvrm_open,
	.close = nvrm_close,
};
