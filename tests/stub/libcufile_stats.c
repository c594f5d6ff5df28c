/* SPDX-License-Identifier: MIT */
/* Statistics, in the layout of the configured version. */
#include <string.h>

#include "cufile_stub_int.h"

struct cuf_error cuFileSetStatsLevel(int level)
{
	int code = CALL();

	if (!code && (level < 0 || level > 3))
		code = CUF_INVALID_VALUE;
	if (!code) {
		cf.level = level;
		cf.state.levels++;
	}
	return stub_error(code);
}

struct cuf_error cuFileGetStatsLevel(int *ret)
{
	int code = CALL();

	if (!code)
		*ret = cf.level;
	return stub_error(code);
}

struct cuf_error cuFileStatsStart(void)
{
	int code = CALL();

	if (!code && cf.state.uses <= 0)
		code = CUF_DRIVER_NOT_INITIALIZED;
	cf.started |= !code;
	return stub_error(code);
}

struct cuf_error cuFileStatsStop(void)
{
	int code = CALL();

	if (!code && cf.state.uses <= 0)
		code = CUF_DRIVER_NOT_INITIALIZED;
	cf.started &= code != 0;
	return stub_error(code);
}

/* Write the whole buffer, whose length depends on the version. */
struct cuf_error cuFileGetStatsL3(void *ret)
{
	size_t at = cf.version < 1190 ? CUF_STATS_AT_1150 : CUF_STATS_AT_1190;
	struct cuf_gpu_stats *gpu = (struct cuf_gpu_stats *)((char *)ret + at + 8);
	int code = CALL(), nr = 0;
	struct cu_uuid uuid;
	uint32_t nr_gpus;

	if (!code && cf.state.uses <= 0)
		code = CUF_DRIVER_NOT_INITIALIZED;
	if (!code && (cf.level < CUF_STATS_LEVEL || !cf.started))
		code = CUF_INVALID_VALUE;
	if (code)
		return stub_error(code);
	memset(ret, 0x11, at);
	memset((char *)ret + at, 0, 8 + CUF_GPUS * sizeof(*gpu));
	(void)cuDeviceGetCount(&nr);
	nr_gpus = (uint32_t)nr;
	memcpy((char *)ret + at, &nr_gpus, sizeof(nr_gpus));
	(void)pthread_mutex_lock(&cf.lock);
	for (int i = 0; i < nr; i++) {
		const struct counts *r = &cf.counts[i][0], *w = &cf.counts[i][1];

		(void)cuDeviceGetUuid_v2(&uuid, i);
		memcpy(gpu[i].uuid, uuid.bytes, 16);
		gpu[i].reads = r->ops;
		gpu[i].p2p_reads = r->p2p;
		gpu[i].nvfs_reads = r->nvfs;
		gpu[i].posix_reads = r->posix;
		gpu[i].unaligned_reads = r->unaligned;
		gpu[i].failed_reads = r->failed;
		gpu[i].writes = w->ops;
		gpu[i].p2p_writes = w->p2p;
		gpu[i].nvfs_writes = w->nvfs;
		gpu[i].posix_writes = w->posix;
		gpu[i].unaligned_writes = w->unaligned;
		gpu[i].failed_writes = w->failed;
	}
	(void)pthread_mutex_unlock(&cf.lock);
	return stub_error(0);
}
