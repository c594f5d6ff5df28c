/* SPDX-License-Identifier: MIT */
/*
 * LD_PRELOAD library for programs that often reopen their file, such as fsx: wait PAUSE_MS
 * milliseconds before opening a file below PAUSE_DIR, so that a mover finds it closed.  Also keeps
 * fsx from dropping the machine's page cache each time.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int (*open_fn)(const char *path, int flags, ...);

static void pause_before(const char *path)
{
	const char *ms = getenv("PAUSE_MS"), *dir = getenv("PAUSE_DIR");
	struct timespec ts = { .tv_nsec = (ms ? atol(ms) : 0) * 1000000L };

	if (dir && strncmp(path, dir, strlen(dir)) == 0)
		(void)nanosleep(&ts, NULL);
}

static int open_as(const char *name, const char *path, int flags, mode_t mode)
{
	open_fn fn = (open_fn)dlsym(RTLD_NEXT, name);

	pause_before(path);
	return fn(path, flags, mode);
}

/* The C names differ, to avoid conflicts with the C library's declarations. */
#define EXPORT __attribute__((visibility("default")))
EXPORT int pause_open(const char *path, int flags, mode_t mode) __asm__("open");
EXPORT int pause_open64(const char *path, int flags, mode_t mode) __asm__("open64");

/* Without O_CREAT the caller passes no mode, and the mode is ignored. */
int pause_open(const char *path, int flags, mode_t mode)
{
	return open_as("open", path, flags, mode);
}

EXPORT int pause_system(const char *command) __asm__("system");

int pause_system(const char *command)
{
	int (*fn)(const char *command) = (int (*)(const char *))dlsym(RTLD_NEXT, "system");

	return command && strstr(command, "drop_caches") ? 0 : fn(command);
}

int pause_open64(const char *path, int flags, mode_t mode)
{
	return open_as("open64", path, flags, mode);
}
