/* SPDX-License-Identifier: MIT */
/*
 * Providers of files in modules: libpenstock-NAME.so, for what needs more than libc.
 *
 * A scheme that no provider has is looked up in file_modules[].  Its module is loaded from the
 * library's own folder, if nobody but root and the caller can have put it there, and is never
 * unloaded.  A module may have several schemes.  It exports one table and links nothing of the
 * library: what it may call comes in another table.
 */
#ifndef PST_MODULE_H
#define PST_MODULE_H

#include "file/file.h"
#include "file/io.h"

struct file_module_entry {
	const char *scheme;
	const char *file; /* its name, in the folder of the library */
};

/* module_list.c: all modules that there are, without a scheme at the end. */
extern const struct file_module_entry file_modules[];

/*
 * The functions of the library that a module may call, described in the headers named.
 * module_shim.c, which a module is linked with, turns them into the functions of err.h and log.h.
 */
struct file_module_host {
	/* base/err.h, base/log.h */
	int (*err_set)(int err, const char *fmt, ...) _printf_(2, 3);
	const char *(*err_text)(void);
	void (*log_line)(int level, const char *fmt, ...) _printf_(2, 3);
	/* penstock.h: files for lower() */
	int (*open)(const char *path, uint32_t flags, const struct pst_file_opts *opts,
		    struct pst_file **ret_file);
	int (*wrap)(int fd, uint32_t flags, const struct pst_file_opts *opts,
		    struct pst_file **ret_file);
	struct pst_file *(*close)(struct pst_file *file);
	int (*info)(const struct pst_file *file, struct pst_file_info *ret);
};

/*
 * What a module is built with.  Library and module come from one build: a module of another version
 * is refused, and so is one that was built with another table of files.
 */
struct file_module {
	char version[16];
	size_t host_size;    /* sizeof(struct file_module_host) */
	size_t ops_size;     /* sizeof(struct file_ops) */
	size_t backend_size; /* sizeof(struct io_backend) */
	size_t op_size;      /* sizeof(struct io_op) */
	/* Called once in a process for each scheme of the module; @host stays for ever.  0 and the
	 * provider's table, or -errno with a sentence; then it may be called again. */
	int (*init)(const struct file_module_host *host, const char *scheme,
		    const struct file_ops **ret);
};

/* The symbol that a module exports, the only one. */
#define FILE_MODULE_SYMBOL "pst_file_module"

#define FILE_MODULE_STR_(x) #x
#define FILE_MODULE_STR(x) FILE_MODULE_STR_(x)
#define FILE_MODULE_OF(init_fn)                                                            \
	.version = FILE_MODULE_STR(PST_VERSION_MAJOR) "." FILE_MODULE_STR(                 \
		PST_VERSION_MINOR) "." FILE_MODULE_STR(PST_VERSION_PATCH),                 \
	.host_size = sizeof(struct file_module_host), .ops_size = sizeof(struct file_ops), \
	.backend_size = sizeof(struct io_backend), .op_size = sizeof(struct io_op),        \
	.init = (init_fn)

/* A module has this once. */
#define FILE_MODULE(init_fn)                                                                    \
	__attribute__((visibility("default"))) extern const struct file_module pst_file_module; \
	const struct file_module pst_file_module = { FILE_MODULE_OF(init_fn) }

/* module_shim.c: what the module got. */
void file_module_use(const struct file_module_host *host);

/* api/module.c */
extern const struct file_module_host file_module_host;

/*
 * Make the provider of a scheme known that is in a module.  1; 0: no module has that scheme; -errno
 * with a sentence.
 */
int file_module_load(const char *scheme, size_t len);

#endif
