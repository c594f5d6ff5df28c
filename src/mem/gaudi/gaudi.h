/* SPDX-License-Identifier: MIT */
/*
 * Memory of Habana's Gaudi accelerators, shared by the files of this folder:
 *
 *	find.c      the devices, as sysfs shows them; loads no library
 *	hlthunk.c   own mode: the device opened by libhl-thunk for this library alone
 *	synapse.c   attach mode: the device that SynapseAI has opened in this process
 *	pool.c      where SynapseAI has its memory; libscal
 *	stream.c    copies by SynapseAI's streams
 *	share.c     dma-bufs, grants, wraps
 *	held.c      a thread that frees what dma-bufs held
 *	gaudi.c     the tables of the kind
 *
 * The driver lets one context open a device.  So a process either has the device opened here (own
 * mode), or uses it with SynapseAI, which opened it (attach mode), or passes its descriptor in a
 * grant.  PST_GAUDI_MODE says which of the first two; without it, attach mode is used if
 * libSynapse is in the process.
 *
 * libhl-thunk copies nothing, and its driver lets no CPU map the memory.  In own mode, only other
 * devices move bytes to and from the memory, by its dma-bufs: a network card, or another process.
 *
 * Device addresses are plain numbers that may equal addresses of host memory.  Only wraps that name
 * the kind find them (MEM_CAP_NAMED).
 *
 * The driver refuses to unmap memory while a dma-buf of it is open, in any process.  Such memory
 * is put on the device's list "held" when it is freed.  Once the dma-buf is closed, the next call
 * for the device frees it, or a thread that asks the driver again.  The device stays open until
 * then.
 */
#ifndef PST_MEM_GAUDI_H
#define PST_MEM_GAUDI_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "mem/gaudi/gaudi_types.h"
#include "mem/mem.h"

#define GAUDI_DEVICES_MAX 64u
/* Folder in which the vendor's packages install the libraries. */
#define GAUDI_DIR "/usr/lib/habanalabs/"

struct hl_api {
#define SYM(ret, name, args) ret(*name) args;
#define OPT SYM
#include "mem/gaudi/hlthunk_syms.h"
};

struct syn_api {
#define SYM(ret, name, args) ret(*name) args;
#define OPT SYM
#include "mem/gaudi/synapse_syms.h"
};

extern struct hl_api hl;
extern struct syn_api syn;

struct gaudi_dev {
	unsigned idx;
	char name[16];  /* "gaudi:0" */
	char pci[24];   /* such as "0000:19:00.0" */
	char node[256]; /* folder of the node in sysfs */
	char dev[64];   /* path of the device file, for messages */
	char type[32];  /* such as "GAUDI2"; "" if the driver does not tell */
	uint8_t uuid[16];
	_Atomic uint64_t life; /* number of resets that were noticed */

	/* Covers the members below.  Held during calls of libhl-thunk. */
	pthread_mutex_t lock;
	int fd;     /* primary node in own mode; -1: closed */
	dev_t rdev; /* device number of the node */
	/* Owner of the open file (F_GETOWN), or 0.  The library recognises the file by it. */
	pid_t owner;
	unsigned users;   /* buffers of own mode, also held ones */
	struct list held; /* buffers that were freed while one of their dma-bufs was open */
	uint64_t page;    /* bytes; allocations are multiples of this */
	uint64_t total;   /* bytes of memory; 0: not known yet */

	/* Read-locked during calls of SynapseAI that name an object on the device.  After a reset,
	 * the release of the device waits for them. */
	pthread_rwlock_t syn_calls;

	/* syn_lock of synapse.c covers the next four members. */
	unsigned syn_users; /* users of SynapseAI's device: buffers, streams, pinned memory */
	uint32_t syn_id;    /* SynapseAI's number of the device, while syn_users > 0 */
	uint64_t syn_life;  /* @life at the time when syn_users became 1 */
	bool syn_ours;      /* the library itself called synDeviceAcquire() */
};

enum gaudi_how {
	GAUDI_OWN,     /* allocated by libhl-thunk */
	GAUDI_SYNAPSE, /* allocated by SynapseAI, in the library or by the program */
	GAUDI_POOL,    /* allocated by the program, imported with its device's descriptor */
	GAUDI_DMABUF,  /* memory of another process, imported as a dma-buf */
};

/* Device memory to which one or more allocations refer. */
struct gaudi_buf {
	struct list link; /* on the list of buffers with an address, or on the list @held */
	unsigned refs;    /* references; under bufs_lock of gaudi.c */
	enum gaudi_how how;
	struct gaudi_dev *d;
	uint64_t life;
	uint64_t va;       /* device address of the first byte; 0 for GAUDI_DMABUF */
	uint64_t size;     /* bytes */
	uint64_t handle;   /* handle, or SynapseAI's address, by which the memory is freed */
	uint64_t map_base; /* device address of the driver's mapping that contains the buffer */
	uint64_t lead;     /* GAUDI_DMABUF: bytes in the dma-buf before the buffer */
	uint64_t buffer_id;
	int fd;     /* GAUDI_POOL, GAUDI_DMABUF: a private descriptor; else -1 */
	bool owned; /* GAUDI_SYNAPSE: allocated by the library */
};

struct gaudi_alloc {
	struct mem_alloc a; /* must be the first member */
	struct gaudi_buf *buf;
};

static inline struct gaudi_buf *gaudi_buf_of(const struct mem_alloc *a)
{
	return container_of(a, struct gaudi_alloc, a)->buf;
}

/* ------------------------------------------------------------------- find.c */

/* Folder that contains sys/: "", or PST_GAUDI_ROOT for containers with the host's /sys in another
 * place. */
extern const char *gaudi_root;

/* Find the devices.  Return 0, or -ENODEV with a sentence. */
int gaudi_find(void);
unsigned gaudi_nr_devices(void);
struct gaudi_dev *gaudi_device(unsigned idx);
/* Return the device with a PCI address or a UUID, or NULL. */
struct gaudi_dev *gaudi_by_pci(const char *pci);
struct gaudi_dev *gaudi_by_uuid(const uint8_t uuid[16]);
/* Return the device whose primary node is open as fd, or NULL. */
struct gaudi_dev *gaudi_by_fd(int fd);
/* Read the device's state as the driver tells it: "operational", "in reset"; "" if unknown. */
void gaudi_status(const struct gaudi_dev *d, char *buf, size_t len);
/* Return true for Gaudi of the first generation, and Goya: their drivers map no device memory. */
bool gaudi_is_old(const struct gaudi_dev *d);
int gaudi_too_old(const struct gaudi_dev *d);

/* ------------------------------------------------------------------ gaudi.c */

extern const struct mem_ops mem_gaudi_synapse_ops; /* for memory that SynapseAI copies */

enum gaudi_mode { GAUDI_MODE_OWN, GAUDI_MODE_SYNAPSE };
enum gaudi_mode gaudi_mode(void);

/* Note that all memory and streams of the device are gone, because of a reset or of the program's
 * close(2); under the device's lock. */
void gaudi_lost(struct gaudi_dev *d);
/* Return 0 if @life is current, or -ENODEV with a sentence after a reset. */
int gaudi_check_life(const struct gaudi_dev *d, uint64_t life);

/* Create a buffer with one reference.  Return NULL with a sentence on failure. */
struct gaudi_buf *gaudi_buf_new(enum gaudi_how how, struct gaudi_dev *d);
/* Put the buffer on the list that is searched by wraps. */
void gaudi_buf_publish(struct gaudi_buf *b);
/* Return the buffer that has some byte of the range, with one more reference; NULL if there is
 * none. */
struct gaudi_buf *gaudi_buf_at(uint64_t va, uint64_t len);
void gaudi_buf_unref(struct gaudi_buf *b);
static inline void gaudi_buf_unrefp(struct gaudi_buf **b)
{
	if (*b)
		gaudi_buf_unref(*b);
}

/* Create an allocation for a range of a buffer.  Takes over the reference, even on failure. */
int gaudi_alloc_new(struct gaudi_buf *b, uint64_t va, uint64_t size, uint32_t flags,
		    uint32_t rights, bool owned, struct mem_alloc **ret);

/* ---------------------------------------------------------------- hlthunk.c */

/* Load libhl-thunk.  Return 0, or -ENODEV with a sentence. */
int hl_load(void);
int gaudi_own_alloc(struct gaudi_dev *d, uint64_t len, struct gaudi_buf **ret);
/* Return true if the program has closed the descriptor of own mode, whose number may now belong to
 * another file; under the device's lock. */
bool gaudi_own_stale(const struct gaudi_dev *d);
/* Free a buffer without references, or put it on held while its dma-bufs are open. */
void gaudi_own_free(struct gaudi_buf *b);
/* Free buffers on held whose dma-bufs are closed; under the device's lock.  Return how many
 * remain. */
unsigned gaudi_held_free(struct gaudi_dev *d);

/* ------------------------------------------------------------------- held.c */

/* Start freeing the buffers on the devices' held lists in the background.  Call without locks. */
void gaudi_held_watch(void);

/* ---------------------------------------------------------------- synapse.c */

bool syn_present(void);
const char *syn_err_name(syn_status e);
/* Return the -errno of a status, with a sentence.  Call gaudi_lost() if a reset is the cause. */
int gaudi_syn_err(struct gaudi_dev *d, syn_status e, const char *what);

/*
 * Use SynapseAI's device, and acquire it if necessary.  The caller ends the use by gaudi_syn_drop()
 * with the same life.  A reset ends the use earlier: the device's objects are gone then, and no
 * call may name them.
 */
int gaudi_syn_hold(struct gaudi_dev *d, uint64_t *ret_life);
/* Begin calls that name objects of a life.  Return 0, and the caller calls gaudi_syn_leave(); or
 * -ENODEV with a sentence after a reset. */
int gaudi_syn_enter(struct gaudi_dev *d, uint64_t life);
void gaudi_syn_leave(struct gaudi_dev *d);
void gaudi_syn_drop(struct gaudi_dev *d, uint64_t life);

int gaudi_syn_alloc(struct gaudi_dev *d, uint64_t len, struct gaudi_buf **ret);
int gaudi_syn_wrap(uint64_t va, uint64_t len, struct gaudi_buf **ret);
void gaudi_syn_free(struct gaudi_buf *b);
/* Return the descriptor of SynapseAI's device, and the base of the mapping that contains the
 * address. */
int gaudi_syn_where(const struct gaudi_buf *b, uint64_t va, int *ret_fd, uint64_t *ret_map_base);

int gaudi_syn_sync(const struct mem_alloc *a);
int gaudi_syn_pin(unsigned device, uint64_t life, void *host, uint64_t len, uint64_t *ret_len);
void gaudi_syn_unpin(unsigned device, void *host, uint64_t len);
/* Return true if the range is within memory that gaudi_syn_pin() has pinned. */
bool gaudi_syn_pinned(const struct gaudi_dev *d, uint64_t life, const char *host, uint64_t len);

/* ------------------------------------------------------------------- pool.c */

/* Get facts of the memory pool of SynapseAI's device; fd is the device's descriptor.  Return 0, or
 * -errno with a sentence. */
int gaudi_pool_find(int fd, struct scal_pool_info *ret);

/* ----------------------------------------------------------------- stream.c */

int gaudi_stream_new(unsigned device, struct mem_stream **ret);
void gaudi_stream_free(struct mem_stream *st);
int gaudi_copy(struct mem_stream *st, enum mem_dir dir, const struct mem_copy *v, unsigned nr,
	       uint64_t *ret_ticket);
int gaudi_poll(struct mem_stream *st, uint64_t ticket);

/* ------------------------------------------------------------------ share.c */

int gaudi_wrap(uint64_t addr, uint64_t len, uint32_t flags, struct mem_alloc **ret);
int gaudi_import(const struct pst_grant *grant, struct mem_alloc **ret);
int gaudi_export(const struct mem_alloc *a, uint32_t rights, struct pst_grant *ret);
int gaudi_export_dmabuf(const struct mem_alloc *a, uint64_t off, uint64_t len,
			struct mem_dmabuf *ret);

#endif
