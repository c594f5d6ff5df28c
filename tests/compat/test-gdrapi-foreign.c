/* SPDX-License-Identifier: MIT */
/*
 * A program that knows libgdrapi from its documentation only: its own declarations, dlopen(),
 * and the checks that large clients make before they use the library.  NCCL loads "libgdrapi.so"
 * and requires eleven symbols and library and driver version 2.1; NVSHMEM loads "libgdrapi.so.2"
 * and requires the major version that it was built with and at least its minor version.
 *
 * Each client is a separate process, because the library reads its environment once.
 */
#include <dlfcn.h>
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include <penstock.h>

#include "t.h"

struct gdr;
struct mh {
	unsigned long h;
};
struct info {
	uint64_t va, mapped_size;
	uint32_t page_size;
	uint64_t tm_cycles;
	uint32_t cycles_per_ms;
	unsigned mapped : 1, wc_mapping : 1;
};

static struct {
	struct gdr *(*gdr_open)(void);
	int (*gdr_close)(struct gdr *);
	int (*gdr_pin_buffer)(struct gdr *, unsigned long, size_t, uint64_t, uint32_t, struct mh *);
	int (*gdr_unpin_buffer)(struct gdr *, struct mh);
	int (*gdr_get_info)(struct gdr *, struct mh, struct info *);
	int (*gdr_map)(struct gdr *, struct mh, void **, size_t);
	int (*gdr_unmap)(struct gdr *, struct mh, void *, size_t);
	void (*gdr_runtime_get_version)(int *, int *);
	int (*gdr_driver_get_version)(struct gdr *, int *, int *);
	int (*gdr_copy_to_mapping)(struct mh, void *, const void *, size_t);
	int (*gdr_copy_from_mapping)(struct mh, void *, const void *, size_t);
	/* Optional: older libraries lack them. */
	int (*gdr_pin_buffer_v2)(struct gdr *, unsigned long, size_t, uint32_t, struct mh *);
	int (*gdr_get_info_v2)(struct gdr *, struct mh, void *);
	int (*gdr_map_v2)(struct gdr *, struct mh, void **, size_t, int);
	int (*gdr_get_attribute)(struct gdr *, int, int *);
} api;

/* The loader finds the library by this program's path or LD_LIBRARY_PATH. */
static void load(const char *name)
{
	void *lib = dlopen(name, RTLD_NOW);

	if (!lib)
		T_FAIL("%s", dlerror());
#define SYM(sym)                                            \
	do {                                                \
		void *fn = dlsym(lib, #sym);                \
		if (!fn)                                    \
			T_FAIL("%s has no %s", name, #sym); \
		memcpy(&api.sym, &fn, sizeof(fn));          \
	} while (0)
	SYM(gdr_open);
	SYM(gdr_close);
	SYM(gdr_pin_buffer);
	SYM(gdr_unpin_buffer);
	SYM(gdr_get_info);
	SYM(gdr_map);
	SYM(gdr_unmap);
	SYM(gdr_runtime_get_version);
	SYM(gdr_driver_get_version);
	SYM(gdr_copy_to_mapping);
	SYM(gdr_copy_from_mapping);
	SYM(gdr_pin_buffer_v2);
	SYM(gdr_get_info_v2);
	SYM(gdr_map_v2);
	SYM(gdr_get_attribute);
}

/* Use a buffer as NCCL does. */
static void use(struct gdr *g, bool v2)
{
	const size_t page = 65536, size = 2 * page;
	struct pst_mem_info m = { .sz = sizeof(m) };
	struct pst_mem *mem = NULL;
	uint64_t v = 0, back = 0, aligned;
	struct info info;
	struct mh mh;
	void *map;

	T_EQ(pst_mem_alloc("soft", size + page - 1, NULL, &mem), 0);
	T_EQ(pst_mem_info(mem, &m), 0);
	aligned = (m.addr + page - 1) / page * page;
	T_EQ(v2 ? api.gdr_pin_buffer_v2(g, aligned, size, 0, &mh)
		: api.gdr_pin_buffer(g, aligned, size, 0, 0, &mh),
	     0);
	T_EQ(v2 ? api.gdr_map_v2(g, mh, &map, size, 0) : api.gdr_map(g, mh, &map, size), 0);
	T_EQ(api.gdr_get_info(g, mh, &info), 0);
	T_EQ(info.va, aligned);
	T_EQ(info.mapped_size, size);
	for (volatile uint64_t *p = map; (char *)p < (char *)map + size; p += 512)
		*p = ++v;
	T_EQ(pst_mem_copy_out(mem, aligned - m.addr + size - 4096, &back, 8), 0);
	T_EQ(back, v);
	T_EQ(api.gdr_copy_to_mapping(mh, (char *)map + 8, &v, 8), 0);
	T_EQ(api.gdr_copy_from_mapping(mh, &back, (char *)map + 8, 8), 0);
	T_EQ(back, v);
	T_EQ(api.gdr_unmap(g, mh, map, size), 0);
	T_EQ(api.gdr_unpin_buffer(g, mh), 0);
	pst_mem_free(mem);
}

static void nccl(void)
{
	int lib[2] = { 0 }, driver[2] = { 0 };
	struct gdr *g;

	load("libgdrapi.so");
	g = api.gdr_open();
	T_CHECK(g);
	api.gdr_runtime_get_version(&lib[0], &lib[1]);
	T_EQ(api.gdr_driver_get_version(g, &driver[0], &driver[1]), 0);
	T_CHECK(lib[0] > 2 || (lib[0] == 2 && lib[1] >= 1));
	T_CHECK(driver[0] > 2 || (driver[0] == 2 && driver[1] >= 1));
	use(g, false);
	T_EQ(api.gdr_close(g), 0);
}

static void nvshmem(void)
{
	int lib[2] = { 0 }, driver[2] = { 0 }, dmabuf = 1;
	struct gdr *g;

	load("libgdrapi.so.2");
	api.gdr_runtime_get_version(&lib[0], &lib[1]);
	T_CHECK(lib[0] == 2 && lib[1] >= 4);
	g = api.gdr_open();
	T_CHECK(g);
	T_EQ(api.gdr_get_attribute(g, 3, &dmabuf), 0);
	/* Without dma-buf support NVSHMEM asks for the module's version. */
	T_EQ(dmabuf, 0);
	T_EQ(api.gdr_driver_get_version(g, &driver[0], &driver[1]), 0);
	T_CHECK(driver[0] == 2 && driver[1] >= 0);
	use(g, true);
	T_EQ(api.gdr_close(g), 0);
}

static void fails_a_little(void)
{
	struct mh mh;
	struct gdr *g;

	load("libgdrapi.so");
	g = api.gdr_open();
	T_CHECK(g);
	use(g, false);
	T_EQ(api.gdr_pin_buffer(g, 4096, 4096, 0, 0, &mh), EINVAL);
}

/* A device refuses the first mappings: each gdr_map() must give ENOMEM, and a later one must
 * work. */
static void no_memory_at_first(void)
{
	struct pst_mem_info m = { .sz = sizeof(m) };
	struct pst_mem *mem = NULL;
	struct gdr *g;
	struct mh mh;
	void *map;

	load("libgdrapi.so");
	g = api.gdr_open();
	T_CHECK(g);
	T_EQ(pst_mem_alloc("soft", 4096, NULL, &mem), 0);
	T_EQ(pst_mem_info(mem, &m), 0);
	T_EQ(api.gdr_pin_buffer(g, m.addr, 4096, 0, 0, &mh), 0);
	T_EQ(api.gdr_map(g, mh, &map, 4096), ENOMEM);
	T_EQ(api.gdr_map(g, mh, &map, 4096), ENOMEM);
	T_EQ(api.gdr_map(g, mh, &map, 4096), 0);
	T_EQ(api.gdr_unmap(g, mh, map, 4096), 0);
	T_EQ(api.gdr_unpin_buffer(g, mh), 0);
	T_EQ(api.gdr_close(g), 0);
	pst_mem_free(mem);
}

/* ------------------------------------------------------------- processes */

static const struct client {
	const char *name;
	void (*fn)(void);
} clients[] = {
	{ "nccl", nccl },
	{ "nvshmem", nvshmem },
	{ "fails-a-little", fails_a_little },
	{ "no-memory-at-first", no_memory_at_first },
};

static int client_main(const char *name)
{
	if (setjmp(t_jump)) {
		(void)fprintf(stderr, "failed: %s\n", t_why);
		return 1;
	}
	for (unsigned i = 0; i < sizeof(clients) / sizeof(clients[0]); i++)
		if (!strcmp(clients[i].name, name)) {
			clients[i].fn();
			return 0;
		}
	return 2;
}

static const char *self;
static char text[20000]; /* output of the client */

/* Run a client with up to two variables, each "NAME=value" or NULL. */
static void run(const char *name, const char *var, const char *var2)
{
	int status = -1, fd[2];
	size_t n = 0;
	ssize_t got;
	pid_t pid;

	(void)fflush(stdout);
	T_EQ(pipe(fd), 0);
	pid = fork();
	if (pid == 0) {
		(void)dup2(fd[1], 1);
		(void)dup2(fd[1], 2);
		(void)close(fd[0]);
		(void)close(fd[1]);
		if (var)
			(void)putenv((char *)(uintptr_t)var);
		if (var2)
			(void)putenv((char *)(uintptr_t)var2);
		(void)execl(self, self, name, (char *)NULL);
		_exit(127);
	}
	(void)close(fd[1]);
	while ((got = read(fd[0], text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = '\0';
	(void)close(fd[0]);
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	if (status)
		T_FAIL("%s: status %#x: %.400s", name, (unsigned)status, text);
}

static void says(const char *what)
{
	if (!strstr(text, what))
		T_FAIL("there is no '%s' in: %.400s", what, text);
}

static void says_not(const char *what)
{
	if (strstr(text, what))
		T_FAIL("there is '%s' in: %.400s", what, text);
}

static void clients_find_what_they_want(void)
{
	run("nccl", NULL, NULL);
	T_CHECK(!text[0]);
	run("nvshmem", NULL, NULL);
	T_CHECK(!text[0]);
}

static void log_lines(void)
{
	run("fails-a-little", "GDRCOPY_LOG_LEVEL=1", NULL);
	T_CHECK(!text[0]);
	run("fails-a-little", "GDRCOPY_ENABLE_LOGGING=0", NULL); /* any value enables the log */
	says("ERR:  cannot pin 4096 bytes at 0x1000: ");
	says_not("INFO: ");
	run("fails-a-little", "GDRCOPY_ENABLE_LOGGING=", "GDRCOPY_LOG_LEVEL=2");
	says("INFO: mapped 131072 bytes at 0x");
	says(" by soft\n");
	says("ERR:  ");
	says_not("DBG:  ");
	run("fails-a-little", "GDRCOPY_ENABLE_LOGGING=1", "GDRCOPY_LOG_LEVEL=1");
	says("DBG:  unmapped ");
	says("INFO: mapped ");
}

static void failing_devices(void)
{
	run("no-memory-at-first", "PST_FAULT=mem.stream:1:ENOMEM,mem.alloc:2:ENOMEM", NULL);
}

int main(int argc, char **argv)
{
	self = argv[0];
	if (argc > 1)
		return client_main(argv[1]);
	T_RUN(clients_find_what_they_want);
	T_RUN(log_lines);
	T_RUN(failing_devices);
	return t_done();
}
