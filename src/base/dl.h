/* SPDX-License-Identifier: MIT */
/*
 * Vendor libraries, loaded at run time into a typed table.
 *
 * A vendor's functions are listed once, with their signatures, as lines of SYM() and OPT(), such as
 * in mem/cuda/cuda_syms.h.  The list is included twice: as the members of a struct of function
 * pointers, and as an array of struct dl_sym with the offset of each pointer.
 *
 *	struct cuda_api {
 *	#define SYM(name, args) uint32_t(*name) args;
 *	#define OPT SYM
 *	#include "mem/cuda/cuda_syms.h"
 *	};
 *	static const struct dl_sym syms[] = {
 *	#define SYM(name, args) DL_SYM(struct cuda_api, name, true),
 *	#define OPT(name, args) DL_SYM(struct cuda_api, name, false),
 *	#include "mem/cuda/cuda_syms.h"
 *	};
 */
#ifndef PST_DL_H
#define PST_DL_H

#include "base/base.h"

struct dl_sym {
	const char *name;
	size_t off;    /* offset of the pointer in the table */
	bool required; /* false: the pointer is NULL if the library lacks the function */
};

#define DL_SYM(type, sym, need)                                              \
	{                                                                    \
		.name = #sym, .off = offsetof(type, sym), .required = (need) \
	}

/*
 * The ELF note that tells packagers about a library without a NEEDED entry; see
 * https://systemd.io/ELF_DLOPEN_METADATA/. Put such a note next to each struct dl_lib, with
 * literals: the feature as one word, and as a few words.
 */
#define DL_NOTE(lib_soname, word, words)                                 \
	DL_NOTE_("[{\"soname\":[\"" lib_soname "\"],\"feature\":\"" word \
		 "\",\"description\":\"" words "\",\"priority\":\"suggested\"}]")
#define DL_NOTE_(json)                                                                            \
	static const struct {                                                                     \
		uint32_t owner_len, text_len, type;                                               \
		char owner[4], text[sizeof(json)];                                                \
	} dl_note __attribute__((used, aligned(4), section(".note.dlopen"))) = { 4, sizeof(json), \
										 0x407c0c0a,      \
										 "FDO", json }

struct dl_lib {
	const char *what;   /* name in sentences, such as "NVIDIA driver" */
	const char *soname; /* such as "libcuda.so.1"; the loader finds the file */
	const char *path;   /* file to try if the loader does not find soname; NULL: none */
	const char *env;    /* environment variable that names another file; ignored in set-uid
			     * programs */
};

/*
 * Load a library and fill the table.  The library is never unloaded, because vendors' libraries
 * start threads and leave handlers behind.
 *
 * Return: 0; -ENODEV with a sentence if the library is missing or lacks a required function; the
 * table is then unchanged.
 */
int dl_load(const struct dl_lib *lib, void *table, const struct dl_sym *syms, unsigned nr);

/*
 * Return true if the library is loaded in this process, by any code.  Any thread may call this.  A
 * missing library is searched again only after another library was loaded.
 * @absent: one variable for each library, 0 at first; keeps the number of libraries loaded at the
 * last search
 */
bool dl_present(const struct dl_lib *lib, _Atomic unsigned long long *absent);

#endif
