/* SPDX-License-Identifier: MIT */
/* The tables of Gaudi memory, its devices and buffers.  gaudi.h describes the other files. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/sysfs.h"
#include "mem/facts.h"
#include "mem/gaudi/gaudi.h"

/* Covers the list.  Not held during calls that may wait. */
static pthread_mutex_t bufs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list bufs = LIST_INIT(bufs);

/* ------------------------------------------------------------------ mode */

enum gaudi_mode gaudi_mode(void)
{
	const char *env = secure_getenv("PST_GAUDI_MODE");

	if (env && !strcmp(env, "own"))
		return GAUDI_MODE_OWN;
	if (env && !strcmp(env, "synapse"))
		return GAUDI_MODE_SYNAPSE;
	if (env && *env)
		log_warn("PST_GAUDI_MODE is not own or synapse, ignoring");
	return syn_present() ? GAUDI_MODE_SYNAPSE : GAUDI_MODE_OWN;
}

/* ------------------------------------------------------------------ resets */

void gaudi_lost(struct gaudi_dev *d)
{
	bool stale = gaudi_own_stale(d);

	if (stale)
		log_warn("the program closed descriptor %d, which was that of %s: what was in its "
			 "memory is gone",
			 d->fd, d->name);
	else
		log_warn("%s was reset: what was in its memory is gone", d->name);
	atomic_fetch_add(&d->life, 1);
	if (d->fd >= 0 && !stale)
		(void)hl.hlthunk_close(d->fd);
	d->fd = -1;
	d->users = 0;
}

int gaudi_check_life(const struct gaudi_dev *d, uint64_t life)
{
	return likely(atomic_load(&d->life) == life)
		       ? 0
		       : err_set(ENODEV,
				 "%s was reset or closed, and its memory is gone; free the memory "
				 "of before and allocate anew",
				 d->name);
}

static uint64_t gaudi_life(unsigned idx)
{
	return atomic_load(&gaudi_device(idx)->life);
}

static int gaudi_alive(const struct mem_alloc *a)
{
	const struct gaudi_buf *b = gaudi_buf_of(a);

	return b->how == GAUDI_DMABUF ? 0 : gaudi_check_life(b->d, b->life);
}

/* ------------------------------------------------------------------ buffers */

struct gaudi_buf *gaudi_buf_new(enum gaudi_how how, struct gaudi_dev *d)
{
	struct gaudi_buf *b = calloc(1, sizeof(*b));

	if (!b) {
		(void)err_set(ENOMEM, "no memory to describe an allocation");
		return NULL;
	}
	list_init(&b->link);
	b->refs = 1;
	b->how = how;
	b->d = d;
	b->fd = -1;
	b->buffer_id = mem_buffer_id();
	b->life = atomic_load(&d->life);
	return b;
}

void gaudi_buf_publish(struct gaudi_buf *b)
{
	(void)pthread_mutex_lock(&bufs_lock);
	list_add_tail(&bufs, &b->link);
	(void)pthread_mutex_unlock(&bufs_lock);
}

struct gaudi_buf *gaudi_buf_at(uint64_t va, uint64_t len)
{
	struct gaudi_buf *found = NULL;
	struct list *e;

	(void)pthread_mutex_lock(&bufs_lock);
	list_for_each (e, &bufs) {
		struct gaudi_buf *b = list_entry(e, struct gaudi_buf, link);

		/* Skip buffers from before a reset: another buffer may have the same address. */
		if (va < b->va + b->size && b->va < va + len &&
		    b->life == atomic_load(&b->d->life)) {
			found = b;
			b->refs++;
			break;
		}
	}
	(void)pthread_mutex_unlock(&bufs_lock);
	return found;
}

void gaudi_buf_unref(struct gaudi_buf *b)
{
	bool last;

	(void)pthread_mutex_lock(&bufs_lock);
	last = --b->refs == 0;
	if (last)
		list_del(&b->link);
	(void)pthread_mutex_unlock(&bufs_lock);
	if (!last)
		return;
	switch (b->how) {
	case GAUDI_OWN:
		gaudi_own_free(b);
		return;
	case GAUDI_SYNAPSE:
		gaudi_syn_free(b);
		return;
	case GAUDI_POOL:
	case GAUDI_DMABUF:
		closep(&b->fd);
		free(b);
		return;
	}
}

/* ------------------------------------------------------------------ allocations */

int gaudi_alloc_new(struct gaudi_buf *b, uint64_t va, uint64_t size, uint32_t flags,
		    uint32_t rights, bool owned, struct mem_alloc **ret)
{
	_cleanup_(gaudi_buf_unrefp) struct gaudi_buf *ref = b;
	struct gaudi_alloc *g = calloc(1, sizeof(*g));

	if (!g)
		return err_set(ENOMEM, "no memory to describe an allocation");
	g->a = (struct mem_alloc){
		.ops = b->how == GAUDI_SYNAPSE ? &mem_gaudi_synapse_ops : &mem_gaudi_ops,
		.device = b->d->idx,
		.base.va = va,
		.size = size,
		.buffer_id = b->buffer_id,
		.life = b->life,
		.flags = flags,
		.rights = rights,
		.owned = owned,
	};
	g->buf = TAKE_PTR(ref);
	*ret = &g->a;
	return 0;
}

static int gaudi_alloc(unsigned device, uint64_t len, uint32_t flags, struct mem_alloc **ret)
{
	struct gaudi_dev *d = gaudi_device(device);
	struct gaudi_buf *b = NULL;
	int r = gaudi_mode() == GAUDI_MODE_SYNAPSE ? gaudi_syn_alloc(d, len, &b)
						   : gaudi_own_alloc(d, len, &b);

	if (r < 0)
		return r;
	gaudi_buf_publish(b);
	return gaudi_alloc_new(b, b->va, b->size, flags, PST_RIGHT_READ | PST_RIGHT_WRITE, true,
			       ret);
}

static void gaudi_free(struct mem_alloc *a)
{
	struct gaudi_alloc *g = container_of(a, struct gaudi_alloc, a);

	gaudi_buf_unref(g->buf);
	free(g);
}

/* ------------------------------------------------------------------ devices */

static void gaudi_device_info(unsigned idx, struct pst_device *ret)
{
	struct gaudi_dev *d = gaudi_device(idx);

	ret->kind = PST_KIND_GAUDI;
	ret->numa_node = sysfs_numa_node(d->pci);
	(void)pthread_mutex_lock(&d->lock);
	ret->total = d->total;
	(void)pthread_mutex_unlock(&d->lock);
	memcpy(ret->uuid, d->uuid, sizeof(ret->uuid));
	(void)snprintf(ret->name, sizeof(ret->name), "%s", d->name);
	(void)snprintf(ret->pci, sizeof(ret->pci), "%.*s", (int)sizeof(ret->pci) - 1, d->pci);
	(void)snprintf(ret->model, sizeof(ret->model), "Habana %s",
		       *d->type ? d->type : "accelerator");
}

static void gaudi_device_text(unsigned idx, struct facts *f)
{
	struct gaudi_dev *d = gaudi_device(idx);
	bool synapse = gaudi_mode() == GAUDI_MODE_SYNAPSE;
	char status[64];
	unsigned users, held;

	gaudi_status(d, status, sizeof(status));
	(void)pthread_mutex_lock(&d->lock);
	held = gaudi_held_free(d);
	users = d->users;
	(void)pthread_mutex_unlock(&d->lock);
	facts_add(f, "status", "%s", *status ? status : "unknown");
	facts_add(f, "mode", "%s",
		  synapse ? "synapse: opened by SynapseAI, which copies"
			  : "own: opened by libhl-thunk; only dma-bufs move bytes");
	facts_add(f, "allocations", "%u", users);
	facts_add(f, "held by dma-bufs", "%u", held);
	facts_add(f, "resets seen", "%" PRIu64, atomic_load(&d->life));
}

static bool gaudi_owns(uint64_t addr, uint64_t len)
{
	(void)addr;
	(void)len;
	return false; /* a wrap must name the kind (MEM_CAP_NAMED), because addresses are not
		       * unique */
}

#define GAUDI_REACH                                                                       \
	"only other devices reach it, by its dma-buf, as a network card does by RDMA "    \
	"(penstock doctor --rdma); where SynapseAI is installed, PST_GAUDI_MODE=synapse " \
	"has it copy"

#define GAUDI_CAPS (MEM_CAP_EXPORT | MEM_CAP_NAMED | MEM_CAP_NO_MMAP)

/* The table of memory that the library cannot copy; also the table that lists the devices. */
const struct mem_ops mem_gaudi_ops = {
	.name = "gaudi",
	.kind = PST_KIND_GAUDI,
	.caps = GAUDI_CAPS,
	.reach = GAUDI_REACH,
	.load = gaudi_find,
	.devices = gaudi_nr_devices,
	.device_info = gaudi_device_info,
	.device_text = gaudi_device_text,
	.owns = gaudi_owns,
	.alloc = gaudi_alloc,
	.wrap = gaudi_wrap,
	.import = gaudi_import,
	.export = gaudi_export,
	.alive = gaudi_alive,
	.export_dmabuf = gaudi_export_dmabuf,
	.free = gaudi_free,
	.life = gaudi_life,
};

/* The table of memory that SynapseAI copies. */
const struct mem_ops mem_gaudi_synapse_ops = {
	.name = "gaudi",
	.kind = PST_KIND_GAUDI,
	.caps = GAUDI_CAPS | MEM_CAP_COPY,
	.reach = GAUDI_REACH,
	.load = gaudi_find,
	.devices = gaudi_nr_devices,
	.device_info = gaudi_device_info,
	.device_text = gaudi_device_text,
	.owns = gaudi_owns,
	.alloc = gaudi_alloc,
	.wrap = gaudi_wrap,
	.import = gaudi_import,
	.export = gaudi_export,
	.alive = gaudi_alive,
	.sync = gaudi_syn_sync,
	.export_dmabuf = gaudi_export_dmabuf,
	.free = gaudi_free,
	.pin = gaudi_syn_pin,
	.unpin = gaudi_syn_unpin,
	.life = gaudi_life,
	.stream_new = gaudi_stream_new,
	.stream_free = gaudi_stream_free,
	.copy = gaudi_copy,
	.poll = gaudi_poll,
};
