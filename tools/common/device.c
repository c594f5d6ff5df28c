/* SPDX-License-Identifier: MIT */
#include "tools/common/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/fail.h"
#include "tools/common/shown.h"

int device_pick(const char *name, struct pst_device *ret)
{
	struct pst_device devs[64];
	int n, r;

	*ret = (struct pst_device){ .sz = sizeof(*ret) };
	if (name) {
		r = pst_device_find(name, ret);
		return r < 0 ? fail_pst(r, name) : 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(devs); i++)
		devs[i] = (struct pst_device){ .sz = sizeof(devs[i]) };
	n = pst_device_list(devs, ARRAY_SIZE(devs));
	if (n < 0)
		return fail_pst(n, "listing the devices");
	n = MIN(n, (int)ARRAY_SIZE(devs));
	for (int i = 0; i < n; i++) {
		if (devs[i].kind == PST_KIND_CUDA) {
			*ret = devs[i];
			return 0;
		}
	}
	r = pst_device_find("soft", ret);
	return r < 0 ? fail_pst(r, "soft") : 0;
}

bool device_is_emulated(const struct pst_device *dev)
{
	return dev->kind == PST_KIND_SOFT;
}

void device_print_emulated(const struct pst_device *dev, unsigned indent)
{
	if (device_is_emulated(dev))
		shown_printf(indent, "%*s%s is an emulator: its speed is not that of a GPU",
			     (int)indent, "", dev->name);
}

struct text device_text(const struct pst_device *dev)
{
	struct text t;

	(void)snprintf(t.s, sizeof(t.s), "%s (%s)", dev->name,
		       dev->model[0] ? dev->model : "no model name");
	return t;
}

int device_parse_dmabuf(const char *text)
{
	if (strcmp(text, "yes") != 0 && strcmp(text, "no") != 0 && strcmp(text, "try") != 0)
		return -EINVAL;
	return setenv("PST_DMABUF", text, 1) < 0 ? -errno : 0;
}
