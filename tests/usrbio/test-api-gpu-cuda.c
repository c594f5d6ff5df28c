/* SPDX-License-Identifier: MIT */
/*
 * Device memory in rings on CUDA, with the library of tests/stub/ that PST_LIBCUDA names: what
 * daemons see of the memory, who owns it, what another process can open, and that the calling
 * thread's context stays.
 */
#include <pthread.h>

#include "gpu_rig.h"
#include "hw/hw.h"
#include "stub/cuda_stub.h"

#define LEN 100000u
#define BLOCK (UINT64_C(2) << 20) /* block that small allocations share, bytes */

static struct {
	void (*state)(struct stub_cuda_state *);
	bool (*fail)(const char *);
	void (*stall)(const char *);
	cu_result (*alloc_managed)(cu_ptr *, size_t, unsigned);
	cu_result (*alloc_async)(cu_ptr *, size_t, cu_stream);
} stub;

static struct stub_cuda_state state(void)
{
	struct stub_cuda_state s;

	stub.state(&s);
	return s;
}

/* Check that the calling thread's context and mode are unchanged, and that nothing is left
 * allocated. */
static void same(const struct stub_cuda_state *before)
{
	struct stub_cuda_state now = state();

	T_CHECK(now.current == before->current);
	T_EQ(now.depth, before->depth);
	T_EQ(now.mode, before->mode);
	T_EQ(now.ranges, before->ranges);
	T_EQ(now.contexts, before->contexts);
	T_EQ(now.handles, before->handles);
	T_EQ(now.reservations, before->reservations);
}

/* ------------------------------------------------------------------- links */

/* Creating memory allocates whole blocks, because the handle opens the entire block. */
static void create_publishes(void)
{
	struct stub_cuda_state before = state();
	struct hf3fs_iov iov;
	struct usrbio_gdr g;
	char name[256];

	for (int dev = 0; dev < 2; dev++) {
		T_OK(hf3fs_iovcreate_device(&iov, gpu_daemon, LEN, 0, dev));
		T_EQ(gpu_links(gpu_daemon, name), 1);
		T_CHECK(strstr(name, dev ? ".gdr.d1" : ".gdr.d0"));
		g = gpu_published(&iov, dev);
		T_EQ(g.device, dev);
		T_EQ(g.size, LEN);
		T_EQ(g.off, 0);
		T_EQ(g.allocation, BLOCK);
		T_EQ(iov.size, LEN);
		hf3fs_iovdestroy(&iov);
		T_EQ(gpu_links(gpu_daemon, NULL), 0);
		same(&before);
	}
}

static void R5d_wrap_publishes_a_part(void)
{
	struct hf3fs_iov iov, again;
	struct stub_cuda_state before;
	struct usrbio_gdr g;
	uint8_t id[16];
	cu_ptr p;

	HW_CU(cuMemAlloc_v2(&p, 3 * LEN));
	before = state();
	memcpy(id, gpu_id(), 16);
	T_OK(hf3fs_iovwrap_device(&iov, (void *)(uintptr_t)(p + 777), id, gpu_daemon, LEN, 0, 0));
	g = gpu_published(&iov, 0);
	T_EQ(g.off, 777);
	T_EQ(g.size, LEN);
	T_EQ(g.allocation, 3 * LEN);
	T_CHECK(!memcmp(iov.id, id, 16) && iov.base == (uint8_t *)(uintptr_t)(p + 777));
	T_EQ(hf3fs_iovwrap_device(&again, (void *)(uintptr_t)p, id, gpu_daemon, LEN, 0, 0),
	     -EEXIST);
	T_EQ(gpu_links(gpu_daemon, NULL), 1);
	hf3fs_iovdestroy(&iov);
	T_EQ(gpu_links(gpu_daemon, NULL), 0);
	same(&before);
	HW_CU(cuMemFree_v2(p));
}

static void unlink_keeps_the_memory(void)
{
	struct stub_cuda_state before = state();
	struct hf3fs_iov iov;

	T_OK(hf3fs_iovcreate_gpu(&iov, gpu_daemon, LEN, 4096, 0));
	gpu_fill(iov.base, LEN, 4, 0);
	hf3fs_iovunlink_gpu(&iov);
	T_EQ(gpu_links(gpu_daemon, NULL), 0);
	T_EQ(gpu_differs(iov.base, LEN, 4, 0), LEN);
	hf3fs_iovunlink(&iov);
	hf3fs_iovdestroy_gpu(&iov);
	same(&before);
}

static void *destroyer(void *arg)
{
	hf3fs_iovdestroy(arg);
	return NULL;
}

/* The link is removed before the memory is freed. */
static void R5c_publication_goes_first(void)
{
	struct stub_cuda_state before = state();
	uint64_t end = t_hang();
	struct hf3fs_iov iov;
	pthread_t t;

	T_OK(hf3fs_iovcreate_device(&iov, gpu_daemon, LEN, 0, 0));
	stub.stall("cuMemFree_v2");
	T_EQ(pthread_create(&t, NULL, destroyer, &iov), 0);
	while (!state().stalled && t_now() < end)
		(void)usleep(200);
	T_EQ(state().stalled, 1);
	T_EQ(state().ranges, before.ranges + 1);
	T_EQ(gpu_links(gpu_daemon, NULL), 0);
	stub.stall(NULL);
	T_EQ(pthread_join(t, NULL), 0);
	same(&before);
}

/* If the link cannot be removed, the iov stays valid, and the call can be repeated. */
static void a_link_that_does_not_go(void)
{
	struct stub_cuda_state before = state();
	char path[400], aside[420];
	struct hf3fs_iov iov, copy;

	T_OK(hf3fs_iovcreate_device(&iov, gpu_daemon, LEN, 0, 0));
	gpu_fill(iov.base, LEN, 5, 0);
	copy = iov;
	gpu_path_of(&iov, 0, path);
	(void)snprintf(aside, sizeof(aside), "%s/aside", rig_dir);
	T_EQ(rename(path, aside), 0);
	T_EQ(mkdir(path, 0755), 0); /* unlink(2): EISDIR */
	for (int i = 0; i < 2; i++) {
		hf3fs_iovunlink(&iov);
		hf3fs_iovdestroy(&iov);
		T_CHECK(iov.iovh == copy.iovh);
		T_CHECK(hf3fs_iov_is_gpu(&iov));
		T_EQ(gpu_differs(iov.base, LEN, 5, 0), LEN);
	}
	T_EQ(rmdir(path), 0);
	T_EQ(rename(aside, path), 0);
	hf3fs_iovdestroy(&iov);
	T_CHECK(!iov.iovh && !hf3fs_iov_is_gpu(&copy));
	T_EQ(gpu_links(gpu_daemon, NULL), 0);

	/* A link that is already gone is no error. */
	T_OK(hf3fs_iovcreate_device(&iov, gpu_daemon, LEN, 0, 0));
	gpu_path_of(&iov, 0, path);
	T_EQ(unlink(path), 0);
	hf3fs_iovdestroy(&iov);
	T_CHECK(!iov.iovh);
	same(&before);
}

/* If the daemon refuses, its errno is the result, and nothing is left. */
static void a_daemon_that_refuses(void)
{
	struct stub_cuda_state before = state();
	struct hf3fs_iov iov, untouched;
	char path[200], aside[200];

	memset(&untouched, 0x77, sizeof(untouched));
	iov = untouched;
	(void)snprintf(path, sizeof(path), "%s/3fs-virt/iovs", gpu_daemon);
	(void)snprintf(aside, sizeof(aside), "%s/3fs-virt/aside", gpu_daemon);
	T_OK(hf3fs_iovcreate_device(&iov, gpu_daemon, LEN, 0, 0)); /* makes the mount known */
	hf3fs_iovdestroy(&iov);
	iov = untouched;
	T_EQ(rmdir(path), 0); /* now the daemon takes no links */
	T_EQ(mkdir(aside, 0755), 0);
	T_CHECK(hf3fs_iovcreate_device(&iov, gpu_daemon, LEN, 0, 0) < 0);
	T_CHECK(!memcmp(&iov, &untouched, sizeof(iov)));
	T_EQ(rename(aside, path), 0);
	same(&before);
}

/* ------------------------------------------------------------ kinds of memory */

static void wrap_both(cu_ptr p, size_t len, int plain)
{
	struct hf3fs_iov iov;
	int r = hf3fs_iovwrap_device(&iov, (void *)(uintptr_t)p, gpu_id(), gpu_plain, len, 0, 0);

	T_EQ(r, plain);
	if (r == 0) {
		T_EQ(gpu_read(&iov, 0, gpu_file("kinds"), 0, LEN), LEN);
		T_EQ(gpu_differs(iov.base, LEN, 9, 0), LEN);
		hf3fs_iovdestroy(&iov);
	}
	T_EQ(hf3fs_iovwrap_device(&iov, (void *)(uintptr_t)p, gpu_id(), gpu_daemon, len, 0, 0),
	     -ENOTSUP);
	T_EQ(gpu_links(gpu_daemon, NULL), 0);
}

/* Pools, mapped and managed memory have no CUDA IPC handle, but work within the process. */
static void memory_without_a_handle(void)
{
	struct cu_prop prop = {
		.type = CU_ALLOC_PINNED,
		.handle_types = CU_HANDLE_POSIX_FD,
		.location = { .type = CU_LOC_DEVICE },
	};
	struct cu_access access = { .location = prop.location, .flags = CU_PROT_READ_WRITE };
	cu_ptr pool, managed, mapped;
	unsigned fds;
	cu_handle h;

	rig_make(gpu_file("kinds"), 9, LEN);
	T_EQ(stub.alloc_async(&pool, LEN, NULL), CU_OK);
	T_EQ(stub.alloc_managed(&managed, LEN, 1), CU_OK);
	HW_CU(cuMemCreate(&h, STUB_CHUNK, &prop, 0));
	HW_CU(cuMemAddressReserve(&mapped, STUB_CHUNK, 0, 0, 0));
	HW_CU(cuMemMap(mapped, STUB_CHUNK, 0, h, 0));
	HW_CU(cuMemSetAccess(mapped, STUB_CHUNK, &access, 1));
	wrap_both(pool, LEN, 0);
	fds = t_count_fds();
	wrap_both(pool, LEN, 0);
	wrap_both(managed, LEN, -ENOTSUP);
	wrap_both(mapped, STUB_CHUNK, 0);
	T_CHECK(t_fds_left(fds) <= fds);
	HW_CU(cuMemUnmap(mapped, STUB_CHUNK));
	HW_CU(cuMemAddressFree(mapped, STUB_CHUNK));
	HW_CU(cuMemRelease(h));
	HW_CU(cuMemFree_v2(pool));
	HW_CU(cuMemFree_v2(managed));
}

/*
 * The program's own context is current, not the primary one.  No thread's current context may
 * change.
 */
static void contexts_stay(void)
{
	struct stub_cuda_state before;
	cu_ctx own, popped;
	struct hf3fs_iov iov;
	cu_ptr p;

	rig_make(gpu_file("ctx"), 9, LEN);
	HW_CU(cuCtxCreate_v2(&own, 0, 1));
	HW_CU(cuMemAlloc_v2(&p, LEN));
	before = state();
	T_OK(hf3fs_iovwrap_device(&iov, (void *)(uintptr_t)p, gpu_id(), gpu_plain, LEN, 0, 1));
	T_EQ(gpu_read(&iov, 0, gpu_file("ctx"), 0, LEN), LEN);
	T_OK(hf3fs_iovsync(&iov, 1));
	T_EQ(gpu_differs(iov.base, LEN, 9, 0), LEN);
	hf3fs_iovdestroy(&iov);
	T_EQ(hf3fs_iovwrap_device(&iov, (void *)(uintptr_t)p, gpu_id(), gpu_plain, LEN, 0, 0),
	     -EINVAL);
	T_CHECK(hf3fs_gdr_available() && hf3fs_gdr_device_count() == 2);
	T_CHECK(state().current == own && state().depth == before.depth &&
		state().mode == before.mode);
	HW_CU(cuMemFree_v2(p));
	HW_CU(cuCtxDestroy_v2(own));
	T_CHECK(state().current == hw_ctx);
	/* No context becomes current if none was. */
	HW_CU(cuCtxPopCurrent_v2(&popped));
	T_OK(hf3fs_iovcreate_device(&iov, gpu_plain, LEN, 0, 1));
	T_OK(hf3fs_iovsync(&iov, 0));
	hf3fs_iovdestroy(&iov);
	T_CHECK(!state().current && !state().depth);
	HW_CU(cuCtxPushCurrent_v2(popped));
}

/* -------------------------------------------------------------------- sync */

static _Atomic int go, passed;

static void wait_for_go(void *arg)
{
	uint64_t end = t_hang();

	(void)arg;
	while (!go && t_now() < end)
		(void)usleep(100);
	passed = 1;
}

static void *opener(void *arg)
{
	(void)usleep(30000); /* let the other thread begin to wait first; the test is valid
			      * without that */
	go = 1;
	return arg;
}

static void sync_waits_for_the_device(void)
{
	struct hf3fs_iov iov;
	cu_stream st;
	pthread_t t;

	T_OK(hf3fs_iovcreate_device(&iov, gpu_plain, LEN, 0, 0));
	HW_CU(cuStreamCreate(&st, CU_NON_BLOCKING));
	for (int direction = 0; direction < 2; direction++) {
		go = passed = 0;
		HW_CU(cuLaunchHostFunc(st, wait_for_go, NULL));
		T_EQ(pthread_create(&t, NULL, opener, NULL), 0);
		T_OK(hf3fs_iovsync(&iov, direction));
		T_EQ(passed, 1);
		T_EQ(pthread_join(t, NULL), 0);
	}
	(void)stub.fail("cuCtxSynchronize:1:500");
	T_CHECK(hf3fs_iovsync(&iov, 0) < 0);
	T_CHECK(stub.fail(NULL));
	T_OK(hf3fs_iovsync(&iov, 0));
	HW_CU(cuStreamDestroy_v2(st));
	hf3fs_iovdestroy(&iov);
}

/* --------------------------------------------------------- another process */

static int child_opens(const uint8_t id[16])
{
	struct hf3fs_iov iov, no;

	GPU_CHILD(hf3fs_iovopen_device(&no, id, gpu_daemon, LEN, 0, 1) == -ENOENT);
	GPU_CHILD(hf3fs_iovopen_device(&no, id, gpu_daemon, LEN + 1, 0, 0) == -EINVAL);
	GPU_CHILD(hf3fs_iovopen_device(&no, id, gpu_daemon, LEN - 1, 0, 0) == -EINVAL);
	GPU_CHILD(hf3fs_iovopen_device(&iov, id, gpu_daemon, LEN, 0, 0) == 0);
	GPU_CHILD(hf3fs_iov_device_id(&iov) == 0 && iov.size == LEN && !memcmp(iov.id, id, 16));
	GPU_CHILD(gpu_differs(iov.base, LEN, 21, 0) == LEN);
	gpu_fill(iov.base, LEN, 22, 0);
	/* The publication belongs to the other process, so nothing is removed. */
	hf3fs_iovunlink(&iov);
	hf3fs_iovunlink_gpu(&iov);
	GPU_CHILD(gpu_links(gpu_daemon, NULL) == 1);
	hf3fs_iovdestroy(&iov);
	GPU_CHILD(gpu_links(gpu_daemon, NULL) == 1);
	return state().ranges != 0;
}

static int child_imports(const hf3fs_gpu_ipc_handle_t *h)
{
	struct hf3fs_iov a, b;
	hf3fs_gpu_ipc_handle_t bad = *h;
	struct usrbio_gdr g;

	bad.data[70] ^= 1;
	GPU_CHILD(hf3fs_iov_import_gpu(&a, &bad, gpu_plain) == -EINVAL);
	GPU_CHILD(hf3fs_iov_import_gpu(&a, h, "/nonexistent") == -ENOENT);
	GPU_CHILD(state().ranges == 0);
	GPU_CHILD(hf3fs_iov_import_gpu(&a, h, gpu_plain) == 0);
	GPU_CHILD(a.base && a.size == LEN && hf3fs_iov_device_id(&a) == 1);
	GPU_CHILD(hf3fs_iov_import_gpu(&b, h, gpu_daemon) == 0);
	GPU_CHILD(memcmp(a.id, b.id, 16) && b.base == a.base);
	GPU_CHILD(gpu_differs(a.base, LEN, 31, 0) == LEN);
	GPU_CHILD(gpu_read(&a, 0, gpu_file("import"), 0, LEN) == LEN);
	/* The daemon compares with the whole allocation that it opens, not with the granted
	 * range. */
	g = gpu_published(&b, 1);
	GPU_CHILD(g.off == 1234 && g.size == LEN && g.allocation == 2 * LEN);
	/* A received handle can be exported again. */
	GPU_CHILD(hf3fs_iov_export_gpu(&b, &bad) == 0);
	GPU_CHILD(!memcmp(&bad, h, sizeof(bad)));
	hf3fs_iovdestroy_gpu(&b);
	GPU_CHILD(gpu_links(gpu_daemon, NULL) == 0);
	GPU_CHILD(gpu_differs(a.base, LEN, 32, 0) == LEN);
	hf3fs_iovdestroy_gpu(&a);
	return state().ranges != 0;
}

static void open_by_another_process(void)
{
	struct hf3fs_iov iov;

	T_OK(hf3fs_iovcreate_device(&iov, gpu_daemon, LEN, 0, 0));
	gpu_fill(iov.base, LEN, 21, 0);
	T_EQ(gpu_other("open", &iov, "", 0), 0);
	T_EQ(gpu_differs(iov.base, LEN, 22, 0), LEN);
	T_EQ(gpu_links(gpu_daemon, NULL), 1);
	hf3fs_iovdestroy(&iov);
}

static void R2b_import_by_another_process(void)
{
	struct stub_cuda_state before;
	hf3fs_gpu_ipc_handle_t h;
	struct hf3fs_iov iov, no;
	cu_ctx popped;
	cu_ptr p;

	HW_CU(cuCtxPopCurrent_v2(&popped));
	HW_CU(cuDevicePrimaryCtxRetain(&hw_ctx, 1));
	HW_CU(cuCtxPushCurrent_v2(hw_ctx));
	HW_CU(cuMemAlloc_v2(&p, 2 * LEN));
	before = state();
	rig_make(gpu_file("import"), 32, LEN);
	T_OK(hf3fs_iovwrap_gpu(&iov, (void *)(uintptr_t)(p + 1234), gpu_id(), gpu_plain, LEN, 0,
			       1));
	gpu_fill(iov.base, LEN, 31, 0);
	T_OK(hf3fs_iov_export_gpu(&iov, &h));
	/* CUDA does not open a handle in the process that made it. */
	T_EQ(hf3fs_iov_import_gpu(&no, &h, gpu_plain), -EINVAL);
	T_EQ(gpu_other("import", &iov, &h, sizeof(h)), 0);
	T_EQ(gpu_differs(iov.base, LEN, 32, 0), LEN);
	hf3fs_iovdestroy_gpu(&iov);
	same(&before);
	HW_CU(cuMemFree_v2(p));
	HW_CU(cuCtxPopCurrent_v2(&hw_ctx));
	HW_CU(cuDevicePrimaryCtxRelease_v2(1));
	hw_ctx = popped;
	HW_CU(cuCtxPushCurrent_v2(hw_ctx));
}

/* Links with other targets, and of processes that do not exist. */
static void open_believes_nothing(void)
{
	static const char *const targets[] = {
		"gdr://device/0/ptr/4096/size/4096",
		"gdr://v1/device/0/size/4096/ipc/00",
		"gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/00",
		"gdr://v2/device/1/allocation/4096/offset/0/size/4096/ipc/%0128d",
		"gdr://v2/device/0/allocation/4095/offset/0/size/4096/ipc/%0128d",
		"gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/%0128d",
		"gdr://v2/device/0/allocation/4096/offset/0/size/4096/ipc/%0128dx",
		"/dev/shm/x",
	};
	struct stub_cuda_state before = state();
	struct hf3fs_iov iov = { .mount_point = "" }, no;
	char path[400], target[500];

	(void)snprintf(iov.mount_point, sizeof(iov.mount_point), "%s", gpu_daemon);
	memcpy(iov.id, gpu_id(), 16);
	gpu_path_of(&iov, 0, path);
	for (unsigned i = 0; i < RIG_NR(targets); i++) {
		(void)snprintf(target, sizeof(target), targets[i], 7);
		T_EQ(symlink(target, path), 0);
		T_EQ(hf3fs_iovopen_device(&no, (uint8_t *)iov.id, gpu_daemon, 4096, 0, 0), -EINVAL);
		T_EQ(unlink(path), 0);
	}
	(void)memset(target, 'x', sizeof(target));
	target[499] = '\0';
	T_EQ(symlink(target, path), 0);
	T_EQ(hf3fs_iovopen_device(&no, (uint8_t *)iov.id, gpu_daemon, 4096, 0, 0), -EINVAL);
	T_EQ(unlink(path), 0);
	T_EQ(hf3fs_iovopen_device(&no, (uint8_t *)iov.id, gpu_daemon, 4096, 0, 0), -ENOENT);
	same(&before);
}

/* ------------------------------------------------------- half of a driver */

/* Loading CUDA fails once, and stays failed: no devices, and no crash. */
static int child_has_none(void)
{
	struct hf3fs_iov iov;

	GPU_CHILD(!hf3fs_gdr_available() && hf3fs_gdr_device_count() == 0);
	GPU_CHILD(hf3fs_iovcreate_device(&iov, gpu_plain, LEN, 0, 0) == -ENOTSUP);
	GPU_CHILD(hf3fs_iovcreate_gpu(&iov, gpu_daemon, LEN, 0, 1) == -ENOTSUP);
	GPU_CHILD(hf3fs_iovwrap_device(&iov, &iov, gpu_id(), gpu_plain, 8, 0, 0) == -ENOTSUP);
	GPU_CHILD(hf3fs_iovopen_device(&iov, gpu_id(), gpu_daemon, 8, 0, 0) == -ENOTSUP);
	GPU_CHILD(hf3fs_iov_import_gpu(&iov, &(hf3fs_gpu_ipc_handle_t){ { 0 } }, gpu_plain) ==
		  -ENOTSUP);
	GPU_CHILD(gpu_links(gpu_plain, NULL) == 0 && gpu_links(gpu_daemon, NULL) == 0);
	return 0;
}

static void R1b_half_a_driver_is_none(void)
{
	static const char *const fails[] = { "cuInit:1:100", "cuInit:1:999", "cuDeviceGetCount:1:3",
					     "cuDeviceGet:2:101", "cuDeviceGetUuid_v2:1:999" };
	const struct hf3fs_iov none = { .id = "" };

	for (unsigned i = 0; i < RIG_NR(fails); i++) {
		T_EQ(setenv("STUB_CUDA_FAIL", fails[i], 1), 0);
		T_EQ(gpu_other("none", &none, "", 0), 0);
	}
	T_EQ(unsetenv("STUB_CUDA_FAIL"), 0);
	T_EQ(setenv("STUB_CUDA_DEVICES", "0", 1), 0);
	T_EQ(gpu_other("none", &none, "", 0), 0);
	T_EQ(setenv("STUB_CUDA_DEVICES", "2", 1), 0);
}

/* --------------------------------------------------------- every call fails */

static int create_there(struct hf3fs_iov *iov, cu_ptr p)
{
	(void)p;
	return hf3fs_iovcreate_device(iov, gpu_daemon, LEN, 0, 0);
}

static int wrap_there(struct hf3fs_iov *iov, cu_ptr p)
{
	return hf3fs_iovwrap_device(iov, (void *)(uintptr_t)p, gpu_id(), gpu_daemon, LEN, 0, 0);
}

static int wrap_here(struct hf3fs_iov *iov, cu_ptr p)
{
	return hf3fs_iovwrap_device(iov, (void *)(uintptr_t)p, gpu_id(), gpu_plain, LEN, 0, 0);
}

/* Let the 1st, 2nd, ... call of the driver fail, until all calls were made. */
static void failures_leave_nothing(void)
{
	static int (*const calls[])(struct hf3fs_iov *, cu_ptr) = { create_there, wrap_there,
								    wrap_here };
	struct hf3fs_iov iov, untouched;
	struct stub_cuda_state before;
	unsigned failed = 0;
	cu_ptr p;

	memset(&untouched, 0x77, sizeof(untouched));
	HW_CU(cuMemAlloc_v2(&p, LEN));
	before = state();
	for (unsigned c = 0; c < RIG_NR(calls); c++) {
		bool met = true;

		for (unsigned n = 1; met; n++) {
			char spec[32];
			int r;

			T_CHECK(n < 200);
			iov = untouched;
			(void)snprintf(spec, sizeof(spec), "*:%u:2", n);
			(void)stub.fail(spec);
			r = calls[c](&iov, p);
			met = stub.fail(NULL);
			if (r < 0)
				T_CHECK(!memcmp(&iov, &untouched, sizeof(iov)));
			else
				hf3fs_iovdestroy(&iov);
			failed += r < 0;
			T_EQ(gpu_links(gpu_daemon, NULL), 0);
			same(&before);
		}
	}
	T_CHECK(failed > 10);
	HW_CU(cuMemFree_v2(p));
}

/* ------------------------------------------------------------------- begin */

static void no_stub(void)
{
	T_SKIP("needs the library of tests/stub");
}

static bool find_stub(void)
{
	const char *name = getenv("PST_LIBCUDA");
	void *lib = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW);

	if (!lib || hw_cuda(0))
		return false;
	symbol(lib, &stub.state, "stub_cuda_state");
	symbol(lib, &stub.fail, "stub_cuda_fail");
	symbol(lib, &stub.stall, "stub_cuda_stall");
	symbol(lib, &stub.alloc_managed, "cuMemAllocManaged");
	symbol(lib, &stub.alloc_async, "cuMemAllocAsync");
	return stub.state;
}

static int child(char **argv)
{
	hf3fs_gpu_ipc_handle_t h = { { 0 } };
	uint8_t id[16];

	(void)snprintf(gpu_plain, sizeof(gpu_plain), "%s", argv[2]);
	(void)snprintf(gpu_daemon, sizeof(gpu_daemon), "%s", argv[3]);
	if (setjmp(t_jump)) {
		(void)fprintf(stderr, "# child: %s\n", t_why);
		return 1;
	}
	GPU_CHILD(usrbio_id_parse(argv[4], id) == 0);
	if (!strcmp(argv[1], "none"))
		return child_has_none();
	GPU_CHILD(find_stub());
	if (!strcmp(argv[1], "open"))
		return child_opens(id);
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
	T_RUN(create_publishes);
	T_RUN(R5d_wrap_publishes_a_part);
	T_RUN(unlink_keeps_the_memory);
	T_RUN(R5c_publication_goes_first);
	T_RUN(a_link_that_does_not_go);
	T_RUN(a_daemon_that_refuses);
	T_RUN(memory_without_a_handle);
	T_RUN(contexts_stay);
	T_RUN(sync_waits_for_the_device);
	T_RUN(open_by_another_process);
	T_RUN(R2b_import_by_another_process);
	T_RUN(open_believes_nothing);
	T_RUN(R1b_half_a_driver_is_none);
	T_RUN(failures_leave_nothing);
	return gpu_rig_done();
}
