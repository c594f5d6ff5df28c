/* SPDX-License-Identifier: MIT */
/*
 * The devices that programs name by a number.
 */
#ifndef USRBIO_GPU_DEVICE_H
#define USRBIO_GPU_DEVICE_H

#include <penstock.h>

/*
 * One of them; ret->sz must be set.  Their numbers are those of CUDA, or of libpenstock's
 * software devices where PST_USRBIO_DEVICE in the environment says "soft".
 *
 * Return: 0; -ENOTSUP when there are none at all; -ENODEV when there is none of this number;
 * -EOWNERDEAD in a forked child.
 */
int gpu_device_find(int number, struct pst_device *ret);

/* How many there are. */
int gpu_device_count(void);

#endif
