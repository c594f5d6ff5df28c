/* SPDX-License-Identifier: MIT */
/*
 * Vendor libraries, loaded at run time into a typed table.
 *
 * A vendor's functions stand once, with their signatures, in a list of SYM() and OPT()
 * lines, such as mem/cuda/cuda_syms.h.  The list is included twice: as the members of a
 * struct of function pointers, and as an array of struct dl_sym that says where each goes.
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
	bool required; /* if false, the pointer is NULL if the library lacks the function */
};

#define DL_SYM(type, sym, need)                                              \
	{                                                                    \
		.name = #sym, .off = offsetof(type, sym), .required = (need) \
	}

/*
 * The ELF note that tells packagers about a library without a NEEDED entry; see
 * https://systemd.io/ELF_DLOPEN_METADATA/.  Put it next to each struct dl_lib, with literals: the
 * feature in one word, and in a few words.
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
	const char *what;   /* name in sentences: "NVIDIA driver" */
	const char *soname; /* "libcuda.so.1", found by the loader */
	const char *path;   /* file to try if the loader does not find soname; NULL: none */
	const char *env;    /* environment variable that names another file; ignored in set-uid
			     * programs */
};

/*
 * Load a library and fill the table.  It is never unloaded: vendors' libraries start
 * threads and leave handlers behind.
 *
 * Return: 0; -ENODEV with a sentence when it is not there or lacks a required function.
 * The table is then unchanged.
 */
int dl_load(const struct dl_lib *lib, void *table, const struct dl_sym *syms, unsigned nr);

/*
 * Return true if anybody in this process has loaded the library.  A library that is missing is
 * searched again only after another one was loaded.  Any thread.
 * @absent: 0 at first, and one for each library: how many had been loaded at the last search
 */
bool dl_present(const struct dl_lib *lib, _Atomic unsigned long long *absent);

#endif
