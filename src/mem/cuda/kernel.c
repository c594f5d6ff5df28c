/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "base/log.h"
#include "mem/cuda/cuda.h"
#include "mem/cuda/ptx.h"
#include "mem/cuda/ptx_sum.h"

void cuda_kernels_init(struct cuda_dev *d)
{
	(void)pthread_mutex_init(&d->kernel_lock, NULL);
	d->gather = (struct cuda_kernel){ .ptx = cuda_gather_ptx,
					  .name = CUDA_GATHER_NAME,
					  .without = "small pieces go one by one" };
	d->sum = (struct cuda_kernel){ .ptx = cuda_sum_ptx,
				       .name = CUDA_SUM_NAME,
				       .without = "there are no checksums of its memory" };
}

/* Load a kernel.  The driver compiles its text, and may keep the result in its own cache. */
static void load_kernel(struct cuda_dev *d, struct cuda_kernel *k)
{
	cu_module module = NULL;
	cu_func fn = NULL;
	char what[128];
	cu_result e;

	k->state = KERNEL_CANNOT;
	k->none = true;
	e = cu.cuModuleLoadDataEx(&module, k->ptx, 0, NULL, NULL);
	if (e == CU_OK) {
		e = cu.cuModuleGetFunction(&fn, module, k->name);
		if (e != CU_OK)
			cuda_ignore(d, cu.cuModuleUnload(module), "unload a kernel");
	}
	if (e == CU_OUT_OF_MEMORY) {
		/* Try again the next time, when there may be memory. */
		k->state = KERNEL_UNKNOWN;
		k->none = false;
	}
	if (e == CU_OK) {
		k->module = module;
		k->fn = fn;
		k->state = KERNEL_READY;
		k->none = false;
		return;
	}
	(void)snprintf(what, sizeof(what), "load the kernel %s, so %s", k->name, k->without);
	cuda_ignore(d, e, what);
}

cu_func cuda_kernel(struct cuda_dev *d, struct cuda_kernel *k)
{
	cu_func fn;

	(void)pthread_mutex_lock(&d->kernel_lock);
	if (k->state == KERNEL_UNKNOWN)
		load_kernel(d, k);
	fn = k->state == KERNEL_READY ? k->fn : NULL;
	(void)pthread_mutex_unlock(&d->kernel_lock);
	return fn;
}

void cuda_kernel_fails(struct cuda_dev *d, struct cuda_kernel *k, cu_result err)
{
	(void)pthread_mutex_lock(&d->kernel_lock);
	if (k->state == KERNEL_READY && k->fn) {
		/* Keep the module loaded until the context ends, because other streams may be
		 * running the kernel. */
		k->fn = NULL;
		k->none = true;
		log_warn("%s cannot run the kernel %s, so %s: %s", d->info.name, k->name,
			 k->without, cuda_err_name(err));
	}
	(void)pthread_mutex_unlock(&d->kernel_lock);
}

bool cuda_kernels_any(const struct cuda_dev *d)
{
	return d->gather.state == KERNEL_READY || d->sum.state == KERNEL_READY;
}

static void unload_kernel(struct cuda_dev *d, struct cuda_kernel *k, bool current)
{
	if (current && k->state == KERNEL_READY)
		cuda_ignore(d, cu.cuModuleUnload(k->module), "unload a kernel");
	k->state = KERNEL_UNKNOWN;
	k->fn = NULL;
	k->none = false;
}

void cuda_kernels_end(struct cuda_dev *d, bool current)
{
	unload_kernel(d, &d->gather, current);
	unload_kernel(d, &d->sum, current);
}
