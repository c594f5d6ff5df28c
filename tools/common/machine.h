/* SPDX-License-Identifier: MIT */
/* Facts about the machine; needs only libc. */
#ifndef CLI_MACHINE_H
#define CLI_MACHINE_H

#include <stdio.h>

#include "tools/common/numbers.h"

static inline void fclosep(FILE **f)
{
	if (*f)
		(void)fclose(*f);
}

/* User and system seconds of the whole process, its library threads included. */
double cpu_seconds(void);

/* Resident bytes of the process now, and the most since resident_restart(), files that it maps
 * among them.  False: the kernel cannot tell the most. */
uint64_t resident_now(void);
uint64_t resident_most(void);
bool resident_restart(void);

struct machine {
	char cpu[128];    /* model, or "unknown processor" */
	char kernel[160]; /* "Linux 6.1.0 x86_64" */
	unsigned cpus;    /* that this process may use */
	unsigned online;
	uint64_t memory;    /* bytes; 0 when unknown */
	uint64_t available; /* bytes free to use, the control group's limit counted in */
};

void machine_facts(struct machine *ret);

/* The first line of a small file without its newline; 0 or -errno. */
int read_line(const char *path, char *buf, size_t len);

/* The limit of the control group's memory; UINT64_MAX for none or unknown. */
uint64_t cgroup_memory_limit(void);

#endif
