/* SPDX-License-Identifier: MIT */
/* Find cuFile, open and close its driver, and coexist with other users of it. */
#include <sched.h>
#include <sys/auxv.h>

#include "cufile_rig.h"

static bool privileged;

unsigned long __real_getauxval(unsigned long type);
unsigned long __wrap_getauxval(unsigned long type);

unsigned long __wrap_getauxval(unsigned long type)
{
	return type == AT_SECURE ? privileged : __real_getauxval(type);
}

static void opens_and_stays_open(void)
{
	struct cufile_info info;

	use_library("mode=nvfs");
	cufile_info(&info);
	T_CHECK(!info.version && !info.file[0]);
	T_OK(cufile_check());
	cufile_info(&info);
	T_CHECK(info.version >= 1070 && info.file[0] == '/' && !info.open);
	T_OK(cufile_open());
	T_OK(cufile_open());
	cufile_info(&info);
	T_CHECK(info.open && !info.strict && !info.shared);
	if (x.set) {
		T_EQ(state().opens, 1);
		T_EQ(info.nvfs_major, 2);
		/*
		 * Opening must not set parameters or the log level: other users of cuFile may
		 * rely on them.
		 */
		T_EQ(state().params, 0);
		T_EQ(state().levels, 0);
	}
	T_EQ(cufile_close(), -EBUSY);
	T_CHECK(strstr(err_text(), "stays open"));
	T_EQ(x.uses(), 1);
	cufile_info(&info);
	T_CHECK(info.open);
	nothing_is_left();
}

/* Return the number of files in a directory. */
static unsigned entries(const char *path)
{
	DIR *d = opendir(path);
	unsigned n = 0;

	T_CHECK(d);
	while (readdir(d))
		n++;
	(void)closedir(d);
	return n;
}

static void its_log_is_nowhere(void)
{
	char here[PATH_MAX];
	unsigned n;

	use_library("mode=p2pdma");
	if (unshare(CLONE_FS) < 0)
		T_SKIP("unshare(2), for a directory of the thread's own: %s", strerror(errno));
	(void)unsetenv("CUFILE_LOGFILE_PATH");
	T_CHECK(getcwd(here, sizeof(here)));
	T_EQ(chdir(dir), 0);
	(void)setenv("TMPDIR", dir, 1);
	n = entries(".");
	T_OK(cufile_open());
	T_EQ(entries("."), n);
	if (x.set)
		T_CHECK(state().log_here); /* in a thread's private directory */
	T_EQ(chdir(here), 0);
	nothing_is_left();
}

static void its_log_is_where_the_program_wants(void)
{
	char path[PATH_MAX + 8];

	use_library("mode=p2pdma");
	(void)snprintf(path, sizeof(path), "%s/log", dir);
	(void)setenv("CUFILE_LOGFILE_PATH", path, 1);
	T_OK(cufile_open());
	T_EQ(unlink(path), 0);
	(void)unsetenv("CUFILE_LOGFILE_PATH");
	nothing_is_left();
}

static void exclusive_is_strict(void)
{
	struct cufile_info info;

	use_library("mode=p2pdma");
	NEED_STUB();
	(void)setenv("PST_GDS", "exclusive", 1);
	T_OK(cufile_open());
	cufile_info(&info);
	T_CHECK(info.strict);
	T_CHECK(state().strict);
	T_EQ(state().params, 1);
	T_OK(cufile_close());
	T_EQ(state().uses, 0);
	T_OK(cufile_close());
	T_OK(cufile_open());
	T_EQ(state().opens, 2);
	T_CHECK(state().strict); /* each open sets the strict mode again */
	T_OK(cufile_close());
	nothing_is_left();
}

static void strict_without_a_way(void)
{
	use_library("mode=compat");
	NEED_STUB();
	(void)setenv("PST_GDS", "exclusive", 1);
	T_EQ(cufile_open(), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "load the module nvidia-fs"));
	/* The refusal is remembered, so cuFile is not called again. */
	T_EQ(cufile_open(), -EOPNOTSUPP);
	T_CHECK(strstr(err_text(), "load the module nvidia-fs"));
	T_EQ(state().opens, 0);
	T_EQ(state().uses, 0);
	nothing_is_left();
}

/*
 * An old cuFile has no switch for strictness: it is refused unless the environment makes it
 * strict.
 */
static void strict_by_environment_only(void)
{
	const char *old = getenv("STUB_CUFILE_OLD");
	struct cufile_info info;

	if (!old)
		T_SKIP("needs the libraries of tests/stub");
	(void)setenv("PST_LIBCUFILE", old, 1);
	(void)setenv("PST_GDS", "exclusive", 1);
	use_library("version=1110");
	T_EQ(cufile_open(), -ENOSYS);
	T_CHECK(strstr(err_text(), "CUFILE_ALLOW_COMPAT_MODE=false"));
	T_EQ(state().uses, 0);
	cufile_info(&info);
	T_CHECK(info.version == 1110 && !info.open);
	nothing_is_left();
}

static void strict_by_environment(void)
{
	const char *old = getenv("STUB_CUFILE_OLD");
	struct cufile_info info;

	if (!old)
		T_SKIP("needs the libraries of tests/stub");
	(void)setenv("PST_LIBCUFILE", old, 1);
	(void)setenv("PST_GDS", "exclusive", 1);
	(void)setenv("CUFILE_ALLOW_COMPAT_MODE", "false", 1);
	use_library("version=1110");
	T_OK(cufile_open());
	cufile_info(&info);
	T_CHECK(info.strict);
	T_OK(cufile_close());
	nothing_is_left();
}

static void wishes_that_make_no_sense(void)
{
	use_library("mode=p2pdma");
	(void)setenv("PST_GDS", "exclusve", 1);
	T_EQ(cufile_open(), -EINVAL);
	T_CHECK(strstr(err_text(), "exclusve"));
	(void)unsetenv("PST_GDS");
	T_OK(cufile_open());
	nothing_is_left();
}

static void too_old(void)
{
	struct cufile_info info;

	use_library("version=1060");
	NEED_STUB();
	T_EQ(cufile_check(), -ENOSYS);
	T_CHECK(strstr(err_text(), "1.6 is too old"));
	T_EQ(cufile_open(), -ENOSYS);
	cufile_info(&info);
	T_CHECK(info.version == 1060 && !info.file[0]);
	T_EQ(state().opens, 0);
	nothing_is_left();
}

static void not_there(void)
{
	struct cufile_info info;

	(void)setenv("PST_LIBCUFILE", "/nowhere/libcufile.so.0", 1);
	T_EQ(cufile_check(), -ENODEV);
	T_CHECK(strstr(err_text(), "/nowhere"));
	T_EQ(cufile_open(), -ENODEV);
	cufile_info(&info);
	T_CHECK(!info.version);
	T_EQ(cufile_close(), 0);
}

static void something_else(void)
{
	const char *cuda = getenv("PST_LIBCUDA");

	if (!cuda)
		T_SKIP("needs the libraries of tests/stub");
	(void)setenv("PST_LIBCUFILE", cuda, 1);
	T_EQ(cufile_check(), -ENODEV);
	T_CHECK(strstr(err_text(), "lacks cuFileGetVersion"));
}

/* ------------------------------------------------------------------ others */

static void somebody_was_first(void)
{
	struct cufile_info info;

	use_library("mode=compat");
	(void)setenv("CUFILE_LOGFILE_PATH", "/dev/null", 1);
	T_EQ(x.open().err, 0);
	T_OK(cufile_open());
	cufile_info(&info);
	T_CHECK(info.open && info.shared && !info.strict);
	T_EQ(x.uses(), 2);
	T_EQ(state().params, 0);
	T_EQ(state().levels, 0);
	/* Closing ends only our use of the driver. */
	T_OK(cufile_close());
	T_EQ(x.uses(), 1);
	T_OK(cufile_open());
	T_EQ(x.close().err, 0);
	T_EQ(x.uses(), 1);
	T_EQ(cufile_close(), -EBUSY);
	nothing_is_left();
}

static void somebody_was_first_and_we_want_all(void)
{
	use_library("mode=p2pdma");
	NEED_STUB();
	(void)setenv("PST_GDS", "exclusive", 1);
	(void)setenv("CUFILE_LOGFILE_PATH", "/dev/null", 1);
	T_EQ(x.open().err, 0);
	T_EQ(cufile_open(), -EUSERS);
	T_CHECK(strstr(err_text(), "somebody else"));
	T_EQ(state().params, 0);
	T_EQ(x.uses(), 1);
	/* After the other user has closed, the driver can be opened. */
	T_EQ(x.close().err, 0);
	T_OK(cufile_open());
	T_OK(cufile_close());
	nothing_is_left();
}

/* A program that only registers files does not count as a user, and must not lose the driver. */
static void somebody_comes_later(void)
{
	struct cuf_descr d = { .type = CUF_FD };
	cuf_handle theirs;

	use_library("mode=p2pdma");
	NEED_STUB();
	T_OK(cufile_open());
	d.u.fd = local_of(file)->fd_direct;
	T_EQ(x.reg(&theirs, &d).err, 0);
	T_EQ(x.uses(), 1);
	T_EQ(cufile_close(), -EBUSY);
	T_EQ(state().files, 1);
	x.unreg(theirs);
	nothing_is_left();
}

/* ------------------------------------------------------------------- hangs */

static void *open_thread(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)cufile_open();
}

static void *close_thread(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)cufile_close();
}

static void *check_thread(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)cufile_check();
}

static void an_open_hangs(void)
{
	struct cufile_info info;
	struct cufile_file *cf;
	struct hung h;

	use_library("hang=cuFileDriverOpen:1");
	NEED_STUB();
	h = hang(open_thread, NULL);
	T_EQ(cufile_open(), -EBUSY);
	T_EQ(cufile_close(), -EBUSY);
	T_EQ(cufile_check(), 0);
	cufile_info(&info);
	T_CHECK(info.version && !info.open);
	T_EQ(cufile_file_get(local_of(file), &cf), -ENODEV);
	/* The open was only slow: it succeeds in the end. */
	T_EQ((intptr_t)unhang(h), 0);
	T_OK(cufile_open());
	nothing_is_left();
}

/* After a while the hang is reported as -ETIMEDOUT. */
static void an_open_is_given_up(void)
{
	struct hung h;
	int r;

	use_library("hang=cuFileDriverOpen:1");
	NEED_STUB();
	cufile_open_ms = 100;
	h = hang(open_thread, NULL);
	while ((r = cufile_open()) == -EBUSY)
		(void)usleep(10000);
	T_EQ(r, -ETIMEDOUT);
	T_CHECK(strstr(err_text(), "hangs"));
	T_EQ((intptr_t)unhang(h), 0);
	T_OK(cufile_open());
	nothing_is_left();
}

static void a_load_hangs(void)
{
	struct cufile_info info;
	struct hung h;

	use_library("hang=cuFileGetVersion:1");
	NEED_STUB();
	h = hang(check_thread, NULL);
	T_EQ(cufile_check(), -EBUSY);
	T_EQ(cufile_open(), -EBUSY);
	cufile_info(&info);
	T_CHECK(!info.version);
	T_EQ((intptr_t)unhang(h), 0);
	T_OK(cufile_open());
	nothing_is_left();
}

static void a_close_hangs(void)
{
	struct cufile_info info;
	struct hung h;

	use_library("hang=cuFileDriverClose_v2:1");
	NEED_STUB();
	(void)setenv("PST_GDS", "exclusive", 1);
	T_OK(cufile_open());
	h = hang(close_thread, NULL);
	T_EQ(cufile_open(), -EBUSY);
	T_EQ(cufile_close(), -EBUSY);
	cufile_info(&info);
	T_CHECK(!info.open);
	T_EQ((intptr_t)unhang(h), 0);
	T_OK(cufile_open());
	T_OK(cufile_close());
	nothing_is_left();
}

/* -------------------------------------------------------------------- fork */

static void a_child_is_kept_out(void)
{
	struct cufile_file *cf;
	struct cufile_mem *m;
	struct cufile_info info;
	int status = 0;
	pid_t pid;

	use_library("mode=p2pdma");
	NEED_STUB();
	T_OK(cufile_open());
	T_OK(cufile_file_get(local_of(file), &cf));
	m = mem_new();
	T_EQ(io(cf, m, 0, 0, 4096, 0), 4096);
	pid = fork();
	if (!pid) {
		struct cufile_io v = { .file = cf, .mem = m, .len = 4096 };
		struct cufile_file *other;
		uint64_t calls = state().calls;

		cufile_file_put(cf);
		cufile_info(&info);
		_exit(cufile_check() != -EOWNERDEAD || cufile_open() != -EOWNERDEAD ||
		      cufile_close() != -EOWNERDEAD || cufile_io(&v) != -EOWNERDEAD ||
		      cufile_file_get(local_of(file), &other) != -EOWNERDEAD ||
		      cufile_mem_free(m) != -EOWNERDEAD || info.version || state().calls != calls);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
	/* The child's calls released nothing of the parent. */
	T_EQ(io(cf, m, 0, 0, 4096, 0), 4096);
	cufile_file_put(cf);
	T_EQ(within(do_mem_free, m), 0);
	nothing_is_left();
}

/* ------------------------------------------------------------------ places */

static void copy_file(const char *from, const char *to)
{
	char cmd[2 * PATH_MAX + 16];

	(void)snprintf(cmd, sizeof(cmd), "cp '%s' '%s'", from, to);
	T_EQ(system(cmd), 0);
}

static void make_dirs(const char *path)
{
	char cmd[PATH_MAX + 16];

	(void)snprintf(cmd, sizeof(cmd), "mkdir -p '%s'", path);
	T_EQ(system(cmd), 0);
}

/* Return the index of the place that ends like this, or -1. */
static int place(char (*v)[PATH_MAX], unsigned nr, const char *tail)
{
	for (unsigned i = 0; i < nr; i++)
		if (strlen(v[i]) > strlen(tail) &&
		    !strcmp(v[i] + strlen(v[i]) - strlen(tail), tail))
			return (int)i;
	return -1;
}

/* Search Python's packages next to a loaded library of CUDA, then CUDA's folders, newest first. */
static void looks_where_it_may_lie(void)
{
	static const char *const at[] = {
		"/a/site-packages/nvidia/cuda_runtime/lib",
		"/a/site-packages/nvidia/cufile/lib",
		"/b/site-packages/nvidia/cu13/lib",
		"/usr/cuda-9.2/targets/x86_64-linux/lib",
		"/usr/cuda-13.0/targets/x86_64-linux/lib",
		"/usr/cuda-12.9/targets/x86_64-linux/lib",
	};
	const char *cuda = getenv("PST_LIBCUDA"), *cufile = getenv("PST_LIBCUFILE");
	char(*v)[PATH_MAX] = calloc(CUFILE_PLACES, sizeof(*v));
	char path[PATH_MAX + 80], root[PATH_MAX + 8];
	struct cufile_info info;
	unsigned nr;
	int new;

	if (!cuda || !cufile)
		T_SKIP("needs the libraries of tests/stub");
	T_CHECK(v);
	/* Load the CUDA provider, which the copies below need. */
	T_CHECK(mem_provider(PST_KIND_CUDA));
	/* Folders that others may write are not searched: make them by a strict umask. */
	(void)umask(022);
	(void)snprintf(dir, sizeof(dir), "/tmp/cufile-XXXXXX");
	T_CHECK(mkdtemp(dir));
	for (unsigned i = 0; i < ARRAY_SIZE(at); i++) {
		(void)snprintf(path, sizeof(path), "%s%s", dir, at[i]);
		make_dirs(path);
		if (i) {
			(void)strcat(path, "/libcufile.so.0");
			copy_file(cufile, path);
		}
	}
	/* Load some library from two of these folders. */
	for (unsigned i = 0; i < 3; i += 2) {
		(void)snprintf(path, sizeof(path), "%s%s/libcudart.so.12", dir, at[i]);
		copy_file(cuda, path);
		T_CHECK(dlopen(path, RTLD_NOW));
	}

	(void)snprintf(root, sizeof(root), "%s/usr", dir);
	nr = cufile_places(root, v, CUFILE_PLACES);
	T_CHECK(place(v, nr, "/a/site-packages/nvidia/cufile/lib/libcufile.so.0") >= 0);
	T_CHECK(place(v, nr, "/b/site-packages/nvidia/cu13/lib/libcufile.so.0") >= 0);
	new = place(v, nr, "/cuda-13.0/targets/x86_64-linux/lib/libcufile.so.0");
	T_CHECK(new > place(v, nr, "/b/site-packages/nvidia/cu13/lib/libcufile.so.0"));
	T_EQ(place(v, nr, "/cuda-12.9/targets/x86_64-linux/lib/libcufile.so.0"), new + 1);
	T_EQ(place(v, nr, "/cuda-9.2/targets/x86_64-linux/lib/libcufile.so.0"), new + 2);
	/* No more places are returned than fit. */
	T_EQ(cufile_places(root, v, 2), 2);
	T_EQ(cufile_places("/nowhere", v, 0), 0);

	/* A set-uid program searches no places, and nobody searches a folder that others may
	 * write. */
	privileged = true;
	T_EQ(cufile_places(root, v, CUFILE_PLACES), 0);
	privileged = false;
	(void)snprintf(path, sizeof(path), "%s/a/site-packages/nvidia", dir);
	T_EQ(chmod(path, 0777), 0);
	nr = cufile_places(root, v, CUFILE_PLACES);
	T_EQ(place(v, nr, "/a/site-packages/nvidia/cufile/lib/libcufile.so.0"), -1);
	T_CHECK(place(v, nr, "/b/site-packages/nvidia/cu13/lib/libcufile.so.0") >= 0);
	T_EQ(chmod(path, 0755), 0);

	/* The library is found in these places if neither the loader nor the user names one. */
	T_OK(cufile_find(path));
	T_CHECK(!strcmp(path, cufile));
	(void)unsetenv("PST_LIBCUFILE");
	if (!dlopen("libcufile.so.0", RTLD_NOW)) {
		T_CHECK(cufile_places("/usr/local", v, CUFILE_PLACES) > 0);
		T_OK(cufile_find(path));
		T_CHECK(!strcmp(path, v[0]));
		T_CHECK(!dlopen("libcufile.so.0", RTLD_NOW | RTLD_NOLOAD));
		T_OK(cufile_check());
		cufile_info(&info);
		T_CHECK(!strcmp(info.file, v[0]));
	}
	(void)snprintf(path, sizeof(path), "rm -r '%s'", dir);
	T_EQ(system(path), 0);
	free(v);
}

static void put_file(const char *path, const void *text, size_t len)
{
	FILE *f = fopen(path, "w");

	T_CHECK(f && fwrite(text, 1, len, f) == len && fclose(f) == 0);
}

/* The loader's cache is parsed as untrusted bytes. */
static void looks_into_the_cache(void)
{
	static const char name[] = "/libx.so.0";
	char cache[PATH_MAX], there[PATH_MAX], found[PATH_MAX], text[3 * PATH_MAX];
	size_t len;

	T_CHECK(getcwd(found, sizeof(found)));
	(void)snprintf(dir, sizeof(dir), "%.*s/cufile-XXXXXX", PATH_MAX - 64, found);
	T_CHECK(mkdtemp(dir));
	(void)snprintf(cache, sizeof(cache), "%s/cache", dir);
	(void)snprintf(there, sizeof(there), "%s%s", dir, name);
	T_CHECK(!cufile_cached(cache, name, found));
	put_file(cache, "", 0);
	T_CHECK(!cufile_cached(cache, name, found));

	/* Entries: a file that is gone, no absolute path, a longer name, and the right one. */
	len = (size_t)snprintf(text, sizeof(text), "junk%c/gone%s%clib%s%c%s.1%c%s", 0, name, 0,
			       name, 0, there, 0, there);
	put_file(cache, text, len + 1);
	T_CHECK(!cufile_cached(cache, name, found));
	put_file(there, "x", 1);
	T_CHECK(cufile_cached(cache, name, found) && !strcmp(found, there));
	/* The same cache without the terminating zero. */
	put_file(cache, text, len);
	T_CHECK(!cufile_cached(cache, name, found));
	/* A cache with a single entry. */
	put_file(cache, there, strlen(there) + 1);
	T_CHECK(cufile_cached(cache, name, found) && !strcmp(found, there));
	/* A cache with an entry longer than any path. */
	memset(text, 'a', sizeof(text));
	text[0] = '/';
	memcpy(text + sizeof(text) - sizeof(name), name, sizeof(name));
	put_file(cache, text, sizeof(text));
	T_CHECK(!cufile_cached(cache, name, found));
	T_CHECK(!cufile_cached(dir, name, found));
	(void)unlink(there);
	(void)unlink(cache);
	(void)rmdir(dir);
}

/* A library is found as the loader finds it, and a wrong name is refused. */
static void looks_as_the_loader(void)
{
	const char *cufile = getenv("PST_LIBCUFILE");
	char path[PATH_MAX];

	if (!cufile)
		T_SKIP("needs the libraries of tests/stub");
	(void)setenv("PST_LIBCUFILE", "libc.so.6", 1);
	T_OK(cufile_find(path));
	T_CHECK(path[0] == '/' && strstr(path, "/libc.so.6"));
	/* This name is neither loaded nor in any folder. */
	(void)setenv("PST_LIBCUFILE", "libnone-of-these.so.7", 1);
	T_EQ(cufile_find(path), -ENODEV);
	T_CHECK(strstr(err_text(), "libnone-of-these.so.7"));
	(void)setenv("PST_LIBCUFILE", "/nowhere/libcufile.so.0", 1);
	T_EQ(cufile_find(path), -ENODEV);
	T_CHECK(strstr(err_text(), "/nowhere"));
}

int main(void)
{
	APART(opens_and_stays_open);
	APART(its_log_is_nowhere);
	APART(its_log_is_where_the_program_wants);
	APART(exclusive_is_strict);
	APART(strict_without_a_way);
	APART(strict_by_environment_only);
	APART(strict_by_environment);
	APART(wishes_that_make_no_sense);
	APART(too_old);
	APART(not_there);
	APART(something_else);
	APART(somebody_was_first);
	APART(somebody_was_first_and_we_want_all);
	APART(somebody_comes_later);
	APART(an_open_hangs);
	APART(an_open_is_given_up);
	APART(a_load_hangs);
	APART(a_close_hangs);
	APART(a_child_is_kept_out);
	APART(looks_where_it_may_lie);
	APART(looks_into_the_cache);
	APART(looks_as_the_loader);
	return t_done();
}
