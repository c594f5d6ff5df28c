/* SPDX-License-Identifier: MIT */
/* Which IPC handles the nvrm back end accepts, and which drivers it uses. */
#include <stdio.h>

#include "base/err.h"
#include "base/log.h"
#include "window/nvrm/nvrm.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

#define CLIENT (NVRM_CLIENT_BASE | 0x17)
#define OBJECT 0x5c000007u

static void ipc_of(uint64_t size, uint64_t off, uint32_t pid, uint8_t ret[64])
{
	uint32_t w[NVRM_IPC_WORDS] = { 0 };

	w[NVRM_IPC_PID] = pid;
	memcpy(&w[NVRM_IPC_SIZE], &size, 8);
	w[NVRM_IPC_OFFSET] = (uint32_t)off;
	w[NVRM_IPC_CLIENT] = CLIENT;
	w[NVRM_IPC_OBJECT] = OBJECT;
	memcpy(ret, w, 64);
}

static bool says(const char *what)
{
	if (strstr(err_text(), what))
		return true;
	printf("# the sentence is: %s\n", err_text());
	return false;
}

static int parse(const uint8_t ipc[64], uint64_t size, uint32_t pid)
{
	struct nvrm_handle h = { 0 };

	return nvrm_handle_parse(ipc, size, &pid, pid ? 1 : 0, &h);
}

static void handles(void)
{
	static const uint32_t many[] = { 9, 4711, 12 };
	struct nvrm_handle h;
	uint8_t ipc[64];

	ipc_of(MIB(2), 0x1200, 4711, ipc);
	T_EQ(nvrm_handle_parse(ipc, MIB(2), many, 3, &h), 0);
	T_EQ(h.off, 0x1200);
	T_EQ(h.object, OBJECT);
	T_EQ(h.client, CLIENT);
	T_EQ(parse(ipc, MIB(2), 0), 0);
	T_EQ(parse(ipc, 1000, 4711), 0);
	T_EQ(parse(ipc, MIB(2), 4712), -EINVAL);
	T_CHECK(says("process"));
	T_EQ(parse(ipc, MIB(2) + 1, 4711), -EINVAL);
	T_CHECK(says("2097152"));
	T_EQ(parse(ipc, 0, 4711), -EINVAL);
	ipc_of(MIB(2) + MIB(65), 0, 4711, ipc);
	T_EQ(parse(ipc, MIB(2), 4711), -EINVAL);
	ipc_of(UINT64_MAX, 0, 4711, ipc);
	T_EQ(parse(ipc, MIB(2), 4711), -EINVAL);
	ipc_of(MIB(2), 0x1210, 4711, ipc);
	T_EQ(parse(ipc, MIB(2), 4711), -EINVAL);
	T_CHECK(says("0x1210"));
	ipc_of(MIB(2), 0, 0, ipc);
	T_EQ(parse(ipc, MIB(2), 0), -EINVAL);
	ipc_of(MIB(2), 0, UINT32_MAX, ipc);
	T_EQ(parse(ipc, MIB(2), 0), -EINVAL);
	ipc_of(MIB(2), 0, 4711, ipc);
	ipc[4 * NVRM_IPC_CLIENT + 3] = 0x5c;
	T_EQ(parse(ipc, MIB(2), 4711), -EOPNOTSUPP);
	ipc_of(MIB(2), 0, 4711, ipc);
	memset(ipc + 4 * NVRM_IPC_OBJECT, 0, 4);
	T_EQ(parse(ipc, MIB(2), 4711), -EOPNOTSUPP);
	memset(ipc, 0, sizeof(ipc));
	T_EQ(parse(ipc, 1, 0), -EINVAL);
}

static void own_pids(void)
{
	uint32_t pids[NVRM_PIDS_MAX];
	unsigned nr = nvrm_own_pids(pids);
	bool found = false;

	T_CHECK(nr >= 1 && nr <= NVRM_PIDS_MAX);
	for (unsigned i = 0; i < nr; i++)
		found |= pids[i] == (uint32_t)getpid();
	T_CHECK(found);
}

static void versions(void)
{
	static const char *const good[] = { "550.54.14", "570.124.06", "580.142",   "580.159.04",
					    "595.45.04", "580.95.05",  "550.163.01" };
	static const char *const bad[] = { "535.183.01", "610.43.02", "560.28",  "",       "580",
					   "580.",       "580.1.",    "v580.1",  "580.1 ", "5800.1",
					   "580.1.2.3",  "580..1",    "580.1234" };

	for (unsigned i = 0; i < ARRAY_SIZE(good); i++)
		T_OK(nvrm_driver_known(good[i], NVRM_MODE_AUTO));
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		T_EQ(nvrm_driver_known(bad[i], NVRM_MODE_AUTO), -EOPNOTSUPP);
		T_CHECK(says("PST_NVRM=force"));
		T_EQ(nvrm_driver_known(bad[i], NVRM_MODE_FORCE), 0);
	}
}

static unsigned warnings;

static void count_warning(void *arg, int level, const char *line)
{
	(void)arg;
	warnings += level == PST_LOG_WARN && strstr(line, "PST_NVRM");
}

static void modes(void)
{
	log_set(count_warning, NULL, PST_LOG_WARN);
	T_EQ(nvrm_mode_of(NULL), NVRM_MODE_AUTO);
	T_EQ(nvrm_mode_of(""), NVRM_MODE_AUTO);
	T_EQ(nvrm_mode_of("auto"), NVRM_MODE_AUTO);
	T_EQ(nvrm_mode_of("off"), NVRM_MODE_OFF);
	T_EQ(nvrm_mode_of("force"), NVRM_MODE_FORCE);
	T_EQ(warnings, 0);
	T_EQ(nvrm_mode_of("offf"), NVRM_MODE_AUTO);
	T_EQ(warnings, 1);
	log_set(NULL, NULL, 0);
}

int main(void)
{
	T_RUN(handles);
	T_RUN(own_pids);
	T_RUN(versions);
	T_RUN(modes);
	return t_done();
}
