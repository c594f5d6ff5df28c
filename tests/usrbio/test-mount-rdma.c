/* SPDX-License-Identifier: MIT */
/*
 * Rings of a mount whose source is a storage service that the mount's worker reaches by RDMA: the
 * server moves the bytes into and out of the memory of the ring.  PST_TEST_MOUNT_SERVICE names the
 * command, and libibverbs is the stub.
 */
#include "mount_gpu_rig.h"
#include "service.h"

#define LEN (RIG_MIB(1) + 4096)

/* Return one of the server's metrics. */
static int64_t number(const char *name)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%.90s/metrics", mg.dir);
	return service_number(path, name);
}

#define WRITES "penstock_serve_rdma_operations_total{op=\"write\"}"
#define READS "penstock_serve_rdma_operations_total{op=\"read\"}"
#define REQUESTS(op) "penstock_serve_requests_total{op=\"" op "\"}"

static const uint64_t lens[] = { 1, 4095, 4096, 65536, 65537, 262145, 1000003, LEN };

static void bytes_go_there_and_back(struct hf3fs_iov *a, struct hf3fs_iov *b, bool by_rdma)
{
	for (unsigned i = 0; i < RIG_NR(lens); i++) {
		int64_t reads = number(READS), writes = number(WRITES);
		uint64_t n = lens[i], at = i * 5;

		gpu_fill(a->base, a->size, 10 + i, 0);
		gpu_fill(b->base, b->size, 90, 0);
		T_EQ(gpu_write(a, at, gpu_file("data"), i, n), (int64_t)n);
		T_EQ(gpu_read(b, 100 - at, gpu_file("data"), i, n), (int64_t)n);
		T_OK(hf3fs_iovsync(b, 1));
		T_EQ(gpu_differs(b->base + 100 - at, n, 10 + i, at), n);
		T_EQ(gpu_differs(b->base, 100 - at, 90, 0), 100 - at);
		T_EQ(gpu_differs(b->base + 100 - at + n, 50, 90, 100 - at + n), 50);
		T_EQ(unlink(gpu_file("data")), 0);
		if (!by_rdma)
			continue;
		T_EQ(number(READS) - reads, (int64_t)((n + 262143) / 262144));
		T_EQ(number(WRITES) - writes, (int64_t)((n + 262143) / 262144));
	}
}

static void device_memory(void)
{
	struct hf3fs_iov a, b;

	mg_begin();
	a = mg_create(LEN + 200);
	b = mg_create(LEN + 200);
	bytes_go_there_and_back(&a, &b, true);
	T_EQ(number(REQUESTS("read")), 0);
	T_EQ(number(REQUESTS("write")), 0);
	T_CHECK(number(REQUESTS("read_rdma")) > 0);
	T_CHECK(number(REQUESTS("write_rdma")) > 0);
	hf3fs_iovdestroy(&a);
	hf3fs_iovdestroy(&b);
	mg_end();
}

/* All transfers of the server's device fail: the bytes come over the socket. */
static void a_device_that_fails(void)
{
	struct hf3fs_iov a, b;

	T_EQ(setenv("STUB_IBVERBS_FAIL", "completion:0:12", 1), 0);
	mg_begin();
	T_EQ(unsetenv("STUB_IBVERBS_FAIL"), 0);
	a = mg_create(LEN + 200);
	b = mg_create(LEN + 200);
	bytes_go_there_and_back(&a, &b, false);
	T_CHECK(number(REQUESTS("read")) > 0);
	T_CHECK(number(REQUESTS("write")) > 0);
	hf3fs_iovdestroy(&a);
	hf3fs_iovdestroy(&b);
	mg_end();
}

int main(void)
{
	(void)setenv("PST_USRBIO_DEVICE", "soft", 1);
	(void)setenv("PST_SOFT_DEVICES", "2", 1);
	gpu_rig_init();
	(void)hf3fs_gdr_device_count();
	(void)setenv("PST_TEST_IBVERBS_FABRIC", rig_path("fabric"), 1);
	(void)setenv("PST_RDMA", "stub0", 1);
	T_RUN(device_memory);
	T_RUN(a_device_that_fails);
	return gpu_rig_done();
}
