/* SPDX-License-Identifier: MIT */
/*
 * Load libcufile, open and close its driver.
 *
 * libcufile counts opens of its driver: if other code opened it first, our close leaves it open.
 * Registering a file opens the driver too, but is not counted if it is open already.  So our close
 * could end somebody else's use; close only where other code keeps the driver open, or where
 * PST_GDS=exclusive rules out other code.
 *
 * Opening writes cufile.log into the current directory; no parameter of the library changes that.
 * An environment variable does, but the environment belongs to the program.  So a thread with a
 * current directory of its own opens the driver.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/dl.h"
#include "base/err.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/thread.h"
#include "gds/cufile/internal.h"

DL_NOTE(CUFILE_SONAME, "cufile", "files to NVIDIA GPUs without a stop in host memory");

struct cufile_api cuf;
unsigned cufile_open_ms = CUFILE_OPEN_MS;

static const struct dl_sym syms[] = {
#define SYM(type, name, args) DL_SYM(struct cufile_api, name, true),
#define OPT(type, name, args) DL_SYM(struct cufile_api, name, false),
#include "gds/cufile/cufile_syms.h"
};

/* Results of opening the driver. */
struct opening {
	int err;
	char why[300]; /* sentence for err */
	bool asked;    /* the library has given an answer that will not change */
	bool strict, shared;
	struct cuf_props props;
	int p2p; /* CUF_P2P_* for NVMe */
};

/* Results of loading the library. */
struct loading {
	int err;
	char why[300]; /* sentence for err */
	int version;
	char file[256];
};

enum state { UNKNOWN, LOADING, CLOSED, OPENING, OPEN, CLOSING };

static struct {
	pthread_mutex_t lock; /* covers all members; never held while the library is called */
	enum state state;
	struct loading load; /* valid from state CLOSED on; if load.err is set, it is final */
	uint64_t since;      /* in state OPENING: when opening began, now_ns() */
	unsigned users;
	struct opening open; /* in state OPEN: what was found; in CLOSED: err is final if not 0 */
} lib = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ----------------------------------------------------------------- loading */

/* Load one file.  Return 0 or -ENODEV. */
static int load_one(const char *file, const char *env)
{
	const struct dl_lib one = { .what = "cuFile", .soname = file, .env = env };

	return dl_load(&one, &cuf, syms, ARRAY_SIZE(syms));
}

static int load_any(void)
{
	char(*places)[PATH_MAX];
	unsigned nr;
	const char *env = secure_getenv("PST_LIBCUFILE");
	int r = load_one(CUFILE_SONAME, "PST_LIBCUFILE");

	if (r == 0 || (env && *env))
		return r;
	places = calloc(CUFILE_PLACES, sizeof(*places));
	if (!places)
		return err_set(ENOMEM, "out of memory");
	nr = cufile_places("/usr/local", places, CUFILE_PLACES);
	for (unsigned i = 0; r < 0 && i < nr; i++)
		r = load_one(places[i], NULL);
	free(places);
	return r < 0 ? cufile_absent() : 0;
}

static int load_checked(struct loading *l)
{
	struct cuf_error e;
	Dl_info info;
	void *fn;
	int r = load_any();

	if (r < 0)
		return r;
	memcpy(&fn, &cuf.cuFileDriverOpen, sizeof(fn));
	if (dladdr(fn, &info) && info.dli_fname)
		(void)snprintf(l->file, sizeof(l->file), "%s", info.dli_fname);
	e = cuf.cuFileGetVersion(&l->version);
	if (e.err)
		return cufile_err(e, "say its version");
	if (l->version < CUFILE_VERSION_MIN)
		return err_set(ENOSYS, "cuFile %d.%d is too old; 1.7, of CUDA 12.2, is needed",
			       l->version / 1000, l->version % 1000 / 10);
	return 0;
}

int cufile_check(void)
{
	struct loading l = { 0 };
	enum state was;
	int r = fork_guard();

	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&lib.lock);
	was = lib.state;
	if (was == UNKNOWN)
		lib.state = LOADING;
	if (was > LOADING)
		r = lib.load.err < 0 ? err_set(lib.load.err, "%s", lib.load.why) : 0;
	(void)pthread_mutex_unlock(&lib.lock);
	if (was == LOADING)
		return err_set(EBUSY, "another thread is loading cuFile");
	if (was != UNKNOWN)
		return r;

	l.err = load_checked(&l);
	if (l.err < 0)
		(void)snprintf(l.why, sizeof(l.why), "%s", err_text());
	else
		log_debug("cuFile %d.%d: %s", l.version / 1000, l.version % 1000 / 10, l.file);
	(void)pthread_mutex_lock(&lib.lock);
	lib.load = l;
	lib.state = CLOSED;
	(void)pthread_mutex_unlock(&lib.lock);
	return l.err;
}

/* ----------------------------------------------------------------- opening */

static int lib_fail(struct opening *o, int err)
{
	o->err = err;
	(void)snprintf(o->why, sizeof(o->why), "%s", err_text());
	return err;
}

/* Check that the library confirms that it will not fall back. */
static int check_strict(const struct opening *o)
{
	if (!(o->props.nvfs.control & CUF_CONTROL_ALLOW_COMPAT))
		return 0;
	return err_set(ENOSYS,
		       "cuFile %d.%d would fall back to copies without a word; set "
		       "CUFILE_ALLOW_COMPAT_MODE=false, or use 1.14 or newer",
		       lib.load.version / 1000, lib.load.version % 1000 / 10);
}

/* Open the driver, with the log in the calling thread's current directory. */
static int open_here(struct opening *o)
{
	struct cuf_error e = { 0, 0 };
	int r = 0;

	o->asked = true;
	if (o->strict && cuf.cuFileSetParameterBool)
		e = cuf.cuFileSetParameterBool(CUF_PARAM_ALLOW_COMPAT, false);
	if (e.err)
		return cufile_err(e, "promise not to fall back");
	e = cuf.cuFileDriverOpen();
	if (e.err)
		return cufile_err(e, "open its driver");
	e = cuf.cuFileDriverGetProperties(&o->props);
	if (e.err)
		r = cufile_err(e, "say what its driver is like");
	else if (o->strict)
		r = check_strict(o);
	if (r < 0) {
		(void)cuf.cuFileDriverClose_v2();
		return r;
	}
	if (cuf.cuFileDriverGetP2PFlags)
		(void)cuf.cuFileDriverGetP2PFlags(CUF_TYPE_NVME, &o->p2p);
	return 0;
}

/* Create a directory that only this user can enter. */
static int make_dir(char *ret, size_t len)
{
	const char *tmp = secure_getenv("TMPDIR");
	const char *const in[] = { tmp && tmp[0] == '/' ? tmp : "/tmp", "/dev/shm" };

	for (unsigned i = 0; i < ARRAY_SIZE(in); i++) {
		int n = snprintf(ret, len, "%s/penstock-XXXXXX", in[i]);

		if (n > 0 && (size_t)n < len && mkdtemp(ret))
			return 0;
	}
	return err_set(errno, "cuFile needs a directory for its log, and none could be made in %s",
		       in[0]);
}

/*
 * Open the driver on a thread with a current directory of its own.  Signals are blocked in the
 * thread, and so in all threads that the library starts.  The log is unlinked but stays open, so
 * later lines go nowhere visible.
 */
static void *open_aside(void *arg)
{
	struct opening *o = arg;
	char dir[PATH_MAX];
	int r;

	if (unshare(CLONE_FS) < 0) {
		(void)lib_fail(o,
			       err_set(EPERM,
				       "cuFile would leave its log in the current directory, and "
				       "this container gives no thread a directory of its own; set "
				       "CUFILE_LOGFILE_PATH to a file, or to /dev/null"));
		return NULL;
	}
	r = make_dir(dir, sizeof(dir));
	if (r < 0) {
		(void)lib_fail(o, r);
		return NULL;
	}
	r = chdir(dir) < 0 ? err_set(errno, "%s cannot be entered: %s", dir, err_name(errno))
			   : open_here(o);
	if (r < 0)
		(void)lib_fail(o, r);
	if (o->asked)
		(void)unlink("cufile.log");
	(void)rmdir(dir);
	return NULL;
}

/* Read PST_GDS: *ret is true if it promises that no other code uses the library. */
static int exclusive(bool *ret)
{
	const char *env = secure_getenv("PST_GDS");

	*ret = env && !strcmp(env, "exclusive");
	if (env && *env && !*ret && strcmp(env, "auto") != 0 && strcmp(env, "off") != 0)
		return err_set(EINVAL, "PST_GDS is \"%s\", not off, auto or exclusive", env);
	return 0;
}

static int lib_driver_open(struct opening *o)
{
	pthread_t thread;
	int r = exclusive(&o->strict);

	if (r < 0)
		return lib_fail(o, r);
	o->shared = cuf.cuFileUseCount() > 0;
	if (o->strict && o->shared)
		return lib_fail(o,
				err_set(EUSERS,
					"PST_GDS=exclusive, but somebody else in this process has "
					"opened cuFile; set auto, or end that use"));
	/* The log's place is fixed: other code opened the driver, or the user chose a file. */
	if (o->shared || secure_getenv("CUFILE_LOGFILE_PATH")) {
		r = open_here(o);
		return r < 0 ? lib_fail(o, r) : 0;
	}
	r = thread_start(&thread, open_aside, o);
	if (r < 0)
		return lib_fail(o, r);
	(void)pthread_join(thread, NULL);
	return o->err;
}

/* Return 1 if the driver must be opened, 0 if it is open, or -errno why not.  The lock is held. */
static int may_open(void)
{
	uint64_t ms;

	switch (lib.state) {
	case OPEN:
		return 0;
	case CLOSING:
		return err_set(EBUSY, "another thread is closing cuFile's driver");
	case OPENING:
		ms = (now_ns() - lib.since) / NSEC_PER_MSEC;
		if (ms > cufile_open_ms)
			return err_set(ETIMEDOUT,
				       "cuFile's driver hangs: it has been opening for %llu s, and "
				       "is not used; look at the kernel's log for nvidia-fs",
				       (unsigned long long)ms / 1000);
		return err_set(EBUSY, "another thread is opening cuFile's driver");
	default:
		return lib.open.err < 0 ? err_set(lib.open.err, "%s", lib.open.why) : 1;
	}
}

int cufile_open(void)
{
	struct opening o = { 0 };
	int r = cufile_check();

	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&lib.lock);
	r = may_open();
	if (r > 0) {
		lib.state = OPENING;
		lib.since = now_ns();
	}
	(void)pthread_mutex_unlock(&lib.lock);
	if (r <= 0)
		return r;

	r = lib_driver_open(&o);
	(void)pthread_mutex_lock(&lib.lock);
	lib.state = r < 0 ? CLOSED : OPEN;
	lib.open = o;
	if (r < 0 && !o.asked)
		lib.open.err = 0; /* the next attempt may succeed */
	(void)pthread_mutex_unlock(&lib.lock);
	return r < 0 ? err_set(r, "%s", o.why) : 0;
}

/* ----------------------------------------------------------------- closing */

/* Return 1 if the driver must be closed, 0 if it is closed, or -errno if it cannot be closed.  The
 * lock is held. */
static int may_close(void)
{
	if (lib.state == CLOSED)
		return 0;
	if (lib.state != OPEN)
		return err_set(EBUSY, "another thread is opening or closing cuFile's driver");
	if (lib.users)
		return err_set(EBUSY, "%u files and pieces of memory use cuFile's driver",
			       lib.users);
	return 1;
}

static int lib_driver_close(bool strict)
{
	struct cuf_error e;

	if (!strict && cuf.cuFileUseCount() <= 1)
		return err_set(EBUSY,
			       "cuFile's driver stays open: whoever else uses it since then does "
			       "not count");
	cufile_counts_end();
	e = cuf.cuFileDriverClose_v2();
	return e.err ? cufile_err(e, "close its driver") : 0;
}

int cufile_close(void)
{
	bool strict;
	int r = fork_guard();

	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&lib.lock);
	r = may_close();
	if (r > 0)
		lib.state = CLOSING;
	strict = lib.open.strict;
	(void)pthread_mutex_unlock(&lib.lock);
	if (r <= 0)
		return r;

	r = lib_driver_close(strict);
	(void)pthread_mutex_lock(&lib.lock);
	lib.state = r < 0 ? OPEN : CLOSED;
	(void)pthread_mutex_unlock(&lib.lock);
	return r;
}

/* ------------------------------------------------------------------- facts */

int cufile_hold(void)
{
	int r = fork_guard();

	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&lib.lock);
	if (lib.state == OPEN)
		lib.users++;
	else
		r = err_set(ENODEV, "cuFile's driver is not open");
	(void)pthread_mutex_unlock(&lib.lock);
	return r;
}

void cufile_drop(void)
{
	(void)pthread_mutex_lock(&lib.lock);
	lib.users--;
	(void)pthread_mutex_unlock(&lib.lock);
}

uint64_t cufile_pinnable_kib(void)
{
	uint64_t kib;

	(void)pthread_mutex_lock(&lib.lock);
	kib = lib.state == OPEN ? lib.open.props.max_device_pinned : 0;
	(void)pthread_mutex_unlock(&lib.lock);
	return kib;
}

void cufile_info(struct cufile_info *ret)
{
	*ret = (struct cufile_info){ 0 };
	if (fork_guard() < 0)
		return;
	(void)pthread_mutex_lock(&lib.lock);
	if (lib.state > LOADING)
		ret->version = lib.load.version;
	if (lib.state > LOADING && !lib.load.err) {
		memcpy(ret->file, lib.load.file, sizeof(ret->file));
	}
	if (lib.state == OPEN) {
		ret->open = true;
		ret->strict = lib.open.strict;
		ret->shared = lib.open.shared;
		ret->nvfs_major = lib.open.props.nvfs.major;
		ret->nvfs_minor = lib.open.props.nvfs.minor;
		ret->c2c = lib.open.p2p == CUF_P2P_C2C;
	}
	(void)pthread_mutex_unlock(&lib.lock);
}
