/* SPDX-License-Identifier: MIT */
/* Shared by the tests in which several requests use one engine at the same time. */
#ifndef PST_TESTS_API_ENGINE_H
#define PST_TESTS_API_ENGINE_H

#include <dirent.h>
#include <dlfcn.h>

#include "rig.h"

#define ENGINE_SEED 31u
#define PIECE RIG_MIB(1)
#define PIECES 24u
#define FILE_LEN (PIECES * PIECE)

/* Functions of the CUDA stub (tests/stub/cuda_stub.h); NULL with a real driver. */
static void (*delay_us)(unsigned us);
static void (*stall)(const char *name);
static void (*hold)(bool hold);

static inline int engine_set_pool(uint64_t bytes)
{
	struct pst_limits l = { .sz = sizeof(l), .pool_bytes = bytes };

	return pst_limits_set(&l);
}

static inline void engine_find(void *lib, const char *name, void *ret)
{
	void *fn = lib ? dlsym(lib, name) : NULL;

	memcpy(ret, &fn, sizeof(fn));
}

/* Load the CUDA stub that PST_LIBCUDA names, or the real driver. */
static inline void *engine_stub(void)
{
	const char *name = getenv("PST_LIBCUDA");
	void *lib = dlopen(name ? name : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	engine_find(lib, "stub_cuda_delay_us", &delay_us);
	engine_find(lib, "stub_cuda_stall", &stall);
	engine_find(lib, "stub_cuda_hold", &hold);
	return lib;
}

static inline void engine_needs_stub(void)
{
	if (!delay_us || !stall || !hold)
		T_SKIP("a CUDA library that stalls on demand");
}

static inline struct pst_file *engine_warm_file(uint32_t flags, uint64_t len)
{
	rig_make(rig_path("data"), ENGINE_SEED, len);
	rig_warm(rig_path("data"));
	return rig_open(rig_path("data"), PST_FILE_READ | flags);
}

/* Copy the rest of the line that begins with key from a thread's /proc file.  Return false if there
 * is none. */
static inline bool engine_thread_line(const char *tid, const char *file, const char *key, char *buf,
				      int len)
{
	bool found = false;
	char path[64];
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%s/%s", tid, file);
	f = fopen(path, "re");
	while (f && !found && fgets(buf, len, f))
		found = strncmp(buf, key, strlen(key)) == 0;
	if (f)
		(void)fclose(f);
	if (found)
		memmove(buf, buf + strlen(key), strlen(buf + strlen(key)) + 1);
	return found;
}

/* Bytes that each worker of a CUDA device has read so far.  The order of workers is the same in
 * every call. */
struct engine_bytes_read {
	uint64_t of[16];
	unsigned nr;
};

/* Fill ret and return the sum of its numbers. */
static inline uint64_t engine_bytes_read(struct engine_bytes_read *ret)
{
	DIR *dir = opendir("/proc/self/task");
	uint64_t sum = 0;
	struct dirent *d;
	char buf[128];

	T_CHECK(dir != NULL);
	ret->nr = 0;
	while ((d = readdir(dir))) {
		if (!engine_thread_line(d->d_name, "comm", "pst-cuda-0", buf, sizeof(buf)) ||
		    !engine_thread_line(d->d_name, "io", "rchar: ", buf, sizeof(buf)))
			continue;
		T_CHECK(ret->nr < RIG_NR(ret->of));
		sum += ret->of[ret->nr++] = strtoull(buf, NULL, 10);
	}
	(void)closedir(dir);
	return sum;
}

static inline void engine_run(const char *dev, const char *name, void (*fn)(void))
{
	static const char *const backends[] = { "", "uring", "threads" };
	char full[100];

	for (rig_backend = PST_BACKEND_URING; rig_backend <= PST_BACKEND_THREADS; rig_backend++) {
		rig_dev = dev;
		rig_last = rig_q;
		rig_q = NULL;
		rig_fn = fn;
		(void)snprintf(full, sizeof(full), "%s %s %s", name, backends[rig_backend], dev);
		t_run(full, rig_case);
	}
}

#define ENGINE_RUN(dev, fn) engine_run(dev, #fn, fn)

#endif
