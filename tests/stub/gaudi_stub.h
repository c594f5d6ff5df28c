/* SPDX-License-Identifier: MIT */
/*
 * Functions of our libhl-thunk.so and libSynapse.so stubs that the real libraries lack.  Tests
 * find them by dlsym(); if dlsym() finds none, the library is the real one.
 *
 * The stubs keep the rules of hl-thunk's published source and of the kernel's
 * drivers/accel/habanalabs: one open context per device, exports of whole pages of one mapping
 * with exact flags, no unmap while a dma-buf is open, no free of mapped memory.  A call that
 * breaks a rule that the real libraries do not check ends the process with a message.
 *
 * Device memory is a memfd at an address that the CPU cannot access.  A dma-buf comes from
 * /dev/udmabuf, or else is a memfd of the same pages.
 *
 * Environment: STUB_GAUDI_DEVICES (1 to STUB_GAUDI_MAX), STUB_GAUDI_NAME (the device name that
 * the library reports, enum hlthunk_device_name), STUB_GAUDI_DIR (a folder whose lock files make
 * devices exclusive among processes), STUB_GAUDI_FAIL (see stub_gaudi_fail()).
 */
#ifndef PST_GAUDI_STUB_H
#define PST_GAUDI_STUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STUB_GAUDI_MAX 2
#define STUB_GAUDI_TOTAL (UINT64_C(1) << 30)  /* bytes of a device */
#define STUB_GAUDI_PAGE (UINT64_C(48) << 20)  /* bytes, allocation unit; as on Gaudi 2 */
#define STUB_GAUDI_LEAD (UINT64_C(1) << 20)   /* offset of SynapseAI's pool in its mapping */
#define STUB_GAUDI_POOL (STUB_GAUDI_PAGE * 2) /* size of the mapping with the pool */

/* PCI address of a device. */
#define STUB_GAUDI_PCI_0 "0000:1d:00.0"
#define STUB_GAUDI_PCI_1 "0000:1e:00.0"

struct stub_gaudi_state {
	/* Live objects of libhl-thunk. */
	unsigned contexts, handles, mappings, exports;
	/* Totals since the start. */
	uint64_t calls, exported, held; /* held: unmaps refused because of an export */
	uint64_t leaked;                /* handles and mappings left when a context closed */
};

struct stub_syn_state {
	/* Live objects of SynapseAI. */
	unsigned acquired, mallocs, host_maps, streams, events;
	/* Totals since the start. */
	uint64_t copies, leaked; /* leaked: objects left when a device was released */
};

void stub_gaudi_state(struct stub_gaudi_state *ret);

/* Make calls fail, see stub_fail_set(); CODE is an errno of libhl-thunk. */
bool stub_gaudi_fail(const char *spec);

/* From now on return an errno for wrong calls instead of ending the process. */
void stub_gaudi_forgive(void);

/* Begin a reset (true), which ends all contexts of a device, or complete it (false). */
void stub_gaudi_reset(int dev, bool begins);

/* Read or write bytes of device memory.  Return false if there is no memory at va. */
bool stub_gaudi_peek(uint64_t va, void *buf, size_t len);
bool stub_gaudi_poke(uint64_t va, const void *buf, size_t len);

/* For libSynapse.so: return the bytes at va, or NULL; and return true if a reset ended the
 * context of fd. */
char *stub_gaudi_bytes(uint64_t va, uint64_t len);
bool stub_gaudi_dead(int fd);
/*
 * Tell that the device begins a copy (@begins) or has ended it.  A reset waits for copies in
 * progress, as hardware stops its engines first.  Return false if a reset ended the context:
 * then do not copy.
 */
bool stub_gaudi_dma(int fd, bool begins);
/* Return the injected code of this call: a synStatus for libSynapse, or 0. */
int stub_gaudi_injected(const char *name);

void stub_syn_state(struct stub_syn_state *ret);
/* Hold up (true) or release (false) the copies of all streams. */
void stub_syn_hold(bool hold);

#endif
