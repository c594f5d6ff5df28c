/* SPDX-License-Identifier: MIT */
/*
 * Own mode: memory from libhl-thunk.  The device is open only while its memory is in use, because
 * the driver lets no other process open it during that time.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/dl.h"
#include "base/err.h"
#include "base/log.h"
#include "mem/gaudi/gaudi.h"

#define PAGE_DEFAULT MIB(2) /* bytes, if the library does not tell the page size of allocations */

struct hl_api hl;

#define SONAME "libhl-thunk.so"

DL_NOTE(SONAME, "gaudi", "memory of Gaudi accelerators");

static const struct dl_lib library = {
	.what = "libhl-thunk",
	.soname = SONAME,
	.path = GAUDI_DIR SONAME,
	.env = "PST_LIBHLTHUNK",
};

static const struct dl_sym syms[] = {
#define SYM(ret, name, args) DL_SYM(struct hl_api, name, true),
#define OPT(ret, name, args) DL_SYM(struct hl_api, name, false),
#include "mem/gaudi/hlthunk_syms.h"
};

int hl_load(void)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	static bool loaded;
	int r = 0;

	(void)pthread_mutex_lock(&once);
	if (!loaded) {
		r = dl_load(&library, &hl, syms, ARRAY_SIZE(syms));
		loaded = r == 0;
	}
	(void)pthread_mutex_unlock(&once);
	return r;
}

/* ------------------------------------------------------------------ open, close */

static int gaudi_open_failed(const struct gaudi_dev *d, int err)
{
	char status[64];

	switch (err) {
	case EBUSY:
		return err_set(EBUSY,
			       "%s (%s) is in use, and its driver lets one process open it at a "
			       "time: end the process that has %s open (fuser %s), or close the "
			       "dma-bufs of its memory; in a program of SynapseAI, set "
			       "PST_GAUDI_MODE=synapse",
			       d->name, d->pci, d->dev, d->dev);
	case EAGAIN:
		return err_set(EAGAIN,
			       "%s is being reset or still released by its last user; "
			       "try again in some seconds",
			       d->name);
	case EACCES:
		return err_set(EACCES, "%s may not be opened; give this user the device file",
			       d->dev);
	case EPERM:
		gaudi_status(d, status, sizeof(status));
		return err_set(EPERM,
			       "%s does not work: its driver says \"%s\"; see the kernel's log, "
			       "and reset the device",
			       d->name, *status ? status : "not operational");
	default:
		return err_set(err, "%s (%s) cannot be opened: %s; is %s there?", d->name, d->pci,
			       err_name(err), d->dev);
	}
}

/* Check that the open device can be used.  Return 0, or -errno with a sentence. */
static int check_generation(const struct gaudi_dev *d, int fd)
{
	int name = hl.hlthunk_get_device_name_from_fd(fd);

	switch (name) {
	case HL_GOYA:
	case HL_GRECO:
	case HL_GAUDI:
	case HL_GAUDI_HL2000M:
		return gaudi_too_old(d);
	case HL_INVALID:
		return err_set(EOPNOTSUPP,
			       "libhl-thunk does not know %s (%s); install the version of the "
			       "kernel's driver",
			       d->name, *d->type ? d->type : d->pci);
	default:
		return 0;
	}
}

bool gaudi_own_stale(const struct gaudi_dev *d)
{
	struct stat st;

	if (d->fd < 0)
		return false;
	if (fstat(d->fd, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != d->rdev)
		return true;
	/* The program may have opened the same node again: that open file has no owner. */
	return d->owner && fcntl(d->fd, F_GETOWN) != d->owner;
}

/* Open the device, under its lock. */
static int gaudi_open(struct gaudi_dev *d)
{
	struct hl_hw_ip info = { 0 };
	struct stat st = { 0 };
	int fd, r;

	if (gaudi_is_old(d))
		return gaudi_too_old(d);
	errno = 0;
	fd = hl.hlthunk_open(HL_DONT_CARE, d->pci);
	if (fd < 0)
		return gaudi_open_failed(d, fd == -1 && errno ? errno : -fd);
	r = check_generation(d, fd);
	if (r == 0) {
		r = hl.hlthunk_get_hw_ip_info(fd, &info);
		if (r < 0)
			r = err_set(EIO, "%s does not tell about its memory: %s", d->name,
				    err_name(-r));
	}
	if (r < 0) {
		(void)hl.hlthunk_close(fd);
		return r;
	}
	(void)fstat(fd, &st);
	d->fd = fd;
	d->rdev = st.st_rdev;
	/* Set an owner as a mark of this open file: another open of the node has none.  The owner
	 * gets signals only with O_ASYNC. */
	d->owner = fcntl(fd, F_SETOWN, getpid()) == 0 ? getpid() : 0;
	d->page = info.alloc_page_size ? info.alloc_page_size : info.dram_page_size;
	if (!d->page)
		d->page = PAGE_DEFAULT;
	d->total = info.dram_size;
	log_info("%s opened, in pages of %" PRIu64 " bytes", d->name, d->page);
	return 0;
}

/* Drop one user, and close the device after the last; under the device's lock. */
static void gaudi_drop(struct gaudi_dev *d)
{
	if (--d->users)
		return;
	(void)hl.hlthunk_close(d->fd);
	d->fd = -1;
	log_info("%s closed", d->name);
}

/* ---------------------------------------------------------------- memory */

/* Set the error of a failed call, under the lock; err is the library's errno. */
static int own_failed(struct gaudi_dev *d, uint64_t size, int err, const char *what)
{
	if (err == EBUSY || err == ENODEV) {
		gaudi_lost(d);
		return err_set(ENODEV,
			       "%s was reset, and its memory is gone; free the memory of before "
			       "and allocate anew",
			       d->name);
	}
	return err_set(err ? err : ENOMEM, "%s cannot %s %" PRIu64 " bytes: %s", d->name, what,
		       size, err_name(err ? err : ENOMEM));
}

/* Allocate and map a buffer, under the lock.  The device is open. */
static int own_map(struct gaudi_dev *d, struct gaudi_buf *b)
{
	int e;

	errno = 0;
	b->handle = hl.hlthunk_device_memory_alloc(d->fd, b->size, 0, false, false);
	if (!b->handle)
		return own_failed(d, b->size, errno, "allocate");
	errno = 0;
	b->va = hl.hlthunk_device_memory_map(d->fd, b->handle, 0);
	if (b->va) {
		b->map_base = b->va;
		b->life = atomic_load(&d->life);
		return 0;
	}
	e = errno;
	(void)hl.hlthunk_device_memory_free(d->fd, b->handle);
	return own_failed(d, b->size, e, "map");
}

int gaudi_own_alloc(struct gaudi_dev *d, uint64_t len, struct gaudi_buf **ret)
{
	struct gaudi_buf *b;
	int r = hl_load();

	if (r < 0)
		return r;
	b = gaudi_buf_new(GAUDI_OWN, d);
	if (!b)
		return -ENOMEM;
	(void)pthread_mutex_lock(&d->lock);
	(void)gaudi_held_free(d);
	if (gaudi_own_stale(d))
		gaudi_lost(d);
	r = d->fd < 0 ? gaudi_open(d) : 0;
	if (r == 0) {
		uint64_t life = atomic_load(&d->life);

		/* Round up by division: Gaudi 2 has pages of 48 MiB, which is not a power of
		 * two. */
		b->size = (len + d->page - 1) / d->page * d->page;
		d->users++;
		r = own_map(d, b);
		if (r < 0 && life == atomic_load(&d->life))
			gaudi_drop(d);
	}
	(void)pthread_mutex_unlock(&d->lock);
	if (r < 0) {
		free(b);
		return r;
	}
	*ret = b;
	return 0;
}

/* Unmap and free a buffer, under the lock.  Return false if a dma-buf of it is open. */
static bool own_unmap(struct gaudi_buf *b)
{
	struct gaudi_dev *d = b->d;
	int r;

	if (gaudi_own_stale(d))
		gaudi_lost(d);
	if (b->life != atomic_load(&d->life))
		return true; /* the reset has freed the buffer */
	r = hl.hlthunk_memory_unmap(d->fd, b->va);
	if (r == -EINVAL)
		return false;
	if (r == 0)
		r = hl.hlthunk_device_memory_free(d->fd, b->handle);
	if (r == -EBUSY || r == -ENODEV) {
		gaudi_lost(d);
		return true;
	}
	if (r < 0)
		log_warn("%s does not free %" PRIu64 " bytes: %s, ignoring", d->name, b->size,
			 err_name(-r));
	gaudi_drop(d);
	return true;
}

unsigned gaudi_held_free(struct gaudi_dev *d)
{
	struct list *e, *n;
	unsigned nr = 0;

	list_for_each_safe (e, n, &d->held) {
		struct gaudi_buf *b = list_entry(e, struct gaudi_buf, link);

		if (!own_unmap(b)) {
			nr++;
			continue;
		}
		list_del(e);
		free(b);
	}
	return nr;
}

void gaudi_own_free(struct gaudi_buf *b)
{
	struct gaudi_dev *d = b->d;
	unsigned held;

	(void)pthread_mutex_lock(&d->lock);
	if (own_unmap(b)) {
		free(b);
	} else {
		log_info("%s: %" PRIu64 " bytes stay until the dma-bufs of them are closed",
			 d->name, b->size);
		list_add_tail(&d->held, &b->link);
	}
	held = gaudi_held_free(d);
	(void)pthread_mutex_unlock(&d->lock);
	if (held)
		gaudi_held_watch();
}
