/* SPDX-License-Identifier: MIT */
/*
 * Shared by the window programs: cases that print the library's log when they fail, ranges
 * checked in both directions, and memory of several chunks.
 */
#ifndef PST_HW_WINDOW_H
#define PST_HW_WINDOW_H

#include <dirent.h>
#include <pthread.h>

#include "hw.h"

static const char *device = "cuda:0", *backend = "nvrm";
static int ordinal;

/* --------------------------------------------------------------------- log */

#define LOG_LINES 120

static struct {
	pthread_mutex_t lock;
	char line[LOG_LINES][240];
	unsigned nr;
} seen = { .lock = PTHREAD_MUTEX_INITIALIZER };

static inline void keep(void *arg, int level, const char *line)
{
	(void)arg;
	(void)level;
	(void)pthread_mutex_lock(&seen.lock);
	(void)snprintf(seen.line[seen.nr++ % LOG_LINES], sizeof(seen.line[0]), "%s", line);
	(void)pthread_mutex_unlock(&seen.lock);
}

static inline void print_log(void)
{
	unsigned first = seen.nr > LOG_LINES ? seen.nr - LOG_LINES : 0;

	for (unsigned i = first; i < seen.nr; i++)
		printf("#   %s\n", seen.line[i % LOG_LINES]);
}

static inline void run(const char *name, void (*fn)(void))
{
	int failed = t_failed;
	uint64_t begun = t_now();

	seen.nr = 0;
	t_run(name, fn);
	if (t_failed == failed)
		printf("# %s took %.1f ms\n", name, (double)(t_now() - begun) / 1e6);
	else
		print_log();
	(void)fflush(stdout);
}

#define RUN(fn) run(#fn, fn)

/* ----------------------------------------------------------------- windows */

static inline struct pst_window_opts opts(uint32_t flags)
{
	return (struct pst_window_opts){ .sz = sizeof(struct pst_window_opts),
					 .flags = flags,
					 .backend = backend };
}

static inline struct pst_window *window(struct pst_mem *m, uint64_t off, uint64_t len)
{
	struct pst_window_opts o = opts(0);
	struct pst_window_info info = { .sz = sizeof(info) };
	struct pst_window *w = NULL;

	T_OK(pst_window_open(m, off, len, &o, &w));
	T_OK(pst_window_info(w, &info));
	T_EQ(info.state, PST_STATE_PROVEN);
	T_EQ(info.len, len);
	T_CHECK(!strcmp(info.backend, backend));
	return w;
}

static inline int refused(struct pst_mem *m, uint64_t off, uint64_t len)
{
	struct pst_window_opts o = opts(0);
	struct pst_window *w = NULL;
	int r = pst_window_open(m, off, len, &o, &w);

	if (r == 0)
		pst_window_close(w);
	else
		printf("# refused: %s\n", pst_error_text());
	return r;
}

/* Compare the device's bytes with the pattern, in steps. */
static inline void device_has(struct pst_mem *m, uint64_t off, uint64_t len, uint64_t seed,
			      uint64_t at)
{
	uint64_t n;

	for (uint64_t done = 0; done < len; done += n) {
		n = len - done < RIG_MIB(16) ? len - done : RIG_MIB(16);
		if (rig_mem_differs(m, off + done, n, seed, at + done) != n)
			T_FAIL("the device has other bytes than the CPU stored, within %" PRIu64
			       " of offset %" PRIu64,
			       n, off + done);
	}
}

/*
 * Store len bytes at off by the CPU and read them by the device, then the reverse.  Up to 64
 * bytes on each side must not change.
 */
static inline void both_ways(struct pst_mem *m, uint64_t mem_len, uint64_t off, uint64_t len)
{
	uint64_t before = off < 64 ? off : 64;
	uint64_t behind = mem_len - off - len < 64 ? mem_len - off - len : 64;
	struct pst_window *w;
	char *buf = malloc(len);

	T_CHECK(buf);
	rig_mem_fill(m, off - before, before + len + behind, 77, 0);
	w = window(m, off, len);
	t_fill(buf, 78, 0, len);
	T_OK(pst_window_store(w, 0, buf, len));
	device_has(m, off, len, 78, 0);
	if (before)
		device_has(m, off - before, before, 77, 0);
	if (behind)
		device_has(m, off + len, behind, 77, before + len);
	rig_mem_fill(m, off, len, 79, 0);
	memset(buf, 0, len);
	T_OK(pst_window_load(w, 0, buf, len));
	if (t_differs(buf, 79, 0, len) != len)
		T_FAIL("the CPU loads byte %zu wrong", t_differs(buf, 79, 0, len));
	pst_window_close(w);
	free(buf);
}

/* ------------------------------------------------------------------ memory */

/* Reserved addresses with consecutive chunks of cuMemCreate(). */
struct row {
	cu_ptr va;
	uint64_t len, chunk;
};

static inline struct row row_of(unsigned nr, uint64_t chunk, uint32_t types, uint32_t prot)
{
	struct cu_prop prop = { .type = CU_ALLOC_PINNED,
				.handle_types = types,
				.location = { CU_LOC_DEVICE, ordinal } };
	struct cu_access access = { { CU_LOC_DEVICE, ordinal }, prot };
	struct row row = { .len = nr * chunk, .chunk = chunk };

	HW_CU(cuMemAddressReserve(&row.va, row.len, 0, 0, 0));
	for (unsigned i = 0; i < nr; i++) {
		cu_handle h;

		HW_CU(cuMemCreate(&h, chunk, &prop, 0));
		HW_CU(cuMemMap(row.va + i * chunk, chunk, 0, h, 0));
		HW_CU(cuMemRelease(h));
	}
	HW_CU(cuMemSetAccess(row.va, row.len, &access, 1));
	return row;
}

static inline void end_row(struct row row)
{
	for (uint64_t at = 0; at < row.len; at += row.chunk)
		HW_CU(cuMemUnmap(row.va + at, row.chunk));
	HW_CU(cuMemAddressFree(row.va, row.len));
}

/* Count the open descriptors of the driver's files. */
static inline unsigned nvidia_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	char path[300], to[64];
	struct dirent *e;
	unsigned n = 0;

	while (d && (e = readdir(d)) != NULL) {
		ssize_t len;

		(void)snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
		len = readlink(path, to, sizeof(to) - 1);
		to[len > 0 ? len : 0] = '\0';
		n += !strncmp(to, "/dev/nvidia", 11);
	}
	if (d)
		(void)closedir(d);
	return n;
}

static inline void print_line(const char *path)
{
	FILE *f = fopen(path, "r");
	char line[256];

	if (f && fgets(line, sizeof(line), f))
		printf("# %s: %s", path, line);
	if (f)
		(void)fclose(f);
}

static unsigned fds_at_first;

/* Use a window once, so that the driver opens its descriptors before they are counted. */
static inline void warms_up(void)
{
	struct pst_mem *m = rig_alloc(device, 1000);

	both_ways(m, 1000, 0, 1000);
	pst_mem_free(m);
	fds_at_first = nvidia_fds();
}

static inline void nothing_is_left(void)
{
	T_EQ(nvidia_fds(), fds_at_first);
}

static const char *no_windows;

static inline void no_driver(void)
{
	T_SKIP("%s", no_windows);
}

/* Load the driver and collect the library's log.  Without a GPU print a skipped case and return
 * false. */
static inline bool windows_start(void)
{
	rig_init();
	ordinal = hw_ordinal(device);
	no_windows = ordinal < 0 ? "windows of the software device have tests of their own"
				 : hw_cuda(ordinal);
	if (no_windows) {
		T_RUN(no_driver);
		return false;
	}
	print_line("/proc/driver/nvidia/version");
	pst_log_set(keep, NULL, PST_LOG_DEBUG);
	return true;
}

#endif
