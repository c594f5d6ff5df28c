/* SPDX-License-Identifier: MIT */
/*
 * For LD_PRELOAD: make windows wrong by one byte, to prove that the checks of a test notice.
 * WRONG_BYTES selects the byte: "store" changes a stored byte, "before" the byte before the
 * stored range, "load" a loaded byte.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <penstock.h>

typedef int (*store_fn)(struct pst_window *w, uint64_t off, const void *src, uint64_t len);
typedef int (*load_fn)(struct pst_window *w, uint64_t off, void *dst, uint64_t len);

static int wanted(const char *what)
{
	const char *env = getenv("WRONG_BYTES");

	return env && strcmp(env, what) == 0;
}

PST_API int pst_window_store(struct pst_window *window, uint64_t off, const void *src, uint64_t len)
{
	void *sym = dlsym(RTLD_NEXT, "pst_window_store");
	store_fn real;
	char c;
	int r;

	memcpy(&real, &sym, sizeof(real));
	r = real(window, off, src, len);
	if (r < 0 || !len)
		return r;
	c = (char)(((const char *)src)[len / 2] ^ 4);
	if (wanted("store"))
		return real(window, off + len / 2, &c, 1);
	return wanted("before") && off ? real(window, off - 1, &c, 1) : 0;
}

PST_API int pst_window_load(struct pst_window *window, uint64_t off, void *dst, uint64_t len)
{
	void *sym = dlsym(RTLD_NEXT, "pst_window_load");
	load_fn real;
	int r;

	memcpy(&real, &sym, sizeof(real));
	r = real(window, off, dst, len);
	if (r == 0 && len && wanted("load"))
		((char *)dst)[len / 2] ^= 4;
	return r;
}
