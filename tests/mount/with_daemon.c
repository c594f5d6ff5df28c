/* SPDX-License-Identifier: MIT */
/*
 * mount-with-daemon COMMAND [ARGUMENT...]
 *
 * Starts PENSTOCK_MOUNT on a new directory, and runs COMMAND ARGUMENT... DIR SRC PID: the mount,
 * its source and the daemon.  COMMAND is a path, or a program in the directory of this one.  Output
 * and status are the command's; the status is 1 too if the daemon did not end well.  The mount is
 * removed at the end, even after a signal; what this process cannot remove, tests/guard does.
 *
 * PENSTOCK_MOUNT_OPTIONS has options for the daemon, separated by blanks.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "scratch.h"

#define START_MS 30000 /* time for the daemon to start */
#define END_MS 30000   /* time from SIGTERM to the daemon's end */
#define OPTIONS_MAX 16

static char base[PATH_MAX - 16], dir[PATH_MAX], src[PATH_MAX];
static pid_t daemon_pid, command_pid;

static void skip(const char *why)
{
	printf("1..0 # SKIP %s\n", why);
	exit(0);
}

static _Noreturn void bail_out(const char *what)
{
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(1);
}

/* ------------------------------------------------------------------ the end */

static void run_fusermount(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)execlp("fusermount3", "fusermount3", "-u", "-z", "-q", dir, (char *)NULL);
		_exit(127);
	}
	if (pid > 0)
		(void)waitpid(pid, NULL, 0);
}

static bool is_mounted(void)
{
	struct stat a, b;

	/* If stat() fails, the mount hangs or is dead: it is still there. */
	return stat(base, &a) < 0 || stat(dir, &b) < 0 || a.st_dev != b.st_dev;
}

/* Wait for a process' end, up to ms.  Return its status, or -1. */
static int wait_for(pid_t pid, int ms)
{
	static const struct timespec tick = { .tv_nsec = 10000000 };
	int status;

	for (; ms > 0; ms -= 10) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return status;
		(void)nanosleep(&tick, NULL);
	}
	return -1;
}

/* End the daemon.  Print what went wrong; return 0 if nothing did. */
static int end_daemon(void)
{
	int status;

	if (!daemon_pid)
		return 0;
	(void)kill(daemon_pid, SIGTERM);
	status = wait_for(daemon_pid, END_MS);
	if (status < 0) {
		printf("# the daemon did not end %d s after SIGTERM\n", END_MS / 1000);
		(void)kill(daemon_pid, SIGKILL);
		(void)waitpid(daemon_pid, NULL, 0);
		return -1;
	}
	daemon_pid = 0;
	if (status)
		printf("# the daemon ended with status %#x\n", (unsigned)status);
	else if (is_mounted())
		printf("# the daemon left its mount\n");
	else
		return 0;
	return -1;
}

static void clean(void)
{
	if (command_pid > 0)
		(void)kill(command_pid, SIGKILL);
	if (daemon_pid > 0) {
		(void)kill(daemon_pid, SIGKILL);
		(void)waitpid(daemon_pid, NULL, 0);
	}
	if (*dir && is_mounted()) {
		(void)umount2(dir, MNT_FORCE | UMOUNT_NOFOLLOW);
		if (umount2(dir, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && errno == EPERM)
			run_fusermount();
	}
	if (*base && !is_mounted())
		(void)scratch_remove(base);
}

/* ---------------------------------------------------------------- the start */

static void make_folders(void)
{
	int r = scratch_new(NULL, base, sizeof(base));

	errno = -r;
	if (r < 0)
		bail_out("a scratch directory");
	(void)snprintf(dir, sizeof(dir), "%s/dir", base);
	(void)snprintf(src, sizeof(src), "%s/src", base);
	/* Cases run as other users, too. */
	if (chmod(base, 0755) < 0 || mkdir(dir, 0755) < 0 || mkdir(src, 0755) < 0)
		bail_out("a scratch directory");
}

/* In a child: become the daemon. */
static _Noreturn void become_daemon(const char *program, int out)
{
	static char serve[] = "--foreground", source[] = "--source";
	char *argv[OPTIONS_MAX + 6] = { strdup(program), serve, source, src }, *word, *rest = NULL;
	const char *options = getenv("PENSTOCK_MOUNT_OPTIONS");
	sigset_t none;
	int n = 4;

	word = options ? strtok_r(strdup(options), " ", &rest) : NULL;
	for (; word && n < OPTIONS_MAX + 4; word = strtok_r(NULL, " ", &rest))
		argv[n++] = word;
	argv[n] = dir;
	(void)dup2(out, STDOUT_FILENO);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	(void)execv(program, argv);
	(void)fprintf(stderr, "%s: %s\n", program, strerror(errno));
	_exit(127);
}

/* Read the daemon's line on its standard output. */
static void wait_line(int from)
{
	char line[2 * PATH_MAX + 20], want[2 * PATH_MAX + 20];
	struct pollfd p = { .fd = from, .events = POLLIN };
	size_t have = 0;
	ssize_t n = 0;

	(void)snprintf(want, sizeof(want), "%s serves %s\n", dir, src);
	while (have < sizeof(line) - 1 && poll(&p, 1, START_MS) == 1 &&
	       (n = read(from, line + have, sizeof(line) - 1 - have)) > 0) {
		have += (size_t)n;
		if (line[have - 1] == '\n')
			break;
	}
	line[have] = '\0';
	if (strcmp(line, want) == 0)
		return;
	/* tests/skips allows this skip on machines where nobody can mount. */
	if (n == 0 && !have) {
		clean();
		skip("a FUSE that can be mounted");
	}
	printf("Bail out! the daemon %s \"%.*s\"\n",
	       n == 0 ? "ended and said" : "does not say that it serves, but",
	       (int)strcspn(line, "\n"), line);
	exit(1);
}

static void start_daemon(void)
{
	const char *program = getenv("PENSTOCK_MOUNT");
	int out[2], fuse;

	if (!program || access(program, X_OK) < 0)
		skip("penstock-mount");
	fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fuse < 0)
		skip("/dev/fuse");
	(void)close(fuse);
	make_folders();
	if (pipe2(out, O_CLOEXEC) < 0)
		bail_out("a pipe");
	(void)fflush(stdout);
	daemon_pid = fork();
	if (daemon_pid == 0)
		become_daemon(program, out[1]);
	(void)close(out[1]);
	wait_line(out[0]);
	/* Keep the pipe open: otherwise a daemon that prints more would be killed by SIGPIPE. */
}

/* -------------------------------------------------------------- the command */

static void command_path(const char *name, char ret[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - 1);

	ret[n > 0 ? n : 0] = '\0';
	if (strchr(name, '/') || n <= 0)
		(void)snprintf(ret, PATH_MAX, "%s", name);
	else
		(void)snprintf(strrchr(ret, '/'), PATH_MAX - (size_t)n, "/%s", name);
}

static void start_command(int argc, char **argv)
{
	char path[PATH_MAX], pid[16], **args = calloc((size_t)argc + 4, sizeof(*args));
	sigset_t none;

	if (!args)
		bail_out("memory");
	command_path(argv[1], path);
	(void)snprintf(pid, sizeof(pid), "%d", daemon_pid);
	memcpy(args, argv + 1, (size_t)(argc - 1) * sizeof(*args));
	args[0] = path;
	args[argc - 1] = dir;
	args[argc] = src;
	args[argc + 1] = pid;
	command_pid = fork();
	if (command_pid == 0) {
		(void)sigemptyset(&none);
		(void)sigprocmask(SIG_SETMASK, &none, NULL);
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)execv(path, args);
		(void)fprintf(stderr, "%s: %s\n", path, strerror(errno));
		_exit(127);
	}
	free(args);
}

/* Return the command's status, or 128 plus the number of a signal that we received. */
static int wait_command(const sigset_t *signals)
{
	int sig, status;
	pid_t pid;

	for (;;) {
		sig = sigwaitinfo(signals, NULL);
		if (sig > 0 && sig != SIGCHLD)
			return 128 + sig;
		while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
			if (pid == command_pid) {
				command_pid = 0;
				if (WIFSIGNALED(status))
					printf("# the command ended by signal %d\n",
					       WTERMSIG(status));
				return WIFEXITED(status) ? WEXITSTATUS(status)
							 : 128 + WTERMSIG(status);
			}
			if (pid != daemon_pid)
				continue;
			daemon_pid = 0;
			printf("Bail out! the daemon ended with status %#x\n", (unsigned)status);
			return 1;
		}
	}
}

int main(int argc, char **argv)
{
	static const int ends[] = { SIGCHLD, SIGHUP, SIGINT, SIGTERM };
	sigset_t signals;
	int status;

	if (argc < 2) {
		(void)fprintf(stderr, "usage: mount-with-daemon COMMAND [ARGUMENT...]\n");
		return 2;
	}
	(void)sigemptyset(&signals);
	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
		(void)sigaddset(&signals, ends[i]);
	(void)sigprocmask(SIG_BLOCK, &signals, NULL);
	(void)atexit(clean);
	start_daemon();
	start_command(argc, argv);
	status = wait_command(&signals);
	if (end_daemon() < 0 && !status)
		status = 1;
	return status;
}
