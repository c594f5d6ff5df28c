/* SPDX-License-Identifier: MIT */
/* penstock doctor --rdma: what RDMA needs from this machine. */
#ifndef CLI_DOCTOR_RDMA_H
#define CLI_DOCTOR_RDMA_H

#include <stdbool.h>

/* Return an exit status. */
int doctor_rdma(bool json);

#endif
