/* SPDX-License-Identifier: MIT */
/*
 * Scratch directories, child processes that live until the test ends them, and names of
 * published memory.
 */
#ifndef USRBIO_RIG_H
#define USRBIO_RIG_H

#include "scratch.h"
#include "t.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "usrbio/proto/plain.h"

#define NOBODY 65534

/* Make a directory that everybody may enter. */
static inline void rig_dir(char ret[PATH_MAX])
{
	T_EQ(scratch_new(NULL, ret, PATH_MAX), 0);
	T_EQ(chmod(ret, 0755), 0);
}

static inline void rig_remove(const char *dir)
{
	T_EQ(scratch_remove(dir), 0);
}

/* Return the number of entries of a directory. */
static inline unsigned rig_count(const char *dir)
{
	DIR *d = opendir(dir);
	unsigned n = 0;

	if (!d)
		T_FAIL("cannot open %s", dir);
	while (readdir(d))
		n++;
	(void)closedir(d);
	return n - 2;
}

static inline void rig_path(char ret[PATH_MAX], const char *dir, const char *name)
{
	T_CHECK(snprintf(ret, PATH_MAX, "%s/%s", dir, name) < PATH_MAX);
}

/* --------------------------------------------------------------- processes */

/* What a child runs; returns its exit status. */
typedef int (*rig_fn)(void *arg);

/* Check in a child, which cannot jump: print the failure and exit. */
#define RIG_MUST(cond)                                                                             \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			(void)fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #cond, \
				      errno);                                                      \
			_exit(99);                                                                 \
		}                                                                                  \
	} while (0)

static inline pid_t rig_fork(rig_fn fn, void *arg)
{
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	T_CHECK(pid >= 0);
	if (pid == 0)
		_exit(fn(arg));
	return pid;
}

static inline int rig_wait(pid_t pid)
{
	int status;

	T_EQ(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline void rig_kill(pid_t pid)
{
	T_EQ(kill(pid, SIGKILL), 0);
	T_EQ(rig_wait(pid), 128 + SIGKILL);
}

/* A child that runs fn, writes one byte to the pipe, and then sleeps. */
struct rig_child {
	rig_fn fn;
	void *arg;
	int pipe[2];
};

static inline int rig_child_main(void *arg)
{
	struct rig_child *c = arg;

	if (c->fn)
		RIG_MUST(c->fn(c->arg) == 0);
	RIG_MUST(write(c->pipe[1], "", 1) == 1);
	for (;;)
		(void)pause();
}

static inline pid_t rig_child(rig_fn fn, void *arg)
{
	struct rig_child c = { .fn = fn, .arg = arg };
	pid_t pid;
	ssize_t n;
	char byte;

	T_EQ(pipe2(c.pipe, O_CLOEXEC), 0);
	pid = rig_fork(rig_child_main, &c);
	(void)close(c.pipe[1]);
	n = read(c.pipe[0], &byte, 1);
	(void)close(c.pipe[0]);
	T_EQ(n, 1);
	return pid;
}

static inline char rig_state(pid_t pid)
{
	char path[64], buf[512], *p = NULL, state = '?';
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return '?';
	if (fgets(buf, sizeof(buf), f))
		p = strrchr(buf, ')');
	(void)fclose(f);
	if (p)
		(void)sscanf(p + 1, " %c", &state);
	return state;
}

/* Change from root to another user for good, and leave all groups. */
static inline int rig_become_nobody(void)
{
	return setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) ||
	       setresuid(NOBODY, NOBODY, NOBODY);
}

/* Wait until the process is in a state, such as 'Z'. */
static inline void rig_until(pid_t pid, char state)
{
	while (rig_state(pid) != state)
		(void)usleep(500);
}

/* ------------------------------------------------------------ publications */

struct rig_pub {
	char name[USRBIO_ID_TEXT];
	char shm[USRBIO_SHM_NAME_MAX];
	char path[USRBIO_SHM_NAME_MAX + 16]; /* path of the memory's file */
};

/* Choose the names of a publication, without making it. */
static inline void rig_pub_init(struct rig_pub *p, const struct usrbio_owner *owner)
{
	uint8_t id[USRBIO_ID_LEN];

	RIG_MUST(usrbio_id_new(id) == 0);
	usrbio_id_format(id, p->name);
	RIG_MUST(usrbio_id_new(id) == 0);
	usrbio_owner_shm(owner, id, p->shm);
	(void)snprintf(p->path, sizeof(p->path), USRBIO_SHM_DIR "%s", p->shm);
}

static inline void rig_pub_make(struct rig_pub *p, int iovs, const struct usrbio_owner *owner)
{
	int fd;

	rig_pub_init(p, owner);
	fd = open(p->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	RIG_MUST(fd >= 0);
	RIG_MUST(ftruncate(fd, 4096) == 0);
	(void)close(fd);
	RIG_MUST(symlinkat(p->path, iovs, p->name) == 0);
}

static inline bool rig_has(int iovs, const char *name)
{
	struct stat st;

	return fstatat(iovs, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Return the number of files in /dev/shm whose names have this process id.  Remove them if
 * remove_it. */
static inline unsigned rig_shm_of(pid_t pid, bool remove_it)
{
	DIR *d = opendir("/dev/shm");
	struct usrbio_owner o;
	struct dirent *e;
	unsigned n = 0;

	T_CHECK(d);
	while ((e = readdir(d))) {
		if (usrbio_owner_parse(e->d_name, &o) < 0 || o.pid != pid)
			continue;
		n++;
		if (remove_it)
			(void)unlinkat(dirfd(d), e->d_name, 0);
	}
	(void)closedir(d);
	return n;
}

#endif
