/* SPDX-License-Identifier: MIT */
/*
 * Shared by the cases of a mount.  A program of cases is run as
 *
 * test-NAME DIR [SRC [PID]]
 *
 * DIR is the mount, SRC the directory that it shows, and PID its daemon.  Without SRC, or with one
 * directory as both, the cases test the file system itself, and must pass there too.
 *
 * 	static void unlinked(void)
 * 	{
 * 		int fd = case_file("name", 0644, "text");
 * 		...
 * 		case_close(fd);
 * 	}
 * 	int main(int argc, char **argv)
 * 	{
 * 		case_init(argc, argv);
 * 		CASE(unlinked);
 * 		return case_done();
 * 	}
 *
 * Each case has a new directory, empty and open to every user.
 */
#ifndef PST_TESTS_MOUNT_CASE_H
#define PST_TESTS_MOUNT_CASE_H

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "child.h"
#include "scratch.h"
#include "t.h"

#define CASE_NOBODY 65534
#define CASE_GROUP 12345

/* Descriptors that a daemon may open itself during the cases. */
#define CASE_FDS_MORE 40u /* pipes of its threads, among others */

static const char *case_dir, *case_src;
static pid_t case_pid;
static unsigned case_fds; /* descriptors of the daemon before the cases */

/* Directory of the current case, through mount and source. */
static char case_here[PATH_MAX], case_there[PATH_MAX];

#define CASE(fn) case_run(#fn, fn)

/* Make a call that must succeed; the value is its result. */
#define CASE_OK(call)                                                        \
	({                                                                   \
		__auto_type _r = (call);                                     \
		if (_r < 0)                                                  \
			T_FAIL("%s gave %s", #call, strerrorname_np(errno)); \
		_r;                                                          \
	})
/* Make a call that must fail with this errno, or succeed if that is 0. */
#define CASE_GIVES(call, error)                                                      \
	do {                                                                         \
		long _is = (long)(call) < 0 ? errno : 0;                             \
		if (_is != (error))                                                  \
			T_FAIL("%s gave %s, not %s", #call,                          \
			       _is ? strerrorname_np((int)_is) : "success", #error); \
	} while (0)

/* ------------------------------------------------------------------ paths */

/* Return the path through mount or source; valid until four more calls. */
static inline const char *case_path(const char *dir, const char *name)
{
	static char path[4][PATH_MAX];
	static unsigned turn;
	char *p = path[turn++ % 4];

	(void)snprintf(p, sizeof(path[0]), "%s/%s", dir, name);
	return p;
}

static inline const char *at(const char *name)
{
	return case_path(case_here, name);
}

static inline const char *at_source(const char *name)
{
	return case_path(case_there, name);
}

/* ------------------------------------------------------------------ files */

static inline void case_close(int fd)
{
	CASE_OK(close(fd));
}

/* Make a new file with that mode and text, open for reading and writing. */
static inline int case_file(const char *name, mode_t mode, const char *text)
{
	int fd = CASE_OK(open(at(name), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode));

	T_EQ(write(fd, text, strlen(text)), strlen(text));
	T_EQ(fchmod(fd, mode), 0);
	return fd;
}

static inline void case_make(const char *name, mode_t mode, const char *text)
{
	case_close(case_file(name, mode, text));
}

/* Check that a file holds the text. */
static inline void case_holds(const char *path, const char *text)
{
	char is[4096];
	int fd = CASE_OK(open(path, O_RDONLY | O_CLOEXEC));
	ssize_t n = CASE_OK(read(fd, is, sizeof(is) - 1));

	case_close(fd);
	is[n] = '\0';
	if (strcmp(is, text) != 0)
		T_FAIL("it holds \"%.60s\" and not \"%.60s\"", is, text);
}

static inline struct stat case_stat(const char *path)
{
	struct stat st;

	CASE_OK(lstat(path, &st));
	return st;
}

static inline struct stat case_fstat(int fd)
{
	struct stat st;

	CASE_OK(fstat(fd, &st));
	return st;
}

static inline mode_t case_mode(const char *path)
{
	return case_stat(path).st_mode & 07777;
}

/* ------------------------------------------------------------------ users */

static inline void need_root(void)
{
	if (geteuid() != 0)
		T_SKIP("root, to become another user");
}

/* In a child: become another user with one supplementary group. */
static inline void become(uid_t uid, gid_t gid, gid_t more)
{
	gid_t groups[1] = { more };

	T_EQ(setgroups(more ? 1 : 0, groups), 0);
	T_EQ(setresgid(gid, gid, gid), 0);
	T_EQ(setresuid(uid, uid, uid), 0);
	/* Set it again: the kernel clears it when the user changes. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static inline void become_nobody(void)
{
	become(CASE_NOBODY, CASE_NOBODY, 0);
}

/* -------------------------------------------------------------- two at once */

/* A gate between processes: one waits at it until another opens it. */
struct gate {
	int fd[2];
};

static inline struct gate gate_new(void)
{
	struct gate g;

	T_EQ(pipe2(g.fd, O_CLOEXEC), 0);
	return g;
}

static inline void gate_open(struct gate g)
{
	T_EQ(write(g.fd[1], "", 1), 1);
}

static inline void gate_pass(struct gate g)
{
	struct pollfd p = { .fd = g.fd[0], .events = POLLIN };
	char c;

	if (poll(&p, 1, 30000) != 1)
		T_FAIL("the other process does not come to its gate");
	T_EQ(read(g.fd[0], &c, 1), 1);
}

static inline void gate_done(struct gate g)
{
	case_close(g.fd[0]);
	case_close(g.fd[1]);
}

static inline void case_wait(struct child *c)
{
	int status = -1;

	T_EQ(waitpid(c->pid, &status, 0), c->pid);
	child_ended(c, status);
}

/* ------------------------------------------------------------- the daemon */

static inline unsigned case_daemon_fds(void)
{
	char path[64];
	unsigned n = 0;
	DIR *d;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", case_pid);
	d = opendir(path);
	while (d && readdir(d))
		n++;
	if (d)
		(void)closedir(d);
	return n;
}

/*
 * Check that the daemon has closed its descriptors.  The kernel forgets removed files and unused
 * names after some time, but keeps files with cached bytes.
 */
static void daemon_keeps_no_descriptors(void)
{
	char cmd[400];
	unsigned now = 0;

	if (!case_pid)
		T_SKIP("a daemon");
	(void)snprintf(cmd, sizeof(cmd), "find '%s' -mindepth 1 -delete", case_here);
	T_EQ(system(cmd), 0);
	for (uint64_t end = t_in_ms(20000); t_now() < end; (void)usleep(100000)) {
		int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
		bool dropped = fd >= 0 && write(fd, "2", 1) == 1;

		if (fd >= 0)
			(void)close(fd);
		if (!dropped)
			T_SKIP("the right to drop caches");
		now = case_daemon_fds();
		if (now && now <= case_fds + CASE_FDS_MORE)
			return;
	}
	T_FAIL("the daemon has %u descriptors, and had %u", now, case_fds);
}

/* -------------------------------------------------------------------- runs */

static inline void case_init(int argc, char **argv)
{
	if (argc < 2) {
		(void)fprintf(stderr, "usage: %s DIR [SRC [PID]]\n", argv[0]);
		exit(2);
	}
	case_dir = argv[1];
	case_src = argc > 2 ? argv[2] : case_dir;
	case_pid = argc > 3 ? (pid_t)atoi(argv[3]) : 0;
	case_fds = case_pid ? case_daemon_fds() : 0;
	(void)umask(022);
	/* A write to a closed pipe must fail, not kill. */
	(void)signal(SIGPIPE, SIG_IGN);
}

/* Run a case in a new directory with mode 0777. */
static inline void case_run(const char *name, void (*fn)(void))
{
	(void)snprintf(case_here, sizeof(case_here), "%s/%s", case_dir, name);
	(void)snprintf(case_there, sizeof(case_there), "%s/%s", case_src, name);
	if (!t_wanted(name))
		return;
	if (mkdir(case_here, 0777) < 0 || chmod(case_here, 0777) < 0) {
		printf("Bail out! %s cannot be made: %s\n", case_here, strerror(errno));
		exit(1);
	}
	t_run(name, fn);
	(void)umask(022);
	if (scratch_remove(case_here) < 0) {
		printf("not ok %d %s\n# %s cannot be removed: %s\n", ++t_cases, name, case_here,
		       strerror(errno));
		t_failed++;
	}
}

static inline int case_done(void)
{
	CASE(daemon_keeps_no_descriptors);
	return t_done();
}

#endif
