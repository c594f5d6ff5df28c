/* SPDX-License-Identifier: MIT */
#include "file/module.h"

const struct file_module_entry file_modules[] = {
	{ "tier", "libpenstock-tier.so" },
	{ NULL, NULL },
};
