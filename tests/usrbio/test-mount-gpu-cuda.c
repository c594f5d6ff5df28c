/* SPDX-License-Identifier: MIT */
/*
 * CUDA memory in rings of a mount, with the library of tests/stub that PST_LIBCUDA names: what the
 * worker loads and when, handles of other processes, and that the caller's context stays.  Without
 * a driver for windows here, the worker imports all memory.
 */
#include <grp.h>

#include "hw/hw.h"
#include "mount_gpu_rig.h"
#include "stub/cuda_stub.h"

#define LEN 300000u

static void (*stub_state)(struct stub_cuda_state *);
static const char *stub_name; /* file name of the stub */

static struct stub_cuda_state state(void)
{
	struct stub_cuda_state s;

	stub_state(&s);
	return s;
}

static void same(const struct stub_cuda_state *before)
{
	struct stub_cuda_state now = state();

	T_CHECK(now.current == before->current);
	T_EQ(now.depth, before->depth);
	T_EQ(now.ranges, before->ranges);
	T_EQ(now.contexts, before->contexts);
}

static struct hf3fs_iov wrap(cu_ptr p, size_t len)
{
	struct hf3fs_iov iov = { 0 };

	T_OK(hf3fs_iovwrap_device(&iov, (void *)(uintptr_t)p, gpu_id(), gpu_plain, len, 0, 0));
	return iov;
}

/* Make a link with that target under a new name.  Return 0 or -errno. */
static int publish(const struct usrbio_gdr *gdr)
{
	struct usrbio_name name = { .kind = USRBIO_DEVICE };
	char uuid[USRBIO_NAME_MAX], path[400], text[USRBIO_GDR_MAX];

	memcpy(name.id, gpu_id(), sizeof(name.id));
	usrbio_name_format(&name, uuid);
	(void)snprintf(path, sizeof(path), "%s/3fs-virt/iovs/%s", gpu_plain, uuid);
	usrbio_gdr_format(gdr, text);
	if (symlink(text, path) < 0)
		return -errno;
	return unlink(path) < 0 ? -errno : 0;
}

static int status_of(pid_t pid)
{
	int status = -1;

	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + status;
}

/* ----------------------------------------------------------------- requests */

static void R7_there_and_back(void)
{
	static const uint64_t lens[] = { 1, 4096, 65536, 65537, LEN };
	struct stub_cuda_state before;
	struct hf3fs_iov a, b;
	cu_ptr p;

	mg_begin();
	HW_CU(cuMemAlloc_v2(&p, 2 * LEN));
	before = state();
	b = wrap(p + 777, LEN + 100);
	T_OK(hf3fs_iovcreate_device(&a, gpu_plain, LEN + 100, 0, 0));
	for (unsigned i = 0; i < RIG_NR(lens); i++) {
		uint64_t n = lens[i];

		gpu_fill(a.base, a.size, 10 + i, 0);
		gpu_fill(b.base, b.size, 90, 0);
		T_EQ(gpu_write(&a, i, gpu_file("data"), i, n), (int64_t)n);
		T_EQ(gpu_read(&b, 50, gpu_file("data"), i, n), (int64_t)n);
		T_EQ(gpu_differs(b.base + 50, n, 10 + i, i), n);
		T_EQ(gpu_differs(b.base, 50, 90, 0), 50);
		T_EQ(unlink(gpu_file("data")), 0);
	}
	hf3fs_iovdestroy(&a);
	hf3fs_iovdestroy(&b);
	same(&before);
	HW_CU(cuMemFree_v2(p));
	mg_end();
}

/* Rings and host memory alone load no vendor's library. */
static void the_library_is_loaded_when_it_is_needed(void)
{
	struct hf3fs_iov host, dev;
	struct mg_ring r;

	mg_begin();
	rig_make(gpu_file("data"), 3, LEN);
	T_OK(hf3fs_iovcreate(&host, gpu_plain, LEN, 0, -1));
	r = mg_ring(gpu_file("data"), 4, true);
	T_EQ(mg_io(&r, &host, 0, 0, LEN), LEN);
	T_EQ(procs_maps(procs_worker(&mg), stub_name), 0);
	T_OK(hf3fs_iovcreate_device(&dev, gpu_plain, LEN, 0, 0));
	T_CHECK(procs_maps(procs_worker(&mg), stub_name) > 0);
	T_EQ(procs_maps(mg.pid, stub_name), 0);
	T_EQ(mg_io(&r, &dev, 0, 0, LEN), LEN);
	mg_ring_end(&r);
	hf3fs_iovdestroy(&dev);
	hf3fs_iovdestroy(&host);
	mg_end();
}

/* If the worker cannot open the memory, its errno is the result, and nothing is left over. */
static void R1_a_worker_that_cannot(void)
{
	char *lib = strdup(getenv("PST_LIBCUDA"));
	struct stub_cuda_state before = state();
	struct hf3fs_iov iov, untouched;

	T_CHECK(lib);
	memset(&untouched, 0x77, sizeof(untouched));
	iov = untouched;
	mg_begin();
	/* The worker's stub has only the first of two devices. */
	T_EQ(hf3fs_iovcreate_device(&iov, gpu_plain, LEN, 0, 1), -ENODEV);
	same(&before);
	mg_end();
	T_EQ(setenv("PST_LIBCUDA", "/nonexistent/libcuda.so.1", 1), 0);
	mg_begin();
	T_EQ(setenv("PST_LIBCUDA", lib, 1), 0);
	T_EQ(hf3fs_iovcreate_device(&iov, gpu_plain, LEN, 0, 0), -ENODEV);
	same(&before);
	T_CHECK(!memcmp(&iov, &untouched, sizeof(iov)));
	mg_end();
	free(lib);
}

/* ------------------------------------------------------------------ handles */

static void be_nobody(void)
{
	if (setgroups(0, NULL) < 0 || setresgid(MG_NOBODY, MG_NOBODY, MG_NOBODY) < 0 ||
	    setresuid(MG_NOBODY, MG_NOBODY, MG_NOBODY) < 0)
		_exit(100);
}

/* Another process has the handle and may publish it while the owner lives, which importing does. */
static void a_handle_of_another_process(void)
{
	struct usrbio_gdr g;
	struct hf3fs_iov iov;
	pid_t pid;

	mg_begin();
	T_OK(hf3fs_iovcreate_device(&iov, gpu_plain, LEN, 0, 0));
	g = gpu_published(&iov, 0);
	T_EQ(usrbio_ipc_pid(g.ipc), getpid());
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(publish(&g) == 0 ? 0 : 1);
	T_EQ(status_of(pid), 0);
	pid = fork();
	if (pid == 0) {
		be_nobody();
		_exit(publish(&g) == -EPERM ? 0 : 1);
	}
	T_EQ(status_of(pid), 0);
	hf3fs_iovunlink(&iov);
	pid = fork();
	if (pid == 0)
		_exit(publish(&g) == -EPERM ? 0 : 1);
	T_EQ(status_of(pid), 0);
	/* Handles with one changed word. */
	T_EQ(publish(&g), 0);
	for (unsigned word = 0; word < USRBIO_IPC_LEN / 4; word++) {
		struct usrbio_gdr bad = g;
		int r;

		bad.ipc[4 * word] ^= 0x40;
		r = publish(&bad);
		if (word == 2)
			T_EQ(r, -EPERM);
		else
			T_CHECK(r <= 0);
	}
	g.allocation *= 1024;
	T_EQ(publish(&g), -EINVAL);
	hf3fs_iovdestroy(&iov);
	mg_end();
}

static int child_imports(const hf3fs_gpu_ipc_handle_t *h)
{
	struct hf3fs_iov iov, again;

	GPU_CHILD(hf3fs_iov_import_gpu(&iov, h, gpu_plain) == 0);
	GPU_CHILD(hf3fs_iov_import_gpu(&again, h, gpu_plain) == 0);
	GPU_CHILD(iov.size == LEN && gpu_differs(iov.base, LEN, 31, 0) == LEN);
	GPU_CHILD(gpu_read(&iov, 0, gpu_file("import"), 0, 1000) == 1000);
	hf3fs_iovdestroy_gpu(&iov);
	GPU_CHILD(gpu_read(&again, 0, gpu_file("import"), 0, LEN) == LEN);
	hf3fs_iovdestroy_gpu(&again);
	return 0;
}

static void R2b_import_by_another_process(void)
{
	struct stub_cuda_state before;
	hf3fs_gpu_ipc_handle_t h;
	struct hf3fs_iov iov;
	cu_ptr p;

	mg_begin();
	HW_CU(cuMemAlloc_v2(&p, 2 * LEN));
	before = state();
	rig_make(gpu_file("import"), 32, LEN);
	iov = wrap(p + 1234, LEN);
	gpu_fill(iov.base, LEN, 31, 0);
	T_OK(hf3fs_iov_export_gpu(&iov, &h));
	T_EQ(gpu_other("import", &iov, &h, sizeof(h)), 0);
	T_EQ(gpu_differs(iov.base, LEN, 32, 0), LEN);
	hf3fs_iovdestroy_gpu(&iov);
	same(&before);
	HW_CU(cuMemFree_v2(p));
	mg_end();
}

/* ------------------------------------------------------------------- begin */

static void no_stub(void)
{
	T_SKIP("needs the library of tests/stub");
}

static bool find_stub(void)
{
	const char *name = getenv("PST_LIBCUDA");
	void *lib = name && *name ? dlopen(name, RTLD_NOW) : NULL;

	if (!lib || hw_cuda(0))
		return false;
	stub_name = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
	symbol(lib, &stub_state, "stub_cuda_state");
	return stub_state;
}

static int child(char **argv)
{
	hf3fs_gpu_ipc_handle_t h = { { 0 } };

	(void)snprintf(gpu_plain, sizeof(gpu_plain), "%s", argv[2]);
	if (setjmp(t_jump)) {
		(void)fprintf(stderr, "# child: %s\n", t_why);
		return 1;
	}
	GPU_CHILD(find_stub());
	GPU_CHILD(read(0, &h, sizeof(h)) == sizeof(h));
	return child_imports(&h);
}

int main(int argc, char **argv)
{
	gpu_self = argv[0];
	if (argc == 5)
		return child(argv);
	if (!find_stub()) {
		T_RUN(no_stub);
		return gpu_rig_done();
	}
	gpu_rig_init();
	T_RUN(R7_there_and_back);
	T_RUN(the_library_is_loaded_when_it_is_needed);
	T_RUN(R1_a_worker_that_cannot);
	T_RUN(a_handle_of_another_process);
	T_RUN(R2b_import_by_another_process);
	return gpu_rig_done();
}
