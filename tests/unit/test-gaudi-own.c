/* SPDX-License-Identifier: MIT */
/*
 * Gaudi memory in own mode, on the stub of libhl-thunk.  Each error has a cause and a cure, and
 * nothing is left on the device.
 */
#include <fcntl.h>
#include <sys/wait.h>

#include "base/err.h"
#include "mem/gaudi/gaudi.h"
#include "mem/mem.h"

#define T_ERROR_TEXT() err_text()
#include "dmabuf.h"
#include "gaudi_rig.h"

#define LEN (UINT64_C(1) << 20)

static const struct mem_ops *ops;
static const char *self;

static struct mem_alloc *alloc(uint64_t len)
{
	struct mem_alloc *a = NULL;

	T_OK(mem_alloc(ops, 0, len, 0, &a));
	return a;
}

#define SAYS(want)                                                       \
	do {                                                             \
		if (!strstr(err_text(), want))                           \
			T_FAIL("\"%s\" lacks \"%s\"", err_text(), want); \
	} while (0)

/* Check that no memory is left on the devices, and that no context had to free any at its end. */
static void quiet(void)
{
	struct stub_gaudi_state s = gaudi_state();

	T_EQ(s.contexts, 0);
	T_EQ(s.handles, 0);
	T_EQ(s.mappings, 0);
	T_EQ(s.exports, 0);
	T_EQ(s.leaked, 0);
}

static void devices_are_found_without_a_library(void)
{
	struct pst_device d = { .sz = sizeof(d) };
	const struct mem_ops *o = NULL;
	uint64_t calls = gaudi_state().calls;
	unsigned idx = 9;

	T_OK(mem_find("gaudi:1", &o, &idx));
	T_EQ(idx, 1);
	T_OK(mem_find(STUB_GAUDI_PCI_1, &o, &idx));
	T_CHECK(o == ops && idx == 1);
	mem_device_info(ops, 1, &d);
	T_EQ(d.kind, PST_KIND_GAUDI);
	T_CHECK(!strcmp(d.model, "Habana GAUDI2"));
	T_EQ(mem_find("gaudi:2", &o, &idx), -ENODEV); /* NPUs and control nodes do not count */
	T_EQ(gaudi_state().calls, calls);
	quiet();
}

static void memory_is_opened_and_closed(void)
{
	struct mem_alloc *a = alloc(LEN), *b = alloc(1);
	struct stub_gaudi_state s = gaudi_state();

	T_EQ(s.contexts, 1);
	T_EQ(s.mappings, 2);
	T_EQ(a->size, STUB_GAUDI_PAGE);
	T_CHECK(a->base.va >> 48); /* an address that the CPU cannot use */
	T_CHECK(!mem_copies(a->ops));
	mem_free(a);
	T_EQ(gaudi_state().contexts, 1);
	mem_free(b);
	quiet();
}

static void copies_name_the_way(void)
{
	struct mem_alloc *a = alloc(LEN);
	struct mem_stream *st = NULL;
	char buf[16] = "";

	T_EQ(mem_copy_sync(a, MEM_TO_DEVICE, 0, buf, sizeof(buf)), -EOPNOTSUPP);
	SAYS("RDMA");
	SAYS("PST_GAUDI_MODE=synapse");
	T_EQ(mem_stream_new(ops, 0, &st), -EOPNOTSUPP);
	mem_free(a);
	quiet();
}

static void exports_are_pages_of_the_range(void)
{
	struct mem_alloc *a = alloc(LEN);
	struct mem_dmabuf d;
	char buf[6] = "";
	int fd;

	T_OK(mem_export_dmabuf(a, 5000, 100, &d));
	T_EQ(d.off, 5000 - 4096);
	T_EQ(d.size, 4096);
	T_EQ(lseek(d.fd, 0, SEEK_END), 4096);
	T_CHECK(fcntl(d.fd, F_GETFD) & FD_CLOEXEC);
	T_CHECK(gs.poke(a->base.va + 5000, "hello", 5));
	gaudi_dmabuf_io(d.fd, d.off, buf, 5, false);
	T_CHECK(!strcmp(buf, "hello"));
	gaudi_dmabuf_io(d.fd, d.off, (char[]){ "later" }, 5, true);
	T_CHECK(gs.peek(a->base.va + 5000, buf, 5));
	T_CHECK(!strcmp(buf, "later"));
	/* Export the same pages again: the call must return another dma-buf with another
	 * descriptor. */
	fd = d.fd;
	T_OK(mem_export_dmabuf(a, 4096, 4096, &d));
	T_CHECK(d.fd != fd);
	(void)close(fd);
	(void)close(d.fd);
	T_EQ(mem_export_dmabuf(a, a->size, 1, &d), -ERANGE);
	mem_free(a);
	quiet();
}

static void memory_is_held_by_its_dmabufs(void)
{
	struct mem_alloc *a = alloc(LEN), *b;
	struct mem_dmabuf d;
	uint64_t held = gaudi_state().held;

	T_OK(mem_export_dmabuf(a, 0, 4096, &d));
	mem_free(a);
	T_EQ(gaudi_state().contexts, 1); /* the device stays open */
	T_EQ(gaudi_state().mappings, 1);
	T_CHECK(gaudi_state().held > held);
	b = alloc(LEN);
	(void)close(d.fd);
	mem_free(b);
	quiet();
}

/* Memory whose dma-bufs are closed is freed without another call of the library, because another
 * process may want the device. */
static void held_memory_is_freed_in_the_background(void)
{
	struct mem_alloc *a = alloc(LEN), *b = alloc(LEN);
	uint64_t end = t_hang();
	struct mem_dmabuf d, e;

	for (int i = 0; i < 2; i++) { /* in the second round, the thread must be started again */
		T_OK(mem_export_dmabuf(a, 0, 4096, &d));
		T_OK(mem_export_dmabuf(b, 0, 4096, &e));
		mem_free(a);
		mem_free(b);
		(void)close(d.fd);
		while (gaudi_state().mappings > 1 && t_now() < end)
			(void)usleep(1000);
		T_EQ(gaudi_state().contexts, 1);
		T_EQ(gaudi_state().mappings, 1);
		(void)close(e.fd);
		while (gaudi_state().contexts && t_now() < end)
			(void)usleep(1000);
		quiet();
		a = alloc(LEN);
		b = alloc(LEN);
	}
	mem_free(a);
	mem_free(b);
	quiet();
}

static void wraps_name_the_kind(void)
{
	struct mem_alloc *a = alloc(LEN), *w = NULL;
	struct mem_dmabuf d;

	T_EQ(mem_wrap(a->base.va, LEN, 0, 0, &w), -EFAULT);
	T_OK(mem_wrap(a->base.va + 100, 200, PST_KIND_GAUDI, 0, &w));
	T_EQ(w->buffer_id, a->buffer_id);
	T_EQ(w->base.va, a->base.va);
	mem_free(a); /* the wrap keeps the memory */
	T_EQ(gaudi_state().mappings, 1);
	T_OK(mem_export_dmabuf(w, 100, 200, &d));
	(void)close(d.fd);
	mem_free(w);
	a = alloc(LEN);
	T_EQ(mem_wrap(a->base.va + 100, a->size, PST_KIND_GAUDI, 0, &w), -ERANGE);
	SAYS("reach past the allocation");
	T_EQ(mem_wrap(12345, 1, PST_KIND_GAUDI, 0, &w), -EFAULT);
	SAYS("import it by the descriptor");
	mem_free(a);
	quiet();
}

static void a_pool_is_passed_by_its_descriptor(void)
{
	struct mem_alloc *a = NULL, *w = NULL;
	struct pst_grant g = { .sz = sizeof(g), .kind = PST_KIND_GAUDI, .rights = 3 };
	struct mem_dmabuf d;
	uint64_t handle, va;

	T_OK(hl_load());
	g.fd = hl.hlthunk_open(HL_DONT_CARE, STUB_GAUDI_PCI_1);
	T_CHECK(g.fd >= 0);
	handle = hl.hlthunk_device_memory_alloc(g.fd, LEN, 0, false, false);
	va = hl.hlthunk_device_memory_map(g.fd, handle, 0);
	T_CHECK(va);
	memcpy(g.ipc, &va, sizeof(va));
	g.size = g.len = STUB_GAUDI_PAGE;
	T_OK(mem_import(&g, &a));
	T_EQ(a->device, 1);
	T_EQ(a->base.va, va);
	T_OK(mem_export_dmabuf(a, 8192, 1, &d));
	(void)close(d.fd);
	T_OK(mem_wrap(va + 8192, 100, PST_KIND_GAUDI, 0, &w));
	mem_free(w);
	/* Wrap more than the mapping has: the driver refuses. */
	mem_free(a);
	g.size = g.len = STUB_GAUDI_PAGE + 4096;
	T_OK(mem_import(&g, &a));
	T_EQ(mem_export_dmabuf(a, 0, a->size, &d), -EINVAL);
	SAYS("not in one mapping");
	mem_free(a);
	/* Wrap at an address in the middle of a page, and at address 0. */
	va += 100;
	memcpy(g.ipc, &va, sizeof(va));
	T_EQ(mem_import(&g, &a), -EINVAL);
	SAYS("whole pages");
	memset(g.ipc, 0, sizeof(g.ipc));
	T_EQ(mem_import(&g, &a), -EINVAL);
	/* The program closes the device; our descriptor keeps it open. */
	va -= 100;
	memcpy(g.ipc, &va, sizeof(va));
	g.size = g.len = 4096;
	T_OK(mem_import(&g, &a));
	T_OK(hl.hlthunk_memory_unmap(g.fd, va));
	T_OK(hl.hlthunk_device_memory_free(g.fd, handle));
	T_OK(hl.hlthunk_close(g.fd));
	T_EQ(mem_export_dmabuf(a, 0, 1, &d), -EINVAL);
	mem_free(a);
	quiet();
}

static void grants_are_checked(void)
{
	struct mem_alloc *a = alloc(LEN), *b = NULL;
	struct pst_grant g = { .sz = sizeof(g) }, h;
	struct mem_dmabuf d;
	uint64_t lead = 4096;
	int fds[2];

	T_OK(mem_export(a, 3, &g));
	dmabuf_add(g.fd, true);
	T_OK(mem_import(&g, &b));
	T_CHECK(!mem_copies(b->ops));
	T_OK(mem_export_dmabuf(b, 4096, 4096, &d));
	T_EQ(d.off, 4096);
	(void)close(d.fd);
	mem_free(b);
	h = g;
	h.size = h.len = a->size + 1;
	T_EQ(mem_import(&h, &b), -EINVAL);
	SAYS("its dma-buf has");
	h = g;
	memcpy(h.ipc, &lead, sizeof(lead));
	T_EQ(mem_import(&h, &b), -EINVAL);
	SAYS("first page");
	h = g;
	h.uuid[15] ^= 1;
	T_EQ(mem_import(&h, &b), -ENODEV);
	SAYS("mount the /sys");
	h = g;
	T_EQ(pipe(fds), 0);
	h.fd = fds[0];
	T_EQ(mem_import(&h, &b), -EINVAL);
	SAYS("is no dma-buf but");
	(void)close(fds[0]);
	(void)close(fds[1]);
	T_EQ(mem_import(&h, &b), -EBADF);
	h.fd = -1;
	T_EQ(mem_import(&h, &b), -EBADF);
	(void)close(g.fd);
	mem_free(a);
	quiet();
}

/* Run a child that makes this call.  Return 0 if its error text has this text. */
static int child(const char *what, const char *want)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		(void)execl(self, self, what, want, (char *)NULL);
		_exit(127);
	}
	T_CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static int child_alloc(const char *want)
{
	struct mem_alloc *a;
	int r = mem_alloc(mem_provider(PST_KIND_GAUDI), 0, 1, 0, &a);

	if (r < 0 && strstr(err_text(), want))
		return 0;
	(void)fprintf(stderr, "# %d, \"%s\"\n", r, r < 0 ? err_text() : "");
	if (r == 0)
		mem_free(a);
	return 1;
}

static void one_process_has_the_device(void)
{
	struct mem_alloc *a = alloc(LEN), *b = NULL;

	T_EQ(child("alloc", "fuser /dev/accel/accel0"), 0);
	T_OK(mem_alloc(ops, 1, LEN, 0, &b)); /* another device is free */
	mem_free(b);
	mem_free(a);
	quiet();
}

static void opens_fail_with_a_cure(void)
{
	static const struct {
		const char *fail;
		int err;
		const char *says;
	} cases[] = {
		{ "hlthunk_open:1:16", EBUSY, "lets one process open it" },
		{ "hlthunk_open:1:11", EAGAIN, "try again" },
		{ "hlthunk_open:1:13", EACCES, "give this user the device file" },
		{ "hlthunk_open:1:1", EPERM, "says \"Operational\"" },
		{ "hlthunk_open:1:2", ENOENT, "is /dev/accel/accel0 there?" },
		{ "hlthunk_get_device_name_from_fd:1:5", EOPNOTSUPP, "does not know gaudi:0" },
		{ "hlthunk_get_hw_ip_info:1:5", EIO, "does not tell" },
		{ "hlthunk_device_memory_alloc:1:12", ENOMEM, "cannot allocate" },
		{ "hlthunk_device_memory_map:1:12", ENOMEM, "cannot map" },
	};
	struct mem_alloc *a;

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		(void)gs.fail(cases[i].fail);
		T_EQ(mem_alloc(ops, 0, LEN, 0, &a), -cases[i].err);
		SAYS(cases[i].says);
		T_CHECK(gs.fail(NULL));
		quiet();
	}
	T_EQ(mem_alloc(ops, 0, STUB_GAUDI_TOTAL * 2, 0, &a), -ENOMEM);
	T_EQ(mem_alloc(ops, 0, UINT64_MAX - 5, 0, &a), -ENOMEM);
	SAYS("no address space");
	quiet();
}

/* Fail each call in turn, until a run makes fewer calls. */
static void every_call_fails_once(void)
{
	struct stub_gaudi_state s;
	char spec[40];

	for (int n = 1, met = 1; met; n++) {
		struct mem_alloc *a = NULL;
		struct mem_dmabuf d;

		T_CHECK(n < 100);
		(void)snprintf(spec, sizeof(spec), "*:%d:%d", n, EIO);
		(void)gs.fail(spec);
		if (mem_alloc(ops, 0, LEN, 0, &a) == 0) {
			if (mem_export_dmabuf(a, 0, 4096, &d) == 0)
				(void)close(d.fd);
			mem_free(a);
		}
		met = gs.fail(NULL);
		/* Memory that could not be unmapped or freed must end with the context. */
		s = gaudi_state();
		T_EQ(s.contexts, 0);
		T_EQ(s.handles, 0);
		T_EQ(s.exports, 0);
	}
}

/* The program closes the library's descriptor of the device, and opens another file with the
 * same number. */
static void the_program_closes_the_device(void)
{
	struct mem_alloc *a = alloc(LEN), *b = alloc(LEN), *c;
	int fd = gaudi_device(0)->fd, fds[2];
	uint64_t life = mem_life(ops, 0);
	struct mem_dmabuf d;

	T_EQ(pipe2(fds, O_CLOEXEC), 0);
	T_EQ(dup3(fds[1], fd, O_CLOEXEC), fd);
	T_EQ(mem_export_dmabuf(a, 0, 4096, &d), -ENODEV);
	SAYS("was reset or closed");
	T_CHECK(mem_life(ops, 0) != life);
	T_EQ(mem_alive(b), -ENODEV);
	mem_free(a);
	T_EQ(write(fd, "x", 1), 1); /* the program's file is still open */
	c = alloc(LEN);
	T_CHECK(gaudi_device(0)->fd != fd);
	mem_free(b);
	T_OK(mem_export_dmabuf(c, 0, 4096, &d));
	(void)close(d.fd);
	mem_free(c);
	(void)close(fd);
	T_EQ(gaudi_state().contexts, 0);
	/* The library notices at a free, then at an allocation; in the last round the descriptor is
	 * just closed. */
	for (int i = 0; i < 3; i++) {
		a = alloc(LEN);
		fd = gaudi_device(0)->fd;
		T_EQ(i == 2 ? close(fd) : dup3(fds[1], fd, O_CLOEXEC), i == 2 ? 0 : fd);
		if (i)
			mem_free(alloc(LEN));
		mem_free(a);
		if (i < 2)
			T_EQ(write(fd, "x", 1), 1);
		T_EQ(gaudi_state().contexts, 0);
		T_EQ(gaudi_device(0)->users, 0);
		if (i < 2)
			(void)close(fd);
	}
	(void)close(fds[0]);
	(void)close(fds[1]);
}

/* The descriptor's number belongs to the same node again, but to another context. */
static void the_program_opens_the_device_itself(void)
{
	struct mem_alloc *a = alloc(LEN), *b;
	int fd = gaudi_device(0)->fd, own;
	char path[64], node[64] = "";
	struct mem_dmabuf d;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	T_CHECK(readlink(path, node, sizeof(node) - 1) > 0);
	T_EQ(close(fd), 0);
	own = open(node, O_RDWR | O_CLOEXEC);
	T_CHECK(own >= 0);
	if (own != fd) {
		T_EQ(dup3(own, fd, O_CLOEXEC), fd);
		(void)close(own);
	}
	T_EQ(mem_export_dmabuf(a, 0, 4096, &d), -ENODEV);
	SAYS("was reset or closed");
	T_EQ(mem_alive(a), -ENODEV);
	mem_free(a);
	/* The file of the program is left alone. */
	T_CHECK(fcntl(fd, F_GETFD) >= 0);
	T_EQ(close(fd), 0);
	b = alloc(LEN);
	T_OK(mem_export_dmabuf(b, 0, 4096, &d));
	(void)close(d.fd);
	mem_free(b);
	T_EQ(gaudi_state().contexts, 0);
}

static void a_reset_ends_the_memory(void)
{
	struct mem_alloc *a = alloc(LEN), *b = alloc(LEN), *c = NULL;
	uint64_t life = mem_life(ops, 0), leaked = gaudi_state().leaked;
	struct mem_dmabuf d;

	T_OK(mem_export_dmabuf(b, 0, 4096, &d));
	gs.reset(0, true);
	T_OK(mem_alive(a)); /* the change is not noticed yet */
	T_EQ(mem_export_dmabuf(a, 0, 4096, &(struct mem_dmabuf){ 0 }), -ENODEV);
	SAYS("was reset");
	T_CHECK(mem_life(ops, 0) != life);
	T_EQ(mem_alive(a), -ENODEV);
	T_EQ(mem_export_dmabuf(b, 0, 4096, &(struct mem_dmabuf){ 0 }), -ENODEV);
	T_EQ(mem_alloc(ops, 0, LEN, 0, &c), -EAGAIN);
	gs.reset(0, false);
	T_EQ(mem_alloc(ops, 0, LEN, 0, &c), -EBUSY); /* a dma-buf holds the old context */
	SAYS("close the dma-bufs");
	(void)close(d.fd);
	c = alloc(LEN); /* the new memory has another address than the earlier one */
	T_CHECK(c->life != a->life);
	mem_free(a);
	mem_free(b);
	T_OK(mem_alive(c));
	mem_free(c);
	T_EQ(gaudi_state().contexts, 0);
	T_EQ(gaudi_state().leaked, leaked);
	T_CHECK(list_empty(&gaudi_device(0)->held));
	T_EQ(gaudi_device(0)->users, 0);
	/* Freeing memory notices one reset, an allocation the other. */
	a = alloc(LEN);
	gs.reset(0, true);
	gs.reset(0, false);
	mem_free(a);
	T_EQ(gaudi_state().contexts, 0);
	a = alloc(LEN);
	gs.reset(0, true);
	gs.reset(0, false);
	T_EQ(mem_alloc(ops, 0, LEN, 0, &c), -ENODEV);
	c = alloc(LEN);
	mem_free(c);
	mem_free(a);
	T_EQ(gaudi_state().contexts, 0);
}

/*
 * Old libraries and devices, each in a process of its own, because a process loads libraries
 * once.
 */
static void what_is_too_old_says_so(void)
{
	const char *old = getenv("STUB_HLTHUNK_OLD"), *now = getenv("PST_LIBHLTHUNK");
	char dir[300];

	(void)setenv("PST_LIBHLTHUNK", old, 1);
	T_EQ(child("export", "update it and the kernel's driver"), 0);
	(void)setenv("PST_LIBHLTHUNK", "libc.so.6", 1);
	T_EQ(child("alloc", "lacks hlthunk_open; update it"), 0);
	(void)setenv("PST_LIBHLTHUNK", "/nonexistent/lib.so", 1);
	T_EQ(child("alloc", "no libhl-thunk here"), 0);
	(void)setenv("PST_LIBHLTHUNK", now, 1);
	gaudi_name("2");
	T_EQ(child("alloc", "use a Gaudi 2 or newer"), 0);
	gaudi_name("3");
	T_EQ(child("alloc", "install the version of the kernel's driver"), 0);
	gaudi_name(NULL);
	gaudi_put("class/accel/accel0", "device_type", "GAUDI SEC\n");
	T_EQ(child("alloc", "gaudi:0 is a GAUDI SEC"), 0);
	gaudi_put("class/accel/accel0", "device_type", "GAUDI2\n");
	(void)snprintf(dir, sizeof(dir), "%s/nothing", gaudi_sys);
	(void)setenv("PST_GAUDI_ROOT", dir, 1);
	T_EQ(child("none", "load the kernel module habanalabs"), 0);
	if (lab_fd < 0)
		(void)setenv("PST_GAUDI_ROOT", gaudi_sys, 1);
	else
		(void)unsetenv("PST_GAUDI_ROOT");
}

static int child_export(const char *want)
{
	struct mem_alloc *a;
	struct mem_dmabuf d;
	int r = mem_alloc(mem_provider(PST_KIND_GAUDI), 0, 1, 0, &a);

	if (r < 0)
		return 2;
	r = mem_export_dmabuf(a, 0, 1, &d);
	r = r == -EOPNOTSUPP && strstr(err_text(), want) ? 0 : 1;
	mem_free(a);
	return r;
}

static void *allocates(void *arg)
{
	(void)arg;
	for (int i = 0; i < 60; i++) {
		struct mem_alloc *a = NULL, *w = NULL;
		struct mem_dmabuf d;

		if (mem_alloc(ops, 0, LEN, 0, &a) < 0)
			return (void *)1;
		if (mem_wrap(a->base.va, LEN, PST_KIND_GAUDI, 0, &w) < 0 ||
		    mem_export_dmabuf(w, 4096, 4096, &d) < 0)
			return (void *)1;
		mem_free(a);
		if (i & 1)
			mem_free(w); /* free the memory before its dma-buf is closed */
		(void)close(d.fd);
		if (!(i & 1))
			mem_free(w);
	}
	return NULL;
}

static void many_threads(void)
{
	pthread_t t[4];
	void *bad;

	for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
		T_EQ(pthread_create(&t[i], NULL, allocates, NULL), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		T_EQ(pthread_join(t[i], &bad), 0);
		T_CHECK(!bad);
	}
	mem_free(alloc(1)); /* the next free also frees the held memory */
	quiet();
}

static void text_tells_the_mode(void)
{
	struct mem_alloc *a = alloc(1);
	char text[PST_DEVICE_TEXT_MAX];

	T_CHECK(mem_device_text(ops, 0, text, sizeof(text)) > 0);
	T_CHECK(strstr(text, "status: Operational\n"));
	T_CHECK(strstr(text, "mode: own"));
	T_CHECK(strstr(text, "allocations: 1\n"));
	mem_free(a);
	quiet();
}

int main(int argc, char **argv)
{
	self = argv[0];
	if (argc == 3 && !strcmp(argv[1], "alloc"))
		return child_alloc(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "export"))
		return child_export(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "none"))
		return mem_provider(PST_KIND_GAUDI) || !strstr(err_text(), argv[2]);
	gaudi_lab_open();
	gaudi_sys_new("GAUDI2\n");
	(void)setenv("PST_GAUDI_MODE", "own", 1);
	(void)setenv("STUB_GAUDI_DIR", gaudi_sys, 1);
	gaudi_stub_find();
	ops = mem_provider(PST_KIND_GAUDI);
	T_CHECK(ops);
	T_RUN(devices_are_found_without_a_library);
	T_RUN(memory_is_opened_and_closed);
	T_RUN(copies_name_the_way);
	T_RUN(exports_are_pages_of_the_range);
	T_RUN(memory_is_held_by_its_dmabufs);
	T_RUN(held_memory_is_freed_in_the_background);
	T_RUN(wraps_name_the_kind);
	T_RUN(a_pool_is_passed_by_its_descriptor);
	T_RUN(grants_are_checked);
	T_RUN(one_process_has_the_device);
	T_RUN(opens_fail_with_a_cure);
	T_RUN(what_is_too_old_says_so);
	T_RUN(text_tells_the_mode);
	T_RUN(many_threads);
	T_RUN(every_call_fails_once);
	T_RUN(the_program_closes_the_device);
	T_RUN(the_program_opens_the_device_itself);
	T_RUN(a_reset_ends_the_memory);
	gaudi_sys_done();
	return t_done();
}
