/* SPDX-License-Identifier: MIT */
/*
 * Calls of tests to the libhl-thunk.so and libSynapse.so that are built here, beyond the vendor's
 * own.  Tests find these functions by dlsym(); where there is none, a library is a real one.
 *
 * The rules are those of hl-thunk's published source and of the kernel's drivers/accel/habanalabs:
 * one open context for each device, exports in whole pages of one mapping with exact flags, no
 * unmap while a dma-buf is open, no free while mapped.  Breaking one that the real libraries do
 * not check ends the process with a message.
 *
 * Memory is a memfd behind an address that the CPU cannot follow.  A dma-buf is one by
 * /dev/udmabuf, or else a memfd of the same pages.
 *
 * Environment: STUB_GAUDI_DEVICES (1 to STUB_GAUDI_MAX), STUB_GAUDI_NAME (what the library calls
 * the devices, enum hlthunk_device_name), STUB_GAUDI_DIR (a folder that makes devices exclusive
 * among the processes that name it), STUB_GAUDI_FAIL (as stub_gaudi_fail()).
 */
#ifndef PST_GAUDI_STUB_H
#define PST_GAUDI_STUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STUB_GAUDI_MAX 2
#define STUB_GAUDI_TOTAL (UINT64_C(1) << 30)  /* bytes of a device */
#define STUB_GAUDI_PAGE (UINT64_C(48) << 20)  /* of allocations, as Gaudi 2 has it */
#define STUB_GAUDI_LEAD (UINT64_C(1) << 20)   /* of SynapseAI's pool in its mapping */
#define STUB_GAUDI_POOL (STUB_GAUDI_PAGE * 2) /* bytes of the mapping with the pool */

/* PCI address of a device. */
#define STUB_GAUDI_PCI_0 "0000:1d:00.0"
#define STUB_GAUDI_PCI_1 "0000:1e:00.0"

struct stub_gaudi_state {
	/* Live objects of libhl-thunk. */
	unsigned contexts, handles, mappings, exports;
	/* Ever. */
	uint64_t calls, exported, held; /* held: unmaps that an export refused */
	uint64_t leaked;                /* handles and mappings at the close of a context */
};

struct stub_syn_state {
	/* Live objects of SynapseAI. */
	unsigned acquired, mallocs, host_maps, streams, events;
	/* Ever. */
	uint64_t copies, leaked; /* leaked: objects when a device was released */
};

void stub_gaudi_state(struct stub_gaudi_state *ret);

/* "NAME:N:CODE": see tests/stub/fail.h; CODE is an errno for libhl-thunk. */
bool stub_gaudi_fail(const char *spec);

/* From now on, wrong calls give an errno. */
void stub_gaudi_forgive(void);

/* With true, a reset begins, which ends all contexts of a device; with false, it is over. */
void stub_gaudi_reset(int dev, bool begins);

/* Bytes of device memory, read or written.  False: there is none. */
bool stub_gaudi_peek(uint64_t va, void *buf, size_t len);
bool stub_gaudi_poke(uint64_t va, const void *buf, size_t len);

/* For libSynapse.so: where the bytes are, or NULL; and whether a reset ended the context. */
char *stub_gaudi_bytes(uint64_t va, uint64_t len);
bool stub_gaudi_dead(int fd);
/*
 * Tell that a device begins to copy (begins) or has copied.  A reset waits for copies that have
 * begun, as hardware stops its engines first.  Return false if a reset ended the context: do not
 * copy then.
 */
bool stub_gaudi_dma(int fd, bool begins);
/* Of a failure on demand: CODE is a synStatus for libSynapse. */
int stub_gaudi_injected(const char *name);

void stub_syn_state(struct stub_syn_state *ret);
/* With true, streams begin no copy until false. */
void stub_syn_hold(bool hold);

#endif
