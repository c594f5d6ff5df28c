/* SPDX-License-Identifier: MIT */
#include "bench/vendor.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

struct cuda_api cu;
struct cufile_api cuf;

struct sym {
	const char *name;
	size_t off;
	bool required;
};

static const struct sym cuda_syms[] = {
#define SYM(name, args) { #name, offsetof(struct cuda_api, name), true },
#define OPT(name, args) { #name, offsetof(struct cuda_api, name), false },
#include "mem/cuda/cuda_syms.h"
};

static const struct sym cufile_syms[] = {
#define SYM(type, name, args) { #name, offsetof(struct cufile_api, name), true },
#define OPT(type, name, args) { #name, offsetof(struct cufile_api, name), false },
#include "gds/cufile/cufile_syms.h"
#define SYM(type, name, args) { #name, offsetof(struct cufile_api, name), true },
#define OPT(type, name, args) { #name, offsetof(struct cufile_api, name), false },
#include "bench/cufile/batch_syms.h"
};

static int vendor_load(const char *file, void *table, const struct sym *syms, size_t nr, char *why,
		       size_t len)
{
	void *lib = dlopen(file, RTLD_NOW | RTLD_GLOBAL);

	if (!lib) {
		(void)snprintf(why, len, "%s", dlerror());
		return -ENODEV;
	}
	for (size_t i = 0; i < nr; i++) {
		void *fn = dlsym(lib, syms[i].name);

		if (!fn && syms[i].required) {
			(void)snprintf(why, len, "%s has no %s: it is too old", file, syms[i].name);
			return -EOPNOTSUPP;
		}
		memcpy((char *)table + syms[i].off, &fn, sizeof(fn));
	}
	return 0;
}

int vendor_cuda(char *why, size_t len)
{
	const char *file = getenv("PST_LIBCUDA");

	return vendor_load(file && *file ? file : "libcuda.so.1", &cu, cuda_syms,
			   ARRAY_SIZE(cuda_syms), why, len);
}

int vendor_cufile(const char *file, char *why, size_t len)
{
	return vendor_load(file, &cuf, cufile_syms, ARRAY_SIZE(cufile_syms), why, len);
}
