/* SPDX-License-Identifier: MIT */
#include "calls.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

int (*calls_hook)(const char *call);
bool calls_corrupt;

static int hook(const char *call)
{
	int err = calls_hook ? calls_hook(call) : 0;

	errno = err;
	return err;
}

#define WRAP(type, name, params, ...)              \
	type __real_##name params;                 \
	type __wrap_##name params;                 \
	type __wrap_##name params                  \
	{                                          \
		if (hook(#name))                   \
			return (type)-1;           \
		return __real_##name(__VA_ARGS__); \
	}

WRAP(ssize_t, pread64, (int fd, void *buf, size_t len, off_t off), fd, buf, len, off)
WRAP(int, fallocate64, (int fd, int mode, off_t off, off_t len), fd, mode, off, len)
WRAP(int, ftruncate64, (int fd, off_t len), fd, len)
WRAP(int, fsync, (int fd), fd)
WRAP(int, fstat64, (int fd, struct stat *st), fd, st)
WRAP(int, fchown, (int fd, uid_t uid, gid_t gid), fd, uid, gid)
WRAP(int, fchmod, (int fd, mode_t mode), fd, mode)
WRAP(int, futimens, (int fd, const struct timespec t[2]), fd, t)
WRAP(int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags), a, from, b,
     to, flags)
WRAP(int, unlinkat, (int fd, const char *name, int flags), fd, name, flags)
WRAP(int, mkdirat, (int fd, const char *name, mode_t mode), fd, name, mode)

ssize_t __real_pwrite64(int fd, const void *buf, size_t len, off_t off);
ssize_t __wrap_pwrite64(int fd, const void *buf, size_t len, off_t off);
ssize_t __wrap_pwrite64(int fd, const void *buf, size_t len, off_t off)
{
	ssize_t n = hook("pwrite64") ? -1 : __real_pwrite64(fd, buf, len, off);

	if (calls_corrupt && n > 0)
		(void)__real_pwrite64(fd, (const char *)buf + 1, 1, off);
	return n;
}

int __real_openat64(int fd, const char *name, int flags, mode_t mode);
int __wrap_openat64(int fd, const char *name, int flags, mode_t mode);
int __wrap_openat64(int fd, const char *name, int flags, mode_t mode)
{
	return hook("openat") ? -1 : __real_openat64(fd, name, flags, mode);
}

/* A step of SQLite that writes or ends a transaction fails as on a bad disk. */
int __real_sqlite3_step(sqlite3_stmt *s);
int __wrap_sqlite3_step(sqlite3_stmt *s);
int __wrap_sqlite3_step(sqlite3_stmt *s)
{
	if (!sqlite3_stmt_readonly(s) && hook("sqlite3_step"))
		return SQLITE_IOERR;
	return __real_sqlite3_step(s);
}

int __real_sqlite3_exec(sqlite3 *db, const char *sql, int (*fn)(void *, int, char **, char **),
			void *arg, char **err);
int __wrap_sqlite3_exec(sqlite3 *db, const char *sql, int (*fn)(void *, int, char **, char **),
			void *arg, char **err);
int __wrap_sqlite3_exec(sqlite3 *db, const char *sql, int (*fn)(void *, int, char **, char **),
			void *arg, char **err)
{
	return hook("sqlite3_exec") ? SQLITE_IOERR : __real_sqlite3_exec(db, sql, fn, arg, err);
}
