/* SPDX-License-Identifier: MIT */
/*
 * Read a file into a framework's memory, in order with the framework's stream.
 *
 *	wrap-cuda FILE
 *
 * Plain calls of the CUDA driver stand for the framework: Penstock needs only a pointer and a
 * stream.  Without a CUDA driver, memory of the software device is wrapped, which has no streams.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <penstock.h>

#define LEN ((uint64_t)1 << 20)

static int complain(const char *why)
{
	(void)fprintf(stderr, "wrap-cuda: %s\n", why);
	return -1;
}

/* The driver's functions under their ABI names; all return 0 for success. */
static struct {
	int (*init)(unsigned flags);
	int (*retain)(void **ret_ctx, int device);
	int (*push)(void *ctx);
	int (*alloc)(uint64_t *ret, size_t len);
	int (*stream)(void **ret, unsigned flags);
	int (*pin)(void *host, size_t len, unsigned flags);
	int (*copy)(void *dst, uint64_t src, size_t len, void *stream);
	int (*wait)(void *stream);
} cu;

#define FIND(fn, name) (*(void **)&cu.fn = dlsym(lib, name))

/* Pinned, because the stream's copies to it must not need the CPU. */
static char got[LEN] __attribute__((aligned(4096)));

/* Create a context, memory and a stream on the first GPU, as a framework does; return false without
 * a driver. */
static bool framework(uint64_t *ret_addr, void **ret_stream)
{
	const char *name = getenv("PST_LIBCUDA");
	void *ctx, *lib = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW);

	return lib && FIND(init, "cuInit") && FIND(retain, "cuDevicePrimaryCtxRetain") &&
	       FIND(push, "cuCtxPushCurrent_v2") && FIND(alloc, "cuMemAlloc_v2") &&
	       FIND(stream, "cuStreamCreate") && FIND(pin, "cuMemHostRegister_v2") &&
	       FIND(copy, "cuMemcpyDtoHAsync_v2") && FIND(wait, "cuStreamSynchronize") &&
	       !cu.init(0) && !cu.retain(&ctx, 0) && !cu.push(ctx) && !cu.alloc(ret_addr, LEN) &&
	       !cu.stream(ret_stream, 1 /* CU_STREAM_NON_BLOCKING */) && !cu.pin(got, LEN, 0);
}

/* Read to an address, then let the stream (or else the CPU) copy the bytes to got. */
static int load(struct pst_queue *q, struct pst_io *io, uint64_t addr)
{
	struct pst_done done;
	char text[512];

	if (pst_mem_wrap(addr, LEN, NULL, &io->mem) < 0 || pst_queue_prep(q, io) < 0 ||
	    pst_queue_submit(q) < 0)
		return complain(pst_error_text());
	/* The stream waits for the read, so work queued on it now runs after the read. */
	if (io->stream && (cu.copy(got, addr, LEN, io->stream) || cu.wait(io->stream)))
		return complain("the stream failed");
	if (pst_queue_reap(q, &done, 1, 1, PST_NO_DEADLINE) < 1 ||
	    (!io->stream && pst_mem_copy_out(io->mem, 0, got, LEN) < 0))
		return complain(pst_error_text());
	(void)pst_done_text(&done, text, sizeof(text));
	return done.res < 0 ? complain(text) : puts(text) < 0 ? -1 : (int)done.res;
}

static int same(const char *path, size_t len)
{
	static char want[LEN];
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(want, 1, LEN, f) : 0;

	return (!f || fclose(f) == 0) && n == len && memcmp(got, want, len) == 0;
}

int main(int argc, char *argv[])
{
	/* A waiting stream continues only when its request ends, so limit the time. */
	struct pst_queue_opts o = { .sz = sizeof(o), .timeout_ms = 5000 };
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_io io = { .op = PST_OP_READ, .len = LEN };
	struct pst_queue *q = NULL;
	struct pst_mem *soft = NULL;
	int n = -1;

	if (argc != 2) {
		(void)fprintf(stderr, "usage: wrap-cuda FILE\n");
		return 2;
	}
	if (framework(&info.addr, &io.stream))
		io.flags = PST_IO_STREAM_WAIT;
	else if (puts("no NVIDIA driver here: the software device, which has no streams") >= 0 &&
		 pst_mem_alloc("soft", LEN, NULL, &soft) == 0)
		(void)pst_mem_info(soft, &info);
	if (pst_file_open(argv[1], PST_FILE_READ, NULL, &io.file) < 0 || pst_queue_new(&o, &q) < 0)
		(void)complain(pst_error_text());
	else
		n = load(q, &io, info.addr);
	if (n >= 0 && !same(argv[1], (size_t)n))
		n = complain("a plain read gives other bytes");
	(void)pst_queue_free(q);
	(void)pst_file_close(io.file);
	/* The framework may free wrapped memory only when nothing can access it any more. */
	if (io.mem && pst_mem_drain(io.mem, 0) < 0)
		n = -1;
	(void)pst_mem_free(io.mem);
	(void)pst_mem_free(soft);
	return n < 0;
}
