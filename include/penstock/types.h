/* SPDX-License-Identifier: MIT */
/* Types and numbers that several of the headers use. */
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

#define PST_DEVICE_NAME_MAX 64 /* bytes of a device's name, with the final 0 */

/* Kinds of memory. */
enum pst_kind {
	PST_KIND_HOST = 1,   /* memory of this process that the CPU may touch */
	PST_KIND_SOFT = 2,   /* the software device: an accelerator without silicon */
	PST_KIND_CUDA = 3,   /* NVIDIA GPUs, through libcuda where it is installed */
	PST_KIND_GAUDI = 4,  /* Habana Gaudi, through libhl-thunk or SynapseAI */
	PST_KIND_DMABUF = 5, /* a dma-buf of another driver, for pst_mem_import() */
	PST_KIND_P2PMEM = 6, /* pages lent by a PCI device, such as an NVMe CMB */
};

/*
 * Paths.  A completion carries a set of them, one bit for each hop that ran: a read
 * into device memory that was staged out of an O_DIRECT read has STAGED | DIRECT.
 */
enum pst_path {
	PST_PATH_DIRECT = 1,    /* file hop: O_DIRECT between the file and host memory */
	PST_PATH_CACHED = 2,    /* file hop: out of the page cache, never waiting for a disk */
	PST_PATH_BUFFERED = 3,  /* file hop: through the page cache; may wait for a disk */
	PST_PATH_STAGED = 4,    /* device hop: by asynchronous copies from a pinned pool */
	PST_PATH_WINDOW = 5,    /* device hop: through a CPU mapping of device memory */
	PST_PATH_PAGECACHE = 6, /* device DMA straight from the page cache */
	PST_PATH_GATHER = 7,    /* device hop: staged, scattered by one device kernel */
	PST_PATH_GDS = 8,       /* cuFile, if it moves bytes directly */
	PST_PATH_TCP = 9,       /* file hop: over a socket, from a storage service */
	PST_PATH_P2P = 10,      /* file hop: O_DIRECT between a disk and a PCI device's memory */
	PST_PATH_RDMA = 11,     /* file hop: a network card reads or writes a peer's memory */
	PST_PATH_PEER = 12,     /* file hop: memory of another process, mapped here */
	PST_PATH_MAX = 15,      /* largest value a path can ever have */
};

/* The bit of a path in pst_done.paths. */
#define PST_PATH_BIT(path) (1u << (path))

/* Why a path was not used, although it exists in principle; pst_why(3) explains each. */
enum pst_why {
	PST_WHY_NONE = 0,      /* the wanted path was used */
	PST_WHY_NO_DEVICE = 1, /* this machine lacks the path's accelerator */
	/* No O_DIRECT on this file.  detail: 0 or an errno; ERANGE if O_DIRECT needs an alignment
	 * above 4 KiB in memory or 64 KiB in the file. */
	PST_WHY_NO_DIRECT = 2,
	PST_WHY_UNALIGNED = 3,    /* an offset, length or address is unaligned; detail: bytes of
				   * the needed alignment */
	PST_WHY_NOT_RESIDENT = 4, /* some bytes were not in the page cache */
	PST_WHY_MEMLOCK = 5,      /* memory could not be pinned; detail: errno */
	PST_WHY_NO_URING = 6,     /* io_uring cannot be used; detail: errno */
	/* This kind of memory or file does not offer the path; detail: 0, or the request's PST_IO_*
	 * that the path does not support. */
	PST_WHY_NO_PROVIDER = 7,
	PST_WHY_NOT_PROVEN = 8,    /* the path gave wrong data or could not be proven */
	PST_WHY_DIRECTION = 10,    /* the path does not serve this operation */
	PST_WHY_NOT_STABLE = 11,   /* the path needs a file opened with PST_FILE_STABLE */
	PST_WHY_DIRECT_ERROR = 12, /* O_DIRECT failed on this file; detail: errno */
	PST_WHY_NO_WINDOW = 13,    /* no window on this memory; detail: errno */
	PST_WHY_NO_GDS = 14,       /* cuFile was not used; detail: errno; EAGAIN: it is not ready
				    * yet */
	PST_WHY_MIXED = 15,        /* other writes of the file use the page cache now */
	PST_WHY_NO_P2P = 16,       /* the disk cannot reach the device's memory; detail: errno */
	PST_WHY_NO_RDMA = 17,      /* RDMA did not reach a peer's memory; detail: errno */
	PST_WHY_NO_PEER = 18,      /* the peer gave no grant, so its memory is not mapped here */
	PST_WHY_MAX = 31,          /* largest value a reason can ever have */
};

/* Operations. */
enum pst_op {
	PST_OP_READ = 1,  /* file -> memory */
	PST_OP_WRITE = 2, /* memory -> file; writes in flight must not overlap */
	PST_OP_SYNC = 3,  /* make earlier writes of this queue to the file durable */
};

#endif
