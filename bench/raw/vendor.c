/* SPDX-License-Identifier: MIT */
#include "raw.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

cu_ctx ctx;
cuf_handle cf_handle;
char gpu_name[128];
cu_result (*memcpy_htod)(cu_ptr dst, const void *src, size_t len);

const char *cu_text(cu_result err)
{
	const char *name = NULL;

	return cu.cuGetErrorName && cu.cuGetErrorName(err, &name) == CU_OK && name ? name
										   : "unknown";
}

void load_cuda(void)
{
	char why[256];
	cu_device dev;
	cu_result e;
	void *fn;

	if (vendor_cuda(why, sizeof(why)) < 0)
		die(REFUSED, "%s", why);
	fn = dlsym(RTLD_DEFAULT, "cuMemcpyHtoD_v2");
	if (!fn && set.mode == PLAIN)
		die(REFUSED, "libcuda has no cuMemcpyHtoD_v2");
	memcpy(&memcpy_htod, &fn, sizeof(fn));
	e = cu.cuInit(0);
	if (!e)
		e = cu.cuDeviceGet(&dev, set.gpu);
	if (e)
		die(REFUSED, "there is no GPU %d: %u (%s)", set.gpu, e, cu_text(e));
	(void)cu.cuDeviceGetName(gpu_name, sizeof(gpu_name), dev);
	e = cu.cuDevicePrimaryCtxRetain(&ctx, dev);
	if (!e)
		e = cu.cuCtxPushCurrent_v2(ctx);
	if (e)
		die(1, "no context on GPU %d: %u (%s)", set.gpu, e, cu_text(e));
}

static void refuse_cufile(const char *call, struct cuf_error e)
{
	if (set.json)
		(void)printf("{\"tool\": \"raw\", \"mode\": \"cufile\", \"refused\": \"%s\", "
			     "\"code\": %d, \"cuda_code\": %d}\n",
			     call, e.err, e.cu_err);
	(void)fflush(stdout);
	die(REFUSED, "cuFile refuses: %s gave %d, with CUDA's %d", call, e.err, e.cu_err);
}

void load_cufile(void)
{
	struct cuf_descr d = { .type = CUF_FD, .u = { .fd = set.direct ? fd_direct : fd } };
	struct cuf_error e;
	char why[256];

	/* Without this setting, cuFile writes its log into the working directory. */
	(void)setenv("CUFILE_LOGFILE_PATH", "/dev/null", 0);
	if (vendor_cufile(set.libcufile, why, sizeof(why)) < 0)
		die(REFUSED, "%s", why);
	e = cuf.cuFileDriverOpen();
	if (e.err)
		refuse_cufile("cuFileDriverOpen", e);
	e = cuf.cuFileHandleRegister(&cf_handle, &d);
	if (e.err)
		refuse_cufile("cuFileHandleRegister", e);
}
