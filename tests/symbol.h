/* SPDX-License-Identifier: MIT */
/* A function of a library that was opened at run time; slot is a pointer to it, NULL without. */
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
