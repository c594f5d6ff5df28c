/* SPDX-License-Identifier: MIT */
/* Print the machine and its load above a benchmark's figures. */
#ifndef PST_BENCH_MACHINE_H
#define PST_BENCH_MACHINE_H

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Print the rest of the first line of a file that begins with key. */
static inline void print_line(const char *what, const char *path, const char *key)
{
	FILE *f = fopen(path, "re");
	char line[200] = "";
	const char *text;

	while (f && fgets(line, sizeof(line), f) && strncmp(line, key, strlen(key)) != 0)
		;
	if (f)
		(void)fclose(f);
	line[strcspn(line, "\n")] = '\0';
	text = strchr(line, ':') && *key ? strchr(line, ':') + 2 : line;
	(void)printf("%-9s%s", what, text);
}

static inline void print_load(void)
{
	print_line("load", "/proc/loadavg", "");
}

static inline void print_machine(void)
{
	struct utsname u;

	(void)uname(&u);
	print_line("machine", "/proc/cpuinfo", "model name");
	(void)printf(", %ld CPUs, Linux %s\n", sysconf(_SC_NPROCESSORS_ONLN), u.release);
	print_load();
}

#endif
