/* SPDX-License-Identifier: MIT */
/* The kinds of memory that this machine has, and their devices by name. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/nearest.h"
#include "mem/mem.h"

/* The order in which owns() is called.  Host is last, because it claims every address. */
static const struct mem_ops *providers[MEM_PROVIDERS_MAX] = {
	&mem_cuda_ops,   &mem_gaudi_ops,  &mem_soft_ops,
	&mem_dmabuf_ops, &mem_p2pmem_ops, &mem_host_ops,
};
static unsigned nr_providers = 6;

enum { UNKNOWN, THERE, MISSING };

/* A vendor's library is loaded on first use only, because that costs memory and time. */
static struct {
	_Atomic int state;
	char why_not[256]; /* sentence of a load() that failed */
} known[MEM_PROVIDERS_MAX];

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;

int mem_provider_add(const struct mem_ops *ops)
{
	for (unsigned i = 0; i < nr_providers; i++)
		if (providers[i]->kind == ops->kind || !strcmp(providers[i]->name, ops->name))
			return -EEXIST;
	if (nr_providers == MEM_PROVIDERS_MAX)
		return -ENOSPC;
	known[nr_providers] = known[nr_providers - 1]; /* host remains the last */
	providers[nr_providers] = providers[nr_providers - 1];
	providers[nr_providers - 1] = ops;
	known[nr_providers - 1].state = UNKNOWN;
	nr_providers++;
	return 0;
}

static _cold_ void load(unsigned i)
{
	int r;

	(void)pthread_mutex_lock(&load_lock);
	if (known[i].state == UNKNOWN) {
		r = providers[i]->load ? providers[i]->load() : 0;
		if (r < 0) {
			(void)snprintf(known[i].why_not, sizeof(known[i].why_not), "%s",
				       err_text());
			log_debug("no %s memory: %s", providers[i]->name, known[i].why_not);
		}
		known[i].state = r < 0 ? MISSING : THERE;
	}
	(void)pthread_mutex_unlock(&load_lock);
}

/* Return the i-th provider, or NULL if its load() failed.  Load it on first use. */
static const struct mem_ops *provider_at(unsigned i)
{
	int state = known[i].state;

	if (unlikely(state == UNKNOWN)) {
		load(i);
		state = known[i].state;
	}
	return state == THERE ? providers[i] : NULL;
}

/* Return false if the process cannot have memory of provider i, so that its library is not
 * loaded. */
static bool may_own(unsigned i)
{
	if (known[i].state == UNKNOWN && providers[i]->present && !providers[i]->present())
		return false;
	return provider_at(i);
}

const struct mem_ops *mem_kind(uint32_t kind)
{
	for (unsigned i = 0; i < nr_providers; i++)
		if (providers[i]->kind == kind)
			return providers[i];
	return NULL;
}

const char *mem_kind_name(uint32_t kind)
{
	const struct mem_ops *ops = mem_kind(kind);

	return ops ? ops->name : "unknown";
}

const struct mem_ops *mem_provider(uint32_t kind)
{
	char served[MEM_PROVIDERS_MAX * PST_DEVICE_NAME_MAX] = "";
	size_t used = 0;

	for (unsigned i = 0; i < nr_providers; i++) {
		if (providers[i]->kind != kind)
			continue;
		if (!provider_at(i))
			(void)err_set(ENODEV, "%s", known[i].why_not);
		else if (providers[i]->devices())
			return providers[i];
		return NULL;
	}
	for (unsigned i = 0; i < nr_providers; i++)
		used += (size_t)snprintf(served + used, sizeof(served) - used, "%s%s",
					 i ? ", " : "", providers[i]->name);
	(void)err_set(ENODEV,
		      "this build has no provider for memory of kind %" PRIu32 "; it serves %s",
		      kind, served);
	return NULL;
}

bool mem_has(uint32_t kind)
{
	for (unsigned i = 0; i < nr_providers; i++)
		if (providers[i]->kind == kind)
			return provider_at(i) && providers[i]->devices();
	return false;
}

const struct mem_ops *mem_owner(uint64_t addr, uint64_t len)
{
	for (unsigned i = 0; i < nr_providers; i++)
		if (!(providers[i]->caps & MEM_CAP_NAMED) && may_own(i) &&
		    providers[i]->owns(addr, len))
			return providers[i];
	return NULL;
}

void mem_device_info(const struct mem_ops *ops, unsigned idx, struct pst_device *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->sz = sizeof(*ret);
	ret->index = idx;
	ops->device_info(idx, ret);
}

int mem_list(struct pst_device *ret, unsigned max)
{
	unsigned n = 0;

	for (int host = 1; host >= 0; host--) {
		for (unsigned i = 0; i < nr_providers; i++) {
			const struct mem_ops *ops = provider_at(i);

			if (!ops || !ops->alloc || (ops->kind == PST_KIND_HOST) != host)
				continue;
			for (unsigned d = 0; d < ops->devices(); d++, n++)
				if (n < max)
					mem_device_info(ops, d, &ret[n]);
		}
	}
	return (int)n;
}

/* Find the first device for which match() returns true. */
static int find_by(bool (*match)(const struct pst_device *dev, const void *key), const void *key,
		   const struct mem_ops **ret_ops, unsigned *ret_device)
{
	struct pst_device dev;

	for (unsigned i = 0; i < nr_providers; i++) {
		const struct mem_ops *ops = provider_at(i);

		for (unsigned d = 0; ops && d < ops->devices(); d++) {
			mem_device_info(ops, d, &dev);
			if (!match(&dev, key))
				continue;
			*ret_ops = ops;
			*ret_device = d;
			return 0;
		}
	}
	return -ENODEV;
}

struct pci {
	unsigned domain, bus, dev, fn;
};

/* Parse an address such as "0000:17:00.0", and nothing else.  A domain has four to eight digits. */
static bool parse_pci(const char *s, struct pci *ret)
{
	size_t len = strspn(s, "0123456789abcdefABCDEF");
	struct pci p;
	int n = 0;

	/* Check characters first: sscanf() would accept spaces, signs and "0x" in numbers. */
	if (len < 4 || len > 8 || strlen(s) != len + strlen(":17:00.0") ||
	    s[strspn(s, "0123456789abcdefABCDEF:.")])
		return false;
	if (sscanf(s, "%8x:%2x:%2x.%1x%n", &p.domain, &p.bus, &p.dev, &p.fn, &n) != 4 || s[n])
		return false;
	*ret = p;
	return true;
}

static bool match_pci(const struct pst_device *dev, const void *key)
{
	const struct pci *want = key;
	struct pci p;

	return parse_pci(dev->pci, &p) && p.domain == want->domain && p.bus == want->bus &&
	       p.dev == want->dev && p.fn == want->fn;
}

static bool parse_uuid(const char *s, uint8_t ret[16])
{
	static const char digits[] = "0123456789abcdef";
	unsigned nr = 0;

	memset(ret, 0, 16);
	for (; *s; s++) {
		const char *d = strchr(digits, *s >= 'A' && *s <= 'F' ? *s | 32 : *s);

		if (*s == '-')
			continue;
		if (!d || nr == 32)
			return false;
		ret[nr / 2] = (uint8_t)(ret[nr / 2] << 4 | (d - digits));
		nr++;
	}
	return nr == 32;
}

/* Compare UUIDs.  A host device's UUID is zero, which identifies nothing. */
static bool match_uuid(const struct pst_device *dev, const void *key)
{
	return dev->kind != PST_KIND_HOST && !memcmp(dev->uuid, key, sizeof(dev->uuid));
}

/* Parse "soft" or "soft:3".  Return false for text of another form. */
static bool parse_kind(const char *s, uint32_t *ret_kind, unsigned *ret_idx)
{
	size_t len = strcspn(s, ":");
	const char *idx = s + len + 1;

	for (unsigned i = 0; i < nr_providers; i++) {
		if (strlen(providers[i]->name) != len || strncmp(s, providers[i]->name, len) != 0)
			continue;
		*ret_kind = providers[i]->kind;
		*ret_idx = 0;
		if (!s[len])
			return true;
		if (!*idx || strlen(idx) > 6 || idx[strspn(idx, "0123456789")])
			return false;
		*ret_idx = (unsigned)strtoul(idx, NULL, 10);
		return true;
	}
	return false;
}

int mem_find(const char *name, const struct mem_ops **ret_ops, unsigned *ret_device)
{
	const struct mem_ops *ops;
	char meant[NEAREST_DEVICE_MAX];
	struct pci pci;
	uint8_t uuid[16];
	uint32_t kind;
	unsigned idx;

	if (!name)
		return err_set(EINVAL, "no device was named");
	if (parse_kind(name, &kind, &idx)) {
		const char *more = kind == PST_KIND_SOFT ? " (PST_SOFT_DEVICES makes more)" : "";

		ops = mem_provider(kind);
		if (!ops)
			return -ENODEV;
		if (idx >= ops->devices())
			return err_set(ENODEV, "there is no device %s; %s devices here: %u%s", name,
				       ops->name, ops->devices(), more);
		*ret_ops = ops;
		*ret_device = idx;
		return 0;
	}
	if (parse_pci(name, &pci)) {
		if (find_by(match_pci, &pci, ret_ops, ret_device) < 0)
			return err_set(ENODEV,
				       "no device at PCI address %s has memory that this "
				       "build can serve",
				       name);
		return 0;
	}
	if (parse_uuid(name, uuid)) {
		if (find_by(match_uuid, uuid, ret_ops, ret_device) < 0)
			return err_set(ENODEV, "no device here has the UUID %.64s", name);
		return 0;
	}
	if (nearest_device(name, meant) && *meant)
		return err_set(EINVAL, "\"%.64s\" is no device name; did you mean %s?", name,
			       meant);
	return err_set(EINVAL,
		       "\"%.64s\" is no device name; names are like host, cuda:0, soft:0, "
		       "0000:17:00.0 or a UUID of 32 hex digits",
		       name);
}

/* ------------------------------------------------------------ used devices */

#define USED_KINDS (PST_KIND_P2PMEM + 1u)
#define USED_DEVICES 64u /* devices with a higher number are not remembered */

/* The devices of each kind of which this process has or had memory, one bit for each. */
static atomic_uint_fast64_t used[USED_KINDS];

void mem_used_add(const struct mem_alloc *a)
{
	uint64_t bit = a->device < USED_DEVICES ? UINT64_C(1) << a->device : 0;

	if (a->ops->kind < USED_KINDS &&
	    !(atomic_load_explicit(&used[a->ops->kind], memory_order_relaxed) & bit))
		atomic_fetch_or(&used[a->ops->kind], bit);
}

unsigned mem_used_pci(char (*ret)[sizeof(((struct pst_device *)0)->pci)], unsigned max)
{
	unsigned nr = 0;

	for (uint32_t kind = 0; kind < USED_KINDS; kind++) {
		uint64_t bits = atomic_load(&used[kind]);

		for (unsigned i = 0; i < USED_DEVICES && nr < max && bits >> i; i++) {
			const struct mem_ops *ops = mem_kind(kind);
			struct pst_device dev = { .sz = sizeof(dev) };

			/* Kinds that only import memory have no devices. */
			if (!(bits >> i & 1) || i >= ops->devices())
				continue;
			mem_device_info(ops, i, &dev);
			if (dev.pci[0])
				memcpy(ret[nr++], dev.pci, sizeof(dev.pci));
		}
	}
	return nr;
}
