/* SPDX-License-Identifier: MIT */
/* Objects and numbers that several families of calls use. */
#ifndef PENSTOCK_TYPES_H
#define PENSTOCK_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifndef PST_API
#define PST_API __attribute__((visibility("default")))
#endif

struct pst_mem;    /* a range of memory on one device */
struct pst_file;   /* an open file */
struct pst_queue;  /* requests in flight; one owner thread */
struct pst_window; /* a CPU mapping of device memory */

#define PST_DEVICE_NAME_MAX 64 /* bytes of a device's name, its end included */

/* Kinds of memory. */
enum pst_kind {
	PST_KIND_HOST = 1,   /* memory of this process that the CPU may touch */
	PST_KIND_SOFT = 2,   /* the software device: an accelerator without silicon */
	PST_KIND_CUDA = 3,   /* NVIDIA GPUs, through libcuda where it is installed */
	PST_KIND_GAUDI = 4,  /* Habana Gaudi, through libhl-thunk or SynapseAI */
	PST_KIND_DMABUF = 5, /* a dma-buf that another driver exports; pst_mem_import() takes it */
	PST_KIND_P2PMEM = 6, /* pages that a PCI device lends, as an NVMe controller's buffer */
};

/*
 * Paths.  A completion carries a set of them, one bit for each hop that ran: a read
 * into device memory that was staged out of an O_DIRECT read has STAGED | DIRECT.
 */
enum pst_path {
	PST_PATH_DIRECT = 1,    /* file hop: O_DIRECT between the file and host memory */
	PST_PATH_CACHED = 2,    /* file hop: out of the page cache, never waiting for a disk */
	PST_PATH_BUFFERED = 3,  /* file hop: through the page cache, waiting where it must */
	PST_PATH_STAGED = 4,    /* device hop: by asynchronous copies from a pinned pool */
	PST_PATH_WINDOW = 5,    /* device hop: through a CPU mapping of device memory */
	PST_PATH_PAGECACHE = 6, /* device DMA straight from the page cache */
	PST_PATH_GATHER = 7,    /* device hop: staged, scattered by one device kernel */
	PST_PATH_GDS = 8,       /* cuFile, when it is really direct */
	PST_PATH_TCP = 9,       /* file hop: over a socket, of a storage service */
	PST_PATH_P2P = 10,      /* file hop: O_DIRECT between a disk and a PCI device's memory */
	PST_PATH_RDMA = 11,     /* file hop: a network card reads or writes a peer's memory */
	PST_PATH_PEER = 12,     /* file hop: memory of another process, which is mapped here */
	PST_PATH_MAX = 15,      /* largest value a path can ever have */
};

/* The bit of a path in pst_done.paths. */
#define PST_PATH_BIT(path) (1u << (path))

/* Why a path that exists in principle was not the one used; pst_why(3) has each in full. */
enum pst_why {
	PST_WHY_NONE = 0,          /* the path used is the one wanted */
	PST_WHY_NO_DEVICE = 1,     /* the path needs an accelerator that is not here */
	PST_WHY_NO_DIRECT = 2,     /* this file takes no O_DIRECT; detail: errno, ERANGE for an
				    * alignment beyond 4 KiB of memory or 64 KiB of offset, or 0 */
	PST_WHY_UNALIGNED = 3,     /* offset, length or memory; detail: alignment in bytes */
	PST_WHY_NOT_RESIDENT = 4,  /* not (all) in the page cache */
	PST_WHY_MEMLOCK = 5,       /* memory could not be pinned; detail: errno */
	PST_WHY_NO_URING = 6,      /* io_uring is not to be had; detail: errno */
	PST_WHY_NO_PROVIDER = 7,   /* this kind of memory or file does not offer the path; detail:
				    * 0, or the PST_IO_* of the request that the path does not do */
	PST_WHY_NOT_PROVEN = 8,    /* the path gave wrong data or could not be proven */
	PST_WHY_DIRECTION = 10,    /* the path does not serve this operation */
	PST_WHY_NOT_STABLE = 11,   /* the path needs a file opened with PST_FILE_STABLE */
	PST_WHY_DIRECT_ERROR = 12, /* O_DIRECT failed on this file; detail: errno */
	PST_WHY_NO_WINDOW = 13,    /* no window on this memory is to be had; detail: errno */
	PST_WHY_NO_GDS = 14,       /* cuFile was not used; detail: errno, EAGAIN: not yet */
	PST_WHY_MIXED = 15,        /* other writes of the file go through the page cache just now */
	PST_WHY_NO_P2P = 16,       /* the disk does not reach the device's memory; detail: errno */
	PST_WHY_NO_RDMA = 17,      /* a peer's memory was not reached by RDMA; detail: errno */
	PST_WHY_NO_PEER = 18,      /* no grant of a peer's memory, which is reached over a socket */
	PST_WHY_MAX = 31,          /* largest value a reason can ever have */
};

/* Operations. */
enum pst_op {
	PST_OP_READ = 1,  /* file -> memory */
	PST_OP_WRITE = 2, /* memory -> file; writes under way must not overlap in the file */
	PST_OP_SYNC = 3,  /* make earlier writes of this queue to the file durable */
};

#endif
