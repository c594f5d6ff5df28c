/* SPDX-License-Identifier: MIT */
/*
 * A misbehaving file system for tests: the program `fusefs' (fusefs.c), mounted on a new
 * directory while a test runs.  Its files have FUSEFS_SIZE bytes of t_fill(FUSEFS_SEED), except
 * as noted:
 *
 *	normal	reads succeed
 *	hang	reads and writes are answered at the next fusefs_release()
 *	eio	reads end at 1 MiB; reads from 1 MiB on give EIO
 *	short	reads return odd counts, less than requested
 *	slow	reads and writes take 20 ms each
 *	shrink	reports 4 MiB, but reads end at 1 MiB
 *	stale	reads, writes and syncs give ESTALE until the next fusefs_release()
 *	aborts	reads, writes and syncs give ECANCELED
 *	quota	reads succeed; writes give EDQUOT
 *	full	empty; accepts 1 MiB, then gives ENOSPC; reads return the bytes written
 *	hold	a write makes requests for the root's attributes wait for fusefs_release()
 *
 * Root mounts it by mount(2), other users by fusermount3.
 */
#ifndef PST_FUSEFS_H
#define PST_FUSEFS_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define FUSEFS_SEED 42
#define FUSEFS_SIZE (8u << 20)

struct fusefs {
	pid_t pid;     /* 0: not mounted, see why */
	char dir[128]; /* mount point */
	char why[256];
};

/* Return PST_FUSEFS, or the program in the build folder next to the test's. */
static inline const char *fusefs_program(char *buf, size_t len)
{
	static const char *const places[] = { "../fusefs", "fusefs" };
	const char *env = getenv("PST_FUSEFS");
	char self[512], *slash;
	ssize_t n;

	if (env)
		return env;
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n <= 0)
		return NULL;
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (!slash)
		return NULL;
	*slash = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if ((size_t)snprintf(buf, len, "%s/%s", self, places[i]) < len &&
		    access(buf, X_OK) == 0)
			return buf;
	}
	return NULL;
}

static inline void fusefs_child(const char *program, const char *dir, const int out[2])
{
	(void)dup2(out[1], STDOUT_FILENO);
	(void)dup2(out[1], STDERR_FILENO);
	(void)close(out[0]);
	(void)close(out[1]);
	(void)execl(program, program, dir, (char *)NULL);
	_exit(127);
}

/* Wait for "ready" from the program; otherwise put its message into f->why. */
static inline int fusefs_ready(struct fusefs *f, int fd)
{
	size_t have = 0;
	ssize_t n;

	while (have < sizeof(f->why) - 1 &&
	       (n = read(fd, f->why + have, sizeof(f->why) - 1 - have)) > 0) {
		have += (size_t)n;
		f->why[have] = '\0';
		if (strstr(f->why, "ready\n"))
			return 0;
	}
	f->why[strcspn(f->why, "\n")] = '\0';
	if (!have)
		(void)snprintf(f->why, sizeof(f->why), "a FUSE that can be mounted");
	return -1;
}

/*
 * Mount the file system in a new directory under parent.  Return 0, or -1 and f->why if the
 * machine lacks something; fusefs_stop() is allowed in both cases.
 */
static inline int fusefs_start(struct fusefs *f, const char *parent)
{
	char buf[600];
	const char *program = fusefs_program(buf, sizeof(buf));
	int out[2], r;
	pid_t pid;

	memset(f, 0, sizeof(*f));
	if (!program) {
		(void)snprintf(f->why, sizeof(f->why), "the program fusefs (libfuse3-dev)");
		return -1;
	}
	if (access("/dev/fuse", F_OK) < 0) {
		(void)snprintf(f->why, sizeof(f->why), "/dev/fuse");
		return -1;
	}
	(void)snprintf(f->dir, sizeof(f->dir), "%s/pst-fuse-XXXXXX", parent);
	if (!mkdtemp(f->dir) || pipe2(out, O_CLOEXEC) < 0) {
		(void)snprintf(f->why, sizeof(f->why), "a scratch directory in %s", parent);
		return -1;
	}
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0)
		fusefs_child(program, f->dir, out);
	(void)close(out[1]);
	r = pid < 0 ? -1 : fusefs_ready(f, out[0]);
	(void)close(out[0]);
	if (r == 0) {
		f->pid = pid;
		return 0;
	}
	if (pid > 0)
		(void)waitpid(pid, NULL, 0);
	(void)rmdir(f->dir);
	return -1;
}

static inline void fusefs_tell(const struct fusefs *f, const char *name)
{
	char path[160];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", f->dir, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)!write(fd, "1", 1);
	(void)close(fd);
}

/* Answer all waiting requests: those of `hang' and those for the root's attributes. */
static inline void fusefs_release(const struct fusefs *f)
{
	fusefs_tell(f, "release");
}

/* Let requests for the root's attributes wait until fusefs_release(). */
static inline void fusefs_hold_root(const struct fusefs *f)
{
	fusefs_tell(f, "hold");
}

/* Return the number of waiting requests. */
static inline unsigned fusefs_waiting(const struct fusefs *f)
{
	char path[160], text[16] = "";
	int fd;

	(void)snprintf(path, sizeof(path), "%s/release", f->dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	(void)!read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	return (unsigned)strtoul(text, NULL, 10);
}

/*
 * Kill the server and unmount.  Its /dev/fuse is closed, so the kernel fails every waiting
 * request.
 */
static inline void fusefs_stop(struct fusefs *f)
{
	if (!f->pid)
		return;
	(void)kill(f->pid, SIGKILL);
	(void)waitpid(f->pid, NULL, 0);
	f->pid = 0;
	if (umount2(f->dir, MNT_DETACH) < 0) {
		pid_t pid = fork();

		if (pid == 0) {
			(void)execlp("fusermount3", "fusermount3", "-u", "-z", f->dir,
				     (char *)NULL);
			_exit(127);
		}
		if (pid > 0)
			(void)waitpid(pid, NULL, 0);
	}
	(void)rmdir(f->dir);
}

#endif
