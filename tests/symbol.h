/* SPDX-License-Identifier: MIT */
/* Store a function of an opened library in the pointer at slot; NULL if the library lacks it. */
#ifndef PST_TESTS_SYMBOL_H
#define PST_TESTS_SYMBOL_H

#include <dlfcn.h>
#include <string.h>

static inline void symbol(void *lib, void *slot, const char *name)
{
	void *fn = dlsym(lib, name);

	memcpy(slot, &fn, sizeof(fn));
}

#endif
