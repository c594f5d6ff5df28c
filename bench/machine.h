/* SPDX-License-Identifier: MIT */
/* Print the machine and its load above a benchmark's figures, and its load below them. */
#ifndef PST_BENCH_MACHINE_H
#define PST_BENCH_MACHINE_H

#include <stdio.h>

#include "tools/common/machine.h"

static inline void bench_print_load(void)
{
	char load[64] = "unknown";

	(void)read_line("/proc/loadavg", load, sizeof(load));
	(void)printf("load     %s\n", load);
}

static inline void bench_print_machine(void)
{
	struct machine m;

	machine_facts(&m);
	(void)printf("machine  %s, %u of %u CPUs, %s\n", m.cpu, m.cpus, m.online, m.kernel);
	bench_print_load();
}

#endif
