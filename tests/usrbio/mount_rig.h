/* SPDX-License-Identifier: MIT */
/*
 * A daemon with a mount during a test.  The daemon is a program in the directory of the test
 * program, run as PROGRAM BACKING MOUNTPOINT [OPTION...].  It prints "ready" when it is mounted,
 * and ends on SIGTERM.
 *
 * Environment: PST_TEST_MOUNT is the path of penstock-mount, to be used as the daemon.
 * PST_TEST_MOUNT_LOG is a file for its standard error.  PST_TEST_MOUNT_SERVICE is the path of the
 * command penstock: it serves the directory, and the mount's source is that storage service.
 */
#ifndef PST_TESTS_MOUNT_RIG_H
#define PST_TESTS_MOUNT_RIG_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "scratch.h"

#define MOUNT_RIG_MAX_ARGS 16

struct mount_rig {
	pid_t pid;      /* 0: not running, see why */
	char dir[128];  /* directory of all that follows; root owns it, others may enter */
	char back[160]; /* the backing directory */
	char mnt[160];
	char source[200]; /* source of the mount: back, or the service */
	pid_t server;     /* PID of the service, or 0 */
	char why[256];
};

/* May be NULL. prepare is called before the daemon starts, and returns non-zero if the machine
 * lacks something; undo is called after the daemon's end. */
static int (*mount_rig_prepare)(const struct mount_rig *m);
static void (*mount_rig_undo)(const struct mount_rig *m);

/* Find the path of a program in the folder of this one. */
static inline int mount_rig_beside(const char *program, char *ret_path, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", ret_path, size - 1);
	const char *name = (const char *)getauxval(AT_EXECFN);
	char *slash;

	if (n <= 0)
		return -1;
	ret_path[n] = '\0';
	/* In a chroot /proc/self/exe is invalid after unshare(CLONE_NEWNS). */
	if (access(ret_path, X_OK) < 0 && name && strlen(name) < size)
		(void)strcpy(ret_path, name);
	slash = strrchr(ret_path, '/');
	if (!slash || (size_t)(slash + 1 - ret_path) + strlen(program) >= size)
		return -1;
	(void)strcpy(slash + 1, program);
	return access(ret_path, X_OK);
}

static inline int mount_rig_dirs(struct mount_rig *m)
{
	if (scratch_new(NULL, m->dir, sizeof(m->dir)) < 0)
		return -1;
	(void)snprintf(m->back, sizeof(m->back), "%s/back", m->dir);
	(void)snprintf(m->mnt, sizeof(m->mnt), "%s/mnt", m->dir);
	return mkdir(m->back, 0755) < 0 || mkdir(m->mnt, 0755) < 0 || chmod(m->dir, 0755) < 0 ? -1
											      : 0;
}

/* Append PENSTOCK_MOUNT_OPTIONS, options of penstock-mount separated by blanks. */
static inline int mount_rig_options(const char **argv, int n)
{
	const char *options = getenv("PENSTOCK_MOUNT_OPTIONS");
	char *rest = NULL, *word = options ? strtok_r(strdup(options), " ", &rest) : NULL;

	for (; word && n < MOUNT_RIG_MAX_ARGS - 2; word = strtok_r(NULL, " ", &rest))
		argv[n++] = word;
	return n;
}

static inline void mount_rig_exec(const char *exe, const struct mount_rig *m,
				  const char *const *options, int out)
{
	const char *argv[MOUNT_RIG_MAX_ARGS] = { exe, m->back, m->mnt };
	union {
		const char **from;
		char *const *to; /* execv() lacks const */
	} args = { argv };
	int n = 3;

	if (getenv("PST_TEST_MOUNT")) {
		argv[1] = "--foreground";
		argv[2] = "--source";
		argv[n++] = m->source;
		n = mount_rig_options(argv, n);
		argv[n++] = m->mnt;
	}
	while (!getenv("PST_TEST_MOUNT") && options && *options && n < MOUNT_RIG_MAX_ARGS - 1)
		argv[n++] = *options++;
	/* Unmount if the test ends without stopping the daemon. */
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	(void)dup2(out, STDOUT_FILENO);
	(void)dup2(getenv("PST_TEST_MOUNT_LOG")
			   ? open(getenv("PST_TEST_MOUNT_LOG"),
				  O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)
			   : out,
		   STDERR_FILENO);
	(void)execv(exe, args.to);
	_exit(127);
}

/* Serve the backing directory if PST_TEST_MOUNT_SERVICE is set. */
static inline void mount_rig_serve(struct mount_rig *m)
{
	static const struct timespec tick = { .tv_nsec = 10000000 };
	const char *penstock = getenv("PST_TEST_MOUNT_SERVICE");
	char listen[200], metrics[200];

	(void)snprintf(m->source, sizeof(m->source), "%s", m->back);
	if (!penstock)
		return;
	(void)snprintf(listen, sizeof(listen), "unix:%s/socket", m->dir);
	(void)snprintf(metrics, sizeof(metrics), "unix:%s/metrics", m->dir);
	(void)snprintf(m->source, sizeof(m->source), "pst+unix://%s/socket:/", m->dir);
	m->server = fork();
	if (m->server == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)umask(0);
		(void)execl(penstock, "penstock", "serve", "--root", m->back, "--listen", listen,
			    "--write", "--metrics", metrics, (char *)NULL);
		_exit(127);
	}
	/* Other users of the mount must be able to connect. */
	for (int i = 0; i < 1000 && chmod(listen + 5, 0666) < 0; i++)
		(void)nanosleep(&tick, NULL);
}

/* Wait for "ready" from the program; otherwise put its error into why. */
static inline int mount_rig_ready(struct mount_rig *m, int fd)
{
	size_t have = 0;
	ssize_t n;

	while (have < sizeof(m->why) - 1 &&
	       (n = read(fd, m->why + have, sizeof(m->why) - 1 - have)) > 0) {
		have += (size_t)n;
		m->why[have] = '\0';
		if (strstr(m->why, "ready\n") || strstr(m->why, " serves "))
			return 0;
	}
	m->why[strcspn(m->why, "\n")] = '\0';
	if (!have)
		(void)snprintf(m->why, sizeof(m->why), "a FUSE that can be mounted");
	return -1;
}

static inline void mount_rig_remove(struct mount_rig *m)
{
	char cmd[200];

	if (m->server > 0) {
		(void)kill(m->server, SIGKILL);
		(void)waitpid(m->server, NULL, 0);
		m->server = 0;
	}
	/* A dead daemon leaves a mount that must be detached. */
	(void)umount2(m->mnt, MNT_DETACH);
	if (mount_rig_undo)
		mount_rig_undo(m);
	(void)snprintf(cmd, sizeof(cmd), "rm -rf --one-file-system '%s'", m->dir);
	if (system(cmd) != 0)
		printf("# %s stays behind\n", m->dir);
}

/*
 * Start the daemon.  options end with NULL, and may be NULL.  Return 0; -1 if the machine lacks
 * something, named in m->why.
 */
static inline int mount_rig_start(struct mount_rig *m, const char *program,
				  const char *const *options)
{
	char exe[600];
	int out[2], r;
	pid_t pid;

	memset(m, 0, sizeof(*m));
	if (getenv("PST_TEST_MOUNT")) {
		(void)snprintf(exe, sizeof(exe), "%s", getenv("PST_TEST_MOUNT"));
	} else if (mount_rig_beside(program, exe, sizeof(exe)) < 0) {
		(void)snprintf(m->why, sizeof(m->why), "the program %s (libfuse3-dev)", program);
		return -1;
	}
	if (access("/dev/fuse", R_OK | W_OK) < 0) {
		(void)snprintf(m->why, sizeof(m->why), "/dev/fuse");
		return -1;
	}
	/* Names in /dev/shm are counted and removed, so it must be private; the guard makes it
	 * so for root. */
	if (geteuid() != 0) {
		(void)snprintf(m->why, sizeof(m->why), "root, to have a /dev/shm of its own");
		return -1;
	}
	if (mount_rig_dirs(m) < 0 || pipe2(out, O_CLOEXEC) < 0) {
		(void)snprintf(m->why, sizeof(m->why), "a scratch directory");
		return -1;
	}
	if (mount_rig_prepare && mount_rig_prepare(m) != 0) {
		(void)snprintf(m->why, sizeof(m->why), "mounting what the source is to be");
		(void)close(out[0]);
		(void)close(out[1]);
		mount_rig_remove(m);
		return -1;
	}
	(void)fflush(stdout);
	mount_rig_serve(m);
	pid = fork();
	if (pid == 0)
		mount_rig_exec(exe, m, options, out[1]);
	(void)close(out[1]);
	r = pid < 0 ? -1 : mount_rig_ready(m, out[0]);
	(void)close(out[0]);
	if (r == 0) {
		m->pid = pid;
		return 0;
	}
	if (pid > 0)
		(void)waitpid(pid, NULL, 0);
	mount_rig_remove(m);
	return -1;
}

/* Wait for the daemon.  Return its status of waitpid(); -1 if there was none. */
static inline int mount_rig_wait(struct mount_rig *m)
{
	int status = -1;

	if (m->pid)
		(void)waitpid(m->pid, &status, 0);
	m->pid = 0;
	return status;
}

/* End the daemon.  Return 0 if it ended well, else its status of waitpid(). */
static inline int mount_rig_end(struct mount_rig *m)
{
	if (!m->pid)
		return 0;
	(void)kill(m->pid, SIGTERM);
	return mount_rig_wait(m);
}

/* Stop the daemon, and remove the directory that it was mounted on. */
static inline int mount_rig_stop(struct mount_rig *m)
{
	int status = mount_rig_end(m);

	mount_rig_remove(m);
	return status;
}

#endif
