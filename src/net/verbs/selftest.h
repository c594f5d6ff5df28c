/* SPDX-License-Identifier: MIT */
/*
 * Connect a NIC to itself to test its access to memory.  Successful registration does not prove
 * access: between some PCIe slots, writes work and reads do not.
 */
#ifndef PST_VERBS_SELFTEST_H
#define PST_VERBS_SELFTEST_H

#include "net/verbs/mr.h"

struct selftest {
	enum mem_reg_how how; /* how the memory was registered */
	int write, read;      /* 0, or -errno; -EBADMSG: wrong bytes; -ECANCELED: not run */
};

/*
 * Write a pattern into 64 KiB of fresh device memory and read it back, both by RDMA over a
 * connection of the NIC to itself.  ops and device select the memory.
 *
 * Return: 0 if both directions moved the right bytes; -errno with a sentence.  *ret is filled in
 * either case.
 */
int selftest_run(struct nic *n, const struct mem_ops *ops, unsigned device, struct selftest *ret);

/* Run the test with host memory only: for nics_get(). */
int selftest_host(struct nic *n);

#endif
