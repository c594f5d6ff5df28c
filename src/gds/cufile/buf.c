/* SPDX-License-Identifier: MIT */
/*
 * Registrations of device memory with libcufile.
 *
 * libcufile silently copies through a bounce buffer of its own if the memory is not registered, or
 * if the address is not given as registered base plus offset.  So every transfer uses a registered
 * slice.  Registering costs more than a small transfer and takes BAR space of the GPU, so a slice
 * is registered at its first use, stays registered, and is unregistered when others need the room.
 *
 * A slice consists of whole GPU pages of 64 KiB: nvidia-fs accepts nothing else.
 */
#include <pthread.h>

#include "base/err.h"
#include "base/fork.h"
#include "base/list.h"
#include "base/log.h"
#include "gds/cufile/internal.h"

enum state {
	NONE,
	CHANGING, /* a thread is registering or unregistering the slice */
	READY,
};

struct slice {
	struct list idle; /* on the device's list while READY and without transfers */
	enum state state;
	bool share; /* the current transfer allows others on this slice */
	unsigned moving;
	struct cufile_mem *mem;
};

struct cufile_mem {
	unsigned device;
	uint64_t base;       /* device address of the allocation */
	uint64_t start, end; /* addresses that can be registered */
	bool refused;        /* libcufile has refused a part of the memory */
	unsigned nr;
	struct slice v[];
};

/* Never held while libcufile is called. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t limit; /* bytes per device, set by the user; 0: default */
static struct {
	uint64_t used;
	uint64_t found;   /* bytes registered when registering more failed; 0: unknown */
	struct list idle; /* idle slices, oldest first */
} devices[CUFILE_DEVICES];

static struct list *idle_list(unsigned device)
{
	if (!devices[device].idle.next)
		list_init(&devices[device].idle);
	return &devices[device].idle;
}

/* ---------------------------------------------------------------- geometry */

static uint64_t slice_base(const struct cufile_mem *m, unsigned i)
{
	return m->start + i * CUFILE_SLICE;
}

static uint64_t slice_len(const struct cufile_mem *m, unsigned i)
{
	return MIN(CUFILE_SLICE, m->end - slice_base(m, i));
}

int cufile_mem_new(unsigned device, uint64_t base, uint64_t size, struct cufile_mem **ret)
{
	uint64_t start = align_up(base, CUFILE_GRAIN);
	uint64_t end = align_down(base + size, CUFILE_GRAIN);
	struct cufile_mem *m;
	unsigned nr;

	if (device >= CUFILE_DEVICES)
		return err_set(EINVAL, "device %u is beyond what cuFile is used with", device);
	if (end < start)
		end = start;
	nr = (unsigned)((end - start + CUFILE_SLICE - 1) / CUFILE_SLICE);
	m = calloc(1, sizeof(*m) + nr * sizeof(m->v[0]));
	if (!m)
		return err_set(ENOMEM, "out of memory");
	m->device = device;
	m->base = base;
	m->start = start;
	m->end = end;
	m->nr = nr;
	for (unsigned i = 0; i < nr; i++) {
		m->v[i].mem = m;
		list_init(&m->v[i].idle);
	}
	*ret = m;
	return 0;
}

uint64_t cufile_mem_room(const struct cufile_mem *m, uint64_t off)
{
	uint64_t at = m->base + off;
	unsigned i;

	if (at < m->start || at >= m->end || at & (CUFILE_ALIGN - 1))
		return 0;
	i = (unsigned)((at - m->start) / CUFILE_SLICE);
	return slice_base(m, i) + slice_len(m, i) - at;
}

/* ------------------------------------------------------------- registering */

void cufile_mem_limit(uint64_t bytes)
{
	(void)pthread_mutex_lock(&lock);
	limit = bytes;
	(void)pthread_mutex_unlock(&lock);
}

bool cufile_mem_refused(const struct cufile_mem *m)
{
	bool refused;

	(void)pthread_mutex_lock(&lock);
	refused = m->refused;
	(void)pthread_mutex_unlock(&lock);
	return refused;
}

uint64_t cufile_mem_registered(unsigned device)
{
	uint64_t used;

	(void)pthread_mutex_lock(&lock);
	used = devices[device].used;
	(void)pthread_mutex_unlock(&lock);
	return used;
}

/* Return the most bytes that may be registered on a device.  The lock is held. */
static uint64_t buf_bound(unsigned device)
{
	uint64_t b = limit ? limit : KIB(cufile_pinnable_kib()) / 2;

	return devices[device].found ? MIN(b, devices[device].found) : b;
}

static void *slice_ptr(const struct slice *s)
{
	return (void *)(uintptr_t)slice_base(s->mem, (unsigned)(s - s->mem->v));
}

/* Register a slice.  The lock is held, and dropped during the call into libcufile; other threads
 * leave a CHANGING slice alone. */
static int slice_register(struct slice *s, uint64_t len)
{
	struct cuf_error e = { 0, 0 };
	int r = cufile_hold();

	s->state = CHANGING;
	devices[s->mem->device].used += len;
	(void)pthread_mutex_unlock(&lock);
	if (r == 0)
		e = cuf.cuFileBufRegister(slice_ptr(s), len, 0);
	if (e.err) {
		r = cufile_err(e, "register %llu bytes of device memory", (unsigned long long)len);
		cufile_drop();
	}
	(void)pthread_mutex_lock(&lock);
	s->state = r < 0 ? NONE : READY;
	if (r < 0)
		devices[s->mem->device].used -= len;
	if (e.err && r == -EOPNOTSUPP)
		s->mem->refused = true;
	return r;
}

/* Unregister a slice, with the lock as in slice_register(). */
static void slice_unregister(struct slice *s)
{
	uint64_t len = slice_len(s->mem, (unsigned)(s - s->mem->v));
	struct cuf_error e;

	s->state = CHANGING;
	list_del(&s->idle);
	(void)pthread_mutex_unlock(&lock);
	e = cuf.cuFileBufDeregister(slice_ptr(s));
	cufile_drop();
	if (e.err) {
		(void)cufile_err(e, "let go of device memory");
		log_warn("%s, ignoring", err_text());
	}
	(void)pthread_mutex_lock(&lock);
	s->state = NONE;
	devices[s->mem->device].used -= len;
	if (!devices[s->mem->device].used)
		devices[s->mem->device].found = 0; /* other programs may have freed room */
}

/* Make room by unregistering the least recently used slice.  Return 1 to check again. */
static int buf_make_room(unsigned device)
{
	struct list *idle = idle_list(device);

	if (list_empty(idle))
		return err_set(ENOBUFS,
			       "the bound of %llu bytes registered with cuFile is reached, and all "
			       "are in use",
			       (unsigned long long)buf_bound(device));
	slice_unregister(list_first(idle, struct slice, idle));
	return 1;
}

/* Bring a slice closer to READY.  Return 0 if it is READY, 1 to call again.  The lock is held. */
static int slice_step(struct slice *s, bool share)
{
	uint64_t len = slice_len(s->mem, (unsigned)(s - s->mem->v));
	unsigned device = s->mem->device;
	int r;

	if (s->state == CHANGING)
		return err_set(EAGAIN, "another thread is registering the memory with cuFile");
	if (s->moving && !(share && s->share))
		return err_set(EAGAIN, "another transfer uses the same 16 MiB of device memory");
	if (s->state == READY)
		return 0;
	if (devices[device].used + len > buf_bound(device))
		return buf_make_room(device);
	r = slice_register(s, len);
	/* The device can pin no more than it does now. */
	if (r == -ENOMEM && devices[device].used) {
		devices[device].found = devices[device].used;
		return 1;
	}
	return r < 0 ? r : 1;
}

int cufile_mem_take(struct cufile_mem *m, uint64_t off, bool share, struct cufile_taken *ret)
{
	unsigned i = (unsigned)((m->base + off - m->start) / CUFILE_SLICE);
	struct slice *s = &m->v[i];
	int r;

	(void)pthread_mutex_lock(&lock);
	do
		r = slice_step(s, share);
	while (r > 0);
	if (r == 0) {
		list_del(&s->idle);
		s->share = share;
		s->moving++;
		ret->slice = i;
		ret->base = slice_base(m, i);
		ret->base_off = m->base + off - ret->base;
	}
	(void)pthread_mutex_unlock(&lock);
	return r;
}

void cufile_mem_untake(struct cufile_mem *m, unsigned slice)
{
	struct slice *s = &m->v[slice];

	(void)pthread_mutex_lock(&lock);
	if (!--s->moving)
		list_add_tail(idle_list(m->device), &s->idle);
	(void)pthread_mutex_unlock(&lock);
}

static bool in_use(const struct cufile_mem *m)
{
	for (unsigned i = 0; i < m->nr; i++)
		if (m->v[i].moving || m->v[i].state == CHANGING)
			return true;
	return false;
}

int cufile_mem_free(struct cufile_mem *m)
{
	int r = fork_guard();

	if (!m || r < 0)
		return r;
	(void)pthread_mutex_lock(&lock);
	if (in_use(m))
		r = err_set(EBUSY, "cuFile still uses the device memory");
	for (unsigned i = 0; r == 0 && i < m->nr; i++)
		if (m->v[i].state == READY)
			slice_unregister(&m->v[i]);
	/* Another thread may have used m while the lock was dropped. */
	if (r == 0 && in_use(m))
		r = err_set(EBUSY, "cuFile is being told to let go of the device memory");
	(void)pthread_mutex_unlock(&lock);
	if (r == 0)
		free(m);
	return r;
}
