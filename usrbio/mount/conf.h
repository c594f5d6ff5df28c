/* SPDX-License-Identifier: MIT */
/*
 * Settings of 3FS.  Programs read them as links in 3fs-virt/get-conf, and set them by making links
 * in 3fs-virt/set-conf.  This mount has those that apply to it, with fixed values.
 */
#ifndef MOUNT_CONF_H
#define MOUNT_CONF_H

#include "usrbio/mount/fs.h"

#define CONF_VALUE_MAX 32

/* Return the name of setting @index; NULL after the last one. */
const char *conf_name(uint64_t index);

/* Find the index of a setting.  Return 0 or -ENOENT. */
int conf_find(const char *name, uint64_t *ret_index);

/* Write the current value. */
void conf_value(const struct fs *fs, uint64_t index, char ret[CONF_VALUE_MAX]);

/*
 * Accept the current value and no other: all users of a mount share its settings.
 *
 * Return: 0 for the current value; -EOPNOTSUPP for another; -ENOENT for a name that this mount does
 * not have.
 */
int conf_set(const struct fs *fs, const char *name, const char *value);

#endif
