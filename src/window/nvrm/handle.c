/* SPDX-License-Identifier: MIT */
/*
 * The 64 bytes of cuIpcGetMemHandle().
 *
 * The layout of these bytes is not guaranteed, so values that are known beforehand are checked: the
 * size of the allocation and the owner's pid.  If a driver has another layout, these words are
 * elsewhere, or the word that is read as the client names no client.  After these checks, the
 * driver itself looks the objects up and checks who may have them, and windows are proven with
 * data.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "window/nvrm/nvrm.h"

/* Maximum bytes by which a handle's size may exceed the allocation's: the driver rounds up, and may
 * report the block of a small allocation. */
#define ROUNDING_MAX MIB(64)
#define ALIGNMENT 256u                /* least alignment of an allocation, bytes */
#define PID_LIMIT (UINT32_C(1) << 22) /* PID_MAX_LIMIT of the kernel */

static bool is_pid(uint32_t pid, const uint32_t *pids, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		if (pids[i] == pid)
			return true;
	return !nr && pid && pid <= PID_LIMIT;
}

int nvrm_handle_parse(const uint8_t ipc[64], uint64_t size, const uint32_t *pids, unsigned nr,
		      struct nvrm_handle *ret)
{
	uint32_t w[NVRM_IPC_WORDS];
	uint64_t said;
	int r = 0;

	memcpy(w, ipc, sizeof(w));
	memcpy(&said, &w[NVRM_IPC_SIZE], sizeof(said));
	/* Log nothing secret: not the whole client, and not the object. */
	log_debug("nvrm: handle by process %" PRIu32 " of %" PRIu64 " bytes at %#" PRIx32
		  ", client 0x%03" PRIx32 "..., word 6 is %" PRIu32 "; the memory has %" PRIu64
		  " bytes",
		  w[NVRM_IPC_PID], said, w[NVRM_IPC_OFFSET], w[NVRM_IPC_CLIENT] >> 20, w[6], size);
	if (!size || said < size || said - size > ROUNDING_MAX)
		r = err_set(EINVAL,
			    "the IPC handle is for %" PRIu64 " bytes and the memory has %" PRIu64
			    ", or this driver's handles are different",
			    said, size);
	else if (!is_pid(w[NVRM_IPC_PID], pids, nr))
		r = err_set(EINVAL, "the IPC handle is not of the process that owns the memory, or "
				    "this driver's handles are different");
	else if (w[NVRM_IPC_OFFSET] % ALIGNMENT)
		r = err_set(EINVAL,
			    "the IPC handle has an allocation at %#" PRIx32
			    ", where none can be, or this driver's handles are different",
			    w[NVRM_IPC_OFFSET]);
	else if ((w[NVRM_IPC_CLIENT] & NVRM_CLIENT_MASK) != NVRM_CLIENT_BASE || !w[NVRM_IPC_OBJECT])
		r = err_set(EOPNOTSUPP, "the IPC handle names no object of the driver where those "
					"that are known do");
	if (r == 0)
		*ret = (struct nvrm_handle){ .client = w[NVRM_IPC_CLIENT],
					     .object = w[NVRM_IPC_OBJECT],
					     .off = w[NVRM_IPC_OFFSET] };
	explicit_bzero(w, sizeof(w));
	return r;
}

/* Parse "NSpid:\t4711\t12": the pids in all namespaces of the process, the outermost one first. */
static unsigned parse_pids(const char *line, uint32_t pids[NVRM_PIDS_MAX])
{
	const char *p = line + strlen("NSpid:");
	unsigned nr = 0;
	char *end;

	while (nr < NVRM_PIDS_MAX) {
		unsigned long pid = strtoul(p, &end, 10);

		if (end == p)
			break;
		pids[nr++] = (uint32_t)pid;
		p = end;
	}
	return nr;
}

unsigned nvrm_own_pids(uint32_t pids[NVRM_PIDS_MAX])
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[512];
	unsigned nr = 0;

	while (f && !nr && fgets(line, sizeof(line), f))
		if (!strncmp(line, "NSpid:", strlen("NSpid:")))
			nr = parse_pids(line, pids);
	if (f)
		(void)fclose(f);
	if (!nr)
		pids[nr++] = (uint32_t)getpid();
	return nr;
}
