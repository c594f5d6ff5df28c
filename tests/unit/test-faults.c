/* SPDX-License-Identifier: MIT */
/*
 * Fail each site of base/fault.h at its first, second, ... n-th pass, until a run makes fewer
 * passes.  Each run must end with the right bytes or an error and its text, and must not leak.
 */
#include "scenario.h"

#include "base/fault.h"

static const char *const sites[FAULT_SITE_NR] = {
	[FAULT_MEM_ALLOC] = "mem.alloc",     [FAULT_MEM_COPY] = "mem.copy",
	[FAULT_MEM_STREAM] = "mem.stream",   [FAULT_MEM_PIN] = "mem.pin",
	[FAULT_FILE_OPEN] = "file.open",     [FAULT_IO_CTX] = "file.context",
	[FAULT_FILE_READ] = "file.read",     [FAULT_FILE_WRITE] = "file.write",
	[FAULT_FILE_SYNC] = "file.sync",     [FAULT_FILE_PIN] = "file.pin",
	[FAULT_FILE_DIRECT] = "file.direct", [FAULT_FILE_URING] = "file.uring",
	[FAULT_GDS_PROBE] = "gds.probe",
};

static void fail_at(enum fault_site site, unsigned n, const char *what, int *ret)
{
	unsigned fds = t_count_fds();
	char spec[64];
	int r;

	(void)snprintf(spec, sizeof(spec), "%s:%u:%s", sites[site], n, what);
	T_EQ(fault_set(spec), 0);
	r = scenario(rig_backend, rig_dev);
	if (r == -EBADE || r == -ELIBBAD || r == -ENOMSG || r == -ETIMEDOUT)
		T_FAIL("%s: %d (%s)", spec, r, scenario_why);
	/* Read the count before disarming, which sets it to zero. */
	*ret = r == 0 && fault_passed(site) < n;
	T_EQ(fault_set(NULL), 0);
	rig_quiet();
	if (t_count_fds() != fds)
		T_FAIL("%s: %u descriptors, %u before", spec, t_count_fds(), fds);
}

static void every_site(void)
{
	static const char *const kinds[] = { "EIO", "ENOMEM", "EINVAL", "EPERM" };
	int over;

	rig_q = pst_queue_free(rig_q);
	for (unsigned s = 0; s < FAULT_SITE_NR; s++)
		for (unsigned w = 0; w < RIG_NR(kinds); w++)
			for (unsigned n = 0; n < 60; n++) {
				fail_at((enum fault_site)s, n, kinds[w], &over);
				if (over && n)
					break;
			}
}

static void works_with(const char *spec)
{
	T_EQ(fault_set(spec), 0);
	if (scenario(rig_backend, rig_dev) != 0)
		T_FAIL("%s: %s", spec, scenario_why);
	T_EQ(fault_set(NULL), 0);
	rig_quiet();
}

/* Short counts and delays cause no errors. */
static void short_and_slow(void)
{
	rig_q = pst_queue_free(rig_q);
	works_with("file.read:0:short,file.write:0:short");
	works_with("file.read:1:short,file.write:2:short");
	works_with("file.read:1:EINTR,file.write:1:EINTR");
	works_with("file.read:1:EAGAIN,file.write:2:EAGAIN");
	works_with("file.read:0:5ms,file.write:0:5ms,file.sync:1:20ms");
	works_with("mem.copy:0:1ms,mem.alloc:1:5ms,file.open:1:5ms");
	works_with("file.direct:0:EINVAL");
	works_with("file.direct:0:EPERM");
	works_with("file.pin:0:ENOMEM");
}

int main(void)
{
	rig_init();
	t_fill(scenario_bytes, 5, 0, SCENARIO_LEN);
	RIG_RUN(short_and_slow);
	RIG_RUN(every_site);
	return rig_done();
}
