/* SPDX-License-Identifier: MIT */
/*
 * The process' client of the NVIDIA driver, and its GPUs.
 *
 * There is one client, created for the first window and ended with the last one.  A GPU is
 * identified by its PCI address or UUID and never by a number, because CUDA, /dev/nvidiaN and the
 * driver's device instances have different numbers.  After the client has asked for a device by its
 * instance number, it asks for the device's UUID and compares: for an unknown instance, the driver
 * returns another device.
 *
 * The driver creates a device object only for a process that has the GPU's device file open, so one
 * descriptor of that file stays open.  Each mapping needs another, new descriptor.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/list.h"
#include "base/log.h"
#include "window/nvrm/nvrm.h"

#define CONTROL "/dev/nvidiactl"
#define OBJECT_BASE 0x70570000u /* handles of objects that this file creates begin here */

struct nvrm_gpu {
	struct list link;
	unsigned refs;
	struct nvrm_card card;
	int fd;
	uint32_t instance, device, subdevice; /* handles; device and subdevice are 0 until they are
					       * created */
	uint8_t uuid[16];
};

static struct {
	pthread_mutex_t lock; /* also held while GPUs are opened and closed */
	struct list gpus;
	int ctl; /* descriptor of /dev/nvidiactl; -1: there is no client */
	uint32_t client;
	struct nvrm_cards cards;
} nv = { .lock = PTHREAD_MUTEX_INITIALIZER, .gpus = LIST_INIT(nv.gpus), .ctl = -1 };

static _Atomic uint32_t last_object;

static uint32_t new_object(void)
{
	return OBJECT_BASE + atomic_fetch_add(&last_object, 1) % 0x10000000u;
}

static int open_file(const char *path, int *ret)
{
	int e;

	*ret = open(path, O_RDWR | O_CLOEXEC);
	if (*ret >= 0)
		return 0;
	e = errno;
	log_debug("nvrm: open %s: %s", path, err_name(e));
	if (e == ENOENT || e == ENXIO || e == ENODEV)
		return err_set(ENODEV,
			       "there is no %s: no NVIDIA driver, or a container that was not "
			       "given the device",
			       path);
	if (e == EACCES || e == EPERM)
		return err_set(EACCES,
			       "%s may not be opened: its mode, or the device rules of the "
			       "container, forbid it",
			       path);
	return err_set(e, "%s cannot be opened: %s", path, err_name(e));
}

/* ------------------------------------------------------------------ client */

static void client_close(void)
{
	if (nv.client)
		nvrm_esc_free(nv.ctl, nv.client, nv.client, nv.client);
	nv.client = 0;
	closep(&nv.ctl);
	nv.ctl = -1;
}

/* Callers of all client_ and gpu_ functions hold the lock. */
static int client_open(void)
{
	char version[64];
	int r;

	if (nv.ctl >= 0)
		return 0;
	r = open_file(CONTROL, &nv.ctl);
	if (r < 0)
		return r;
	r = nvrm_esc_version(nv.ctl, version);
	if (r == 0)
		r = nvrm_driver_known(version, nvrm_mode());
	if (r == 0)
		r = nvrm_esc_cards(nv.ctl, &nv.cards);
	if (r == 0)
		r = nvrm_esc_alloc(nv.ctl, 0, 0, &nv.client, NVRM_CLASS_CLIENT, NULL, 0);
	if (r == 0 && !nv.client)
		r = err_set(EOPNOTSUPP, "the NVIDIA driver made a client without a handle");
	if (r < 0)
		client_close();
	return r;
}

static void client_put(void)
{
	if (list_empty(&nv.gpus))
		client_close();
}

/* ---------------------------------------------------------------- one GPU */

static int open_minor(const struct nvrm_card *card, int *ret)
{
	char path[32];
	int r;

	(void)snprintf(path, sizeof(path), "/dev/nvidia%" PRIu32, card->minor);
	r = open_file(path, ret);
	if (r < 0)
		return r;
	r = nvrm_esc_tie(*ret, nv.ctl);
	if (r < 0) {
		(void)close(*ret);
		*ret = -1;
	}
	return r;
}

static int gpu_objects(struct nvrm_gpu *g)
{
	struct nvrm_id_info id = { .gpu_id = g->card.gpu_id };
	struct nvrm_subdevice_params sub = { 0 };
	struct nvrm_device_params dev = { .client_share = nv.client };
	uint32_t object;
	int r;

	r = nvrm_esc_control(nv.ctl, nv.client, nv.client, NVRM_ID_INFO, &id, sizeof(id));
	if (r < 0)
		return r;
	log_debug("nvrm: GPU id 0x%" PRIx32 " is /dev/nvidia%" PRIu32 ", instance %" PRIu32
		  ", subinstance %" PRIu32,
		  id.gpu_id, g->card.minor, id.instance, id.sub_instance);
	g->instance = dev.instance = id.instance;
	sub.instance = id.sub_instance;

	object = new_object();
	r = nvrm_esc_alloc(nv.ctl, nv.client, nv.client, &object, NVRM_CLASS_DEVICE, &dev,
			   sizeof(dev));
	if (r < 0)
		return r;
	g->device = object;
	object = new_object();
	r = nvrm_esc_alloc(nv.ctl, nv.client, g->device, &object, NVRM_CLASS_SUBDEVICE, &sub,
			   sizeof(sub));
	if (r == 0)
		g->subdevice = object;
	return r;
}

static int gpu_uuid(struct nvrm_gpu *g)
{
	struct nvrm_gid_info gid = { .flags = NVRM_GID_BINARY, .length = sizeof(g->uuid) };
	int r = nvrm_esc_control(nv.ctl, nv.client, g->subdevice, NVRM_GID_INFO, &gid, sizeof(gid));

	if (r < 0)
		return r;
	if (gid.length != sizeof(g->uuid))
		return err_set(EOPNOTSUPP, "the NVIDIA driver gives a UUID of %" PRIu32 " bytes",
			       gid.length);
	memcpy(g->uuid, gid.data, sizeof(g->uuid));
	return 0;
}

static void gpu_close(struct nvrm_gpu *g)
{
	if (g->subdevice)
		nvrm_esc_free(nv.ctl, nv.client, g->device, g->subdevice);
	if (g->device)
		nvrm_esc_free(nv.ctl, nv.client, nv.client, g->device);
	closep(&g->fd);
	free(g);
}

static int gpu_open(const struct nvrm_card *card, struct nvrm_gpu **ret)
{
	struct nvrm_gpu *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return err_set(ENOMEM, "no memory to describe a GPU");
	g->card = *card;
	g->fd = -1;
	r = open_minor(card, &g->fd);
	if (r == 0)
		r = gpu_objects(g);
	if (r == 0)
		r = gpu_uuid(g);
	if (r < 0) {
		gpu_close(g);
		return r;
	}
	*ret = g;
	return 0;
}

/* ------------------------------------------------------------ holding GPUs */

/* Return the open GPU of a card with one more reference; open it if necessary. */
static int gpu_hold(const struct nvrm_card *card, struct nvrm_gpu **ret)
{
	struct nvrm_gpu *g = NULL;
	struct list *e;
	int r;

	list_for_each (e, &nv.gpus) {
		g = list_entry(e, struct nvrm_gpu, link);
		if (g->card.gpu_id != card->gpu_id)
			continue;
		g->refs++;
		*ret = g;
		return 0;
	}
	r = gpu_open(card, &g);
	if (r < 0)
		return r;
	g->refs = 1;
	list_add_tail(&nv.gpus, &g->link);
	*ret = g;
	return 0;
}

static void gpu_drop(struct nvrm_gpu *g)
{
	if (--g->refs)
		return;
	list_del(&g->link);
	gpu_close(g);
}

void nvrm_gpu_put(struct nvrm_gpu *g)
{
	(void)pthread_mutex_lock(&nv.lock);
	gpu_drop(g);
	client_put();
	(void)pthread_mutex_unlock(&nv.lock);
}

static bool has_uuid(const struct nvrm_gpu *g, const uint8_t uuid[16])
{
	return !memcmp(g->uuid, uuid, sizeof(g->uuid));
}

static const struct nvrm_card *card_at(const char *pci)
{
	unsigned domain, bus, slot, fn;

	if (sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &slot, &fn) != 4)
		return NULL;
	for (unsigned i = 0; i < NVRM_CARDS_MAX; i++) {
		const struct nvrm_card *c = &nv.cards.card[i];

		if (c->valid && c->domain == domain && c->bus == bus && c->slot == slot &&
		    c->fn == fn)
			return c;
	}
	return NULL;
}

static int get(const char *pci, const uint8_t uuid[16], struct nvrm_gpu **ret)
{
	const struct nvrm_card *card = card_at(pci);
	struct nvrm_gpu *g;
	int r;

	if (!card)
		return err_set(ENODEV, "the NVIDIA driver lists no GPU at PCI address %s", pci);
	r = gpu_hold(card, &g);
	if (r < 0)
		return r;
	if (!has_uuid(g, uuid)) {
		gpu_drop(g);
		return err_set(EOPNOTSUPP,
			       "the device is a part of the GPU at %s (MIG), which is not served, "
			       "or the driver took another GPU for it",
			       pci);
	}
	*ret = g;
	return 0;
}

int nvrm_gpu_get(const char *pci, const uint8_t uuid[16], struct nvrm_gpu **ret)
{
	int r;

	(void)pthread_mutex_lock(&nv.lock);
	r = client_open();
	if (r == 0)
		r = get(pci, uuid, ret);
	client_put();
	(void)pthread_mutex_unlock(&nv.lock);
	return r;
}

/* ----------------------------------------------------------- GPUs by UUID */

/* Parse a UUID such as "GPU-5dc7af1b-...". */
static bool parse_uuid(const char *s, uint8_t ret[16])
{
	unsigned nr = 0, byte;

	for (s += strspn(s, " \t"), s += strncmp(s, "GPU-", 4) ? 0 : 4; nr < 16; s += 2) {
		s += *s == '-';
		if (sscanf(s, "%2x", &byte) != 1)
			return false;
		ret[nr++] = (uint8_t)byte;
	}
	return true;
}

/* Read the UUID from the driver's files.  Many containers do not have these files, and there is
 * none for a GPU that was never used. */
static bool uuid_in_proc(const struct nvrm_card *c, uint8_t ret[16])
{
	char path[80], line[128];
	bool found = false;
	FILE *f;

	(void)snprintf(path, sizeof(path),
		       "/proc/driver/nvidia/gpus/%04" PRIx32 ":%02x:%02x.%x/information", c->domain,
		       c->bus, c->slot, c->fn);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f))
		if (!strncmp(line, "GPU UUID:", 9))
			found = parse_uuid(line + 9, ret);
	if (f)
		(void)fclose(f);
	return found;
}

/* Find the GPU with a UUID.  Read the driver's files first, because opening a GPU may wake it from
 * sleep. */
static int find_gpu(const uint8_t uuid[16], struct nvrm_gpu **ret)
{
	unsigned closed = 0;

	for (unsigned i = 0; i < NVRM_CARDS_MAX; i++) {
		const struct nvrm_card *c = &nv.cards.card[i];
		uint8_t said[16];
		struct nvrm_gpu *g;

		if (!c->valid || (uuid_in_proc(c, said) && memcmp(said, uuid, sizeof(said)) != 0))
			continue;
		if (gpu_hold(c, &g) < 0) {
			log_debug("nvrm: /dev/nvidia%" PRIu32 ": %s", c->minor, err_text());
			closed++;
			continue;
		}
		if (has_uuid(g, uuid)) {
			*ret = g;
			return 0;
		}
		gpu_drop(g);
	}
	if (closed)
		return err_set(ENODEV,
			       "no GPU that can be opened here has the UUID of the grant; %u could "
			       "not be opened, the last because %s",
			       closed, err_text());
	return err_set(ENODEV, "no GPU here has the UUID of the grant; a part of a divided GPU "
			       "(MIG) is not served");
}

/* Return true if the GPU is divided into parts (MIG); false also if the driver's files do not
 * tell. */
static bool is_divided(const struct nvrm_card *c)
{
	struct dirent *e;
	char path[80];
	bool any = false;
	DIR *d;

	(void)snprintf(path, sizeof(path), "/proc/driver/nvidia/capabilities/gpu%" PRIu32 "/mig",
		       c->minor);
	d = opendir(path);
	while (d && !any && (e = readdir(d)) != NULL)
		any = !strncmp(e->d_name, "gi", 2);
	if (d)
		(void)closedir(d);
	return any;
}

/* Return the machine's only GPU.  Fail if there are several. */
static int find_only(struct nvrm_gpu **ret)
{
	const struct nvrm_card *only = NULL;
	unsigned nr = 0;

	for (unsigned i = 0; i < NVRM_CARDS_MAX; i++) {
		if (!nv.cards.card[i].valid)
			continue;
		only = &nv.cards.card[i];
		nr++;
	}
	if (nr != 1)
		return err_set(EOPNOTSUPP, "the grant does not say which of %u GPUs it is for", nr);
	if (is_divided(only))
		return err_set(EOPNOTSUPP, "the grant does not say which part of the divided GPU "
					   "(MIG) it is for");
	return gpu_hold(only, ret);
}

int nvrm_gpu_find(const uint8_t uuid[16], struct nvrm_gpu **ret)
{
	static const uint8_t none[16];
	int r;

	(void)pthread_mutex_lock(&nv.lock);
	r = client_open();
	if (r == 0)
		r = memcmp(uuid, none, sizeof(none)) ? find_gpu(uuid, ret) : find_only(ret);
	client_put();
	(void)pthread_mutex_unlock(&nv.lock);
	return r;
}

/* ------------------------------------------------------------------ memory */

int nvrm_gpu_dup(struct nvrm_gpu *g, const struct nvrm_handle *h, uint32_t *ret_object)
{
	uint32_t object = new_object();
	int r = nvrm_esc_dup(nv.ctl, nv.client, g->device, object, h);

	if (r == 0)
		*ret_object = object;
	return r;
}

void nvrm_gpu_free(struct nvrm_gpu *g, uint32_t object)
{
	nvrm_esc_free(nv.ctl, nv.client, g->device, object);
}

/* Check that the objects of a descriptor can be imported. */
static int check_export(const struct nvrm_gpu *g, int fd, uint16_t *ret_max)
{
	struct nvrm_export_info info = { .fd = fd };
	int r = nvrm_esc_control(nv.ctl, nv.client, nv.client, NVRM_EXPORT_INFO, &info,
				 sizeof(info));

	if (r < 0)
		return r;
	log_debug("nvrm: a descriptor of up to %u objects, instance %" PRIu32
		  ", partition 0x%" PRIx32,
		  info.max_objects, info.instance, info.partition);
	if (info.partition != NVRM_NO_PARTITION)
		return err_set(EOPNOTSUPP, "the memory is on a part of a divided GPU (MIG), which "
					   "is not served");
	if (info.instance != g->instance)
		return err_set(EINVAL, "the descriptor's memory is on another GPU than is said");
	if (!info.max_objects || info.max_objects > NVRM_IMPORT_MAX)
		return err_set(EOPNOTSUPP, "the descriptor holds up to %u objects; one is served",
			       info.max_objects);
	*ret_max = info.max_objects;
	return 0;
}

/* Import as many objects as the descriptor may contain, to check that there is only one. */
int nvrm_gpu_import(struct nvrm_gpu *g, int fd, uint32_t *ret_object)
{
	struct nvrm_import im = { .fd = fd, .parent = g->device };
	unsigned nr = 0;
	int r = check_export(g, fd, &im.nr);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < im.nr; i++)
		im.objects[i] = new_object();
	r = nvrm_esc_control(nv.ctl, nv.client, nv.client, NVRM_IMPORT, &im, sizeof(im));
	if (r < 0)
		return r;
	for (unsigned i = 0; i < im.nr; i++)
		nr += im.types[i] != NVRM_TYPE_NONE;
	if (nr == 1 && im.types[0] == NVRM_TYPE_VIDEO_MEMORY) {
		*ret_object = im.objects[0];
		return 0;
	}
	for (unsigned i = 0; i < im.nr; i++)
		if (im.types[i] != NVRM_TYPE_NONE)
			nvrm_gpu_free(g, im.objects[i]);
	return err_set(EOPNOTSUPP,
		       "the descriptor holds %u objects, the first of type %u; one of the GPU's "
		       "memory is served",
		       nr, im.types[0]);
}

static uint32_t caching_of(uint32_t flags)
{
	switch (NVRM_MAP_CACHING(flags)) {
	case NVRM_CACHED:
	case NVRM_WRITE_BACK:
		return PST_CACHING_CACHED;
	case NVRM_UNCACHED:
	case NVRM_UNCACHED_WEAK:
		return PST_CACHING_DEVICE;
	default:
		return PST_CACHING_WC;
	}
}

int nvrm_gpu_map(struct nvrm_gpu *g, uint32_t object, uint64_t off, uint64_t len, uint32_t rights,
		 struct nvrm_mapping *ret)
{
	struct nvrm_map m = { .client = nv.client,
			      .device = g->device,
			      .object = object,
			      .offset = off,
			      .length = len,
			      .flags = NVRM_DEFAULT << 23 };
	int r;

	if (!(rights & PST_RIGHT_WRITE))
		m.flags |= NVRM_MAP_READ_ONLY;
	else if (!(rights & PST_RIGHT_READ))
		m.flags |= NVRM_MAP_WRITE_ONLY;
	r = open_minor(&g->card, &m.fd);
	if (r < 0)
		return r;
	r = nvrm_esc_map(nv.ctl, &m);
	if (r < 0) {
		(void)close(m.fd);
		return r;
	}
	log_debug("nvrm: mapping flags 0x%" PRIx32, m.flags);
	*ret = (struct nvrm_mapping){ .fd = m.fd,
				      .linear = m.linear,
				      .caching = caching_of(m.flags) };
	return 0;
}

void nvrm_gpu_unmap(struct nvrm_gpu *g, uint32_t object, uint64_t linear)
{
	nvrm_esc_unmap(nv.ctl, nv.client, g->device, object, linear);
}
