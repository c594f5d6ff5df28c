/* SPDX-License-Identifier: MIT */
/*
 * What registers memory for its own use: an RDMA device's protection domain.
 *
 * Registrations take milliseconds and pin memory, so an allocation keeps them (core/ways/
 * registration.h) until it ends.  This is the table by which that room, which knows no RDMA, makes
 * and ends them.
 */
#ifndef PST_MEM_REGISTRAR_H
#define PST_MEM_REGISTRAR_H

#include "mem/mem.h"

struct mem_registrar;

/* How the device came to the memory. */
enum mem_reg_how {
	MEM_REG_HOST,    /* by the pages of the process */
	MEM_REG_DMABUF,  /* by a dma-buf that the memory's driver exported */
	MEM_REG_PEERMEM, /* by a kernel module of the memory's vendor (nvidia-peermem) */
};

#define MEM_REG_REMOTE_READ (1u << 0)
#define MEM_REG_REMOTE_WRITE (1u << 1)
#define MEM_REG_REMOTE (MEM_REG_REMOTE_READ | MEM_REG_REMOTE_WRITE)
#define MEM_REG_LOCAL_WRITE (1u << 2) /* the device stores into the memory for this process */

/* A registration.  A registrar's own struct begins with this. */
struct mem_reg {
	uint64_t off, len; /* in the allocation: exactly the range asked for */
	uint64_t addr;     /* that work requests and peers use for the byte at off */
	uint32_t lkey, rkey;
	enum mem_reg_how how;
};

struct mem_registrar_ops {
	/* Register exactly these bytes of an allocation.  rights: MEM_REG_*.  0, or -errno with a
	 * sentence.  May take long. */
	int (*reg)(struct mem_registrar *r, const struct mem_alloc *a, uint64_t off, uint64_t len,
		   uint32_t rights, struct mem_reg **ret);
	void (*dereg)(struct mem_registrar *r, struct mem_reg *reg);
};

struct mem_registrar {
	const struct mem_registrar_ops *ops;
	_Atomic unsigned live; /* its registrations that regions keep */
	unsigned ending; /* of these, those that are being ended; the lock of registration.c */
};

#endif
