/* SPDX-License-Identifier: MIT */
#include "tools/common/machine.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>

double cpu_seconds(void)
{
	struct rusage u;

	if (getrusage(RUSAGE_SELF, &u) < 0)
		return 0;
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Read a line such as "VmHWM:     1234 kB". */
static uint64_t status_bytes(const char *key)
{
	_cleanup_(fclosep) FILE *f = fopen("/proc/self/status", "re");
	size_t len = strlen(key);
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, key, len) == 0)
			return strtoull(line + len, NULL, 10) * 1024;
	return 0;
}

uint64_t resident_now(void)
{
	return status_bytes("VmRSS:");
}

uint64_t resident_most(void)
{
	return status_bytes("VmHWM:");
}

bool resident_restart(void)
{
	_cleanup_(fclosep) FILE *f = fopen("/proc/self/clear_refs", "we");

	return f && fputs("5\n", f) >= 0 && fflush(f) == 0;
}

int read_line(const char *path, char *buf, size_t len)
{
	_cleanup_(fclosep) FILE *f = fopen(path, "re");

	if (!f)
		return -errno;
	if (!fgets(buf, (int)len, f))
		return ferror(f) ? -EIO : -ENODATA;
	buf[strcspn(buf, "\n")] = '\0';
	return 0;
}

/* Read the value after "KEY" and a colon or blanks, in a file like /proc/meminfo. */
static int read_field(const char *path, const char *key, char *buf, size_t len)
{
	_cleanup_(fclosep) FILE *f = fopen(path, "re");
	char line[512];

	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f)) {
		char *v;

		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		v = line + strlen(key);
		v += strspn(v, " \t:");
		v[strcspn(v, "\n")] = '\0';
		(void)snprintf(buf, len, "%s", v);
		return 0;
	}
	return -ENOENT;
}

uint64_t cgroup_memory_limit(void)
{
	_cleanup_(fclosep) FILE *f = fopen("/proc/self/cgroup", "re");
	uint64_t limit = UINT64_MAX, v;
	char line[1024], path[1200], value[64];

	/* Version 2 has one line, "0::/path"; in a container the path is often "/". */
	while (f && fgets(line, sizeof(line), f)) {
		char *p = strstr(line, "::");

		if (!p)
			continue;
		p += 2;
		p[strcspn(p, "\n")] = '\0';
		for (;;) {
			char *slash;

			(void)snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", p);
			if (read_line(path, value, sizeof(value)) == 0 &&
			    parse_number(value, 0, UINT64_MAX - 1, &v) == 0)
				limit = MIN(limit, v);
			slash = strrchr(p, '/');
			if (!slash)
				break;
			*slash = '\0';
		}
	}
	if (read_line("/sys/fs/cgroup/memory/memory.limit_in_bytes", value, sizeof(value)) == 0 &&
	    parse_number(value, 0, UINT64_C(1) << 60, &v) == 0)
		limit = MIN(limit, v);
	return limit;
}

void machine_facts(struct machine *ret)
{
	struct utsname uts;
	cpu_set_t set;
	char buf[128];
	uint64_t limit;
	long n;

	*ret = (struct machine){ .cpus = 1, .online = 1 };
	if (read_field("/proc/cpuinfo", "model name", ret->cpu, sizeof(ret->cpu)) < 0)
		(void)snprintf(ret->cpu, sizeof(ret->cpu), "unknown processor");
	if (uname(&uts) == 0)
		(void)snprintf(ret->kernel, sizeof(ret->kernel), "%.20s %.80s %.40s", uts.sysname,
			       uts.release, uts.machine);
	n = sysconf(_SC_NPROCESSORS_ONLN);
	if (n > 0)
		ret->online = ret->cpus = (unsigned)n;
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		ret->cpus = (unsigned)CPU_COUNT(&set);

	if (read_field("/proc/meminfo", "MemTotal", buf, sizeof(buf)) == 0)
		ret->memory = strtoull(buf, NULL, 10) << 10;
	if (read_field("/proc/meminfo", "MemAvailable", buf, sizeof(buf)) == 0)
		ret->available = strtoull(buf, NULL, 10) << 10;
	limit = cgroup_memory_limit();
	if (limit < UINT64_MAX) {
		/* Use the limit itself: the group's current usage is mostly cache, which can be
		 * reclaimed. */
		ret->memory = ret->memory ? MIN(ret->memory, limit) : limit;
		ret->available = ret->available ? MIN(ret->available, limit) : limit;
	}
}
