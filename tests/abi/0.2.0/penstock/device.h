/* SPDX-License-Identifier: MIT */
/* Devices that hold memory; manual page: pst_device(3). */
#ifndef PENSTOCK_DEVICE_H
#define PENSTOCK_DEVICE_H

#include <penstock/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A device that holds memory.  uuid is what identifies it; an index may change. */
struct pst_device {
	size_t sz;                       /* sizeof(struct pst_device) */
	uint32_t kind;                   /* enum pst_kind */
	uint32_t index;                  /* among devices of its kind, from 0 */
	char name[PST_DEVICE_NAME_MAX];  /* what pst_mem_alloc() takes: "soft:0", "host" */
	char model[PST_DEVICE_NAME_MAX]; /* for people */
	char pci[24];                    /* "0000:17:00.0", or "" */
	uint8_t uuid[16];                /* all zero for the host */
	int32_t numa_node;               /* -1 when unknown */
	uint32_t reserved;
	uint64_t total; /* bytes of memory, 0 when unknown */
};

/**
 * pst_device_list() - the devices whose memory this library can serve
 * @ret_devs: filled with up to @max devices, host first; may be NULL when @max is 0
 * @max:      room in @ret_devs
 *
 * Return: how many there are, which may be more than @max; -EINVAL for a bad sz; -ENOMEM.
 */
PST_API int pst_device_list(struct pst_device *ret_devs, unsigned max);

/**
 * pst_device_find() - one device by name
 * @name: "host", "soft" (the first of its kind), "soft:0", "cuda:0", a PCI address
 *        ("0000:17:00.0") or a UUID (32 hex digits, dashes allowed)
 * @ret:  the device
 *
 * Return: 0; -EINVAL for a name of none of these forms; -ENODEV when there is no such
 * device here.
 */
PST_API int pst_device_find(const char *name, struct pst_device *ret);

#define PST_DEVICE_TEXT_MAX 4096 /* bytes that are always enough for pst_device_text() */

/**
 * pst_device_text() - what is known of a device beyond struct pst_device
 * @device: a name as pst_device_find() takes it
 * @buf:    receives lines "name: value\n", always terminated
 * @len:    of @buf, bytes
 *
 * Values are read at each call, without a context on the device.  Any thread.
 *
 * Return: bytes of the text without its end; -EINVAL, -ENODEV as pst_device_find(); -ENOSPC
 * when @buf is too small.
 */
PST_API int pst_device_text(const char *device, char *buf, size_t len);

#ifdef __cplusplus
}
#endif
#endif
