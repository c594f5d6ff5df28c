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

/* Return user plus system seconds of the whole process, including library threads. */
double cpu_seconds(void);

/* Return the resident bytes of the process, mapped files included. */
uint64_t resident_now(void);
/* Return the maximum of resident_now() since resident_restart(). */
uint64_t resident_most(void);
/* Reset that maximum.  Return false if the kernel cannot do so. */
bool resident_restart(void);

struct machine {
	char cpu[128];    /* model name, or "unknown processor" */
	char kernel[160]; /* kernel, such as "Linux 6.1.0 x86_64" */
	unsigned cpus;    /* CPUs that this process may use */
	unsigned online;
	uint64_t memory;    /* bytes of memory, limited by the control group; 0: unknown */
	uint64_t available; /* bytes available, limited by the control group */
};

void machine_facts(struct machine *ret);

/* Read the first line of a small file, without its newline.  Return 0 or -errno. */
int read_line(const char *path, char *buf, size_t len);

/* Return the memory limit of the control group in bytes; UINT64_MAX for none or unknown. */
uint64_t cgroup_memory_limit(void);

#endif
