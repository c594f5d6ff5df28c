/* SPDX-License-Identifier: MIT */
/* penstock doctor --accel: memory of accelerators, and what the machine offers for it. */
#ifndef CLI_DOCTOR_ACCEL_H
#define CLI_DOCTOR_ACCEL_H

#include <stdbool.h>

/* Return an exit status. */
int doctor_accel(bool json);

#endif
