/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/dl.h"
#include "base/err.h"
#include "base/log.h"
#include "rados/lib.h"
#include "rados/rados.h"

DL_NOTE("librados.so.2", "rados", "Objects of Ceph as files");

#define USER_VARIABLE "PST_RADOS_USER"
#define USER_DEFAULT "client.admin"
#define CONF_DEFAULT "/etc/ceph/ceph.conf"
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

struct lib lib;

static const struct dl_lib librados = {
	.what = "librados",
	.soname = "librados.so.2",
	.env = "PST_LIBRADOS",
};

static const struct dl_sym syms[] = {
#define SYM(result, name, args) DL_SYM(struct lib, name, true),
#include "rados/rados_syms.h"
};

static struct {
	pthread_mutex_t lock; /* covers all members */
	bool loaded;
	void *cluster; /* NULL: not connected */
	pid_t owner;   /* process that connected */
	unsigned users;
} self = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Disconnect at exit, unless the connection is in use.  This function runs before librados'
 * destructors, because it was registered after librados was loaded. */
static void lib_at_exit(void)
{
	void *cluster = NULL;

	(void)pthread_mutex_lock(&self.lock);
	if (self.owner == getpid() && !self.users) {
		cluster = self.cluster;
		self.cluster = NULL;
	}
	(void)pthread_mutex_unlock(&self.lock);
	if (cluster)
		lib.rados_shutdown(cluster);
}

/* Load librados.  The lock is held. */
static int load_lib(void)
{
	int r;

	if (self.loaded)
		return 0;
	r = dl_load(&librados, &lib, syms, ARRAY_SIZE(syms));
	if (r < 0)
		return err_set(ENODEV, "rados:// needs librados: %s; install the package librados2",
			       err_text());
	(void)atexit(lib_at_exit);
	self.loaded = true;
	return 0;
}

static int err_connect(int err, const char *step, const char *user)
{
	static const struct {
		int err;
		const char *says;
	} causes[] = {
		{ EACCES, "the monitors do not accept its key; check the keyring" },
		{ EPERM, "the monitors do not accept its key; check the keyring" },
		{ ETIMEDOUT, "no monitor answers; check mon_host in ceph.conf, and the network" },
		{ ENOENT, "its keyring is not there; check the option keyring in ceph.conf" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(causes); i++)
		if (causes[i].err == -err)
			return err_set(err == -EPERM ? EACCES : -err, "Ceph, as the user %s: %s",
				       user, causes[i].says);
	return err_set(err, "Ceph, as the user %s: %s failed (%s)", user, step, strerror(-err));
}

/* Override settings of ceph.conf. */
static int lib_set(void *cluster, const char *op_timeout_s)
{
	const char *const set[][2] = {
		/* Print nothing, and create no socket in the file system. */
		{ "log_to_stderr", "false" },
		{ "err_to_stderr", "false" },
		{ "log_file", "" },
		{ "admin_socket", "" },
		{ "client_mount_timeout", TEXT(LIB_CONNECT_S) },
		{ "rados_mon_op_timeout", TEXT(LIB_CONNECT_S) },
		/* These limits exceed BUDGET_*, because librados blocks callers that reach them. */
		{ "objecter_inflight_ops", "2048" },
		{ "objecter_inflight_op_bytes", "268435456" },
		/* Ask for a new map 2 seconds after an OSD fell silent, instead of 10. */
		{ "objecter_timeout", "2" },
		{ "objecter_tick_interval", "1" },
		{ "rados_osd_op_timeout", op_timeout_s },
	};

	for (size_t i = 0; i < ARRAY_SIZE(set); i++) {
		int r = lib.rados_conf_set(cluster, set[i][0], set[i][1]);

		if (r < 0 && r != -ENOENT) /* ENOENT: some releases lack the setting */
			return r;
	}
	return 0;
}

static int lib_connect(const char *op_timeout_s, void **ret)
{
	const char *user = secure_getenv(USER_VARIABLE);
	/* NULL lets librados read CEPH_CONF; in a set-uid program it must not. */
	const char *conf = getauxval(AT_SECURE) ? CONF_DEFAULT : NULL;
	void *c;
	int r;

	if (!user || !*user)
		user = USER_DEFAULT;
	r = lib.rados_create2(&c, "ceph", user, 0);
	if (r < 0)
		return err_set(r == -EINVAL ? EINVAL : -r,
			       USER_VARIABLE " is %.60s: no user of Ceph has such a name; write "
					     "client.NAME",
			       user);
	r = lib.rados_conf_read_file(c, conf);
	if (r < 0) {
		(void)err_set(ENOENT,
			      "ceph.conf cannot be read (%s); set CEPH_CONF, or install it as "
			      "/etc/ceph/ceph.conf",
			      strerror(-r));
		lib.rados_shutdown(c);
		return -ENOENT;
	}
	if (!getauxval(AT_SECURE))
		(void)lib.rados_conf_parse_env(c, NULL);
	r = lib_set(c, op_timeout_s);
	if (r < 0)
		r = err_connect(r, "a setting", user);
	else if ((r = lib.rados_connect(c)) < 0)
		r = err_connect(r, "rados_connect", user);
	if (r < 0) {
		lib.rados_shutdown(c);
		return r;
	}
	*ret = c;
	return 0;
}

static int pool_open(void *cluster, const char *pool, void **ret)
{
	int r = lib.rados_ioctx_create(cluster, pool, ret);

	if (r == -ENOENT)
		return err_set(ENOENT, "rados://%.100s: there is no such pool; check its name",
			       pool);
	return r < 0 ? err_set(r, "rados://%.100s: the pool cannot be opened (%s)", pool,
			       strerror(-r))
		     : 0;
}

static void lib_user_gone(void)
{
	(void)pthread_mutex_lock(&self.lock);
	self.users--;
	(void)pthread_mutex_unlock(&self.lock);
}

int lib_pool_get(const char *pool, void **ret_ioctx)
{
	void *cluster;
	int r;

	(void)pthread_mutex_lock(&self.lock);
	r = load_lib();
	if (r == 0 && self.cluster && self.owner != getpid())
		r = err_set(EOWNERDEAD, "the connection to Ceph belongs to the process that this "
					"one was forked from; open files after the fork, or "
					"start the program anew");
	if (r == 0 && !self.cluster) {
		r = lib_connect("0", &self.cluster);
		self.owner = getpid();
	}
	if (r == 0)
		self.users++; /* keeps the connection open */
	cluster = self.cluster;
	(void)pthread_mutex_unlock(&self.lock);
	if (r < 0)
		return r;
	/* Drop the lock: this may take long, and users of other pools must not wait. */
	r = pool_open(cluster, pool, ret_ioctx);
	if (r < 0)
		lib_user_gone();
	return r;
}

void lib_pool_put(void *ioctx)
{
	lib.rados_ioctx_destroy(ioctx);
	lib_user_gone();
}

int lib_own_get(const char *pool, struct lib_own *ret)
{
	int r;

	(void)pthread_mutex_lock(&self.lock);
	r = load_lib();
	(void)pthread_mutex_unlock(&self.lock);
	if (r == 0)
		r = lib_connect(TEXT(LIB_LIST_S), &ret->cluster);
	if (r < 0)
		return r;
	r = pool_open(ret->cluster, pool, &ret->ioctx);
	if (r < 0)
		lib.rados_shutdown(ret->cluster);
	return r;
}

void lib_own_put(struct lib_own *own)
{
	lib.rados_ioctx_destroy(own->ioctx);
	lib.rados_shutdown(own->cluster);
}

int lib_err(int err, const char *shown)
{
	static const struct {
		int from, to;
		const char *says;
	} meanings[] = {
		{ ENOENT, ENOENT, "the pool has no such object" },
		{ EPERM, EACCES,
		  "the user has no right to do this in the pool; see ceph auth get" },
		{ EACCES, EACCES, "the user's key is not accepted; check the keyring" },
		{ EEXIST, EEXIST, "there is an object of that name already" },
		{ ENOSPC, ENOSPC, "the pool or the cluster is full; remove objects" },
		{ EDQUOT, EDQUOT, "the pool has reached its quota; remove objects, or raise it" },
		{ EFBIG, EFBIG,
		  "an object cannot be larger than osd_max_object_size; write it as a striped "
		  "file, under a new name" },
		{ EOPNOTSUPP, EOPNOTSUPP,
		  "the pool is erasure coded and takes no such write; set allow_ec_overwrites" },
		{ ERANGE, ESTALE, "the object was changed while it was in use; open it again" },
		{ EOVERFLOW, ESTALE,
		  "the object was made anew while it was in use; open it again" },
		{ ESTALE, ESTALE, "the object was removed while it was in use" },
		{ ETIMEDOUT, ETIMEDOUT, "its OSDs do not answer; look at ceph health" },
		{ ESHUTDOWN, ESHUTDOWN,
		  "the cluster has blocked this client; look at ceph osd blocklist ls, and start "
		  "the program anew" },
		{ ECANCELED, ECANCELED, "canceled" },
		{ EBUSY, EBUSY, "other writers change it all the time; try again once they end" },
		{ ENOMEM, ENOMEM, "out of memory" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(meanings); i++)
		if (meanings[i].from == -err)
			return err_set(meanings[i].to, "%.300s: %s", shown, meanings[i].says);
	return err_set(-err, "%.300s: Ceph answers %s", shown, strerror(-err));
}
