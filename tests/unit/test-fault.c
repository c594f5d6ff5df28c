/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/fault.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

static const char *self;

static void nothing_armed(void)
{
	T_OK(fault_set(NULL));
	T_CHECK(!fault_active);
	T_EQ(fault_hit(FAULT_MEM_ALLOC), 0);
	T_EQ(fault_passed(FAULT_MEM_ALLOC), 0);
}

static void the_nth_call(void)
{
	T_OK(fault_set("mem.copy:3:EIO"));
	T_CHECK(fault_active);
	T_EQ(fault_hit(FAULT_MEM_COPY), 0);
	T_EQ(fault_hit(FAULT_MEM_ALLOC), 0);
	T_EQ(fault_hit(FAULT_MEM_COPY), 0);
	T_EQ(fault_hit(FAULT_MEM_COPY), EIO);
	T_EQ(fault_hit(FAULT_MEM_COPY), 0);
	T_EQ(fault_passed(FAULT_MEM_COPY), 4);
	T_EQ(fault_passed(FAULT_MEM_ALLOC), 1);
	T_OK(fault_set(""));
	T_CHECK(!fault_active);
	T_EQ(fault_passed(FAULT_MEM_COPY), 0);
}

static void every_call_and_several_rules(void)
{
	T_OK(fault_set("file.read:0:EAGAIN,file.write:2:short,file.write:3:ENOSPC,"
		       "file.open:1:EMFILE"));
	for (int i = 0; i < 5; i++)
		T_EQ(fault_hit(FAULT_FILE_READ), EAGAIN);
	T_EQ(fault_hit(FAULT_FILE_WRITE), 0);
	T_EQ(fault_hit(FAULT_FILE_WRITE), FAULT_SHORT);
	T_EQ(fault_hit(FAULT_FILE_WRITE), ENOSPC);
	T_EQ(fault_hit(FAULT_FILE_OPEN), EMFILE);
	T_OK(fault_set("mem.copy:2:wrong"));
	T_EQ(fault_hit(FAULT_MEM_COPY), 0);
	T_EQ(fault_hit(FAULT_MEM_COPY), FAULT_WRONG);
	T_OK(fault_set(NULL));
}

static void every_site_has_its_name(void)
{
	static const char *const names[FAULT_SITE_NR] = {
		[FAULT_MEM_ALLOC] = "mem.alloc",     [FAULT_MEM_COPY] = "mem.copy",
		[FAULT_MEM_STREAM] = "mem.stream",   [FAULT_MEM_PIN] = "mem.pin",
		[FAULT_FILE_OPEN] = "file.open",     [FAULT_IO_CTX] = "file.context",
		[FAULT_FILE_READ] = "file.read",     [FAULT_FILE_WRITE] = "file.write",
		[FAULT_FILE_SYNC] = "file.sync",     [FAULT_FILE_PIN] = "file.pin",
		[FAULT_FILE_DIRECT] = "file.direct", [FAULT_FILE_URING] = "file.uring",
		[FAULT_GDS_PROBE] = "gds.probe",
	};
	char spec[64];

	for (int i = 0; i < FAULT_SITE_NR; i++) {
		(void)snprintf(spec, sizeof(spec), "%s:1:EPERM", names[i]);
		T_OK(fault_set(spec));
		for (int k = 0; k < FAULT_SITE_NR; k++)
			T_EQ(fault_hit((enum fault_site)k), k == i ? EPERM : 0);
	}
	T_OK(fault_set(NULL));
}

static void delays(void)
{
	uint64_t start;

	T_OK(fault_set("mem.copy:1:20ms,mem.copy:2:500us,mem.copy:2:EIO"));
	start = t_now();
	errno = 7;
	T_EQ(fault_hit(FAULT_MEM_COPY), 0);
	T_EQ(errno, 7);
	T_CHECK(t_now() - start >= 20 * 1000000u);
	start = t_now();
	T_EQ(fault_hit(FAULT_MEM_COPY), EIO);
	T_CHECK(t_now() - start >= 500000u);
	T_OK(fault_set(NULL));
}

static void refuses_what_it_does_not_know(void)
{
	static const char *const bad[] = {
		"x",
		"mem.copy",
		"mem.copy:1",
		"mem.copy:1:",
		"mem.copy::EIO",
		"mem.copy:-1:EIO",
		"mem.copy:+1:EIO",
		"mem.copy: 1:EIO",
		"mem.copy:1x:EIO",
		"mem.copy:99999999999999999999:EIO",
		"mem.copy:1:EWHAT",
		"mem.copy:1:eio",
		"mem.copy:1:5",
		"mem.copy:1:ms",
		"mem.copy:1:61s",
		"mem.copy:1:99999999999999999999999999999s",
		"mem.copy:1:5ms ",
		"mem.copy:1:short",
		"file.uring:1:short",
		"mem.alloc:1:wrong",
		"file.read:1:wrong",
		"mem.soft:1:EIO",
		"mem.copy:1:EIO,",
		",mem.copy:1:EIO",
		"mem.copy:1:EIO:EIO",
	};
	char many[1024] = "mem.copy:1:EIO";

	T_OK(fault_set("mem.alloc:1:ENOMEM"));
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (fault_set(bad[i]) != -EINVAL)
			T_FAIL("\"%s\" was taken", bad[i]);
	for (int i = 0; i < 32; i++)
		strcat(many, ",mem.copy:1:EIO");
	T_EQ(fault_set(many), -EINVAL);
	T_EQ(fault_hit(FAULT_MEM_ALLOC), ENOMEM); /* the earlier faults are still armed */
	T_OK(fault_set(NULL));
}

static void *passes(void *arg)
{
	unsigned *failed = arg;

	for (int i = 0; i < 1000; i++)
		*failed += fault_hit(FAULT_MEM_ALLOC) == ENOMEM;
	return NULL;
}

static void counts_over_all_threads(void)
{
	unsigned failed[4] = { 0 };
	pthread_t t[4];

	T_OK(fault_set("mem.alloc:2500:ENOMEM"));
	for (int i = 0; i < 4; i++)
		T_EQ(pthread_create(&t[i], NULL, passes, &failed[i]), 0);
	for (int i = 0; i < 4; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	T_EQ(failed[0] + failed[1] + failed[2] + failed[3], 1);
	T_EQ(fault_passed(FAULT_MEM_ALLOC), 4000);
	T_OK(fault_set(NULL));
}

/* Run this program again with PST_FAULT set.  Its exit status is the result. */
static int run_with(const char *spec)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		(void)setenv("PST_FAULT", spec, 1);
		(void)execl(self, self, "child", (char *)NULL);
		_exit(99);
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void environment(void)
{
	T_EQ(run_with("mem.alloc:1:ENOSPC"), ENOSPC);
	T_EQ(run_with(""), 0);
	T_EQ(run_with("nonsense"), 0);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return fault_hit(FAULT_MEM_ALLOC);
	self = argv[0];
	T_RUN(nothing_armed);
	T_RUN(the_nth_call);
	T_RUN(every_call_and_several_rules);
	T_RUN(every_site_has_its_name);
	T_RUN(delays);
	T_RUN(refuses_what_it_does_not_know);
	T_RUN(counts_over_all_threads);
	T_RUN(environment);
	return t_done();
}
