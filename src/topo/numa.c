/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/err.h"
#include "base/log.h"
#include "topo/numa.h"

#define LIST_LEN 8192u /* bytes; longer than the list of every second CPU of CPU_SETSIZE */
#define NODES_MAX 1024u
#define LONG_BITS (8 * sizeof(unsigned long))

/* Parse decimal digits.  Return false if there are none, or more digits than a CPU number has. */
static bool numa_number(const char **text, unsigned *ret)
{
	const char *p = *text;
	unsigned v = 0;

	for (; *p >= '0' && *p <= '9' && p - *text < 7; p++)
		v = 10 * v + (unsigned)(*p - '0');
	if (p == *text || (*p >= '0' && *p <= '9'))
		return false;
	*text = p;
	*ret = v;
	return true;
}

int numa_cpulist(const char *text, cpu_set_t *ret)
{
	bool more = *text && strcmp(text, "\n") != 0; /* false for a node without CPUs */
	const char *p = text;
	unsigned from, to;
	cpu_set_t set;

	CPU_ZERO(&set);
	while (more) {
		bool good = numa_number(&p, &from);

		to = from;
		if (good && *p == '-') {
			p++;
			good = numa_number(&p, &to);
		}
		if (!good || to < from)
			return err_set(EINVAL, "no list of CPUs");
		if (to >= CPU_SETSIZE)
			return err_set(ERANGE, "CPU %u is beyond what a set can hold", to);
		for (unsigned i = from; i <= to; i++)
			CPU_SET(i, &set);
		more = *p == ',';
		p += more;
	}
	if (*p == '\n')
		p++;
	if (*p)
		return err_set(EINVAL, "no list of CPUs");
	*ret = set;
	return 0;
}

bool numa_narrow(const cpu_set_t *mine, const cpu_set_t *node, cpu_set_t *ret)
{
	CPU_AND(ret, mine, node);
	return CPU_COUNT(ret) > 0 && !CPU_EQUAL(ret, mine);
}

static int node_cpus(int node, cpu_set_t *ret)
{
	char path[64], text[LIST_LEN];
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(errno, "%s: %s", path, err_name(errno));
	n = read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	if (n < 0)
		return err_set(errno, "%s: %s", path, err_name(errno));
	text[n] = '\0';
	if (strlen(text) != (size_t)n)
		return err_set(EINVAL, "%s is no text", path);
	return numa_cpulist(text, ret);
}

void numa_stay(int node)
{
	cpu_set_t mine, theirs, both;

	if (node < 0)
		return;
	if (node_cpus(node, &theirs) < 0) {
		log_debug("the CPUs of NUMA node %d are not known: %s, ignoring", node, err_text());
		return;
	}
	if (sched_getaffinity(0, sizeof(mine), &mine) < 0 || !numa_narrow(&mine, &theirs, &both))
		return;
	if (sched_setaffinity(0, sizeof(both), &both) < 0)
		log_debug("a thread cannot stay on NUMA node %d: %m, ignoring", node);
}

void numa_place(void *mem, uint64_t len, int node)
{
	unsigned long nodes[NODES_MAX / LONG_BITS] = { 0 };

	if (node < 0 || node >= (int)NODES_MAX)
		return;
	nodes[(unsigned)node / LONG_BITS] = 1ul << ((unsigned)node % LONG_BITS);
	/* NODES_MAX + 1, because the kernel subtracts one from the number of bits. */
	if (syscall(SYS_mbind, mem, len, MPOL_PREFERRED, nodes, NODES_MAX + 1, 0) < 0)
		log_debug("memory cannot be preferred on NUMA node %d: %m, ignoring", node);
}
