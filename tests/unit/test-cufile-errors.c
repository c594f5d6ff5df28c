/* SPDX-License-Identifier: MIT */
/*
 * Fail the first, second, ... n-th call of cuFile, then of the system.  Each run goes through
 * all of the provider's work as far as it gets, and must leave nothing behind.
 */
#include <sched.h>
#include <stdarg.h>

#define FILE_LEN KIB(128)
#include "cufile_rig.h"

/* ------------------------------------------------- calls of the system */

/* nth: number of the call that fails, 0: none; seen: number of calls so far */
static unsigned nth, seen;
static bool counting; /* true only during the provider's calls */

static bool fails(void)
{
	return counting && ++seen == nth;
}

#define WRAP(type, name, params, args, bad, err)   \
	type __real_##name params;                 \
	type __wrap_##name params;                 \
	type __wrap_##name params                  \
	{                                          \
		if (!fails())                      \
			return __real_##name args; \
		errno = (err);                     \
		return bad;                        \
	}

WRAP(void *, calloc, (size_t nr, size_t len), (nr, len), NULL, ENOMEM)
WRAP(int, unshare, (int flags), (flags), -1, EPERM)
WRAP(char *, mkdtemp, (char *path), (path), NULL, EACCES)
WRAP(int, chdir, (const char *path), (path), -1, ENOENT)
WRAP(int, pthread_create,
     (pthread_t * t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg),
     (t, attr, fn, arg), EAGAIN, EAGAIN)

int __real_fcntl64(int fd, int cmd, ...);
int __wrap_fcntl64(int fd, int cmd, ...);
int __wrap_fcntl64(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (!fails())
		return __real_fcntl64(fd, cmd, arg);
	errno = EMFILE;
	return -1;
}

/* ------------------------------------------------------- all that it does */

static char spec[64]; /* the stub's setting that fails a call */

/* Check that an error has a text. */
static int64_t said(int64_t r)
{
	if (r < 0)
		T_CHECK(err_text()[0]);
	(void)err_set(EIO, "%s", "");
	return r;
}

struct work {
	struct cufile_file *cf;
	struct cufile_mem *m;
};

static int64_t do_transfers(void *arg)
{
	struct work *w = arg;
	struct cufile_io v = { .file = w->cf, .mem = w->m, .len = 65536 };
	int64_t r = said(cufile_io(&v));

	v.flags = CUFILE_IO_WRITE;
	v.mem_off = MIB(32);
	if (r >= 0)
		r = said(cufile_io(&v));
	return r;
}

static int64_t work(void)
{
	struct work w = { 0 };
	struct pst_device info = { .sz = sizeof(info) };
	struct cufile_counts c;
	int64_t r = said(cufile_check());

	mem->ops->device_info(mem->device, &info);
	if (r == 0)
		r = said(cufile_open());
	if (r == 0)
		r = said(cufile_file_get(local_of(file), &w.cf));
	if (r == 0)
		r = said(cufile_mem_new(0, mem->base.va, mem->size, &w.m));
	if (r == 0)
		r = within(do_transfers, &w);
	if (r >= 0)
		r = said(cufile_counts(info.uuid, false, &c));
	if (w.cf)
		cufile_file_put(w.cf);
	if (w.m)
		T_EQ(within(do_mem_free, w.m), 0);
	return r;
}

/* Run all work once.  Skip if there were fewer calls. */
static void run(void)
{
	bool met;
	int64_t r;

	(void)setenv("PST_GDS", "exclusive", 1);
	use_library("mode=p2pdma");
	x.set(spec);
	counting = true;
	r = work();
	counting = false;
	met = x.met() || (nth && seen >= nth);
	if (!met)
		T_CHECK(r >= 0);
	T_EQ(state().moving, 0);
	T_EQ(state().files, 0);
	T_EQ(state().bufs, 0);

	/*
	 * Run again without a fault: all must work, unless the library remembers that cuFile is
	 * unusable.
	 */
	x.set("fail=none:1:1");
	nth = 0;
	(void)cufile_close();
	if (cufile_open() == 0) {
		T_CHECK(work() >= 0);
		T_OK(cufile_close());
	}
	T_EQ(state().uses, 0);
	nothing_is_left();
	if (!met)
		T_SKIP("all went well");
}

/* Run once, in a separate process.  Return true if a call was made to fail. */
static bool one(void)
{
	char why[sizeof(t_why)];
	int how = apart_run(run, why, sizeof(why));

	if (how != 0 && how != T_JUMP_SKIP)
		T_FAIL("%s, %u: status %d, %s", spec, nth, how, why);
	return how == 0;
}

static unsigned library_fails(const char *code)
{
	unsigned n = 0;

	nth = 0;
	do
		(void)snprintf(spec, sizeof(spec), "fail=*:%u:%s", ++n, code);
	while (one());
	return n - 1;
}

static unsigned system_fails(void)
{
	(void)snprintf(spec, sizeof(spec), "fail=none:1:1");
	nth = 0;
	do
		nth++;
	while (one());
	return nth - 1;
}

static void need_stub(void)
{
	if (!getenv("PST_LIBCUFILE") || !getenv("PST_LIBCUDA"))
		T_SKIP("needs the libraries of tests/stub");
}

static void calls_of_the_library(void)
{
	need_stub();
	T_CHECK(library_fails("5030") > 16);
	T_CHECK(library_fails("5043") > 16);
	T_CHECK(library_fails("5") > 16);
}

static void calls_of_the_system(void)
{
	need_stub();
	if (unshare(CLONE_FS) < 0)
		T_SKIP("unshare(2), the first of them: %s", strerror(errno));
	T_CHECK(system_fails() > 8);
}

int main(void)
{
	T_RUN(calls_of_the_library);
	T_RUN(calls_of_the_system);
	return t_done();
}
