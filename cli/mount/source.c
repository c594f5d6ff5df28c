/* SPDX-License-Identifier: MIT */
/*
 * Check a directory in a child process: a call on a hanging file system never returns, and only
 * SIGKILL ends it.  So the command can report a hang and exit.
 */
#include "cli/mount/source.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "tools/common/util.h"

#define ANSWER_MS 10000 /* milliseconds; enough for a disk that has to spin up */
#define END_TRIES 100   /* polls for the end of the child */
#define END_TRY_US 10000

struct answer {
	int err; /* positive errno, or 0 */
	bool is_dir;
	char path[PATH_MAX];
};

/* Make the calls that the server will make first. */
static int source_look(const char *given, struct answer *a)
{
	_cleanup_(closep) int fd = -1;
	struct statfs fs;
	struct stat st;

	if (!realpath(given, a->path))
		return errno;
	fd = open(a->path, O_PATH | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return errno;
	a->is_dir = S_ISDIR(st.st_mode);
	return 0;
}

static void look_in_child(const char *given, int to)
{
	struct answer a = { 0 };

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	a.err = source_look(given, &a);
	_exit(write(to, &a, sizeof(a)) != sizeof(a));
}

/* Read the whole answer.  Return 0 or a positive errno, ETIMEDOUT if none comes in time. */
static int take_answer(int from, struct answer *ret)
{
	struct pollfd p = { from, POLLIN, 0 };
	size_t have = 0;
	ssize_t n = 1;
	int r;

	do
		r = poll(&p, 1, ANSWER_MS);
	while (r < 0 && errno == EINTR);
	if (r <= 0)
		return r < 0 ? errno : ETIMEDOUT;
	while (have < sizeof(*ret) && n > 0) {
		n = read(from, (char *)ret + have, sizeof(*ret) - have);
		have += n > 0 ? (size_t)n : 0;
	}
	return have < sizeof(*ret) ? EIO : 0;
}

/* Kill the child.  The kernel may keep it for as long as the file system hangs. */
static void end_child(pid_t pid)
{
	(void)kill(pid, SIGKILL);
	for (int i = 0; i < END_TRIES && waitpid(pid, NULL, WNOHANG) == 0; i++)
		(void)usleep(END_TRY_US);
}

static int ask_child(const char *given, struct answer *ret)
{
	int fds[2], err;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return errno;
	pid = fork();
	if (pid == 0)
		look_in_child(given, fds[1]);
	err = pid < 0 ? errno : 0;
	(void)close(fds[1]);
	if (!err) {
		err = take_answer(fds[0], ret);
		end_child(pid);
	}
	(void)close(fds[0]);
	return err;
}

int source_check(const char *given, char ret[PATH_MAX])
{
	struct answer a = { 0 };
	int err = ask_child(given, &a);

	if (err == ETIMEDOUT)
		return fail(err,
			    "%s does not answer for %d s: its file system hangs; see to its server "
			    "or disk, or unmount it, and try again",
			    given, ANSWER_MS / 1000);
	if (!err)
		err = a.err;
	if (err)
		return fail(err, "%s: %s", given, strerror(err));
	if (!a.is_dir)
		return fail(ENOTDIR, "%s is not a directory", given);
	(void)strcpy(ret, a.path);
	return 0;
}
