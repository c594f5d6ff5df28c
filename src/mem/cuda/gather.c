/* SPDX-License-Identifier: MIT */
#include "base/log.h"
#include "mem/cuda/cuda.h"
#include "mem/cuda/ptx.h"

/* The driver compiles the text when the first batch wants it, and may keep the result in its
 * own cache. */
static void load(struct cuda_dev *d)
{
	cu_module module = NULL;
	cu_func fn = NULL;
	cu_result e;

	d->gather = GATHER_CANNOT;
	e = cu.cuModuleLoadDataEx(&module, cuda_gather_ptx, 0, NULL, NULL);
	if (e == CU_OK) {
		e = cu.cuModuleGetFunction(&fn, module, CUDA_GATHER_NAME);
		if (e != CU_OK)
			cuda_ignore(d, cu.cuModuleUnload(module), "unload the gather kernel");
	}
	if (e == CU_OK) {
		d->module = module;
		d->gather_fn = fn;
		d->gather = GATHER_READY;
		return;
	}
	cuda_ignore(d, e, "load the gather kernel, so small pieces go one by one");
}

cu_func cuda_gather_fn(struct cuda_dev *d)
{
	cu_func fn;

	(void)pthread_mutex_lock(&d->lock);
	if (d->gather == GATHER_UNKNOWN)
		load(d);
	fn = d->gather == GATHER_READY ? d->gather_fn : NULL;
	(void)pthread_mutex_unlock(&d->lock);
	return fn;
}

void cuda_gather_cannot(struct cuda_dev *d, cu_result err)
{
	(void)pthread_mutex_lock(&d->lock);
	if (d->gather == GATHER_READY) {
		/* Other streams may be running it: it stays loaded until the context goes. */
		d->gather_fn = NULL;
		log_warn("%s cannot run the gather kernel: %s, ignoring", d->info.name,
			 cuda_err_name(err));
	}
	(void)pthread_mutex_unlock(&d->lock);
}

cu_result cuda_gather_launch(cu_func fn, cu_ptr tiles, unsigned nr, cu_stream st)
{
	void *params[] = { &tiles };

	return cu.cuLaunchKernel(fn, nr, 1, 1, CUDA_GATHER_THREADS, 1, 1, 0, st, params, NULL);
}
