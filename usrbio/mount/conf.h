/* SPDX-License-Identifier: MIT */
/*
 * Settings of 3FS that programs read as links in 3fs-virt/get-conf, and set by links that they make
 * in 3fs-virt/set-conf.  Here are those that mean something on this mount, as they are.
 */
#ifndef MOUNT_CONF_H
#define MOUNT_CONF_H

#include "usrbio/mount/fs.h"

#define CONF_VALUE_MAX 32

/* The name of the one of this place, or NULL behind the last. */
const char *conf_name(uint64_t index);

/* 0 with its place, or -ENOENT. */
int conf_find(const char *name, uint64_t *ret_index);

/* What it is now. */
void conf_value(const struct fs *fs, uint64_t index, char ret[CONF_VALUE_MAX]);

/*
 * None can be changed while the mount serves: they are not one user's alone.
 *
 * Return: 0 for what it is already; -EOPNOTSUPP for another value; -ENOENT for one that 3FS has and
 * this mount has not, or nobody.
 */
int conf_set(const struct fs *fs, const char *name, const char *value);

#endif
