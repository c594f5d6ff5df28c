/* SPDX-License-Identifier: MIT */
/*
 * Shared by tests of cuFile.  They run on the stubs of tests/stub/ that PST_LIBCUDA and
 * PST_LIBCUFILE name.  Cases that need no fault also run on real libraries.
 *
 * cuFile keeps its state as long as the process lives, so each case is a process of its own:
 * forked before any library was loaded, and checked for leaks of descriptors and, with the
 * sanitizer, of memory.
 */
#ifndef PST_CUFILE_RIG_H
#define PST_CUFILE_RIG_H

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "symbol.h"
#include "base/err.h"
#include "mem/mem.h"
#include "gds/cufile/internal.h"
#include "stub/cuda_stub.h"
#include "stub/cufile_stub.h"

#define T_ERROR_TEXT() err_text()
#include "t.h"

#ifndef FILE_LEN
#define FILE_LEN MIB(2)
#endif
#define MEM_LEN MIB(64)
#define SEED 7

/* Functions of the stub, NULL with a real library; and cuFile's functions, to act as another
 * user of it. */
static struct {
	void (*set)(const char *);
	void (*state)(struct stub_cufile_state *);
	void (*release)(void);
	bool (*met)(void);
	void (*reset)(void);
	struct cuf_error (*open)(void);
	struct cuf_error (*close)(void);
	struct cuf_error (*reg)(cuf_handle *, struct cuf_descr *);
	void (*unreg)(cuf_handle);
	struct cuf_error (*buf_reg)(const void *, size_t, int);
	struct cuf_error (*buf_unreg)(const void *);
	long (*uses)(void);
} x;

static char dir[PATH_MAX]; /* the case's directory */
static struct file *file;
static struct mem_alloc *mem;

/* ------------------------------------------------------------------- cases */

static inline int guarded(void (*fn)(void))
{
	int how = setjmp(t_jump);

	if (!how)
		fn();
	return how;
}

/* Run a case in this process, and write to the pipe why it failed. */
static inline int apart_child(void (*fn)(void), int out)
{
	unsigned fds = t_count_fds(), left;
	int how = guarded(fn);

	/* A real library keeps some descriptors. */
	if (!how && x.set && (left = t_fds_left(fds)) > fds) {
		(void)snprintf(t_why, sizeof(t_why), "%u descriptors at start, %u at end", fds,
			       left);
		how = T_JUMP_FAIL;
	}
	if (how)
		(void)!write(out, t_why, strlen(t_why));
	(void)close(out);
	return how;
}

/* Run a case in a process of its own.  Return 0, T_JUMP_SKIP, or another status for a failure,
 * with its reason in why. */
static inline int apart_run(void (*fn)(void), char *why, size_t len)
{
	int ends[2], status = 0;
	pid_t pid;
	ssize_t n;

	(void)fflush(stdout);
	if (pipe(ends) < 0)
		abort();
	pid = fork();
	if (!pid) {
		(void)close(ends[0]);
		exit(apart_child(fn, ends[1]));
	}
	(void)close(ends[1]);
	n = read(ends[0], why, len - 1);
	why[n > 0 ? n : 0] = '\0';
	(void)close(ends[0]);
	(void)waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static inline void apart(const char *name, void (*fn)(void))
{
	char why[sizeof(t_why)];
	int how;

	if (!t_wanted(name))
		return;
	if (t_left_out(name)) {
		printf("ok %d %s # SKIP %s\n", ++t_cases, name, t_why);
		return;
	}
	how = apart_run(fn, why, sizeof(why));
	if (how == 0) {
		printf("ok %d %s\n", ++t_cases, name);
	} else if (how == T_JUMP_SKIP) {
		printf("ok %d %s # SKIP %s\n", ++t_cases, name, why);
	} else {
		printf("not ok %d %s\n# status %d: %s\n", ++t_cases, name, how, why);
		t_failed++;
	}
}

#define APART(fn) apart(#fn, fn)

/* ---------------------------------------------------------------- beginning */

static inline void find_all(void)
{
	const char *name = getenv("PST_LIBCUFILE");
	void *lib = dlopen(name && *name ? name : "libcufile.so.0", RTLD_NOW);

	if (!lib)
		T_SKIP("no libcufile.so.0 here");
	symbol(lib, &x.set, "stub_cufile_set");
	symbol(lib, &x.state, "stub_cufile_state");
	symbol(lib, &x.release, "stub_cufile_release");
	symbol(lib, &x.met, "stub_cufile_met");
	symbol(lib, &x.reset, "stub_cufile_reset");
	symbol(lib, &x.open, "cuFileDriverOpen");
	symbol(lib, &x.close, "cuFileDriverClose_v2");
	symbol(lib, &x.reg, "cuFileHandleRegister");
	symbol(lib, &x.unreg, "cuFileHandleDeregister");
	symbol(lib, &x.buf_reg, "cuFileBufRegister");
	symbol(lib, &x.buf_unreg, "cuFileBufDeregister");
	symbol(lib, &x.uses, "cuFileUseCount");
}

#define NEED_STUB()                                                \
	do {                                                       \
		if (!x.set)                                        \
			T_SKIP("needs the library of tests/stub"); \
	} while (0)

static inline struct stub_cufile_state state(void)
{
	struct stub_cufile_state s = { 0 };

	if (x.state)
		x.state(&s);
	return s;
}

static inline void make_file(const char *path)
{
	uint8_t *bytes = malloc(FILE_LEN);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	T_CHECK(bytes && fd >= 0);
	t_fill(bytes, SEED, 0, FILE_LEN);
	T_EQ(write(fd, bytes, FILE_LEN), FILE_LEN);
	(void)close(fd);
	free(bytes);
}

/* Configure the stub by text, make a file and device memory, and leave cuFile's driver closed. */
static inline void use_library(const char *text)
{
	char path[PATH_MAX + 8];
	char cwd[PATH_MAX - 64];

	(void)setenv("STUB_CUFILE", text, 1);
	T_CHECK(getcwd(cwd, sizeof(cwd)));
	(void)snprintf(dir, sizeof(dir), "%s/cufile-XXXXXX", cwd);
	T_CHECK(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/file", dir);
	if (!mem_provider(PST_KIND_CUDA) || mem_provider(PST_KIND_CUDA)->devices() == 0)
		T_SKIP("%s", err_text());
	T_OK(mem_alloc(mem_provider(PST_KIND_CUDA), 0, MEM_LEN, 0, &mem));
	find_all();
	make_file(path);
	T_OK(file_open(path, PST_FILE_READ | PST_FILE_WRITE, 0, &file));
	if (local_of(file)->fd_direct < 0)
		T_SKIP("no O_DIRECT on %s", file->name);
}

static inline void nothing_is_left(void)
{
	char path[PATH_MAX + 8];

	struct stub_cufile_state s = state();

	T_EQ(s.files, 0);
	T_EQ(s.bufs, 0);
	T_EQ(s.moving, 0);
	T_EQ(s.bounced, 0); /* every transfer used registered memory */
	T_EQ(s.busy, 0);
	if (x.reset)
		x.reset(); /* close the driver, and clear the stub's log */
	file_free(file);
	mem_free(mem);
	(void)snprintf(path, sizeof(path), "%s/file", dir);
	(void)unlink(path);
	T_EQ(rmdir(dir), 0); /* succeeds only if nothing is left in the directory */
}

/* End the process of a case that leaves something in use for ever. */
__attribute__((noreturn)) static inline void leave(void)
{
	char path[PATH_MAX + 8];

	(void)snprintf(path, sizeof(path), "%s/file", dir);
	(void)unlink(path);
	(void)rmdir(dir);
	_exit(0);
}

/* ----------------------------------------------------------------- helpers */

struct call {
	int64_t (*fn)(void *);
	void *arg;
	int64_t res;
};

static inline int call_it(void *arg)
{
	struct call *c = arg;

	c->res = c->fn(c->arg);
	return 0;
}

/* Call fn in the context of the memory. */
static inline int64_t within(int64_t (*fn)(void *), void *arg)
{
	struct call c = { .fn = fn, .arg = arg };

	T_OK(mem_within(mem, call_it, &c));
	return c.res;
}

static inline int64_t do_io(void *arg)
{
	return cufile_io(arg);
}

static inline int64_t do_mem_free(void *arg)
{
	return cufile_mem_free(arg);
}

static inline int64_t io(struct cufile_file *cf, struct cufile_mem *m, uint64_t mem_off,
			 uint64_t file_off, uint64_t len, uint32_t flags)
{
	struct cufile_io v = { .file = cf,
			       .mem = m,
			       .mem_off = mem_off,
			       .file_off = file_off,
			       .len = len,
			       .flags = flags };

	return within(do_io, &v);
}

/* Return true if device memory equals the file from file_off on. */
static inline bool mem_is(uint64_t mem_off, uint64_t file_off, uint64_t len)
{
	uint8_t *buf = malloc(len);
	bool same;

	T_CHECK(buf);
	T_OK(mem_copy_sync(mem, MEM_FROM_DEVICE, mem_off, buf, len));
	same = t_differs(buf, SEED, file_off, len) == len;
	free(buf);
	return same;
}

static inline struct cufile_mem *mem_new(void)
{
	struct cufile_mem *m = NULL;

	T_OK(cufile_mem_new(0, mem->base.va, mem->size, &m));
	return m;
}

/* A thread in a call that hangs. */
struct hung {
	pthread_t thread;
	void *(*fn)(void *);
	void *arg;
};

static inline struct hung hang(void *(*fn)(void *), void *arg)
{
	struct hung h = { .fn = fn, .arg = arg };
	uint64_t until = t_hang();

	T_CHECK(!pthread_create(&h.thread, NULL, fn, arg));
	while (!state().hung)
		T_CHECK(t_now() < until);
	return h;
}

/* Let the call return, and return its result. */
static inline void *unhang(struct hung h)
{
	void *res = NULL;

	x.release();
	(void)pthread_join(h.thread, &res);
	return res;
}

#endif
