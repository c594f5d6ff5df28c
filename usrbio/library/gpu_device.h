/* SPDX-License-Identifier: MIT */
/*
 * The devices that programs name by a number.
 */
#ifndef USRBIO_GPU_DEVICE_H
#define USRBIO_GPU_DEVICE_H

#include <penstock.h>

/*
 * Find a device by its number: CUDA's number, or the number of a software device of libpenstock if
 * PST_USRBIO_DEVICE is "soft" in the environment.  ret->sz must be set.
 *
 * Return: 0; -ENOTSUP if the machine has no such devices; -ENODEV if it has none of this number;
 * -EOWNERDEAD in a forked child.
 */
int gpu_device_find(int number, struct pst_device *ret);

/* Return the number of devices. */
int gpu_device_count(void);

#endif
