/* SPDX-License-Identifier: MIT */
/* Check when the library loads libcuda: the stub that PST_LIBCUDA names. */
#include "rig.h"
#include "symbol.h"

static const char *path, *lib; /* path of the stub, and its name without folders */

/* The driver's functions, as programs call them. */
static struct {
	int (*init)(unsigned flags);
	int (*device)(int *ret, int ordinal);
	int (*context)(void **ret, int dev);
	int (*push)(void *ctx);
	int (*alloc)(unsigned long long *ret, size_t len);
	int (*free)(unsigned long long p);
} cu;

static bool is_loaded(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char *line = NULL;
	bool found = false;
	size_t size = 0;

	while (f && !found && getline(&line, &size, f) > 0)
		found = strstr(line, lib);
	if (f)
		(void)fclose(f);
	free(line);
	return found;
}

/* Calls that involve no GPU must not load libcuda. */
static void host_memory_loads_nothing(void)
{
	static char bytes[8192];
	struct pst_device d = { .sz = sizeof(d) };
	struct pst_mem *m;

	T_CHECK(!is_loaded());
	for (unsigned i = 0; i < 3; i++) {
		T_OK(pst_mem_wrap((uintptr_t)bytes, sizeof(bytes), NULL, &m));
		(void)pst_mem_free(m);
	}
	T_OK(pst_mem_alloc("host", 4096, NULL, &m));
	(void)pst_mem_free(m);
	T_OK(pst_mem_alloc("soft:0", 4096, NULL, &m));
	(void)pst_mem_free(m);
	T_OK(pst_device_find("soft:0", &d));
	T_CHECK(!is_loaded());
}

/* The program loads libcuda itself and allocates from it: pst_mem_wrap() must recognise the
 * memory. */
static void the_programs_memory_is_found(void)
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_mem *m;
	void *ctx, *handle = dlopen(path, RTLD_NOW);
	unsigned long long p;
	int dev;

	T_CHECK(handle && is_loaded());
	symbol(handle, &cu.init, "cuInit");
	symbol(handle, &cu.device, "cuDeviceGet");
	symbol(handle, &cu.context, "cuDevicePrimaryCtxRetain");
	symbol(handle, &cu.push, "cuCtxPushCurrent_v2");
	symbol(handle, &cu.alloc, "cuMemAlloc_v2");
	symbol(handle, &cu.free, "cuMemFree_v2");
	T_EQ(cu.init(0) | cu.device(&dev, 0) | cu.context(&ctx, dev) | cu.push(ctx), 0);
	T_EQ(cu.alloc(&p, 65536), 0);
	T_OK(pst_mem_wrap(p, 65536, NULL, &m));
	T_OK(pst_mem_info(m, &info));
	T_EQ(info.kind, PST_KIND_CUDA);
	(void)pst_mem_free(m);
	T_EQ(cu.free(p), 0);
}

/* Check in a fresh process that looking up a device by name loads libcuda. */
static int by_name(void)
{
	struct pst_device d = { .sz = sizeof(d) };

	if (is_loaded() || pst_device_find("cuda:0", &d) != 0)
		return 1;
	return is_loaded() ? 0 : 2;
}

static void no_stub(void)
{
	T_SKIP("needs the library of tests/stub");
}

/* Do what t_done() does, without its check of descriptors: the driver keeps its own. */
static int done(void)
{
	printf("1..%d\n", t_cases);
	return t_failed ? 1 : 0;
}

int main(int argc, char **argv)
{
	path = getenv("PST_LIBCUDA");

	if (!path || !strchr(path, '/') || access(path, R_OK) < 0) {
		T_RUN(no_stub);
		return done();
	}
	lib = strrchr(path, '/') + 1;
	if (argc > 1)
		return by_name();
	{
		char cmd[600];

		(void)snprintf(cmd, sizeof(cmd), "'%s' by_name", argv[0]);
		if (system(cmd) != 0) {
			printf("Bail out! a device's name does not load it\n");
			return 1;
		}
	}
	T_RUN(host_memory_loads_nothing);
	T_RUN(the_programs_memory_is_found);
	return done();
}
