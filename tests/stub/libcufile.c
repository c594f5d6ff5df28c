/* SPDX-License-Identifier: MIT */
/*
 * A stub of libcufile.so.0 without nvidia-fs, for tests: the real library's calls and rules,
 * over the memory of the libcuda stub.
 *
 * The rules of the compat mode were observed with 1.15.1; those of the direct modes come from
 * nvidia-fs and its documentation.  A call on which the real library crashes ends the process
 * with a message.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cufile_stub_int.h"

struct cufile_stub cf = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.files = LIST_INIT(cf.files),
	.bufs = LIST_INIT(cf.bufs),
	.batches = LIST_INIT(cf.batches),
};

static struct {
	char name[64]; /* "": no function; "*": every function */
	uint64_t n, seen;
	int code;
	bool met;
} fail, hang;

static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static uint64_t releases;
static int staged_compat = -1; /* staged parameter; -1: not set */
static int log_fd = -1;

void stub_cufile_abort(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)fputs("stub libcufile: ", stderr);
	(void)vfprintf(stderr, fmt, ap);
	(void)fputc('\n', stderr);
	va_end(ap);
	abort();
}

/* ----------------------------------------------------------------- control */

static int word(const char *value, const char *const *words, const char *key)
{
	for (int i = 0; words[i]; i++)
		if (!strcmp(words[i], value))
			return i;
	stub_cufile_abort("%s=%s is not known", key, value);
}

static void set_one(const char *key, const char *value)
{
	static const char *const modes[] = { "compat", "nvfs", "p2pdma", "c2c", NULL };
	static const char *const lies[] = { "none", "nodata", "wrong", "short",
					    "more", "claims", "once",  NULL };
	unsigned long long n = strtoull(value, NULL, 0);

	if (!strcmp(key, "version"))
		cf.version = (int)n;
	else if (!strcmp(key, "mode"))
		cf.mode = (enum stub_mode)word(value, modes, key);
	else if (!strcmp(key, "lie"))
		cf.lie = (enum stub_lie)word(value, lies, key);
	else if (!strcmp(key, "udev"))
		cf.udev = n;
	else if (!strcmp(key, "pin"))
		cf.pin = n;
	else if (!strcmp(key, "noise"))
		cf.noise = n;
	else if (!strcmp(key, "fail")) {
		memset(&fail, 0, sizeof(fail));
		if (sscanf(value, "%63[^:]:%lu:%d", fail.name, &fail.n, &fail.code) != 3)
			stub_cufile_abort("fail=%s is not NAME:N:CODE", value);
	} else if (!strcmp(key, "hang")) {
		memset(&hang, 0, sizeof(hang));
		if (sscanf(value, "%63[^:]:%lu", hang.name, &hang.n) != 2)
			stub_cufile_abort("hang=%s is not NAME:N", value);
	} else {
		stub_cufile_abort("%s is not known", key);
	}
}

void stub_cufile_set(const char *text)
{
	char copy[512], *save = NULL;

	(void)snprintf(copy, sizeof(copy), "%s", text);
	(void)pthread_mutex_lock(&cf.lock);
	for (char *s = strtok_r(copy, ",", &save); s; s = strtok_r(NULL, ",", &save)) {
		char *value = strchr(s, '=');

		if (!value)
			stub_cufile_abort("%s has no value", s);
		*value = '\0';
		set_one(s, value + 1);
	}
	(void)pthread_mutex_unlock(&cf.lock);
}

static void log_close(void)
{
	if (log_fd >= 0)
		(void)close(log_fd);
	log_fd = -1;
}

void stub_cufile_reset(void)
{
	const char *env = getenv("STUB_CUFILE");

	(void)pthread_mutex_lock(&cf.lock);
	stub_batches_end();
	stub_files_end();
	log_close();
	memset(&fail, 0, sizeof(fail));
	memset(&hang, 0, sizeof(hang));
	memset(&cf.state, 0, sizeof(cf.state));
	memset(cf.counts, 0, sizeof(cf.counts));
	staged_compat = -1;
	cf.level = 0;
	cf.started = cf.noise = false;
	cf.version = 1150;
	cf.mode = MODE_P2PDMA;
	cf.lie = LIE_NONE;
	cf.udev = true;
	cf.pin = 0;
	(void)pthread_mutex_unlock(&cf.lock);
	if (env)
		stub_cufile_set(env);
}

__attribute__((constructor)) static void loaded(void)
{
	stub_cufile_reset();
}

void stub_cufile_state(struct stub_cufile_state *ret)
{
	struct list *e;

	(void)pthread_mutex_lock(&cf.lock);
	*ret = cf.state;
	list_for_each (e, &cf.files)
		ret->files++;
	list_for_each (e, &cf.bufs) {
		ret->bufs++;
		ret->registered += list_entry(e, struct buf, link)->len;
	}
	(void)pthread_mutex_unlock(&cf.lock);
}

void stub_cufile_release(void)
{
	(void)pthread_mutex_lock(&cf.lock);
	memset(&hang, 0, sizeof(hang));
	releases++;
	(void)pthread_cond_broadcast(&released);
	(void)pthread_mutex_unlock(&cf.lock);
}

bool stub_cufile_met(void)
{
	bool met;

	(void)pthread_mutex_lock(&cf.lock);
	met = fail.met;
	(void)pthread_mutex_unlock(&cf.lock);
	return met;
}

int stub_call(const char *name)
{
	int code = 0;

	(void)pthread_mutex_lock(&cf.lock);
	cf.state.calls++;
	if (!strcmp(hang.name, name) && (++hang.seen == hang.n || !hang.n)) {
		uint64_t at = releases;

		cf.state.hung++;
		while (releases == at)
			(void)pthread_cond_wait(&released, &cf.lock);
		cf.state.hung--;
	}
	if (!strcmp(fail.name, name) || !strcmp(fail.name, "*")) {
		if (++fail.seen == fail.n || !fail.n) {
			fail.met = true;
			code = fail.code;
		}
	}
	(void)pthread_mutex_unlock(&cf.lock);
	return code;
}

/* ------------------------------------------------------------------ driver */

struct cuf_error cuFileGetVersion(int *ret)
{
	int code = CALL();

	(void)pthread_mutex_lock(&cf.lock);
	if (!code)
		*ret = cf.version;
	(void)pthread_mutex_unlock(&cf.lock);
	return stub_error(code);
}

long cuFileUseCount(void)
{
	long n;

	(void)CALL();
	(void)pthread_mutex_lock(&cf.lock);
	n = cf.state.uses;
	(void)pthread_mutex_unlock(&cf.lock);
	return n;
}

bool stub_strict(void)
{
	return cf.state.strict;
}

/* Open the log that the environment names; it stays open until the driver is closed. */
static void log_open(void)
{
	const char *path = getenv("CUFILE_LOGFILE_PATH");

	cf.state.log_here = !path;
	log_fd = open(path ? path : "cufile.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (log_fd < 0)
		(void)fputs("warn: no log\n", stderr);
	else
		(void)!write(log_fd, "opened\n", 7);
}

/* Return true if the next open may use the compat mode, and clear the staged parameter.  An open
 * that fails has cleared it too.  Call it with the lock held. */
static bool take_compat(void)
{
	const char *env = getenv("CUFILE_ALLOW_COMPAT_MODE");
	int staged = staged_compat;

	staged_compat = -1;
	if (staged >= 0)
		return staged;
	return !env || strcmp(env, "false") != 0;
}

static int open_first(void)
{
	bool compat = take_compat();
	int nr = 0;

	if (cuDeviceGetCount(&nr) != CU_OK)
		return CUF_NVFS_SETUP_ERROR;
	log_open();
	if (!compat && cf.mode == MODE_COMPAT && cf.lie != LIE_CLAIMS) {
		log_close();
		return CUF_DRIVER_NOT_INITIALIZED;
	}
	cf.state.strict = !compat;
	cf.state.opens++;
	return 0;
}

int stub_implicit_open(void)
{
	int code = 0;

	(void)pthread_mutex_lock(&cf.lock);
	if (!cf.state.uses) {
		code = open_first();
		cf.state.uses += !code;
	}
	(void)pthread_mutex_unlock(&cf.lock);
	return code;
}

struct cuf_error cuFileDriverOpen(void)
{
	int code = CALL();

	if (code)
		return stub_error(code);
	(void)pthread_mutex_lock(&cf.lock);
	if (!cf.state.uses)
		code = open_first();
	cf.state.uses += !code;
	(void)pthread_mutex_unlock(&cf.lock);
	return stub_error(code);
}

struct cuf_error cuFileDriverClose_v2(void)
{
	int code = CALL();

	if (code)
		return stub_error(code);
	(void)pthread_mutex_lock(&cf.lock);
	if (cf.state.uses <= 0) {
		code = CUF_DRIVER_NOT_INITIALIZED;
	} else if (!--cf.state.uses) {
		if (cf.state.moving)
			stub_cufile_abort("the driver is closed under %u transfers",
					  cf.state.moving);
		stub_files_end();
		log_close();
	}
	(void)pthread_mutex_unlock(&cf.lock);
	return stub_error(code);
}

struct cuf_error cuFileDriverGetProperties(struct cuf_props *ret)
{
	int code = CALL();

	if (code)
		return stub_error(code);
	if (cf.state.uses <= 0)
		return stub_error(CUF_DRIVER_NOT_INITIALIZED);
	*ret = (struct cuf_props){
		.nvfs = { .poll_threshold = 4,
			  .max_direct_io = 16384,
			  .control = cf.state.strict ? 0 : CUF_CONTROL_ALLOW_COMPAT },
		.features = 15,
		.max_device_cache = 131072,
		.max_device_pinned = 33554432,
		.max_batch = 128,
		.batch_timeout_ms = 5,
	};
	if (cf.mode == MODE_NVFS) {
		ret->nvfs.major = 2;
		ret->nvfs.minor = 28;
	}
	return stub_error(0);
}

struct cuf_error cuFileSetParameterBool(int param, bool value)
{
	int code = CALL();

	if (code)
		return stub_error(code);
	(void)pthread_mutex_lock(&cf.lock);
	if (cf.state.uses > 0)
		code = CUF_DRIVER_ALREADY_OPEN;
	else if (param < 0 || param > 11)
		code = CUF_INVALID_VALUE;
	else if (param == CUF_PARAM_ALLOW_COMPAT)
		staged_compat = value;
	cf.state.params += !code;
	(void)pthread_mutex_unlock(&cf.lock);
	return stub_error(code);
}

struct cuf_error cuFileDriverGetP2PFlags(int type, int *ret)
{
	int code = CALL();

	if (code)
		return stub_error(code);
	if (type != CUF_TYPE_NVME)
		return stub_error(CUF_INVALID_VALUE);
	*ret = cf.mode == MODE_C2C ? CUF_P2P_C2C : cf.mode == MODE_P2PDMA ? CUF_P2P_P2PDMA : 0;
	return stub_error(0);
}
