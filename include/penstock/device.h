/* SPDX-License-Identifier: MIT */
/* Devices that have memory; manual page: pst_device(3). */
#ifndef PENSTOCK_DEVICE_H
#define PENSTOCK_DEVICE_H

#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A device that has memory.  Identify it by uuid, because its index may change. */
struct pst_device {
	size_t sz;                       /* sizeof(struct pst_device) */
	uint32_t kind;                   /* enum pst_kind */
	uint32_t index;                  /* number among devices of its kind, from 0 */
	char name[PST_DEVICE_NAME_MAX];  /* name for pst_mem_alloc(): "soft:0", "host" */
	char model[PST_DEVICE_NAME_MAX]; /* name of the product */
	char pci[24];                    /* PCI address such as "0000:17:00.0", or "" */
	uint8_t uuid[16];                /* UUID; all zero for the host */
	int32_t numa_node;               /* NUMA node; -1 if unknown */
	uint32_t reserved;               /* 0 */
	uint64_t total;                  /* bytes of memory; 0 if unknown */
};

/**
 * pst_device_list() - list the devices whose memory this library can serve
 * @ret_devs: filled with up to @max devices, the host first; may be NULL if @max is 0
 * @max:      room in @ret_devs
 *
 * Return: number of devices, which may be more than @max; -EINVAL for a bad sz; -ENOMEM.
 */
PST_API int pst_device_list(struct pst_device *ret_devs, unsigned max);

/**
 * pst_device_find() - find a device by name
 * @name: "host", "soft" (the first of its kind), "soft:0", "cuda:0", a PCI address
 *        ("0000:17:00.0") or a UUID (32 hex digits, dashes allowed)
 * @ret:  the device
 *
 * Return: 0; -EINVAL if @name has none of these forms; -ENODEV if this machine has no such
 * device.
 */
PST_API int pst_device_find(const char *name, struct pst_device *ret);

/* Bytes that are always enough for pst_device_text(). */
#define PST_DEVICE_TEXT_MAX 4096

/**
 * pst_device_text() - describe a device in more detail than struct pst_device
 * @device: a name as pst_device_find() takes it
 * @buf:    receives lines "name: value\n", always ended by a 0
 * @len:    size of @buf in bytes
 *
 * Reads the values at each call and creates no context on the device.  Any thread.
 *
 * Return: length of the text without the final 0; -EINVAL, -ENODEV as pst_device_find();
 * -ENOSPC if @buf is too small.
 */
PST_API int pst_device_text(const char *device, char *buf, size_t len);

#ifdef __cplusplus
}
#endif
#endif
