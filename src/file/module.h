/* SPDX-License-Identifier: MIT */
/*
 * Providers in modules, libpenstock-NAME.so, which may need more than libc.
 *
 * A scheme without a provider is looked up in file_modules[].  The scheme's module is loaded from
 * the library's own folder, if nobody but root and the caller could have put it there, and is never
 * unloaded.  A module may have several schemes.  A module exports one table and does not link
 * libpenstock: a second table gives it the functions that it may call.
 */
#ifndef PST_MODULE_H
#define PST_MODULE_H

#include "file/file.h"
#include "file/io.h"

struct file_module_entry {
	const char *scheme;
	const char *file; /* file name, in the library's folder */
};

/* All modules (module_list.c); the last entry has no scheme. */
extern const struct file_module_entry file_modules[];

/*
 * Functions of the library that a module may call; see the headers named here.  Each module links
 * module_shim.c, which defines the functions of err.h and log.h by this table.
 */
struct file_module_host {
	/* Functions of base/err.h and base/log.h. */
	int (*err_set)(int err, const char *fmt, ...) _printf_(2, 3);
	const char *(*err_text)(void);
	void (*log_line)(int level, const char *fmt, ...) _printf_(2, 3);
	/* Functions of penstock.h, for providers whose lower() returns files. */
	int (*open)(const char *path, uint32_t flags, const struct pst_file_opts *opts,
		    struct pst_file **ret_file);
	int (*wrap)(int fd, uint32_t flags, const struct pst_file_opts *opts,
		    struct pst_file **ret_file);
	struct pst_file *(*close)(struct pst_file *file);
	int (*info)(const struct pst_file *file, struct pst_file_info *ret);
};

/*
 * A module's table.  Library and module must come from one build: a module with another version or
 * other struct sizes is refused.
 */
struct file_module {
	char version[16];
	size_t host_size;    /* sizeof(struct file_module_host) */
	size_t ops_size;     /* sizeof(struct file_ops) */
	size_t backend_size; /* sizeof(struct io_backend) */
	size_t op_size;      /* sizeof(struct io_op) */
	/* Called once per process for each scheme of the module; @host stays valid for ever.
	 * Return 0 and the provider's table, or -errno with a sentence; after an error it may be
	 * called again. */
	int (*init)(const struct file_module_host *host, const char *scheme,
		    const struct file_ops **ret);
};

/* The only symbol that a module exports. */
#define FILE_MODULE_SYMBOL "pst_file_module"

#define FILE_MODULE_STR_(x) #x
#define FILE_MODULE_STR(x) FILE_MODULE_STR_(x)
#define FILE_MODULE_OF(init_fn)                                                            \
	.version = FILE_MODULE_STR(PST_VERSION_MAJOR) "." FILE_MODULE_STR(                 \
		PST_VERSION_MINOR) "." FILE_MODULE_STR(PST_VERSION_PATCH),                 \
	.host_size = sizeof(struct file_module_host), .ops_size = sizeof(struct file_ops), \
	.backend_size = sizeof(struct io_backend), .op_size = sizeof(struct io_op),        \
	.init = (init_fn)

/* Define the module's table; use once per module. */
#define FILE_MODULE(init_fn)                                                                    \
	__attribute__((visibility("default"))) extern const struct file_module pst_file_module; \
	const struct file_module pst_file_module = { FILE_MODULE_OF(init_fn) }

/* Set the functions that module_shim.c calls. */
void file_module_use(const struct file_module_host *host);
/* Return true after file_module_use(). */
bool file_module_is_used(void);

/* Defined in api/module.c. */
extern const struct file_module_host file_module_host;

/*
 * Load the module of a scheme.  Return 1; 0 if no module has that scheme; -errno with a
 * sentence.
 */
int file_module_load(const char *scheme, size_t len);

#endif
