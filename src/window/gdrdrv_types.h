/* SPDX-License-Identifier: MIT */
/*
 * The interface of gdrdrv, the kernel module of gdrcopy, in versions 2.0 to 2.6.
 *
 * Some of the module's macros were given a pointer type, so the size in the request's number is
 * that of a pointer.  Only the numbers matter, and are asserted below.
 */
#ifndef PST_GDRDRV_TYPES_H
#define PST_GDRDRV_TYPES_H

#include <linux/ioctl.h>
#include <stddef.h>
#include <stdint.h>

#define GDRDRV_PATH "/dev/gdrdrv"
#define GDRDRV_PAGE 65536u /* bytes of a GPU page; a mapping begins with a whole page */

#define GDRDRV_VERSION(major, minor) ((uint32_t)(major) << 16 | (minor))

enum {
	GDRDRV_ATTR_PERSISTENT = 1, /* mappings stay after the memory is freed */
};

enum {
	GDRDRV_TYPE_NONE = 0, /* not mapped */
	GDRDRV_TYPE_WC = 1,
	GDRDRV_TYPE_CACHED = 2,
	GDRDRV_TYPE_DEVICE = 3,
};

struct gdrdrv_pin {
	uint64_t addr; /* input */
	uint64_t size;
	uint64_t p2p_token; /* unused: 0 */
	uint32_t va_space;  /* unused: 0 */
	uint32_t pad;
	uint64_t handle; /* output */
};

struct gdrdrv_pin_v2 {
	uint64_t addr; /* input */
	uint64_t size;
	uint32_t flags;
	uint32_t pad;
	uint64_t handle; /* output */
};

/* Result of GET_INFO_V2.  GET_INFO returns mapped in place of mapping_type; wc_mapping follows
 * both. */
struct gdrdrv_info {
	uint64_t handle; /* input */
	uint64_t va;     /* output, like all members below */
	uint64_t mapped_size;
	uint32_t page_size;
	uint32_t tsc_khz;
	uint64_t tm_cycles;
	union {
		uint32_t mapping_type; /* GDRDRV_TYPE_* */
		uint32_t mapped;
	};
	uint32_t wc_mapping;
};

struct gdrdrv_attr {
	uint32_t attr; /* input: GDRDRV_ATTR_* */
	uint32_t val;  /* output */
};

struct gdrdrv_req_type {
	uint64_t handle;
	uint32_t mapping_type; /* GDRDRV_TYPE_* */
	uint32_t pad;
};

struct gdrdrv_version {
	uint32_t gdrdrv_version;          /* output */
	uint32_t minimum_gdr_api_version; /* output: oldest interface that the module serves */
};

#define GDRDRV_PIN_BUFFER _IOWR(0xda, 1, struct gdrdrv_pin)
#define GDRDRV_GET_INFO _IOWR(0xda, 4, void *)
#define GDRDRV_GET_INFO_V2 _IOWR(0xda, 5, void *)                 /* since 2.4 */
#define GDRDRV_GET_ATTR _IOWR(0xda, 6, void *)                    /* since 2.5 */
#define GDRDRV_PIN_BUFFER_V2 _IOWR(0xda, 7, struct gdrdrv_pin_v2) /* since 2.5 */
#define GDRDRV_REQ_MAPPING_TYPE _IOWR(0xda, 8, void *)            /* since 2.5 */
#define GDRDRV_GET_VERSION _IOWR(0xda, 255, void *)

_Static_assert(GDRDRV_PIN_BUFFER == 0xc028da01, "number of PIN_BUFFER");
_Static_assert(GDRDRV_GET_INFO == 0xc008da04, "number of GET_INFO");
_Static_assert(GDRDRV_GET_INFO_V2 == 0xc008da05, "number of GET_INFO_V2");
_Static_assert(GDRDRV_GET_ATTR == 0xc008da06, "number of GET_ATTR");
_Static_assert(GDRDRV_PIN_BUFFER_V2 == 0xc020da07, "number of PIN_BUFFER_V2");
_Static_assert(GDRDRV_REQ_MAPPING_TYPE == 0xc008da08, "number of REQ_MAPPING_TYPE");
_Static_assert(GDRDRV_GET_VERSION == 0xc008daff, "number of GET_VERSION");

_Static_assert(sizeof(struct gdrdrv_pin) == 40 && offsetof(struct gdrdrv_pin, handle) == 32,
	       "layout of PIN_BUFFER");
_Static_assert(sizeof(struct gdrdrv_pin_v2) == 32 && offsetof(struct gdrdrv_pin_v2, handle) == 24,
	       "layout of PIN_BUFFER_V2");
_Static_assert(sizeof(struct gdrdrv_info) == 48 && offsetof(struct gdrdrv_info, page_size) == 24 &&
		       offsetof(struct gdrdrv_info, tm_cycles) == 32 &&
		       offsetof(struct gdrdrv_info, mapping_type) == 40 &&
		       offsetof(struct gdrdrv_info, wc_mapping) == 44,
	       "layout of GET_INFO");
_Static_assert(sizeof(struct gdrdrv_attr) == 8, "layout of GET_ATTR");
_Static_assert(sizeof(struct gdrdrv_req_type) == 16, "layout of REQ_MAPPING_TYPE");
_Static_assert(sizeof(struct gdrdrv_version) == 8, "layout of GET_VERSION");

#endif
