/* SPDX-License-Identifier: MIT */
#include "file/module.h"

const struct file_module_entry file_modules[] = {
	{ "http", "libpenstock-s3.so" },     { "https", "libpenstock-s3.so" },
	{ "rados", "libpenstock-rados.so" }, { "s3", "libpenstock-s3.so" },
	{ "tier", "libpenstock-tier.so" },   { NULL, NULL },
};
