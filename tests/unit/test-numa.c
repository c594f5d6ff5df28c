/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/err.h"
#include "topo/numa.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

/* Write the set as a list of single CPUs. */
static const char *text_of(const cpu_set_t *set, char *buf, size_t len)
{
	size_t n = 0;

	buf[0] = '\0';
	for (int i = 0; i < CPU_SETSIZE && n < len; i++)
		if (CPU_ISSET(i, set))
			n += (size_t)snprintf(buf + n, len - n, n ? ",%d" : "%d", i);
	return buf;
}

static cpu_set_t list(const char *text)
{
	cpu_set_t set;

	T_OK(numa_cpulist(text, &set));
	return set;
}

static void lists(void)
{
	static const char *const good[][2] = {
		{ "", "" },
		{ "\n", "" },
		{ "0\n", "0" },
		{ "0", "0" },
		{ "0-3\n", "0,1,2,3" },
		{ "0-1,4,6-7\n", "0,1,4,6,7" },
		{ "3,1\n", "1,3" },
		{ "5-5", "5" },
		{ "1,1-2", "1,2" },
		{ "1023", "1023" },
		{ "0001023\n", "1023" },
	};
	char buf[200];

	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		cpu_set_t set = list(good[i][0]);

		if (strcmp(text_of(&set, buf, sizeof(buf)), good[i][1]) != 0)
			T_FAIL("\"%s\" gave %s", good[i][0], buf);
	}
	T_EQ(CPU_COUNT(&(cpu_set_t[]){ list("0-1023\n") }[0]), 1024);
}

static void nonsense(void)
{
	static const char *const bad[] = {
		",",        "0,",         ",0",
		"0-",       "-1",         "0--1",
		"3-1",      "0-3-5",      " 0",
		"0 ",       "0 1",        "a",
		"0x1",      "0\n\n",      "0\n1",
		"0-31:2/4", "all",        "\xff",
		"0,a",      "+1",         "\n0",
		"0-1,,2",   "-",          "0.5",
		"12345678", "0-99999999", "0-1\r\n",
		"00000000", "4294967296", "18446744073709551616-18446744073709551617",
	};
	static const char *const beyond[] = { "1024", "0-1024", "9999999", "1023-1025",
					      "1,2,2000" };
	cpu_set_t set = list("7"), before = set;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (numa_cpulist(bad[i], &set) != -EINVAL)
			T_FAIL("\"%s\" was taken", bad[i]);
	for (unsigned i = 0; i < sizeof(beyond) / sizeof(beyond[0]); i++)
		if (numa_cpulist(beyond[i], &set) != -ERANGE)
			T_FAIL("\"%s\" was taken", beyond[i]);
	T_CHECK(CPU_EQUAL(&set, &before));
}

/* Change one byte of a list: it must be parsed or refused, and nothing else. */
static void spoilt_lists(void)
{
	static const char text[] = "0-3,8-11,16,1000-1023\n";
	cpu_set_t set;
	int taken = 0;

	for (size_t at = 0; at < sizeof(text) - 1; at++)
		for (int c = 0; c < 256; c++) {
			char buf[sizeof(text)];
			int r;

			memcpy(buf, text, sizeof(text));
			buf[at] = (char)c;
			r = numa_cpulist(buf, &set);
			T_CHECK(r == 0 || r == -EINVAL || r == -ERANGE);
			if (r == 0)
				T_CHECK(CPU_COUNT(&set) <= CPU_SETSIZE);
			taken += r == 0;
		}
	T_CHECK(taken > 50);
}

static void narrowed(void)
{
	static const struct {
		const char *mine, *node, *want; /* want is NULL if the set must not change */
	} cases[] = {
		{ "0-7", "0-3", "0,1,2,3" }, { "2-5", "0-3", "2,3" }, { "0-3", "0-3", NULL },
		{ "0-3", "0-7", NULL },      { "0-3", "4-7", NULL },  { "0-3", "", NULL },
		{ "0-7", "7", "7" },         { "1", "1", NULL },
	};
	char buf[200];

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cpu_set_t mine = list(cases[i].mine), node = list(cases[i].node), ret;
		bool narrow = numa_narrow(&mine, &node, &ret);

		T_EQ(narrow, cases[i].want != NULL);
		if (narrow && strcmp(text_of(&ret, buf, sizeof(buf)), cases[i].want) != 0)
			T_FAIL("case %u gave %s", i, buf);
	}
}

/* On the real machine: a thread never gets a CPU that it could not use before. */
static void a_thread_stays(void)
{
	cpu_set_t before, after, both;

	T_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
	numa_stay(-1);
	numa_stay(100000); /* a node that does not exist */
	T_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
	T_CHECK(CPU_EQUAL(&before, &after));
	numa_stay(0);
	T_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
	CPU_AND(&both, &before, &after);
	T_CHECK(CPU_EQUAL(&both, &after) && CPU_COUNT(&after) > 0);
	T_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

static void memory_is_placed(void)
{
	size_t len = 1u << 20;
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned long nodes[16] = { 0 };
	int mode = -1, r;

	T_CHECK(p != MAP_FAILED);
	numa_place(p, len, -1);
	numa_place(p, len, 1 << 20);
	numa_place(p, len, 0);
	memset(p, 1, len);
	r = (int)syscall(SYS_get_mempolicy, &mode, nodes, 1024, p, MPOL_F_ADDR);
	if (r == 0 && mode == MPOL_PREFERRED)
		T_EQ(nodes[0], 1);
	(void)munmap(p, len);
	if (r < 0)
		T_SKIP("get_mempolicy(2): %s", strerror(errno));
	if (mode != MPOL_PREFERRED)
		T_SKIP("mbind(2), which this kernel or container forbids");
}

int main(void)
{
	T_RUN(lists);
	T_RUN(nonsense);
	T_RUN(spoilt_lists);
	T_RUN(narrowed);
	T_RUN(a_thread_stays);
	T_RUN(memory_is_placed);
	return t_done();
}
