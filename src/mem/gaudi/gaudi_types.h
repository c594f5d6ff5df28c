/* SPDX-License-Identifier: MIT */
/*
 * Types and numbers of the binary interfaces of libhl-thunk, libSynapse and libscal, as far as
 * Penstock uses them.  The libraries' own headers are not needed.
 */
#ifndef PST_GAUDI_TYPES_H
#define PST_GAUDI_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* --------------------------------------------------------------- libhl-thunk */

/* Values of enum hlthunk_device_name. */
enum {
	HL_GOYA = 0,
	HL_GRECO = 1,
	HL_GAUDI = 2,
	HL_INVALID = 3,   /* the library does not know the device */
	HL_DONT_CARE = 4, /* for hlthunk_open(): the bus id decides */
	HL_GAUDI2 = 5,
	HL_GAUDI_HL2000M = 6,
	HL_GAUDI3 = 7,
};

/* Start of the library's struct, which has 336 bytes and may grow.  The library fills what it
 * knows. */
struct hl_hw_ip {
	uint64_t sram_base;
	uint64_t dram_base;
	uint64_t dram_size; /* bytes */
	uint8_t unused0[200];
	uint64_t dram_page_size; /* bytes */
	uint8_t unused1[32];
	uint64_t alloc_page_size; /* page of hlthunk_device_memory_alloc(), bytes; 0: unknown */
	uint8_t room[752];
};

_Static_assert(offsetof(struct hl_hw_ip, dram_size) == 16, "hlthunk_hw_ip_info.dram_size");
_Static_assert(offsetof(struct hl_hw_ip, dram_page_size) == 224,
	       "hlthunk_hw_ip_info.dram_page_size");
_Static_assert(offsetof(struct hl_hw_ip, alloc_page_size) == 264,
	       "hlthunk_hw_ip_info.device_mem_alloc_default_page_size");
_Static_assert(sizeof(struct hl_hw_ip) == 1024, "room for a longer hlthunk_hw_ip_info");

/* ---------------------------------------------------------------- libSynapse */

typedef uint32_t syn_status;
typedef void *syn_stream;
typedef void *syn_event;

enum {
	SYN_OK = 0,
	SYN_INVALID_ARGUMENT = 1,
	SYN_OUT_OF_HOST_MEMORY = 3,
	SYN_OUT_OF_DEVICE_MEMORY = 4,
	SYN_NO_DEVICE = 8,
	SYN_NO_MEMORY_ON_DEVICE = 14, /* synFailedToAllocateDeviceMemory */
	SYN_DEVICE_RESET = 17,
	SYN_UNSUPPORTED = 18,
	SYN_ALREADY_ACQUIRED = 20, /* a process has one device at a time */
	SYN_BUSY = 22,
	SYN_ALL_TAKEN = 23,
	SYN_FAIL = 26,
	SYN_OUT_OF_RESOURCES = 27,
	SYN_UNINITIALIZED = 28,
	SYN_ALREADY_INITIALIZED = 29,
	SYN_TERMINATED = 31,
	SYN_NOT_MAPPED = 34, /* host memory without synHostMap() */
	SYN_TIMEOUT = 42,
};

/* Values of synDmaDir. */
enum {
	SYN_HOST_TO_DRAM = 0,
	SYN_DRAM_TO_HOST = 1,
	SYN_DRAM_TO_DRAM = 2,
};

/* The members of synDeviceInfoV2. */
struct syn_device_info {
	uint64_t sram_base;
	uint64_t dram_base;
	uint32_t sram_size;
	uint64_t dram_size; /* bytes */
	uint64_t tpc_mask;
	uint8_t dram_enabled;
	uint32_t id;
	uint32_t fd; /* descriptor of the device's primary node, which the library keeps */
	uint32_t type;
	uint8_t index;
	uint64_t hbm_base; /* globalHbmBaseAddress */
	uint8_t room[184]; /* room for the longer struct of a newer library */
};

_Static_assert(offsetof(struct syn_device_info, dram_size) == 24, "synDeviceInfoV2.dramSize");
_Static_assert(offsetof(struct syn_device_info, fd) == 48, "synDeviceInfoV2.fd");
_Static_assert(offsetof(struct syn_device_info, index) == 56, "synDeviceInfoV2.deviceIndex");
_Static_assert(offsetof(struct syn_device_info, hbm_base) == 64,
	       "synDeviceInfoV2.globalHbmBaseAddress");

/* ------------------------------------------------------------------- libscal */

#define SCAL_USER_POOL "global_hbm" /* name of the pool from which synDeviceMalloc() allocates */

/* The members of scal_memory_pool_infoV2. */
struct scal_pool_info {
	void *scal;
	const char *name;
	uint32_t idx;
	uint64_t base; /* device address of the pool */
	void *host;
	uint32_t core_base;
	uint64_t size;     /* bytes */
	uint64_t free;     /* free bytes */
	uint64_t map_base; /* device address of the driver's mapping that contains the pool */
	uint8_t room[56];  /* room for the longer struct of a newer library */
};

_Static_assert(offsetof(struct scal_pool_info, base) == 24,
	       "scal_memory_pool_infoV2.device_base_address");
_Static_assert(offsetof(struct scal_pool_info, size) == 48, "scal_memory_pool_infoV2.totalSize");
_Static_assert(offsetof(struct scal_pool_info, map_base) == 64,
	       "scal_memory_pool_infoV2.device_base_allocated_address");

#endif
