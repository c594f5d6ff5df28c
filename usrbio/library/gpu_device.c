/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_device.h"
#include "log.h"

#define NUMBER_MAX 99999 /* largest device number: a device name has room for 5 digits */

/* Return the kind of memory to use; NULL if PST_USRBIO_DEVICE names an unknown one. */
static const char *kind_name(void)
{
	const char *env = secure_getenv("PST_USRBIO_DEVICE");

	if (!env || !*env || !strcmp(env, "cuda"))
		return "cuda";
	return strcmp(env, "soft") ? NULL : "soft";
}

/* Find device @number of a kind.  Return 0, or -ENODEV if it does not exist. */
static int library_gpu_device_find(const char *kind, int number, struct pst_device *ret)
{
	char name[PST_DEVICE_NAME_MAX];

	if (number < 0 || number > NUMBER_MAX)
		return -ENODEV;
	(void)snprintf(name, sizeof(name), "%s:%d", kind, number);
	return pst_device_find(name, ret);
}

int gpu_device_find(int number, struct pst_device *ret)
{
	const char *kind = kind_name();
	int r;

	if (!kind)
		return log_fail(ENOTSUP, "PST_USRBIO_DEVICE is neither \"cuda\" nor \"soft\"");
	r = library_gpu_device_find(kind, number, ret);
	if (r != -ENODEV)
		return r;
	if (library_gpu_device_find(kind, 0,
				    &(struct pst_device){ .sz = sizeof(struct pst_device) }) < 0)
		return log_fail(ENOTSUP, "no device has memory for rings: %s", pst_error_text());
	return log_fail(ENODEV, "there is no device %s:%d", kind, number);
}

int gpu_device_count(void)
{
	struct pst_device d = { .sz = sizeof(d) };
	const char *kind = kind_name();
	int nr = 0;

	while (kind && library_gpu_device_find(kind, nr, &d) == 0)
		nr++;
	return nr;
}
