/* SPDX-License-Identifier: MIT */
/*
 * The part of the NVIDIA driver's own interface that windows use: ioctl()s ("escapes") of its
 * resource manager on /dev/nvidiactl, under Penstock's own names.
 *
 * NVIDIA does not document the interface and may change it.  Numbers and layouts are from the
 * headers of the open kernel modules, and are equal in 550.54.14, 570.124.06, 580.142 and
 * 595.45.04; duplicating (0x34) and importing many (0x3d0c) were compared only with 580.142.
 * Used on hardware with 580.159.04.  Files, in src/:
 *
 *	escape numbers	nvidia/arch/nvalloc/unix/include/nv-ioctl-numbers.h, nv_escape.h
 *	card, version	nvidia/arch/nvalloc/unix/include/nv-ioctl.h
 *	map and its fd	nvidia/arch/nvalloc/unix/include/nv-unix-nvos-params-wrappers.h
 *	other escapes	common/sdk/nvidia/inc/nvos.h: NVOS00, 21, 33, 34, 54, 55
 *	classes		common/sdk/nvidia/inc/class/cl0041.h, cl0080.h, cl2080.h
 *	controls	common/sdk/nvidia/inc/ctrl/ctrl0000/ctrl0000gpu.h, ctrl0000unix.h,
 *			ctrl2080/ctrl2080gpu.h
 *	status codes	common/sdk/nvidia/inc/nvstatuscodes.h
 *	client handles	nvidia/generated/g_resserv_nvoc.h
 *
 * The layout of the IPC handle is known only from hardware with 580.159.04.
 */
#ifndef PST_NVRM_TYPES_H
#define PST_NVRM_TYPES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#define NVRM_IOCTL(nr, type) _IOWR('F', nr, type)
#define NVRM_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
#define NVRM_AT(type, member, at) _Static_assert(offsetof(type, member) == (at), #type "." #member)

/* ----------------------------------------------------------------- escapes */

enum {
	NVRM_FREE = 0x29,
	NVRM_CONTROL = 0x2a,
	NVRM_ALLOC = 0x2b,
	NVRM_DUP = 0x34,
	NVRM_MAP = 0x4e,
	NVRM_UNMAP = 0x4f,
	NVRM_CARDS = 200,
	NVRM_TIE = 201,
	NVRM_VERSION = 210,
};

#define NVRM_CARDS_MAX 32

struct nvrm_card {
	uint8_t valid, pad1[3];
	uint32_t domain;
	uint8_t bus, slot, fn, pad11;
	uint16_t vendor, device;
	uint32_t gpu_id;
	uint16_t irq, pad22;
	uint64_t reg_addr, reg_size;
	uint64_t fb_addr, fb_size; /* the BAR that shows device memory */
	uint32_t minor;            /* N of /dev/nvidiaN */
	uint8_t name[10], pad70[2];
};

NVRM_SIZE(struct nvrm_card, 72);
NVRM_AT(struct nvrm_card, domain, 4);
NVRM_AT(struct nvrm_card, bus, 8);
NVRM_AT(struct nvrm_card, fn, 10);
NVRM_AT(struct nvrm_card, vendor, 12);
NVRM_AT(struct nvrm_card, gpu_id, 16);
NVRM_AT(struct nvrm_card, irq, 20);
NVRM_AT(struct nvrm_card, reg_addr, 24);
NVRM_AT(struct nvrm_card, fb_addr, 40);
NVRM_AT(struct nvrm_card, minor, 56);
NVRM_AT(struct nvrm_card, name, 60);

struct nvrm_cards {
	struct nvrm_card card[NVRM_CARDS_MAX];
};

NVRM_SIZE(struct nvrm_cards, 2304);

/* Associates a descriptor of /dev/nvidiaN with one of /dev/nvidiactl. */
struct nvrm_tie {
	int32_t ctl_fd;
};

NVRM_SIZE(struct nvrm_tie, 4);

#define NVRM_VERSION_QUERY '2' /* since 530: returns the version and does not compare it */
#define NVRM_VERSION_KNOWN 1

struct nvrm_version {
	uint32_t cmd, reply;
	char text[64]; /* such as "580.159.04" */
};

NVRM_SIZE(struct nvrm_version, 72);
NVRM_AT(struct nvrm_version, text, 8);

struct nvrm_alloc {
	uint32_t client, parent, object, class;
	uint64_t params;
	uint32_t params_size, status;
};

NVRM_SIZE(struct nvrm_alloc, 32);
NVRM_AT(struct nvrm_alloc, params, 16);
NVRM_AT(struct nvrm_alloc, status, 28);

struct nvrm_free {
	uint32_t client, parent, object, status;
};

NVRM_SIZE(struct nvrm_free, 16);

struct nvrm_control {
	uint32_t client, object, cmd, flags;
	uint64_t params;
	uint32_t params_size, status;
};

NVRM_SIZE(struct nvrm_control, 32);
NVRM_AT(struct nvrm_control, params, 16);
NVRM_AT(struct nvrm_control, status, 28);

struct nvrm_dup {
	uint32_t client, parent, object;
	uint32_t src_client, src_object;
	uint32_t flags, status;
};

NVRM_SIZE(struct nvrm_dup, 28);
NVRM_AT(struct nvrm_dup, src_client, 12);
NVRM_AT(struct nvrm_dup, status, 24);

/* Prepares a mapping.  The program then calls mmap() on fd, of exactly length bytes at offset 0. */
struct nvrm_map {
	uint32_t client, device, object, pad12;
	uint64_t offset, length;
	uint64_t linear; /* output; needed again to unmap */
	uint32_t status, flags;
	int32_t fd; /* descriptor of /dev/nvidiaN; usable for one mapping only */
	uint32_t pad52;
};

NVRM_SIZE(struct nvrm_map, 56);
NVRM_AT(struct nvrm_map, offset, 16);
NVRM_AT(struct nvrm_map, linear, 32);
NVRM_AT(struct nvrm_map, status, 40);
NVRM_AT(struct nvrm_map, flags, 44);
NVRM_AT(struct nvrm_map, fd, 48);

/* Flags of a mapping: access in bits 1:0; out: caching in bits 25:23. */
#define NVRM_MAP_READ_WRITE 0u
#define NVRM_MAP_READ_ONLY 1u
#define NVRM_MAP_WRITE_ONLY 2u
#define NVRM_MAP_CACHING(flags) ((flags) >> 23 & 7u)

enum {
	NVRM_CACHED = 0,
	NVRM_UNCACHED = 1,
	NVRM_WRITE_COMBINED = 2,
	NVRM_WRITE_BACK = 5,
	NVRM_DEFAULT = 6, /* write combined for a card's framebuffer */
	NVRM_UNCACHED_WEAK = 7,
};

struct nvrm_unmap {
	uint32_t client, device, object, pad12;
	uint64_t linear;
	uint32_t status, flags;
};

NVRM_SIZE(struct nvrm_unmap, 32);
NVRM_AT(struct nvrm_unmap, linear, 16);
NVRM_AT(struct nvrm_unmap, status, 24);

/* ----------------------------------------------------------------- classes */

enum {
	NVRM_CLASS_CLIENT = 0x41,
	NVRM_CLASS_DEVICE = 0x80,
	NVRM_CLASS_SUBDEVICE = 0x2080,
};

struct nvrm_device_params {
	uint32_t instance;
	uint32_t client_share;
	uint32_t target_client, target_device, flags;
	uint64_t va_size, va_start, va_limit;
	uint32_t va_mode;
};

NVRM_SIZE(struct nvrm_device_params, 56);
NVRM_AT(struct nvrm_device_params, client_share, 4);
NVRM_AT(struct nvrm_device_params, va_size, 24);
NVRM_AT(struct nvrm_device_params, va_mode, 48);

struct nvrm_subdevice_params {
	uint32_t instance;
};

NVRM_SIZE(struct nvrm_subdevice_params, 4);

/* ---------------------------------------------------------------- controls */

enum {
	NVRM_ID_INFO = 0x205,       /* control of a client */
	NVRM_EXPORT_INFO = 0x3d08,  /* control of a client */
	NVRM_IMPORT = 0x3d0c,       /* control of a client */
	NVRM_GID_INFO = 0x2080014a, /* control of a subdevice */
};

struct nvrm_id_info {
	uint32_t gpu_id; /* input */
	uint32_t flags, instance, sub_instance;
	uint32_t sli, board, gpu_instance;
	int32_t numa;
};

NVRM_SIZE(struct nvrm_id_info, 32);
NVRM_AT(struct nvrm_id_info, instance, 8);

#define NVRM_NO_PARTITION UINT32_MAX

/* The contents of a descriptor of exported objects.  Before driver 550, the structure had 76 bytes,
 * without partition. */
struct nvrm_export_info {
	int32_t fd; /* input */
	uint32_t instance;
	uint32_t partition; /* part of a divided GPU (MIG), or NVRM_NO_PARTITION */
	uint16_t max_objects;
	uint8_t metadata[64], pad78[2];
};

NVRM_SIZE(struct nvrm_export_info, 80);
NVRM_AT(struct nvrm_export_info, max_objects, 12);
NVRM_AT(struct nvrm_export_info, metadata, 14);

#define NVRM_IMPORT_MAX 128
#define NVRM_TYPE_NONE 0
#define NVRM_TYPE_VIDEO_MEMORY 1

struct nvrm_import {
	int32_t fd;
	uint32_t parent;
	uint32_t objects[NVRM_IMPORT_MAX]; /* input: new handles for the objects */
	uint8_t types[NVRM_IMPORT_MAX];    /* output */
	uint16_t nr, first;
};

NVRM_SIZE(struct nvrm_import, 652);
NVRM_AT(struct nvrm_import, objects, 8);
NVRM_AT(struct nvrm_import, types, 520);
NVRM_AT(struct nvrm_import, nr, 648);

#define NVRM_GID_BINARY 2u

/* Returns the GPU's UUID. */
struct nvrm_gid_info {
	uint32_t index, flags, length;
	uint8_t data[256];
};

NVRM_SIZE(struct nvrm_gid_info, 268);
NVRM_AT(struct nvrm_gid_info, data, 12);

/* ------------------------------------------------------------ status codes */

enum {
	NVRM_OK = 0,
	NVRM_GPU_IS_LOST = 0x0f,
	NVRM_GPU_IN_RESET = 0x10,
	NVRM_NAME_IN_USE = 0x19,
	NVRM_NO_RESOURCES = 0x1a,
	NVRM_NO_PERMISSION = 0x1b,
	NVRM_INVALID_ARGUMENT = 0x1f,
	NVRM_INVALID_BASE = 0x20,
	NVRM_INVALID_CLASS = 0x22,
	NVRM_INVALID_CLIENT = 0x23,
	NVRM_INVALID_LIMIT = 0x2e,
	NVRM_INVALID_OBJECT = 0x31,
	NVRM_INVALID_HANDLE = 0x33,
	NVRM_INVALID_PARENT = 0x36,
	NVRM_INVALID_STRUCT = 0x3a,
	NVRM_INVALID_PARAMETER = 0x3b,
	NVRM_INVALID_STATE = 0x40,
	NVRM_NO_MEMORY = 0x51,
	NVRM_NOT_SUPPORTED = 0x56,
	NVRM_NOT_FOUND = 0x57,
	NVRM_OPERATING_SYSTEM = 0x59,
	NVRM_OUT_OF_RANGE = 0x5b,
	NVRM_STATE_IN_USE = 0x63,
	NVRM_TIMEOUT = 0x65,
};

/* -------------------------------------------------------------- IPC handle */

/*
 * The 64 bytes of cuIpcGetMemHandle() as 32-bit words.  The meaning of words without a name is
 * unknown.
 */
enum {
	NVRM_IPC_PID = 2,
	NVRM_IPC_SIZE = 4,   /* words 4 and 5: bytes of the allocation */
	NVRM_IPC_OFFSET = 7, /* offset of the allocation in the object */
	NVRM_IPC_CLIENT = 12,
	NVRM_IPC_OBJECT = 13,
	NVRM_IPC_WORDS = 16,
};

/* Clients that programs create have handles in this range.  The kernel's own clients are above
 * it. */
#define NVRM_CLIENT_BASE 0xc1d00000u
#define NVRM_CLIENT_MASK 0xfff00000u

#endif
