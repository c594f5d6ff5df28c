/* SPDX-License-Identifier: MIT */
/* penstock doctor --rdma: what RDMA needs of this machine. */
#ifndef CLI_DOCTOR_RDMA_H
#define CLI_DOCTOR_RDMA_H

#include <stdbool.h>

/* An exit status. */
int doctor_rdma(bool json);

#endif
