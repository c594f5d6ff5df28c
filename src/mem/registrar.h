/* SPDX-License-Identifier: MIT */
/*
 * The table by which core/ways/registration.c registers memory with an RDMA device's protection
 * domain, without knowing RDMA.
 *
 * Registrations take milliseconds and pin memory, so each allocation keeps its registrations until
 * it ends (core/ways/registration.h).
 */
#ifndef PST_MEM_REGISTRAR_H
#define PST_MEM_REGISTRAR_H

#include "mem/mem.h"

struct mem_registrar;

/* How the device reaches the memory. */
enum mem_reg_how {
	MEM_REG_HOST,    /* by pages that the process has mapped */
	MEM_REG_DMABUF,  /* by a dma-buf from the memory's driver */
	MEM_REG_PEERMEM, /* by a kernel module of the memory's vendor (nvidia-peermem) */
};

#define MEM_REG_REMOTE_READ (1u << 0)
#define MEM_REG_REMOTE_WRITE (1u << 1)
#define MEM_REG_REMOTE (MEM_REG_REMOTE_READ | MEM_REG_REMOTE_WRITE)
#define MEM_REG_LOCAL_WRITE (1u << 2) /* the device stores into the memory for this process */

/* A registration.  First member of a registrar's own struct. */
struct mem_reg {
	uint64_t off, len; /* exactly the requested range of the allocation, bytes */
	uint64_t addr;     /* address of the byte at off for work requests and peers */
	uint32_t lkey, rkey;
	enum mem_reg_how how;
};

struct mem_registrar_ops {
	/* Register exactly these bytes of an allocation.  rights: MEM_REG_*. Return 0, or -errno
	 * with a sentence.  May take long. */
	int (*reg)(struct mem_registrar *r, const struct mem_alloc *a, uint64_t off, uint64_t len,
		   uint32_t rights, struct mem_reg **ret);
	void (*dereg)(struct mem_registrar *r, struct mem_reg *reg);
};

struct mem_registrar {
	const struct mem_registrar_ops *ops;
	_Atomic unsigned live; /* number of the registrar's registrations that allocations keep */
	unsigned ending;       /* part of live that is ending; under the lock of registration.c */
};

#endif
