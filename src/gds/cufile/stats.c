/* SPDX-License-Identifier: MIT */
/*
 * Read libcufile's per-GPU counters, which tell how bytes really moved.  The counters' offset in
 * the statistics changed once, so the offset is looked up by version; unknown versions have no
 * counters.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/err.h"
#include "gds/cufile/internal.h"

/* Return the byte offset of level 3's number of GPUs; 0 if unknown. */
static size_t stats_layout(int version)
{
	if (version >= 1150 && version < 1190)
		return CUF_STATS_AT_1150;
	if (version >= 1190 && version < 1210)
		return CUF_STATS_AT_1190;
	return 0;
}

static void stats_copy(const struct cuf_gpu_stats *g, bool write, struct cufile_counts *ret)
{
	if (write)
		*ret = (struct cufile_counts){ .p2p = g->p2p_writes,
					       .nvfs = g->nvfs_writes,
					       .posix = g->posix_writes,
					       .unaligned = g->unaligned_writes,
					       .failed = g->failed_writes };
	else
		*ret = (struct cufile_counts){ .p2p = g->p2p_reads,
					       .nvfs = g->nvfs_reads,
					       .posix = g->posix_reads,
					       .unaligned = g->unaligned_reads,
					       .failed = g->failed_reads };
}

static int stats_find(const char *buf, const uint8_t uuid[16], bool write,
		      struct cufile_counts *ret)
{
	struct cuf_gpu_stats g;
	uint32_t nr;

	memcpy(&nr, buf, sizeof(nr));
	if (nr > CUF_GPUS)
		return err_set(EOPNOTSUPP, "cuFile counts for %u GPUs: in a form not known", nr);
	*ret = (struct cufile_counts){ 0 };
	for (uint32_t i = 0; i < nr; i++) {
		memcpy(&g, buf + 8 + i * sizeof(g), sizeof(g));
		if (!memcmp(g.uuid, uuid, 16))
			stats_copy(&g, write, ret);
	}
	return 0;
}

static atomic_bool counting; /* this process has switched counting on */

/*
 * Switch counting on if no other code is affected.  Do this only on demand: before 1.16, a process
 * that counts cannot exit safely.
 */
static int stats_count(bool strict)
{
	struct cuf_error e;
	int level = 0;

	if (atomic_load(&counting))
		return 0;
	if (!strict) {
		e = cuf.cuFileGetStatsLevel(&level);
		if (!e.err && level >= CUF_STATS_LEVEL)
			return 0;
		return err_set(EOPNOTSUPP,
			       "cuFile's counters are off; PST_GDS=exclusive switches them on, or "
			       "profile.cufile_stats in cufile.json");
	}
	e = cuf.cuFileSetStatsLevel(CUF_STATS_LEVEL);
	if (!e.err)
		e = cuf.cuFileStatsStart();
	if (e.err)
		return cufile_err(e, "count");
	atomic_store(&counting, true);
	return 0;
}

void cufile_counts_end(void)
{
	if (atomic_exchange(&counting, false))
		(void)cuf.cuFileStatsStop();
}

static int read_counters(const struct cufile_info *info, char *buf)
{
	struct cuf_error e;
	int r;

	if (!stats_layout(info->version) || !cuf.cuFileGetStatsL3 || !cuf.cuFileGetStatsLevel ||
	    !cuf.cuFileSetStatsLevel || !cuf.cuFileStatsStart || !cuf.cuFileStatsStop)
		return err_set(EOPNOTSUPP, "the counters of cuFile %d.%d are not known",
			       info->version / 1000, info->version % 1000 / 10);
	r = stats_count(info->strict);
	if (r < 0)
		return r;
	e = cuf.cuFileGetStatsL3(buf);
	return e.err ? cufile_err(e, "say its counters") : 0;
}

int cufile_counts(const uint8_t uuid[16], bool write, struct cufile_counts *ret)
{
	_cleanup_(freep) char *buf = calloc(1, CUF_STATS_ROOM);
	struct cufile_info info;
	int r = cufile_hold();

	if (r < 0)
		return r;
	cufile_info(&info);
	r = buf ? read_counters(&info, buf) : err_set(ENOMEM, "out of memory");
	cufile_drop();
	return r < 0 ? r : stats_find(buf + stats_layout(info.version), uuid, write, ret);
}

enum cufile_mode cufile_mode(const struct cufile_counts *before, const struct cufile_counts *after)
{
	uint64_t p2p = after->p2p - before->p2p, nvfs = after->nvfs - before->nvfs;
	struct cufile_info info;

	cufile_info(&info);
	if (after->posix != before->posix)
		return CUFILE_MODE_COMPAT;
	/* Unaligned counts come from other code: Penstock moves whole pages only. */
	if (after->unaligned != before->unaligned || (p2p && nvfs))
		return CUFILE_MODE_UNKNOWN;
	/* Without nvidia-fs loaded, its mode is impossible. */
	if (nvfs)
		return info.nvfs_major || info.nvfs_minor ? CUFILE_MODE_NVFS : CUFILE_MODE_UNKNOWN;
	if (p2p)
		return info.c2c ? CUFILE_MODE_C2C : CUFILE_MODE_P2PDMA;
	return CUFILE_MODE_UNKNOWN;
}

const char *cufile_mode_name(enum cufile_mode mode)
{
	static const char *const names[] = {
		[CUFILE_MODE_UNKNOWN] = "unknown", [CUFILE_MODE_COMPAT] = "compat",
		[CUFILE_MODE_NVFS] = "nvfs",       [CUFILE_MODE_P2PDMA] = "p2pdma",
		[CUFILE_MODE_C2C] = "c2c",
	};

	return (unsigned)mode < ARRAY_SIZE(names) ? names[mode] : "unknown";
}
