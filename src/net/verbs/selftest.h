/* SPDX-License-Identifier: MIT */
/*
 * A device that is joined to itself, to try its way to memory.  That memory was registered does not
 * say that the device reaches it: between some slots of a machine writes pass and reads do not.
 */
#ifndef PST_VERBS_SELFTEST_H
#define PST_VERBS_SELFTEST_H

#include "net/verbs/mr.h"

struct selftest {
	enum mem_reg_how how; /* by which the memory was registered */
	int write, read;      /* 0, or -errno; -EBADMSG: wrong bytes; -ECANCELED: not tried */
};

/*
 * Write a pattern into 64 KiB of fresh memory of a device and read it back, both by RDMA over a
 * connection of the NIC to itself.  ops and device name the memory.
 *
 * Return: 0 where both directions brought the right bytes; -errno with a sentence.  *ret is filled
 * in either case.
 */
int selftest_run(struct nic *n, const struct mem_ops *ops, unsigned device, struct selftest *ret);

/* The test of host memory alone: for nics_get(). */
int selftest_host(struct nic *n);

#endif
